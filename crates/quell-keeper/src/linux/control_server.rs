//! Where a background job's keeper meets the world: clients at its control socket, the owner it lives for, its output and
//! input, its helper. It carries; what is asked for is decided by the supervisor.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use quell_core::{Actor, Background, Hook, JobEvent, OnOwnerExit, RestartPolicy, RootOutcome, Verdict};
use quell_core::{Cause, Receipt};
use quell_store::{JobDir, Stream};
use quell_sys::{FifoHold, PidFd, Polled, Ready, Sources};

use super::channel::JsonChannel;
use super::helper::{self, HelperNote, Task};
use super::input::{Input, Written};
use super::output::Taps;
use super::readiness::Readiness;
use crate::control_protocol::{Answer, Call, SEND_AT_ONCE};

/// How many clients are served at a time. When one more comes, the one that has been silent for longest has to go: those
/// who only hold the line must not keep out who wants to stop the job.
const CLIENTS: usize = 256;
/// Which part of the keeper's descriptors clients may have: a stop needs the others to find and pin the members.
const SHARE: u64 = 8;
/// The longest message of a client, with what it may say before it is answered. The longest that quell has is a stop with
/// a reason as long as an argument can be.
const LONGEST: usize = 1024 * 1024;
/// How many bytes are kept for all clients, of what they say and of what they are told.
const HELD: usize = 16 * 1024 * 1024;
/// How many things a client may ask before it hears the first answer. quell's own ask one.
const AT_ONCE: usize = 16;

struct Client {
    key: u64,
    line: JsonChannel,
    pid: u32,
    uid: u32,
    /// The number of its last call among all; 0 if it has not called.
    called: u64,
}

/// What the world wants.
pub enum ClientRequest {
    /// A client calls.
    Call { key: u64, pid: u32, uid: u32, call: Call },
    /// The owner is gone.
    OwnerGone,
    /// The time to live is over.
    TimeToLiveOver,
}

/// What follows a run of the program.
pub enum Next {
    /// Another one, after this wait.
    Restart(Duration),
    /// Nothing: it was started again so often that the limit is reached.
    LimitReached { restarts: u32 },
    /// Nothing.
    Nothing,
}

/// What a keeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperSource {
    /// SIGCHLD and a knock.
    Signals,
    /// The front or the standby.
    Front,
    /// The stub's word on its exec.
    ExecStatus,
    /// What tells of the tree.
    Tree,
    Output(Stream),
    Input,
    Fifo,
    Owner,
    Helper,
    Listener,
    /// A client by its key, to be read or written.
    Client(u64),
}

/// The keeper's desk.
pub struct Desk {
    pub rules: Background,
    hooks: Vec<Hook>,
    pub taps: Taps,
    pub input: Input,
    /// The fifo that the program reads, until a writer has come and gone.
    pub fifo: Option<FifoHold>,
    pub readiness: Option<Readiness>,
    listener: Option<UnixListener>,
    /// The inode of the socket where the listener was opened.
    pub socket: Option<u64>,
    clients: Vec<Client>,
    /// How many there may be, once that is known.
    most: Option<usize>,
    next_key: u64,
    calls: u64,
    owner: Option<PidFd>,
    ends_by: Option<Instant>,
    helper: Option<JsonChannel>,
    restarts: u32,
    delay: Duration,
    /// Why there will be no other run, once somebody has asked for the end of the job.
    pub ending: Option<(Cause, Actor)>,
}

impl Desk {
    pub fn new(
        rules: Background,
        hooks: Vec<Hook>,
        taps: Taps,
        listener: Option<UnixListener>,
        owner: Option<PidFd>,
        helper: Option<JsonChannel>,
    ) -> Self {
        Self {
            ends_by: rules.ttl.map(|ttl| Instant::now() + ttl),
            delay: rules.restart.delay,
            rules,
            hooks,
            taps,
            input: Input::default(),
            fifo: None,
            readiness: None,
            listener,
            socket: None,
            clients: Vec::new(),
            most: None,
            next_key: 0,
            calls: 0,
            owner,
            helper,
            restarts: 0,
            ending: None,
        }
    }

    /// What to wait for.
    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        self.taps.add_sources(sources);
        sources.add_any(KeeperSource::Input, self.input.polled());
        sources.add_any(KeeperSource::Fifo, self.fifo.as_ref().map(|fifo| Polled::Read(fifo.as_fd())));
        sources.add_any(KeeperSource::Owner, self.owner.as_ref().map(|owner| Polled::Read(owner.as_fd())));
        let helper = self.helper.as_ref().map(|helper| Polled::Read(helper.as_fd()));
        sources.add_any(KeeperSource::Helper, helper);
        let listener = self.listener.as_ref().map(|listener| Polled::Read(listener.as_fd()));
        sources.add_any(KeeperSource::Listener, listener);
        for client in &self.clients {
            if !client.line.is_unheard() {
                sources.add(KeeperSource::Client(client.key), Polled::Read(client.line.as_fd()));
            }
            if client.line.has_more_to_say() {
                sources.add(KeeperSource::Client(client.key), Polled::Write(client.line.as_fd()));
            }
        }
    }

    /// When something is due that no descriptor tells of.
    pub fn deadline(&self) -> Option<Instant> {
        let readiness = self.readiness.as_ref().and_then(Readiness::deadline);
        self.ends_by.into_iter().chain(readiness).chain(self.input.deadline()).min()
    }

    /// Takes in what has come.
    pub fn handle(&mut self, ready: &Ready<KeeperSource>) -> Vec<ClientRequest> {
        let mut wishes = Vec::new();
        let taps = [Stream::Stdout, Stream::Stderr].map(|stream| ready.has(KeeperSource::Output(stream)));
        if taps.contains(&true) {
            let readiness = &mut self.readiness;
            self.taps.read(taps, |stream, bytes| {
                if let Some(readiness) = readiness {
                    readiness.read(stream, bytes);
                }
            });
        }
        if ready.has(KeeperSource::Input) {
            self.write_input();
        }
        if ready.has(KeeperSource::Fifo) {
            self.fifo = None;
        }
        if ready.has(KeeperSource::Owner) {
            self.owner = None;
            wishes.push(ClientRequest::OwnerGone);
        }
        if ready.has(KeeperSource::Helper) {
            self.hear_helper();
        }
        self.hear_clients(ready, &mut wishes);
        if ready.has(KeeperSource::Listener) {
            self.accept();
        }
        let expired = self.input.expire(Instant::now());
        self.tell_written(expired);
        if self.ends_by.is_some_and(|end| end <= Instant::now()) {
            self.ends_by = None;
            wishes.push(ClientRequest::TimeToLiveOver);
        }
        wishes
    }

    fn hear_helper(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        let arrived = helper.hear::<HelperNote>();
        for HelperNote::Found(found) in arrived.messages {
            if let Some(readiness) = &mut self.readiness {
                readiness.found(found);
            }
        }
        if arrived.closed {
            self.helper = None;
        }
    }

    fn hear_clients(&mut self, ready: &Ready<KeeperSource>, wishes: &mut Vec<ClientRequest>) {
        let mut gone = Vec::new();
        let is_calling = |client: &&mut Client| ready.has(KeeperSource::Client(client.key));
        for client in self.clients.iter_mut().filter(is_calling) {
            client.line.say_more();
            if client.line.is_unheard() {
                continue;
            }
            let arrived = client.line.hear_at_most::<Call>(LONGEST);
            let (key, pid, uid) = (client.key, client.pid, client.uid);
            if arrived.messages.len() > AT_ONCE {
                gone.push(key);
                continue;
            }
            if !arrived.messages.is_empty() {
                self.calls += 1;
                client.called = self.calls;
            }
            wishes.extend(arrived.messages.into_iter().map(|call| ClientRequest::Call {
                key,
                pid,
                uid,
                call,
            }));
            if arrived.closed {
                gone.push(key);
            }
        }
        self.clients.retain(|client| !gone.contains(&client.key));
        gone.into_iter().for_each(|key| self.input.forget(key));
        self.bound_held();
    }

    /// Lets go of those who make us keep the most, until all of it is bearable.
    fn bound_held(&mut self) {
        while self.clients.iter().map(|client| client.line.held()).sum::<usize>() > HELD {
            let largest = self.clients.iter().enumerate().max_by_key(|(_, client)| client.line.held());
            let Some(index) = largest.map(|(index, _)| index) else { break };
            let client = self.clients.remove(index);
            self.input.forget(client.key);
        }
    }

    fn accept(&mut self) {
        let most = *self.most.get_or_insert_with(|| {
            usize::try_from(quell_sys::open_files_allowed() / SHARE).unwrap_or(CLIENTS).clamp(2, CLIENTS)
        });
        // So many at a time at most: whoever connects faster than that must not keep us from all else. And one that has come now
        // is heard before others can take its place.
        for _ in 0..most {
            let stream = match self.listener.as_ref().map(UnixListener::accept) {
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) if quell_sys::is_out_of_descriptors(&error) => {
                    self.drop_most_silent();
                    continue;
                }
                Some(Err(_)) | None => break,
            };
            // The directory keeps others out; this keeps out who got the socket by other ways. Root may do all that this
            // user may.
            let Ok((pid, uid)) = quell_sys::peer(&stream) else { continue };
            if uid != quell_sys::uid() && uid != 0 {
                continue;
            }
            if self.clients.len() >= most {
                self.drop_most_silent();
            }
            self.next_key += 1;
            let line = JsonChannel::over(stream);
            self.clients.push(Client { key: self.next_key, line, pid, uid, called: 0 });
        }
    }

    /// Lets go of whom nobody misses: one that has never called, and came first; else whose last call is the oldest.
    fn drop_most_silent(&mut self) {
        let silent = self.clients.iter().enumerate().min_by_key(|(_, client)| (client.called, client.key));
        if let Some(index) = silent.map(|(index, _)| index) {
            let client = self.clients.remove(index);
            self.input.forget(client.key);
        }
    }

    /// Answers a client, if it is still there.
    pub fn answer(&mut self, key: u64, answer: &Answer) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.key == key) {
            client.line.queue(answer);
            client.line.say_more();
            self.bound_held();
        }
    }

    /// Takes a request to write to the program.
    pub fn send(&mut self, key: u64, data: Vec<u8>, eof: bool, within: Duration) {
        let taken = if data.len() > SEND_AT_ONCE {
            Err(format!("more than {SEND_AT_ONCE} bytes at once"))
        } else {
            self.input.push(key, data, eof, within)
        };
        match taken {
            Ok(()) => self.write_input(),
            Err(why) => self.answer(key, &Answer::Refused { code: "stdin_closed".into(), why }),
        }
    }

    fn write_input(&mut self) {
        let written = self.input.write();
        self.tell_written(written);
    }

    /// Closes the program's standard input.
    pub fn close_input(&mut self) {
        self.fifo = None;
        let written = self.input.close("the program has ended");
        self.tell_written(written);
    }

    fn tell_written(&mut self, written: Vec<Written>) {
        for written in written {
            match written {
                Written::Taken { client, bytes, whole } => {
                    self.answer(client, &Answer::Taken { bytes, whole });
                }
                Written::Refused(key, why) => {
                    self.answer(key, &Answer::Refused { code: "stdin_closed".into(), why });
                }
            }
        }
    }

    /// Whether the job goes on without its owner.
    pub fn is_kept(&self) -> bool {
        self.rules.on_owner_exit == OnOwnerExit::Keep
    }

    /// Forgets the owner, of whose end somebody else has told.
    pub fn forget_owner(&mut self) {
        self.owner = None;
    }

    /// Tells the helper of an event that hooks wait for.
    pub fn tell(&mut self, event: &JobEvent) {
        if let Some(helper) = &mut self.helper {
            helper::tell(helper, &self.hooks, event);
        }
    }

    /// Gives the helper something to do.
    pub fn give(&mut self, task: &Task) {
        if let Some(helper) = &mut self.helper {
            // A helper that is gone, or so far behind that its line is full, does no more.
            let _ = helper.mention(task);
        }
    }

    /// What follows a run that has ended so.
    pub fn plan_restart(&mut self, receipt: &Receipt, lasted: Duration) -> Next {
        let rules = self.rules.restart;
        let by_itself = match receipt.cause {
            Cause::OwnExit | Cause::ExternalSignal | Cause::Limit | Cause::Timeout | Cause::StartFailed => {
                true
            }
            // A user has stopped it, which is noted below; or had a signal sent that ended this run, and not the job.
            Cause::User => true,
            Cause::FrontLost | Cause::KeeperLost | Cause::OwnerGone | Cause::HostReboot => false,
        };
        let failed = receipt.root.outcome != RootOutcome::Exited { code: 0 };
        let wanted = match rules.policy {
            RestartPolicy::No => false,
            RestartPolicy::OnFailure => failed,
            RestartPolicy::Always => true,
        };
        if lasted > rules.max_delay {
            (self.delay, self.restarts) = (rules.delay, 0);
        }
        let allowed = rules.limit.is_none_or(|limit| self.restarts < limit);
        // A run may have come to its end by itself when somebody asked for that of the job.
        let asked = self.ending.is_some();
        if !wanted || !by_itself || asked || receipt.verdict != Verdict::Gone {
            return Next::Nothing;
        }
        if !allowed {
            return Next::LimitReached { restarts: self.restarts };
        }
        self.restarts += 1;
        let delay = self.delay;
        self.delay = (delay * 2).min(rules.max_delay);
        Next::Restart(delay)
    }

    /// Opens the socket anew if it is gone from its place, or something else is there.
    pub fn open_again(&mut self, store: &JobDir) {
        if self.listener.is_none() || self.socket.is_some() && store.socket() == self.socket {
            return;
        }
        // If that fails now, whoever wants something knocks again.
        if let Ok(listener) = store.listen().and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        }) {
            self.listener = Some(listener);
            self.socket = store.socket();
        }
    }

    /// Lets go of the clients: each sees its line closed when all that was said to it has been.
    pub fn dismiss(&mut self) {
        for client in &mut self.clients {
            client.line.say_more();
        }
        self.clients.clear();
        self.listener = None;
    }
}
