//! The life of the server: what it opens, and how it ends.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quell::binary::{AskedThrough, Home};
use quell::{Error, Result};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use crate::call::PROGRAM;
use crate::files::{self, Files, Serving as Written};
use crate::gate::Hosts;
use crate::hub::Hub;
use crate::listen::{Connections, Listeners};
use crate::metrics::Metrics;
use crate::state::State;
use crate::tokens::Tokens;
use crate::{BROWSER, ServeOptions, answer, router};

/// How much the kernel holds for a client that does not read. A log is read again from disk, so it need not be much.
const SEND_BUFFER: u32 = 64 * 1024;
/// How many connections may wait to be taken.
const BACKLOG: u32 = 1024;
/// How long connections have to end at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the file lies there that sends a browser to the login address.
const REDIRECT_LIFE: Duration = Duration::from_secs(60);
/// How many threads answer requests. What blocks has threads of its own.
const WORKERS: usize = 2;

/// Serves until INT, TERM or HUP. Never returns before that, except for an error.
///
/// Before: this process has one thread. After: the caller exits at once, without waiting for threads; a stop that was heard is
/// finished by the job's keeper.
pub fn serve(options: ServeOptions) -> Result<ExitCode> {
    if let Some((address, port)) = options.listen {
        check_address(address, port)?;
    }
    answer::hint_with(options.hint);
    let files = Files::open(&options.home)?;
    let Some(_lock) = files.lock()? else {
        let running = files.serving()?.map(|serving| format!(", as process {}", serving.pid));
        let why = format!("quell serve runs already{}", running.unwrap_or_default());
        return Err(Error::io(options.home.dir())(io::Error::new(io::ErrorKind::ResourceBusy, why)));
    };
    // A thousand streams are as many descriptors. Jobs get the limit that this process had.
    quell::binary::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("serve")
        .enable_all()
        .build()
        .map_err(Error::io("tokio"))?;
    let served = runtime.block_on(run(&options, &files));
    // Dropping it would wait for threads that are blocked.
    std::mem::forget(runtime);
    let _ = fs::remove_file(files.socket());
    let _ = fs::remove_file(files.state());
    served.map(|()| ExitCode::SUCCESS)
}

fn check_address(address: IpAddr, port: u16) -> Result<()> {
    if address.is_loopback() {
        return Ok(());
    }
    Err(Error::BadValue(format!(
        "{address} is not a loopback address, and what listens elsewhere gives every host that reaches it the right to kill: use \
         `ssh -L {port}:127.0.0.1:{port} HOST` from there, or a proxy with TLS on this host and --allow-host"
    )))
}

async fn run(options: &ServeOptions, files: &Files) -> Result<()> {
    let failed = |error| Error::io("signals")(error);
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hup = signal(SignalKind::hangup()).map_err(failed)?;
    let tcp = options.listen.map(|(address, port)| listen(address, port)).transpose()?;
    let socket = listen_at_socket(files)?;
    let bound = tcp.as_ref().map(TcpListener::local_addr).transpose().map_err(failed)?;
    let url = bound.map(|bound| format!("http://{bound}"));
    let state = state(options, files, bound, url.clone())?;
    let connections = Arc::new(Connections::default());
    let serving =
        Listeners { router: router::router(&state), state: state.clone(), connections: connections.clone() };
    if let Some(tcp) = tcp {
        tokio::spawn(serving.clone().tcp(tcp));
    }
    tokio::spawn(serving.unix(socket));
    let written = Written {
        pid: std::process::id(),
        url: url.clone(),
        socket: files.socket(),
        version: env!("CARGO_PKG_VERSION").into(),
        login: None,
    };
    files::write(&files.state(), &quell::binary::json(&written))?;
    (options.tell)(&announcement(&written));
    if let (true, Some(url)) = (options.open, &url) {
        open(options, files, &state, url)?;
    }
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hup.recv() => {}
    }
    state.ending.send_replace(true);
    let begun = Instant::now();
    while connections.count() > 0 && begun.elapsed() < LAST_WORDS {
        // The count changes in tasks, and each of them ends in its own time.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn announcement(written: &Written) -> String {
    let socket = written.socket.display();
    match &written.url {
        Some(url) => {
            format!("quell: serving at {url} and {socket} (`quell serve --url` logs a browser in)\n")
        }
        None => format!("quell: serving at {socket}\n"),
    }
}

fn state(
    options: &ServeOptions,
    files: &Files,
    bound: Option<SocketAddr>,
    url: Option<String>,
) -> Result<Arc<State>> {
    let home: Home = options.home.clone();
    let through = AskedThrough::new("serve");
    let quell = quell::binary::open_for_server(home.clone(), PROGRAM, None, through)?;
    let metrics = Metrics::open(&quell, files.counters())?;
    let hub = Hub::begin(quell)?;
    let tokens = Tokens::open(files)?;
    let hosts = Hosts::new(bound.map(|bound| bound.port()), &options.allow_hosts);
    let epoch = quell::binary::new_job_id()
        .ok_or_else(|| Error::Keeper("the kernel has no random numbers".into()))?;
    Ok(Arc::new(State::new(home, epoch, hosts, hub, tokens, metrics, url)))
}

fn listen(address: IpAddr, port: u16) -> Result<TcpListener> {
    let place = format!("{address}:{port}");
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections from before a restart don't keep the port.
        socket.set_reuseaddr(true)?;
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind((address, port).into())?;
        socket.listen(BACKLOG)
    };
    listen().map_err(Error::io(place))
}

fn listen_at_socket(files: &Files) -> Result<UnixListener> {
    let path = files.socket();
    // The lock is held: what is there is left from a server that was killed.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(Error::io(&path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(Error::io(&path))?;
    Ok(listener)
}

/// Opens a browser at a file that sends it to the login address: other users can read the arguments of a program, but not the file.
fn open(options: &ServeOptions, files: &Files, state: &Arc<State>, url: &str) -> Result<()> {
    let target = format!("{url}/#code={}", state.login_code(None)?);
    let path = files.redirect();
    files::write(
        &path,
        &format!(
            "<!doctype html><meta charset=utf-8><title>quell</title><meta http-equiv=refresh content=\"0;url={target}\">\n"
        ),
    )?;
    let opened = Command::new(BROWSER)
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match opened {
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => {
            let path = path.display();
            (options.tell)(&format!(
                "quell: can't run {BROWSER} ({error}): open {path} in a browser, within a minute\n"
            ));
        }
    }
    tokio::spawn(async move {
        tokio::time::sleep(REDIRECT_LIFE).await;
        let _ = fs::remove_file(path);
    });
    Ok(())
}
