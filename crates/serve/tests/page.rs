//! The page in headless Chromium, where node, puppeteer-core and a Chromium are there; `tests/page.mjs` says how they are
//! found and what it does.

mod common;

use common::{builtin, settings, start};
use std::process::Command;

#[test]
fn the_page_works_in_a_browser() {
    if Command::new("node").arg("--version").output().is_err() {
        eprintln!("skipped: node is not there");
        return;
    }
    let server = start(settings(vec![builtin()]));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page.mjs");
    let output = Command::new("node").args([script, &format!("http://{}", server.address)]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    eprintln!("{out}");
}
