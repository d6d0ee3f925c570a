//! The journal beside the result, which a search that was stopped goes on from.

use super::OptimizeArgs;
use super::tutor::TutorArgs;
use crate::failure::Failure;
use crate::{console, machine};
use sparing_model::Model;
use sparing_optimize::{Journal, Settings};
use sparing_tasks::{Dataset, Fingerprint};
use std::fmt::Write;

/// Opens the journal of a search, and begins it anew unless it is to go on.
/// `marks`: of what may change under the same name, see [`marks`].
pub fn journal(args: &OptimizeArgs, settings: &Settings, marks: &str) -> Result<Journal, Failure> {
    let path = args.journal();
    if args.resume && !path.exists() {
        console::note(&format!(
            "--resume: there is no search beside {} to go on with; it begins anew",
            args.out.display()
        ));
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Failure::new(format!("{}: {e}", parent.display())))?;
    }
    let journal = Journal::open(&path, &about(args, settings, marks), !args.resume)?;
    if !journal.is_empty() {
        console::note(&format!("{} candidates were tried before", journal.len()));
    }
    Ok(journal)
}

/// Counts changes of what verdicts mean: those before the last are not compared with new ones.
const VERDICTS: u32 = 2;

/// What the journal is about: what changes the trials' results, or what the clock says.
fn about(args: &OptimizeArgs, settings: &Settings, marks: &str) -> String {
    let settings = serde_json::to_string(settings).unwrap_or_default();
    // More rounds may be asked for, and another device.
    let TutorArgs { recover, analysis, analysis_rows, train, train_rows, average, epochs, .. } = &args.tutor;
    let TutorArgs { update_rows, lr, hard, hidden, bf16, .. } = &args.tutor;
    let first = (recover, analysis, analysis_rows, train, train_rows, average);
    let training = (first, epochs, update_rows, lr, hard, hidden, bf16);
    let threads = if args.threads == 0 { machine::cores() } else { args.threads };
    let clock = (args.batch, threads, sparing_kernels::isa::active());
    let version = env!("CARGO_PKG_VERSION");
    let (model, precision) = (args.model.name(), args.precision);
    format!("{version}.{VERDICTS} {model} {precision:?} {:?} {clock:?} {training:?} {settings} {marks}", args.data)
}

/// Tells a model and rows apart from others that came from the same places.
pub fn marks(model: &Model, rows: &[&Dataset]) -> Result<String, Failure> {
    let mut contents = String::new();
    for example in rows.iter().flat_map(|rows| &rows.examples) {
        // Debug quotes: where a text ends is part of it.
        let _ = write!(contents, "{:?}{:?}{:?}", example.text, example.pair, example.label);
    }
    let plan = serde_json::to_string(&model.plan).unwrap_or_default();
    let Fingerprint { model, configuration, details } = Fingerprint::new(model, plan, contents.as_bytes())?;
    Ok(format!("{model} {configuration} {details}"))
}
