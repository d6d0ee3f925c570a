//! Clients that ask for much and read nothing of it, or little at a time.

mod common;

use common::{Running, builtin, patient, settings, start};
use sparing_serve::{Limits, Settings};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// Answers that a client asks for in one go: together far more than the kernel keeps for a connection.
const ANSWERS: usize = 500;

/// A server that takes one connection at a time and waits this long for a client to read.
fn server(stall: Duration) -> Running {
    let limits = Limits { stall, connections: 1, ..patient() };
    start(Settings { limits, ..settings(vec![builtin()]) })
}

/// A client with little room for what it asks for.
fn greedy(server: &Running) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.connect(server.address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request =
        |connection: &str| format!("GET /openapi.json HTTP/1.1\r\nhost: a\r\nconnection: {connection}\r\n\r\n");
    let requests = request("keep-alive").repeat(ANSWERS - 1) + &request("close");
    (&stream).write_all(requests.as_bytes()).unwrap();
    stream
}

#[test]
fn who_takes_nothing_is_dropped_and_others_are_answered() {
    let server = server(Duration::from_millis(500));
    let mut silent = greedy(&server);
    assert_eq!(server.get("/health").status, 200);
    let cut = silent.read_to_end(&mut Vec::new());
    assert!(cut.is_err(), "{cut:?}");
}

#[test]
fn who_takes_a_byte_now_and_then_is_dropped_as_well() {
    let server = server(Duration::from_millis(500));
    let mut sly = greedy(&server);
    std::thread::scope(|scope| {
        let cut = scope.spawn(move || {
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until {
                // What has arrived can be read even then.
                if sly.write(b"\r\n").is_err() {
                    return true;
                }
                let _ = sly.read(&mut [0]);
                std::thread::sleep(Duration::from_millis(50));
            }
            false
        });
        assert_eq!(server.get("/health").status, 200);
        assert!(cut.join().unwrap());
    });
}

/// Slower than a third of the megabytes that the kernel would keep by itself allows, and then as fast as it can.
#[test]
fn who_reads_slowly_gets_everything() {
    let stall = Duration::from_secs(3);
    let server = server(stall);
    let one = server.get("/openapi.json").body.len();
    let (mut slow, began) = (greedy(&server), Instant::now());
    let mut all = Vec::new();
    while began.elapsed() < 3 * stall {
        (&mut slow).take(30_000).read_to_end(&mut all).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(all.len() < ANSWERS * one / 2, "{} of {}: nobody had to wait", all.len(), ANSWERS * one);
    slow.read_to_end(&mut all).unwrap();
    assert!(all.len() > ANSWERS * one, "{} of {}", all.len(), ANSWERS * one);
}
