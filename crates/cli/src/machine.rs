//! What the operating system knows about this process, and what the machine can do at best.

use cpu_time::ProcessTime;
use std::time::{Duration, Instant};

/// Wall-clock and CPU time of a stretch of work.
pub struct Stopwatch {
    wall: Instant,
    cpu: Option<ProcessTime>,
}

/// What a [`Stopwatch`] shows.
#[derive(Debug, Clone, Copy)]
pub struct Lap {
    /// Time by the clock on the wall.
    pub wall: Duration,
    /// Time of all threads together; zero where the system does not tell.
    pub cpu: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch { cpu: ProcessTime::try_now().ok(), wall: Instant::now() }
    }

    /// Time since the start.
    pub fn lap(&self) -> Lap {
        let wall = self.wall.elapsed();
        let cpu = self.cpu.and_then(|start| start.try_elapsed().ok()).unwrap_or_default();
        Lap { wall, cpu }
    }
}

/// Memory of this process in KiB: resident now, and at its highest. Zeros where `/proc` does not exist.
pub fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (field(&status, "VmRSS:"), field(&status, "VmHWM:"))
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Cores the process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_fields_are_read() {
        let status = "Name:\tsparing\nVmHWM:\t  123456 kB\nVmRSS:\t    9876 kB\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "VmHWM:"), field(status, "VmSwap:")), (9876, 123456, 0));
    }

    #[test]
    fn a_lap_moves_forward() {
        let watch = Stopwatch::start();
        let busy: u64 = (0..200_000u64).map(std::hint::black_box).sum();
        assert!(busy > 0 && watch.lap().wall > Duration::ZERO);
    }
}
