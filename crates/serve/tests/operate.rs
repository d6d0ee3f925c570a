//! Running a server: keys, limits, reloads, the end.

mod common;

use common::{builtin, directory, fixture_path, patient, settings, start, start_cold};
use serde_json::json;
use sparing_serve::{Limits, Settings};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn without_the_key_there_is_no_answer() {
    let server = start(Settings { api_key: Some("secret".to_string()), ..settings(vec![builtin()]) });
    let body = json!({"inputs": "wonderful"}).to_string();
    let send = |headers: &[(&str, &str)], path: &str| {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        server.send("POST", path, &headers, body.as_bytes())
    };
    send(&[], "/predict").refusal(401, "Unauthorized");
    send(&[("authorization", "Bearer wrong")], "/predict").refusal(401, "Unauthorized");
    send(&[("authorization", "secret")], "/predict").refusal(401, "Unauthorized");
    send(&[("authorization", "Bearer secret")], "/predict").json(200);
    send(&[], "/admin/reload").refusal(401, "Unauthorized");
    // Health and figures are for whoever looks after the server.
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/metrics").status, 200);
}

#[test]
fn reloading_needs_a_key_to_be_set() {
    let server = start(settings(vec![builtin()]));
    server.post("/admin/reload", &json!({})).refusal(403, "Unauthorized");
}

#[test]
fn a_model_that_is_not_ready_says_so() {
    let slow = Arc::new(AtomicBool::new(true));
    let mut source = builtin();
    let (open, waiting) = (source.open.clone(), slow.clone());
    source.open = Arc::new(move || {
        while waiting.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        open()
    });
    let server = start_cold(settings(vec![source]));
    server.get("/health").refusal(503, "Unhealthy");
    let reply = server.post("/predict", &json!({"inputs": "a"}));
    reply.refusal(503, "Unhealthy");
    assert_eq!(reply.header("retry-after"), Some("1"));
    slow.store(false, Ordering::Relaxed);
    while server.get("/health").status != 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.post("/predict", &json!({"inputs": "a"})).json(200);
}

#[test]
fn a_model_that_does_not_load_ends_the_server_with_its_reason() {
    let mut server = start_cold(settings(vec![directory("none", "/no/such/model".into())]));
    assert!(server.wait().unwrap_err().to_string().contains("/no/such/model"));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let twice = settings(vec![builtin(), builtin()]);
    assert!(twice.check().unwrap_err().to_string().contains("two models have this name"));
    let limits = Limits { concurrent: 4, ..patient() };
    let few = Settings { limits, ..settings(vec![builtin()]) };
    assert!(few.check().unwrap_err().to_string().contains("--max-concurrent-requests 4"));
    let key = Settings { api_key: Some("a b".to_string()), ..settings(vec![builtin()]) };
    assert!(key.check().is_err());
}

#[test]
fn what_is_too_much_is_refused_at_once() {
    let limits = Limits { concurrent: 8, client_batch: 8, ..patient() };
    let server = start(Settings { limits, ..settings(vec![builtin()]) });
    // Texts that differ, or they would be computed once.
    let long = |i: usize| vec![format!("{i} {}", "a film of many words ".repeat(100))];
    let full = json!({"inputs": (0..8).map(long).collect::<Vec<_>>()});
    let refused = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let reply = server.post("/predict", &full);
                    if reply.status != 200 {
                        refused.lock().unwrap().push(reply);
                    }
                }
            });
        }
    });
    let refused = refused.into_inner().unwrap();
    assert!((1..12).contains(&refused.len()), "{}", refused.len());
    for reply in refused {
        assert_eq!(reply.refusal(429, "Overloaded"), "Model is overloaded");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    server.post("/predict", &json!({"inputs": "a"})).json(200);
}

#[test]
fn what_would_have_to_wait_is_refused_and_the_rest_is_answered() {
    let server = start(Settings { limits: Limits::default(), ..settings(vec![builtin()]) });
    let text = |i: usize| json!({"inputs": format!("{i} {}", "a film of many words ".repeat(40))});
    // Speeds are learnt from what was computed.
    (0..3).for_each(|i| drop(server.post("/predict", &text(i)).json(200)));
    let statuses = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (server, statuses) = (&server, &statuses);
            scope.spawn(move || {
                for i in 0..10 {
                    let reply = server.post("/predict", &text(100 * client + i));
                    statuses.lock().unwrap().push(reply.status);
                }
            });
        }
    });
    let statuses = statuses.into_inner().unwrap();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert!(count(200) > 0 && count(429) > 0 && count(200) + count(429) == 120, "{statuses:?}");
    server.post("/predict", &text(5000)).json(200);
}

#[test]
fn slow_clients_are_not_waited_for() {
    let limits = Limits { patience: Duration::from_millis(200), idle: Duration::from_millis(200), ..patient() };
    let server = start(Settings { limits, ..settings(vec![builtin()]) });
    let head =
        "POST /predict HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"inp";
    server.bytes(head.as_bytes()).refusal(408, "Timeout");
    // Headers that never end: the connection is closed.
    assert!([0, 408].contains(&server.bytes(b"POST /predict HTTP/1.1\r\nhost: a\r\nx: ").status));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn requests_that_take_too_long_are_given_up() {
    let limits = Limits { timeout: Duration::from_millis(1), ..patient() };
    let server = start(Settings { limits, ..settings(vec![builtin()]) });
    let long = "a film of many words ".repeat(100);
    server.post("/predict", &json!({"inputs": vec![vec![long]; 8]})).refusal(504, "Timeout");
}

#[test]
fn a_reload_drops_no_request_and_a_failed_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("model");
    let copy = |from: &str| {
        std::fs::create_dir_all(&place).unwrap();
        for entry in std::fs::read_dir(fixture_path(from)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let new = place.join("new");
                std::fs::copy(entry.path(), &new).unwrap();
                std::fs::rename(&new, place.join(entry.file_name())).unwrap();
            }
        }
    };
    copy("bert-classify-text");
    let server =
        start(Settings { api_key: Some("k".to_string()), ..settings(vec![directory("model", place.clone())]) });
    let key = [("authorization", "Bearer k"), ("content-type", "application/json")];
    let ask = || server.send("POST", "/predict", &key, br#"{"inputs": "the cat"}"#);
    let before = ask().json(200);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(ask().json(200), before);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        for _ in 0..5 {
            let reply = server.send("POST", "/admin/reload", &key, b"{}").json(200);
            assert_eq!(reply, json!({"reloaded": ["model"]}));
        }
        std::fs::write(place.join("config.json"), "{").unwrap();
        let message = server.send("POST", "/admin/reload", &key, b"{}").refusal(424, "Backend");
        assert!(message.contains("stays"), "{message}");
        done.store(true, Ordering::Relaxed);
        assert!(clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>() > 0);
    });
    assert_eq!(ask().json(200), before);
}

#[test]
fn the_server_finishes_what_it_took() {
    let mut server = start(settings(vec![builtin()]));
    let body = json!({"inputs": vec![vec!["a film of many words ".repeat(100)]; 16]}).to_string();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /predict HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length";
    stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    // Taken: its tokens wait or run.
    while !server.get("/metrics").body.contains("te_batch_next_size_count 1") {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.ask_to_stop();
    let mut answer = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(server.join().is_ok());
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
}
