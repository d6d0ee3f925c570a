//! The program among others: help, completions, pipes that close, Ctrl-C.

mod common;

use common::{command, fixture, sparing};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn without_arguments_a_friendly_hint() {
    let out = sparing(&[]).ok();
    assert!(out.lines().count() < 20 && out.contains("sparing run MODEL"), "{out}");
}

#[test]
fn help_teaches_by_example() {
    assert!(sparing(&["--help"]).ok().contains("Exit codes"));
    assert!(teaches(&[]) > 10);
    assert!(sparing(&["--version"]).ok().starts_with("sparing "));
}

/// Looks at the help of a command and of all that it has below it; how many these are.
fn teaches(path: &[&str]) -> usize {
    let help = sparing(&[path, &["--help"]].concat()).ok();
    let listed = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let below: Vec<&str> = names.filter(|name| !name.is_empty() && *name != "help").collect();
    if let Some(examples) = help.split("\nExample").nth(1) {
        let begins = format!("  sparing {}", path.join(" "));
        assert!(examples.lines().any(|line| line.starts_with(&begins)) && !help.contains("--worker"), "{help}");
        // Examples are laid out by hand; a line that wraps spoils them.
        let begins = ["  sparing ", "  cat ", "  curl ", "  SPARING_"];
        let laid = |line: &str| !line.starts_with("  ") || begins.iter().any(|begin| line.starts_with(begin));
        assert!(examples.lines().all(|line| line.len() <= 100 && laid(line)), "{help}");
    } else {
        // What a build leaves out has nothing to show.
        assert!(!below.is_empty() || help.contains("not in this build"), "{help}");
    }
    below.iter().map(|name| 1 + teaches(&[path, &[*name]].concat())).sum()
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = sparing(&["completions", shell]).ok();
        assert!(script.contains("sparing") && script.contains("inspect"), "{shell}");
    }
}

#[test]
fn no_escape_codes_where_nobody_sees_them() {
    let out = sparing(&["run", &fixture("bert-classify-text"), "a film"]).ok();
    assert!(!out.contains('\x1b'));
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let mut child = command(&["run", &fixture("bert-classify-text"), "--json", "--batch-tokens", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let writer = std::thread::spawn(move || while stdin.write_all(b"a film\n").is_ok() {});
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_after_what_is_done() {
    let mut child = command(&["run", &fixture("bert-classify-text"), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Standard input stays open: the program is waiting for more when Ctrl-C comes.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a film\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("a film"), "{line}");
    let kill = std::process::Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: interrupted\n");
    drop(stdin);
}
