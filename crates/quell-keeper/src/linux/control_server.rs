//! The clients of a job: they connect to its control socket, send requests and get answers. `requests.rs` decides what a request
//! does. The control server of a job whose caller waits for its end has no socket and no clients.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use quell_store::JobDir;
use quell_sys::{Polled, Ready, Sources};

use super::channel::JsonChannel;
use super::engine::KeeperSource;
use crate::control_protocol::{Answer, Call};

/// How many clients are served at a time. Another one replaces the client that has been silent for longest: idle connections
/// must not keep out a client that wants to stop the job.
const CLIENTS: usize = 256;
/// Clients may use this fraction of the keeper's descriptors. A stop needs the others to pin the members.
const SHARE: u64 = 8;
/// The longest message of a client, including unanswered requests before it. quell's longest is a stop with a reason as long as
/// an argument can be.
const LONGEST: usize = 1024 * 1024;
/// How many bytes are buffered for all clients together.
const BUFFERED: usize = 16 * 1024 * 1024;
/// How many requests a client may send before it reads the first answer. quell's own clients send one.
const AT_ONCE: usize = 16;

struct Client {
    key: u64,
    channel: JsonChannel,
    pid: u32,
    uid: u32,
    /// The number of its last request among all requests; 0 if it has not sent any.
    last_request: u64,
}

/// A request, and the client that is to get the answer.
#[derive(Debug)]
pub struct ClientRequest {
    pub client: u64,
    pub pid: u32,
    pub uid: u32,
    pub call: Call,
}

#[derive(Default)]
pub struct ControlServer {
    listener: Option<UnixListener>,
    /// The inode of the socket in the job's directory that the listener belongs to.
    inode: Option<u64>,
    clients: Vec<Client>,
    /// How many clients there may be, once that is known.
    most: Option<usize>,
    next_key: u64,
    requests: u64,
}

impl ControlServer {
    pub fn open(store: &JobDir) -> io::Result<Self> {
        let mut server = Self::default();
        server.listen(store)?;
        Ok(server)
    }

    fn listen(&mut self, store: &JobDir) -> io::Result<()> {
        let listener = store.listen()?;
        listener.set_nonblocking(true)?;
        (self.listener, self.inode) = (Some(listener), store.socket());
        Ok(())
    }

    /// Opens the socket again if it was deleted or replaced. If that fails, the client will ask again.
    pub fn restore(&mut self, store: &JobDir) {
        let is_there = self.inode.is_some() && store.socket() == self.inode;
        if self.listener.is_some() && !is_there {
            let _ = self.listen(store);
        }
    }

    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        let listener = self.listener.as_ref().map(|listener| Polled::Read(listener.as_fd()));
        sources.add_any(KeeperSource::Listener, listener);
        for client in &self.clients {
            if !client.channel.is_backlogged() {
                sources.add(KeeperSource::Client(client.key), Polled::Read(client.channel.as_fd()));
            }
            if client.channel.has_queued() {
                sources.add(KeeperSource::Client(client.key), Polled::Write(client.channel.as_fd()));
            }
        }
    }

    /// Reads what clients have sent, sends what they can take, and accepts new clients.
    pub fn receive(&mut self, ready: &Ready<KeeperSource>) -> Vec<ClientRequest> {
        let mut requests = Vec::new();
        let mut gone = Vec::new();
        for client in self.clients.iter_mut().filter(|client| ready.has(KeeperSource::Client(client.key))) {
            client.channel.flush();
            if client.channel.is_backlogged() {
                continue;
            }
            let received = client.channel.recv_at_most::<Call>(LONGEST);
            let too_many = received.messages.len() > AT_ONCE;
            if received.closed || too_many {
                gone.push(client.key);
            }
            if too_many {
                continue;
            }
            if !received.messages.is_empty() {
                self.requests += 1;
                client.last_request = self.requests;
            }
            let (key, pid, uid) = (client.key, client.pid, client.uid);
            let request = |call| ClientRequest { client: key, pid, uid, call };
            requests.extend(received.messages.into_iter().map(request));
        }
        self.clients.retain(|client| !gone.contains(&client.key));
        self.bound_buffers();
        if ready.has(KeeperSource::Listener) {
            self.accept();
        }
        requests
    }

    /// Drops the clients with the most buffered bytes, until all fit into the limit.
    fn bound_buffers(&mut self) {
        while self.clients.iter().map(|client| client.channel.buffered()).sum::<usize>() > BUFFERED {
            self.drop_first_by(|client| std::cmp::Reverse(client.channel.buffered()));
        }
    }

    fn accept(&mut self) {
        let most = *self.most.get_or_insert_with(|| {
            usize::try_from(quell_sys::open_files_allowed() / SHARE).unwrap_or(CLIENTS).clamp(2, CLIENTS)
        });
        // At most this many at a time: an endless series of connections must not keep the keeper busy, and a new client must be
        // read before others can replace it.
        for _ in 0..most {
            match self.listener.as_ref().map(UnixListener::accept) {
                Some(Ok((stream, _))) => self.add_client(stream, most),
                Some(Err(error)) if quell_sys::is_out_of_descriptors(&error) => self.drop_most_silent(),
                Some(Err(_)) | None => break,
            }
        }
    }

    fn add_client(&mut self, stream: UnixStream, most: usize) {
        // The directory's mode keeps other users out. This is for a user that got the socket in another way. Root may do
        // everything that this user may.
        let Ok((pid, uid)) = quell_sys::peer(&stream) else { return };
        if uid != quell_sys::uid() && uid != 0 {
            return;
        }
        if self.clients.len() >= most {
            self.drop_most_silent();
        }
        self.next_key += 1;
        let channel = JsonChannel::new(stream);
        self.clients.push(Client { key: self.next_key, channel, pid, uid, last_request: 0 });
    }

    /// Drops the oldest client that has sent nothing. If there is none, drops the one whose last request is the oldest.
    fn drop_most_silent(&mut self) {
        self.drop_first_by(|client| (client.last_request, client.key));
    }

    fn drop_first_by<K: Ord>(&mut self, order: impl Fn(&Client) -> K) {
        let first = self.clients.iter().enumerate().min_by_key(|(_, client)| order(client));
        if let Some(index) = first.map(|(index, _)| index) {
            self.clients.remove(index);
        }
    }

    pub fn is_connected(&self, client: u64) -> bool {
        self.clients.iter().any(|other| other.key == client)
    }

    /// Answers a client, if it is still connected.
    pub fn answer(&mut self, client: u64, answer: &Answer) {
        if let Some(client) = self.clients.iter_mut().find(|other| other.key == client) {
            client.channel.queue(answer);
            client.channel.flush();
            self.bound_buffers();
        }
    }

    /// Closes the socket and all connections. A client that waits for the end of the job sees that.
    pub fn close(&mut self) {
        self.clients.iter_mut().for_each(|client| client.channel.flush());
        self.clients.clear();
        self.listener = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    use super::*;

    fn connect(server: &mut ControlServer, most: usize) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.add_client(theirs, most);
        ours
    }

    /// One turn of the keeper's loop.
    fn turn(server: &mut ControlServer) -> Vec<ClientRequest> {
        let mut sources = Sources::default();
        server.add_sources(&mut sources);
        let ready = sources.wait(Some(Instant::now())).unwrap();
        server.receive(&ready)
    }

    fn is_closed(client: &mut UnixStream) -> bool {
        client.set_nonblocking(true).unwrap();
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_request_is_read_with_its_sender_and_answered_over_the_same_connection() {
        let mut server = ControlServer::default();
        let (mut first, mut second) = (connect(&mut server, 9), connect(&mut server, 9));
        assert!(turn(&mut server).is_empty());
        second.write_all(b"\"vitals\"\n\"list_").unwrap();
        let requests = turn(&mut server);
        let [ClientRequest { client, pid, uid, call: Call::Vitals }] = requests[..] else {
            panic!("{requests:?}")
        };
        assert_eq!((pid, uid), (std::process::id(), quell_sys::uid()));
        second.write_all(b"members\"\n").unwrap();
        assert!(
            matches!(turn(&mut server)[..], [ClientRequest { call: Call::ListMembers, .. }]),
            "in two parts"
        );
        server.answer(client, &Answer::Signaled { sent: 3 });
        server.close();
        let mut answer = String::new();
        second.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "{\"signaled\":{\"sent\":3}}\n");
        assert!(is_closed(&mut first), "the end of the job closes all connections");
    }

    #[test]
    fn one_client_too_many_takes_the_place_of_the_most_silent() {
        let mut server = ControlServer::default();
        let mut clients: Vec<_> = (0..3).map(|_| connect(&mut server, 3)).collect();
        for index in [0, 2] {
            clients[index].write_all(b"\"list_members\"\n").unwrap();
            turn(&mut server);
        }
        let _fourth = connect(&mut server, 3);
        let closed: Vec<bool> = clients.iter_mut().map(is_closed).collect();
        assert_eq!(closed, [false, true, false], "it had sent nothing");
        let _fifth = connect(&mut server, 4);
        let _sixth = connect(&mut server, 4);
        assert!(server.is_connected(1) && server.is_connected(3), "clients without a request go first");
    }

    #[test]
    fn clients_that_send_too_much_are_dropped() {
        let mut server = ControlServer::default();
        let mut many = connect(&mut server, 9);
        many.write_all("\"list_members\"\n".repeat(AT_ONCE + 1).as_bytes()).unwrap();
        assert!(turn(&mut server).is_empty() && is_closed(&mut many), "requests at once");
        let mut long = connect(&mut server, 9);
        let mut sent = 0;
        let chunk = [b'x'; 32 * 1024];
        while !server.clients.is_empty() && sent <= 2 * LONGEST {
            long.write_all(&chunk).unwrap();
            sent += chunk.len();
            assert!(turn(&mut server).is_empty());
        }
        assert!(server.clients.is_empty() && sent > LONGEST, "one endless message: {sent}");
    }

    #[test]
    fn a_client_that_does_not_read_its_answers_is_not_read_and_loses_its_place_first() {
        let mut server = ControlServer::default();
        let (mut deaf, _other) = (connect(&mut server, 99), connect(&mut server, 99));
        let long = Answer::Refused { code: String::new(), why: "x".repeat(BUFFERED / 2) };
        server.answer(1, &long);
        deaf.write_all(b"\"list_members\"\n").unwrap();
        assert!(turn(&mut server).is_empty() && server.is_connected(1));
        (0..2).for_each(|_| server.answer(1, &long));
        assert!(!server.is_connected(1) && server.is_connected(2));
    }

    #[test]
    fn a_deleted_socket_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = quell_store::Home::at(dir.path()).job(quell_core::JobId::new(1, 2));
        std::fs::create_dir_all(store.dir()).unwrap();
        let mut server = ControlServer::open(&store).unwrap();
        let socket = store.dir().join("control.sock");
        server.restore(&store);
        let first = store.socket();
        std::fs::remove_file(&socket).unwrap();
        server.restore(&store);
        assert!(store.socket().is_some() && store.socket() != first || first != server.inode);
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        turn(&mut server);
        assert!(server.is_connected(1));
        client.write_all(b"\"vitals\"\n").unwrap();
        assert_eq!(turn(&mut server).len(), 1);
    }
}
