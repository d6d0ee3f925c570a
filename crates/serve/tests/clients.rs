//! Real Python clients, where Python and they are there: `SPARING_PYTHON`, else `python3`.

mod common;

use common::{builtin, fixture, settings, start};
use std::process::Command;

#[test]
fn python_clients_speak_to_us() {
    let python = std::env::var("SPARING_PYTHON").unwrap_or("python3".to_string());
    if Command::new(&python).arg("--version").output().is_err() {
        eprintln!("skipped: {python} is not there");
        return;
    }
    let (classifier, encoder) = (start(settings(vec![builtin()])), start(settings(vec![fixture("bert-embed-mean")])));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");
    let urls = [&classifier, &encoder].map(|server| format!("http://{}", server.address));
    let output = Command::new(&python).arg(script).args(urls).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    eprintln!("{out}");
}

#[test]
fn requests_that_make_no_sense_do_no_harm() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not there");
        return;
    }
    let server = start(settings(vec![builtin()]));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/serve/malformed.py");
    let url = format!("http://{}", server.address);
    let pid = std::process::id().to_string();
    let output =
        Command::new("python3").args([script, "--url", &url, "--requests", "3000", "--pid", &pid]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}
