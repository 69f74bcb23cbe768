//! Messages between rmcp and the client: one thread reads standard input, one writes standard output.
//!
//! Every line gets an answer that the client can match, or none if it is not a request. Nothing that is read ends the server.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quell::binary::{Polled, poll_until};
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A longer line is not read. The largest answer and the largest request of a tool are far smaller.
const LONGEST_LINE: usize = 16 << 20;

/// How many messages may wait to be handled. More of them wait in the pipe.
const QUEUED: usize = 256;

/// A line to write, and the sender that reports it as written; errors found while reading have none.
type Written = (Vec<u8>, Option<oneshot::Sender<io::Result<()>>>);

/// The transport over standard input and output.
pub struct Wire {
    input: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    output: blocking::Sender<Written>,
    open: OpenRequests,
}

/// What is still to be answered, and to be written.
#[derive(Clone, Default)]
pub struct OpenRequests(Arc<Pending>);

#[derive(Default)]
struct Pending {
    /// The ids of requests that have no answer yet. A second request with such an id would get the answer of the first one.
    ids: Mutex<HashSet<String>>,
    /// The ids of requests that were cancelled. Their calls may still end, and a new request would get the answer of the old one.
    cancelled: Mutex<HashSet<String>>,
    /// How many lines wait to be written.
    unwritten: AtomicUsize,
}

impl OpenRequests {
    fn change<T>(&self, change: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        change(&mut self.0.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many requests have no answer yet, and how many lines are not written.
    pub fn left(&self) -> (usize, usize) {
        (self.change(|open| open.len()), self.0.unwritten.load(Ordering::SeqCst))
    }

    fn queue(&self, output: &blocking::Sender<Written>, written: Written) -> io::Result<()> {
        self.0.unwritten.fetch_add(1, Ordering::SeqCst);
        output.send(written).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn close(&self, id: &RequestId) {
        if let Ok(id) = serde_json::to_string(id) {
            self.change(|open| open.remove(&id));
        }
    }

    /// The same for a request that gets no answer any more.
    fn cancel(&self, id: &RequestId) {
        if let Ok(id) = serde_json::to_string(id)
            && self.change(|open| open.remove(&id))
        {
            self.cancelled().insert(id);
        }
    }

    fn was_cancelled(&self, id: &RequestId) -> bool {
        serde_json::to_string(id).is_ok_and(|id| self.cancelled().contains(&id))
    }

    fn cancelled(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    /// Starts both threads. `eof` is cancelled when no more can come: the input has ended, or the output is closed.
    pub fn begin(eof: &CancellationToken, open: OpenRequests) -> io::Result<Self> {
        // Without the buffers of `std::io`, so that nothing is held back.
        let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let (output, lines) = blocking::channel();
        let (messages, input) = mpsc::channel(QUEUED);
        let mut reader = Reader { output: output.clone(), messages, open: open.clone() };
        let (read_end, write_end, unwritten) = (eof.clone(), eof.clone(), open.clone());
        std::thread::Builder::new().name("mcp-read".into()).spawn(move || {
            reader.read_all(stdin);
            // rmcp sees the end of the input when the sender is gone.
            drop(reader);
            read_end.cancel();
        })?;
        std::thread::Builder::new().name("mcp-write".into()).spawn(move || {
            if write_lines(&stdout, lines, &unwritten).is_err() {
                write_end.cancel();
            }
        })?;
        Ok(Self { input, output, open })
    }
}

impl Transport<RoleServer> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // Before it is written: the client may use the id again as soon as it has read this.
        match &item {
            JsonRpcMessage::Response(response) => self.open.close(&response.id),
            JsonRpcMessage::Error(JsonRpcError { id: Some(id), .. }) => self.open.close(id),
            _ => {}
        }
        let (done, written) = oneshot::channel();
        let sent = serde_json::to_vec(&item).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.open.queue(&self.output, (line, Some(done)))
        });

        async move {
            sent?;
            written.await.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.input.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until no sender is left.
fn write_lines(mut out: &File, lines: blocking::Receiver<Written>, open: &OpenRequests) -> io::Result<()> {
    for (line, done) in lines {
        let written = write_line(&mut out, &line);
        open.0.unwritten.fetch_sub(1, Ordering::SeqCst);
        let failed = written.as_ref().err().map(|error| io::Error::from(error.kind()));
        if let Some(done) = done {
            let _ = done.send(written);
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Writes a whole line, also to a client that gave a pipe which does not block.
fn write_line(out: &mut &File, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => line = &line[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_until(&[Polled::Write(out.as_fd())], None)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Reader {
    output: blocking::Sender<Written>,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    open: OpenRequests,
}

impl Reader {
    /// Reads lines until the end of the input. The last one may have no line end.
    fn read_all(&mut self, mut input: File) {
        let mut buffer = vec![0; 64 << 10];
        let (mut line, mut too_long) = (Vec::new(), false);
        loop {
            let length = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match poll_until(&[Polled::Read(input.as_fd())], None) {
                        Ok(_) => continue,
                        Err(_) => break,
                    }
                }
                Err(_) => break,
            };
            let mut rest = &buffer[..length];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                self.take_line(&line, too_long || line.len() > LONGEST_LINE);
                // A long line's memory is not kept.
                (line, too_long) = (Vec::new(), false);
            }
            line.extend_from_slice(rest);
            if line.len() > LONGEST_LINE {
                (line, too_long) = (Vec::new(), true);
            }
        }
        if !line.is_empty() || too_long {
            self.take_line(&line, too_long);
        }
    }

    fn take_line(&mut self, line: &[u8], too_long: bool) {
        if too_long {
            let why = format!("a line longer than {} MiB is not read", LONGEST_LINE >> 20);
            return self.refuse(None, ErrorCode::PARSE_ERROR, why);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        // A byte that is not UTF-8 inside a string spoils that string, not the request.
        match serde_json::from_str(&String::from_utf8_lossy(line)) {
            Ok(Value::Array(batch)) if !batch.is_empty() => {
                batch.into_iter().for_each(|message| self.take_message(message));
            }
            Ok(message) => self.take_message(message),
            Err(error) => self.refuse(None, ErrorCode::PARSE_ERROR, format!("not JSON: {error}")),
        }
    }

    fn take_message(&mut self, message: Value) {
        let invalid = ErrorCode::INVALID_REQUEST;
        let Value::Object(fields) = &message else {
            return self.refuse(None, invalid, "a message is a JSON object".into());
        };
        let is_request = fields.contains_key("method") && fields.contains_key("id");
        let is_answer = fields.contains_key("result") || fields.contains_key("error");
        let id = fields.get("id").cloned().map(serde_json::from_value::<RequestId>);
        if is_request {
            let Some(Ok(id)) = id else {
                let why = "the id of a request is a text or a whole number";
                return self.refuse(None, invalid, why.into());
            };
            if self.open.was_cancelled(&id) {
                let why = format!("id {id} belongs to a request that was cancelled");
                return self.refuse(Some(id), invalid, why);
            }
            if !self.open.change(|open| open.insert(serde_json::to_string(&id).unwrap_or_default())) {
                let why = format!("id {id} belongs to a request that has no answer yet");
                return self.refuse(None, invalid, why);
            }
            match serde_json::from_value(message) {
                Ok(message) => self.pass_on(message),
                Err(error) => {
                    self.open.close(&id);
                    self.refuse(Some(id), invalid, format!("not a request: {error}"));
                }
            }
        } else if fields.contains_key("method") {
            if fields["method"] == "notifications/cancelled"
                && let Some(cancelled) = message.pointer("/params/requestId")
                && let Ok(id) = serde_json::from_value(cancelled.clone())
            {
                // It gets no answer any more.
                self.open.cancel(&id);
            }
            self.pass_on_if_valid(message);
        } else if is_answer {
            self.pass_on_if_valid(message);
        } else {
            let why = "a message has a method, a result or an error";
            self.refuse(id.and_then(Result::ok), invalid, why.into());
        }
    }

    /// Notifications and answers get no answer, so a malformed one is dropped.
    fn pass_on_if_valid(&mut self, message: Value) {
        if let Ok(message) = serde_json::from_value(message) {
            self.pass_on(message);
        }
    }

    fn pass_on(&mut self, message: RxJsonRpcMessage<RoleServer>) {
        // Fails only if the server has ended.
        let _ = self.messages.blocking_send(message);
    }

    fn refuse(&mut self, id: Option<RequestId>, code: ErrorCode, why: String) {
        let error: TxJsonRpcMessage<RoleServer> =
            JsonRpcMessage::Error(JsonRpcError::new(id, ErrorData::new(code, why, None)));
        if let Ok(mut line) = serde_json::to_vec(&error) {
            line.push(b'\n');
            let _ = self.open.queue(&self.output, (line, None));
        }
    }
}
