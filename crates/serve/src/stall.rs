//! An end for connections whose client takes nothing: what it was sent would wait in memory for ever.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A connection on which writing fails once nothing could be written for a while.
///
/// Linux tells of room only when a third of a full buffer is free (the listener bounds it), so whoever takes a byte now
/// and then, only to stay, counts as one who takes nothing.
pub(crate) struct Impatient {
    stream: TcpStream,
    /// How long it waits for the client.
    stall: Duration,
    /// The end of the wait, while there is no room to write.
    end: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    pub(crate) fn new(stream: TcpStream, stall: Duration) -> Impatient {
        Impatient { stream, stall, end: None }
    }

    /// What came of an attempt to write, unless the client has taken nothing for too long.
    fn unless_stalled(&mut self, context: &mut Context, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.end = None;
            return written;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.stall)));
        ready!(end.as_mut().poll(context));
        // Else the kernel keeps what it was given, and offers it to the client for minutes more.
        let _ = self.stream.set_zero_linger();
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stalled(context, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context, all: &[IoSlice]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, all);
        self.unless_stalled(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Neither waits for the client: the kernel has what was written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context, buffer: &mut ReadBuf) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
