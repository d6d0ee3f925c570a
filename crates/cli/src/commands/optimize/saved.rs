//! The saved directory, measured by a process that knows nothing else.

use super::OptimizeArgs;
use super::data::Data;
use crate::failure::Failure;
use crate::interrupt;
use serde::{Deserialize, Serialize};
use sparing_engine::Engine;
use sparing_model::Model;
use sparing_optimize::{Stopwatch, Timed, answers};
use sparing_report::{Interval, Verification};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Rounds of the race.
const ROUNDS: usize = 9;
/// Ends of an interval that are further apart than this say that something else was running.
const BUSY: f64 = 1.2;
/// So do requests that take so many times as long as each did at its quickest.
const SLOWED: f64 = 1.4;

/// How a note begins that says so.
pub const DOUBTFUL: &str = "the machine was busy";

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The headline metric on unseen rows.
    pub score: f64,
    /// The baseline's time over the saved model's.
    pub time_ratio: f64,
    /// Where that lies, as far as the rounds tell.
    pub time_interval: [f64; 2],
    /// The baseline's milliseconds for a request.
    pub baseline_ms: f64,
    /// How many times as long as at their quickest its requests took.
    pub slowed: f64,
    /// Bytes of the saved weights.
    pub bytes: u64,
    /// Bytes of packed weights and tables in memory.
    pub memory: u64,
}

impl Measured {
    /// Where the speed lies.
    pub fn interval(&self) -> Interval {
        Interval { low: self.time_interval[0], high: self.time_interval[1] }
    }

    /// What a report says of it, beside what the search's own process found.
    pub fn verification(&self, own: &Timed) -> Verification {
        Verification {
            score: self.score,
            time_ratio: self.time_ratio,
            time_interval: Some(self.interval()),
            search_time: Some(Interval { low: own.interval[0], high: own.interval[1] }),
            bytes: self.bytes,
        }
    }

    /// What to say where the rounds differ too much to believe in the speed.
    pub fn doubt(&self) -> Option<String> {
        let [low, high] = self.time_interval;
        let seen = if high > BUSY * low {
            format!("the rounds of the race say {low:.2} to {high:.2} times as fast")
        } else if self.slowed > SLOWED {
            format!("requests took {:.1} times as long as at their quickest", self.slowed)
        } else {
            return None;
        };
        Some(format!(
            "{DOUBTFUL}: {seen}; when nothing else runs, the same command with --again measures once more, and with --overwrite searches \
             once more"
        ))
    }
}

/// Measures what was saved beside the model as it came, and prints it.
pub fn measure(args: &OptimizeArgs, place: &Path, baseline: &Model, data: &Data) -> Result<(), Failure> {
    let saved = Model::load(place)?;
    let first = Engine::compile(baseline, &args.engine())?;
    let second = Engine::compile(&saved, &args.engine())?;
    // A result that is being finished is measured whatever comes; one that is only measured again need not be.
    let left = || args.again && interrupt::asked();
    let answered = answers(&second, &saved, &data.unseen, &args.evaluation(), &mut || left());
    if left() {
        // Whoever waits for this process has heard Ctrl-C too.
        return Err(Failure::Told);
    }
    let report = answered?;
    let timed = race(args, baseline, data, &first, &second)?;
    let measured = Measured {
        score: report.values.first().map_or(f64::NAN, |value| value.value),
        time_ratio: timed.ratio,
        time_interval: timed.interval,
        baseline_ms: timed.first_ms,
        slowed: timed.slowed,
        bytes: saved.weights.size_in_bytes() as u64,
        memory: second.weight_bytes() as u64,
    };
    let mut out = crate::console::Out::new();
    out.json(&measured)?;
    out.flush()
}

/// Times two engines on texts that only the report sees.
pub fn race(
    args: &OptimizeArgs,
    baseline: &Model,
    data: &Data,
    first: &Engine,
    second: &Engine,
) -> Result<Timed, Failure> {
    let watch = Stopwatch::new(super::searching::sequences(baseline, &data.unseen, args)?, args.batch, 64);
    Ok(watch.race(first, second, ROUNDS)?)
}

/// Has a fresh process measure what was saved: this program with the same arguments.
pub fn by_fresh_process(place: &Path) -> Result<Measured, Failure> {
    let failed = |why: String| Failure::new(format!("the saved model could not be measured: {why}"));
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    // In one word, for the name may begin with a dash.
    let mut measure = OsString::from("--measure=");
    measure.push(place);
    // Right behind the command's name: behind `--` it would be an argument.
    let mut given = std::env::args_os().skip(1);
    let output = Command::new(program)
        .args(given.next())
        .arg(measure)
        .args(given)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("it ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told() {
        let measured = |time_interval| Measured {
            score: 0.9,
            time_ratio: 3.0,
            time_interval,
            baseline_ms: 3.0,
            slowed: 1.1,
            bytes: 1,
            memory: 1,
        };
        assert_eq!(measured([2.9, 3.1]).doubt(), None);
        let told = measured([1.32, 3.86]).doubt().unwrap();
        assert!(told.contains("busy") && told.contains("1.32 to 3.86"), "{told}");
        // All rounds alike, and all slow.
        let told = Measured { slowed: 1.7, ..measured([2.9, 3.1]) }.doubt().unwrap();
        assert!(told.contains("busy") && told.contains("1.7 times as long"), "{told}");
    }
}
