//! Real Python clients, where Python and they are there: `SPARING_PYTHON`, else `python3`.

mod common;

use common::{builtin, fixture, patient, python, settings, start};
use sparing_serve::{Limits, Settings};
use std::process::Command;
use std::time::Duration;

/// Runs a script to its end, which must be a good one.
fn script(python: &str, args: &[&str]) {
    let output = Command::new(python).args(args).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    eprintln!("{out}");
}

#[test]
fn python_clients_speak_to_us() {
    let Some(python) = python("json") else { return };
    let (classifier, encoder) = (start(settings(vec![builtin()])), start(settings(vec![fixture("bert-embed-mean")])));
    let [classifier, encoder] = [&classifier, &encoder].map(|server| format!("http://{}", server.address));
    script(&python, &[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py"), &classifier, &encoder]);
}

/// `SPARING_MALFORMED=100000` for a long run.
#[test]
fn requests_that_make_no_sense_do_no_harm() {
    let Some(python) = python("json") else { return };
    let limits = Limits { patience: Duration::from_secs(1), ..patient() };
    let server = start(Settings { limits, ..settings(vec![builtin()]) });
    let (url, pid) = (format!("http://{}", server.address), std::process::id().to_string());
    let requests = std::env::var("SPARING_MALFORMED").unwrap_or("3000".to_string());
    let malformed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/serve/malformed.py");
    script(&python, &[malformed, "--url", &url, "--requests", &requests, "--pid", &pid]);
}
