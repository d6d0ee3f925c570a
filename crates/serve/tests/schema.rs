//! schemathesis over `/openapi.json`, where Python has it: what the description promises is what the server does, and nothing
//! that it generates makes the server fail. `SPARING_SCHEMA_EXAMPLES` raises how much is generated per route.

mod common;

use common::{Running, builtin, fixture, python, settings, start, with_vocabulary};
use std::process::Command;

/// Fails with what schemathesis found.
fn check(python: &str, server: &Running, examples: &str) {
    let (url, config) = (
        format!("http://{}/openapi.json", server.address),
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis.toml"),
    );
    // It leaves a folder where it runs.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.current_dir(folder.path()).args(["-m", "schemathesis.cli", "--config-file", config, "run", &url]);
    command.args(["--max-examples", examples, "--seed", "1", "--no-color", "--warnings", "off"]);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    eprintln!("{}", out.lines().rev().take(12).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_description_is_what_the_server_does() {
    let Some(python) = python("schemathesis") else { return };
    let examples = std::env::var("SPARING_SCHEMA_EXAMPLES").unwrap_or("5".to_string());
    let (_folder, reranker) = with_vocabulary("bert-regress");
    // One of every role: an answer has a schema only where there is one.
    for source in [builtin(), fixture("bert-embed-mean"), reranker, fixture("gpt2-causal-text")] {
        check(&python, &start(settings(vec![source])), &examples);
    }
}
