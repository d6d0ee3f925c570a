//! The most memory that was in use.

use sparing_train::device_memory;

/// Says how much memory was in use at most since it was made.
pub struct Meter {
    device: String,
    before: u64,
}

impl Meter {
    /// Begins anew. On the CPU, what the process has in use already is left out.
    pub fn new(device: &str) -> Meter {
        // Linux forgets the peak when told so; elsewhere nothing is known.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Meter { device: device.to_string(), before: status("VmRSS:") }
    }

    /// Bytes; 0 if nothing is known. A GPU's are what the program has reserved, which only grows.
    pub fn peak(&self) -> u64 {
        match self.device.as_str() {
            "cpu" => status("VmHWM:").saturating_sub(self.before),
            name => device_memory(name).unwrap_or(0),
        }
    }
}

/// A line of Linux's account of this process, in bytes.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
