//! A server on loopback and a client that speaks plain HTTP.

#![allow(dead_code)]

use serde_json::Value;
use sparing_model::{LoadOptions, Model};
use sparing_serve::{Limits, LogStyle, Server, Settings, Source};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// A Python that has this module: `SPARING_PYTHON`, else `python3`. `None`, and a word about it, if there is none.
pub fn python(module: &str) -> Option<String> {
    let python = std::env::var("SPARING_PYTHON").unwrap_or("python3".to_string());
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {python} is not there or has no {module}");
    None
}

/// A server that runs until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), sparing_model::Error>>>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// Settings for a test: any port, no log.
pub fn settings(models: Vec<Source>) -> Settings {
    Settings {
        address: ([127, 0, 0, 1], 0).into(),
        models,
        threads: 1,
        limits: patient(),
        auto_truncate: true,
        api_key: None,
        log: LogStyle::Off,
    }
}

/// Limits for tests that ask much at once on a busy machine: nothing is refused because it would have to wait.
pub fn patient() -> Limits {
    Limits { wait: Some(Duration::from_secs(60)), ..Limits::default() }
}

/// The built-in classifier.
pub fn builtin() -> Source {
    source("builtin", None, Arc::new(|| sparing_builtin::model(&LoadOptions::default())))
}

/// A model directory.
pub fn directory(name: &str, path: PathBuf) -> Source {
    let open = {
        let path = path.clone();
        move || Model::load(&path)
    };
    source(name, Some(path), Arc::new(open))
}

/// A tiny model of the engine's tests.
pub fn fixture(name: &str) -> Source {
    directory(name, fixture_path(name))
}

pub fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures").join(name)
}

/// A copy of a tiny model that has no tokenizer, with a small vocabulary.
pub fn with_vocabulary(name: &str) -> (tempfile::TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture_path(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "."];
    std::fs::write(folder.path().join("vocab.txt"), words.join("\n")).unwrap();
    let source = directory(name, folder.path().to_path_buf());
    (folder, source)
}

fn source(name: &str, directory: Option<PathBuf>, open: sparing_serve::Open) -> Source {
    Source {
        name: name.to_string(),
        origin: name.to_string(),
        directory,
        open,
        precision: None,
        attention: None,
        pooling: None,
    }
}

/// Starts a server and waits until it is ready.
pub fn start(settings: Settings) -> Running {
    let running = start_cold(settings);
    for _ in 0..600 {
        if running.get("/health").status == 200 {
            return running;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not become ready");
}

/// Starts a server without waiting for its models.
pub fn start_cold(settings: Settings) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::bind(settings).await?;
            tell.send(server.address()).unwrap();
            server.run(async { drop(stopped.await) }).await
        })
    });
    Running { address: told.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
}

impl Running {
    /// Asks the server to stop, without waiting.
    pub fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the server's end, after asking for it.
    pub fn join(&mut self) -> Result<(), sparing_model::Error> {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits for the server to end by itself.
    pub fn wait(&mut self) -> Result<(), sparing_model::Error> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.raw_post(path, body.to_string().as_bytes())
    }

    pub fn raw_post(&self, path: &str, body: &[u8]) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], body)
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        if !body.is_empty() || method == "POST" {
            request += &format!("content-length: {}\r\n", body.len());
        }
        request += "\r\n";
        self.bytes(&[request.as_bytes(), body].concat())
    }

    /// Sends bytes as they are and reads the answer.
    pub fn bytes(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may have answered and closed before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Reply::parse(&answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Reply {
    fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_string())))
            .collect();
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if chunked { unchunk(body) } else { body.to_string() };
        Reply { status, headers, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The JSON of an answer that must have this status.
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The message of a refusal in text-embeddings-inference's words.
    pub fn refusal(&self, status: u16, kind: &str) -> String {
        let body = self.json(status);
        assert_eq!(body["error_type"], kind, "{body}");
        body["error"].as_str().unwrap().to_string()
    }
}

fn unchunk(mut body: &str) -> String {
    let mut all = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        all += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    all
}
