//! A Hub of one model, `org/tiny`: `api/models/…/revision/…` and `…/resolve/…/…`, with the headers the client needs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The only commit there is.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the server misbehaves with `model.safetensors`.
#[derive(Clone, Copy, PartialEq)]
pub enum Mischief {
    /// Not at all.
    None,
    /// It sends the client elsewhere, as the Hub does for large files.
    Redirect,
    /// The first download breaks off in the middle.
    BreakOnce,
    /// Every download breaks off after less than was asked for.
    AlwaysBreak,
    /// Fewer bytes than promised, with a clean end.
    Short,
}

/// A running server; it ends with the process.
pub struct Hub {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    files: BTreeMap<String, Vec<u8>>,
    mischief: Mischief,
    paths: Vec<String>,
    resumed: bool,
    broke: bool,
}

impl Hub {
    pub fn start(files: BTreeMap<String, Vec<u8>>, mischief: Mischief) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { files, mischief, paths: vec![], resumed: false, broke: false }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    let _ = answer(stream, &shared);
                });
            }
        });
        Hub { port, state }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The paths asked for so far.
    pub fn fetched(&self) -> Vec<String> {
        self.state.lock().unwrap().paths.clone()
    }

    /// Whether a download was taken up in the middle.
    pub fn resumed(&self) -> bool {
        self.state.lock().unwrap().resumed
    }
}

/// One request per connection.
fn answer(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("").to_string();
    let mut range = None;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header == "\r\n" {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("range: bytes=") {
            let (start, end) = value.trim().split_once('-').unwrap();
            range = Some((start.parse::<usize>().unwrap(), end.parse::<usize>().ok()));
        }
    }
    let mut state = state.lock().unwrap();
    state.paths.push(path.clone());
    respond(stream, &mut state, &path, range.unwrap_or((0, None)))
}

fn respond(mut out: TcpStream, state: &mut State, path: &str, range: (usize, Option<usize>)) -> std::io::Result<()> {
    if path.starts_with("/api/models/org/tiny/revision/") {
        let names: Vec<_> = state.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
        let body = serde_json::json!({"siblings": names, "sha": COMMIT}).to_string();
        return write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    }
    let status = |out: &mut TcpStream, line: &str| {
        write!(out, "HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    };
    if path.contains("org/private") {
        return status(&mut out, "401 Unauthorized");
    }
    let resolve = format!("/org/tiny/resolve/{COMMIT}/");
    let stored = path.strip_prefix("/storage/");
    let Some((name, bytes)) = stored.or(path.strip_prefix(&resolve)).and_then(|name| state.files.get_key_value(name))
    else {
        return status(&mut out, "404 Not Found");
    };
    let (name, bytes) = (name.clone(), bytes.clone());
    let mischief = if name == "model.safetensors" { state.mischief } else { Mischief::None };
    let etag = format!("etag-of-{}", name.replace('/', "-"));
    if mischief == Mischief::Redirect && stored.is_none() {
        return write!(
            out,
            "HTTP/1.1 302 Found\r\nLocation: http://{}/storage/{name}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n",
            out.local_addr()?
        );
    }
    let start = range.0.min(bytes.len());
    let end = range.1.map_or(bytes.len(), |end| (end + 1).min(bytes.len()));
    let probe = range.1.is_some();
    state.resumed |= start > 0;
    let part = &bytes[start..end];
    let breaks = match mischief {
        Mischief::BreakOnce => !probe && !std::mem::replace(&mut state.broke, !probe),
        Mischief::AlwaysBreak => !probe,
        _ => false,
    };
    let short = mischief == Mischief::Short && !probe;
    let length = if short { part.len() / 2 } else { part.len() };
    write!(
        out,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {start}-{}/{}\r\nETag: \"{etag}\"\r\n\
         X-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n",
        end.max(1) - 1,
        bytes.len()
    )?;
    out.write_all(&part[..if breaks { length / 2 } else { length }])
}
