//! `sparing serve` as a process: reloads under load, a sudden death in the middle of one, and what the optimiser made.
#![cfg(feature = "serve")]

mod common;

use common::{command, fixture, labelled, sparing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server in a process of its own.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    /// Starts it on any port and waits until it is ready.
    fn start(args: &[&str]) -> Process {
        let common = ["serve", "--port", "0", "--log", "off", "--threads", "1", "--max-wait", "60000"];
        let mut child = command(&[&common, args].concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}")).to_string();
        let process = Process { child, address };
        while process.get("/health").is_none_or(|(status, _)| status != 200) {
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        self.send("GET", path, "")
    }

    fn post(&self, path: &str, body: &Value) -> Option<(u16, String)> {
        self.send("POST", path, &body.to_string())
    }

    /// Status and body; `None` if nobody answers.
    fn send(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer k\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_string()))
    }

    /// The label of a text.
    fn label(&self, more: Value) -> String {
        let mut body = json!({"inputs": "a joy from start to end"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = self.post("/predict", &body).unwrap();
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()[0]["label"].as_str().unwrap().to_string()
    }

    /// The end that cannot be handled: SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every file of a directory with its bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

#[test]
fn reloads_drop_nothing_and_a_sudden_death_in_one_leaves_the_model_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    // Large enough that reading it takes a while.
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../builtin/model");
    for (name, bytes) in files(&model) {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let before = files(folder.path());
    let place = folder.path().to_str().unwrap();
    for milliseconds in [0, 15, 40, 80] {
        let mut server = Process::start(&[place, "--api-key", "k"]);
        let reloaded = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ask = || {
                let mut answers = 0;
                while let Some((status, body)) = server.post("/predict", &json!({"inputs": "a joy from start to end"}))
                {
                    assert_eq!(status, 200, "{body}");
                    answers += 1;
                    if reloaded.load(Ordering::Relaxed) {
                        break;
                    }
                }
                assert!(reloaded.load(Ordering::Relaxed), "a request was dropped after {answers}");
                answers
            };
            let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            for _ in 0..3 {
                let (status, body) = server.post("/admin/reload", &json!({})).unwrap();
                assert_eq!(status, 200, "{body}");
            }
            reloaded.store(true, Ordering::Relaxed);
            assert!(clients.into_iter().all(|client| client.join().unwrap() > 0));
            // One more, which is not lived to see.
            scope.spawn(|| server.post("/admin/reload", &json!({})));
            std::thread::sleep(Duration::from_millis(milliseconds));
            let pid = server.child.id().to_string();
            assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        });
        server.kill();
        assert!(files(folder.path()) == before, "a file of the model has changed");
    }
    assert_eq!(Process::start(&[place]).label(json!({})), "positive");
}

#[test]
fn what_the_optimiser_made_is_served_with_its_report_and_its_frontier() {
    let model = fixture("bert-classify-text");
    let (_table, data) = labelled(&model, 120);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fast");
    let place = out.to_str().unwrap();
    let args = ["optimize", &model, "--data", &data, "--out", place, "--max-loss", "20%", "--economies", "precision"];
    sparing(&args).ok();
    let mut server = Process::start(&[place]);
    let info: Value = serde_json::from_str(&server.get("/info").unwrap().1).unwrap();
    assert_eq!(info["served_model_name"], "fast");
    assert_eq!(info["sparing"]["report"], true);
    let (status, report) = server.get("/report").unwrap();
    assert!(status == 200 && report == std::fs::read_to_string(out.join("report.html")).unwrap(), "{status}");
    let alone = sparing(&["run", place, "a joy from start to end", "--json"]).json();
    assert_eq!(server.label(json!({})), alone["label"].as_str().unwrap());
    // Time for the most faithful plan of the frontier, and for none.
    assert_eq!(server.label(json!({"deadline_ms": 60_000})), alone["label"].as_str().unwrap());
    server.label(json!({"deadline_ms": 0}));
    server.kill();
}
