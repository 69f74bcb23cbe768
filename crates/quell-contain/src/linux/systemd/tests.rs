//! The client with buses that reply, hang, send garbage and disconnect.

use super::bus::*;
use super::wire::*;
use super::*;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;

const BRIEF: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(30);

fn at_path(name: &str, direct: bool) -> BusAddress {
    BusAddress { name: name.into(), is_abstract: false, direct }
}

fn found(session: &str, runtime: Option<&str>) -> Vec<BusAddress> {
    addresses(Some(OsStr::new(session)), runtime.map(OsStr::new))
}

#[test]
fn a_path_is_read_from_among_other_keys() {
    assert_eq!(found("unix:path=/run/user/0/bus", None), [at_path("/run/user/0/bus", false)]);
    assert_eq!(found("unix:guid=01ab,path=/a/bus,x=y", None), [at_path("/a/bus", false)]);
}

#[test]
fn an_abstract_name_is_told_from_a_path() {
    let expected = BusAddress { name: "/tmp/dbus-X".into(), is_abstract: true, direct: false };
    assert_eq!(found("unix:abstract=/tmp/dbus-X,guid=01ab", None), [expected]);
}

#[test]
fn escapes_are_undone_and_broken_ones_refused() {
    assert_eq!(found("unix:path=/a%20b%2Cc", None), [at_path("/a b,c", false)]);
    assert_eq!(found("unix:path=/a%2", None), []);
    assert_eq!(found("unix:path=/a%zz", None), []);
}

#[test]
fn only_unix_sockets_of_a_list_are_kept_in_their_order() {
    let list = "tcp:host=localhost,port=1;unix:path=/one;autolaunch:;unix:path=/two;unix:path=";
    assert_eq!(found(list, None), [at_path("/one", false), at_path("/two", false)]);
    for none in ["disabled:", "/dev/null", "unix:tmpdir=/tmp", "unix:", ";;", ""] {
        assert_eq!(found(none, None), [], "{none}");
    }
}

#[test]
fn the_runtime_directory_comes_after_the_session_address_and_once() {
    let bus = at_path("/run/user/7/bus", false);
    let private = at_path("/run/user/7/systemd/private", true);
    let runtime = Some("/run/user/7");
    assert_eq!(addresses(None, runtime.map(OsStr::new)), [bus.clone(), private.clone()]);
    assert_eq!(found("unix:path=/run/user/7/bus", runtime), [bus.clone(), private.clone()]);
    assert_eq!(found("unix:path=/other", runtime), [at_path("/other", false), bus, private]);
    assert_eq!(addresses(None, None), []);
}

/// A listener in the abstract namespace, which leaves no file.
fn listener(test: &str) -> (UnixListener, BusAddress) {
    let name = format!("quell-scope-{}-{test}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an abstract address");
    let listener = UnixListener::bind_addr(&address).expect("a listener");
    (listener, BusAddress { name: name.into(), is_abstract: true, direct: false })
}

fn request() -> ScopeRequest<'static> {
    ScopeRequest {
        unit: "quell-x.scope",
        description: "x",
        pid: 1,
        memory_max: Some(1 << 20),
        tasks_max: Some(8),
        cpu_cores: Some(1.5),
    }
}

fn ask(addresses: &[BusAddress], timeout: Duration) -> Result<(), ScopeError> {
    on_first_manager(addresses, timeout, |bus| start_on(bus, &request()))
}

/// Authenticates one client, sends `answers` and keeps the connection until the client disconnects.
fn bus_that_answers(test: &str, answers: &[Vec<u8>]) -> Result<(), ScopeError> {
    let (listener, address) = listener(test);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"DATA\r\nOK 01ab\r\n").expect("answered");
            client.write_all(&answers.concat()).expect("answered");
            let _reset_or_end = client.read_to_end(&mut Vec::new());
        });
        let absent = at_path("/nonexistent/quell/bus", false);
        ask(&[absent, address], if answers.is_empty() { BRIEF } else { LONG })
    })
}

fn answer(kind: u8, field: (u8, &str, &str), reply_to: u32, body: &Out) -> Vec<u8> {
    let mut message = Out(vec![ENDIAN, kind, 1, 1]);
    message.u32(body.0.len() as u32);
    message.u32(9);
    message.array(8, |fields| {
        fields.variant(field.0, field.1, |value| value.string(field.2));
        fields.variant(5, "u", |value| value.u32(reply_to));
    });
    message.align(8);
    message.0.extend_from_slice(&body.0);
    message.0
}

fn job_path(path: &str) -> Vec<u8> {
    let mut body = Out::default();
    body.string(path);
    answer(REPLY, (7, "s", ":1.0"), MANAGER_CALL, &body)
}

fn job_removed(path: &str, unit: &str, result: &str) -> Vec<u8> {
    let mut body = Out::default();
    body.u32(7);
    body.string(path);
    body.string(unit);
    body.string(result);
    answer(SIGNAL, (3, "s", "JobRemoved"), 0, &body)
}

fn ended_in_time(result: Result<(), ScopeError>) -> Option<&'static str> {
    match result {
        Err(ScopeError::Connect { error, .. }) if error.kind() == ErrorKind::TimedOut => Some("connect"),
        Err(ScopeError::Lost { error, step, .. }) if error.kind() == ErrorKind::TimedOut => Some(step),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bus_that_never_answers_is_left_at_the_deadline() {
    let (_listener, address) = listener("silent");
    let began = Instant::now();
    assert_eq!(ended_in_time(ask(&[address], BRIEF)), Some("connect"));
    assert!(began.elapsed() >= BRIEF);
    assert_eq!(ended_in_time(bus_that_answers("mute", &[])), Some("StartTransientUnit"));
}

#[test]
fn a_bus_that_never_stops_talking_is_left_at_the_deadline() {
    let (listener, address) = listener("chatter");
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"DATA\r\nOK 01ab\r\n").expect("answered");
            let noise = job_removed("/job/1", "other.scope", "done");
            while client.write_all(&noise).is_ok() {}
        });
        ask(&[address], BRIEF)
    });
    assert_eq!(ended_in_time(result), Some("StartTransientUnit"));
}

#[test]
fn a_full_backlog_is_left_at_the_deadline() {
    let (listener, address) = listener("backlog");
    rustix::net::listen(&listener, 0).expect("a backlog of one");
    // A client that disconnected is still in the queue.
    let queued = open_socket(&address, Instant::now() + LONG);
    drop(queued.expect("room for one"));
    let full = open_socket(&address, Instant::now() + BRIEF).expect_err("no room for two");
    assert_eq!(full.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_bus_that_is_absent_or_hangs_up_or_refuses_us_is_an_error_at_once() {
    let absent = ask(&[at_path("/nonexistent/quell/bus", false)], LONG).expect_err("nobody listens");
    let expected = "connect to unix:path=/nonexistent/quell/bus: No such file or directory (os error 2)";
    assert_eq!(absent.to_string(), expected);

    for (answer, expected) in [("", "the bus hung up"), ("REJECTED EXTERNAL\r\n", "login answered by")] {
        let (listener, address) = listener("hangup");
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut client, _) = listener.accept().expect("a client");
                let _calls = client.read(&mut [0; 100]).expect("a greeting");
                client.write_all(answer.as_bytes()).expect("answered");
            });
            ask(&[address], LONG)
        });
        let text = result.expect_err("no bus").to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_start_is_over_when_our_own_job_is_done() {
    let other_unit = job_removed("/job/7", "other.scope", "failed");
    let other_job = job_removed("/job/6", "quell-x.scope", "canceled");
    let (path, done) = (job_path("/job/7"), job_removed("/job/7", "quell-x.scope", "done"));
    let in_order = [other_unit.clone(), other_job.clone(), path.clone(), done.clone()];
    assert!(bus_that_answers("done", &in_order).is_ok());
    assert!(bus_that_answers("early", &[other_unit, done, other_job, path]).is_ok());
}

#[test]
fn a_failed_job_and_a_refusal_are_told_in_systemds_words() {
    let failure = [job_path("/job/7"), job_removed("/job/7", "quell-x.scope", "failed")];
    let failed = bus_that_answers("failed", &failure).expect_err("the job failed");
    assert_eq!(failed.to_string(), "start of quell-x.scope ended as \"failed\"");

    let refusal = |name| {
        let mut why = Out::default();
        why.string("Unit quell-x.scope already exists.");
        [answer(ERROR, (4, "s", name), MANAGER_CALL, &why)]
    };
    let exists = refusal("org.freedesktop.systemd1.UnitExists");
    let refused = bus_that_answers("refused", &exists).expect_err("the call was refused");
    assert_eq!(
        refused.to_string(),
        "StartTransientUnit refused: Unit quell-x.scope already exists. (org.freedesktop.systemd1.UnitExists)"
    );
}

#[test]
fn a_bus_without_a_manager_is_passed_over() {
    let unknown =
        answer(ERROR, (4, "s", "org.freedesktop.DBus.Error.ServiceUnknown"), MANAGER_CALL, &Out::default());
    let absent = bus_that_answers("nobody", &[unknown]).expect_err("no manager");
    assert!(matches!(absent, ScopeError::Connect { .. }), "the first address's error, not {absent:?}");
}

#[test]
fn a_malformed_message_is_an_error_and_never_a_panic() {
    let good = job_removed("/job/7", "quell-x.scope", "done");
    for cut in 0..good.len() {
        assert_eq!(Message::take(&mut good[..cut].to_vec()), Some(None), "cut at {cut}");
    }
    for (at, bits) in (0..good.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
        let mut bad = good.clone();
        bad[at] ^= bits;
        if let Some(Some(message)) = Message::take(&mut bad) {
            let mut body = In { bytes: &message.body, at: 0 };
            let _ = (body.u32(), body.string(), body.string(), body.string());
        }
    }
    let result = bus_that_answers("garbage", &[b"no message at all".to_vec()]);
    assert!(matches!(&result, Err(ScopeError::Lost { error, .. }) if error.kind() == ErrorKind::InvalidData));
}

#[test]
fn the_runtime_directory_of_this_user_is_used_only_if_no_other_user_can_write_there() {
    let base = tempfile::tempdir().unwrap();
    assert_eq!(runtime_dir(base.path()), None, "it does not exist");
    let dir = base.path().join(quell_sys::uid().to_string());
    std::fs::create_dir(&dir).unwrap();
    let set = |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o700);
    assert_eq!(runtime_dir(base.path()), Some(dir.clone().into_os_string()));
    set(0o770);
    assert_eq!(runtime_dir(base.path()), None, "its group can write there");
    std::fs::rename(&dir, base.path().join("other")).unwrap();
    std::os::unix::fs::symlink(base.path().join("other"), &dir).unwrap();
    set(0o700);
    assert_eq!(runtime_dir(base.path()), None, "a link");
}
