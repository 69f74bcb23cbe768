//! The guard over verbs and processes: what is refused has its code and no side effect; what is allowed works for real.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use quell_tests::{
    UNIGNORED, eventually,
    host::{User, am_root, has_program, quell},
    oracle::Process,
    run::{Finished, PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::Value;

/// System calls that act on other processes.
const ACTS: &str = "kill,tkill,tgkill,pidfd_send_signal,rt_sigqueueinfo,rt_tgsigqueueinfo,execve,execveat";

pub(crate) fn policy(env: &TestEnv, text: &str) {
    fs::create_dir_all(env.path(".config/quell")).expect("mkdir");
    env.write(".config/quell/config.toml", text);
}

pub(crate) fn verb<'l>(env: &'l TestEnv, name: &str) -> Quell<'l> {
    env.quell(name).env("XDG_CONFIG_HOME", "").env("QUELL_CONFIG", "")
}

/// A process that quell did not start. The test reaps it.
pub(crate) struct Stranger(pub Child);

impl Stranger {
    pub(crate) fn new(env: &TestEnv, user: User, script: &str) -> Stranger {
        let mut words = user.prefix();
        words.extend(UNIGNORED.into_iter().chain(["bash", "-c", script, "stranger"]).map(String::from));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .env("N", env.oracle.nap())
            .env("HERE", env.dir())
            .current_dir(env.dir())
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("bash");
        let stranger = Stranger(child);
        let ready = || env.path("ready").exists();
        assert!(!script.contains("ready") || eventually(PATIENCE, ready), "the stranger is not ready");
        let _ = fs::remove_file(env.path("ready"));
        stranger
    }

    /// One that sleeps, for longer than any test takes.
    pub(crate) fn asleep(env: &TestEnv) -> Stranger {
        let stranger = Stranger::new(env, env.user(), "exec sleep 5$N");
        let is_sleep = || {
            fs::read_to_string(format!("/proc/{}/comm", stranger.0.id())).is_ok_and(|comm| comm == "sleep\n")
        };
        assert!(eventually(PATIENCE, is_sleep));
        stranger
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// What the trace shows beyond the one execution of quell itself.
pub(crate) fn acts(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).expect("a trace");
    let is_act = |line: &&str| {
        let call = line.split_once(' ').map_or(*line, |(_, call)| call.trim_start());
        ACTS.split(',').any(|name| call.starts_with(&format!("{name}(")))
    };
    let name = quell().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_quell = |line: &str| line.contains("execve(") && line.contains(&name);
    text.lines().filter(is_act).filter(|line| !is_quell(line)).map(str::to_owned).collect()
}

/// Runs it under strace: what it says, and what it did.
pub(crate) fn traced(env: &TestEnv, name: &str, words: &[&str]) -> (Finished, Vec<String>) {
    let trace = env.fresh("trace");
    let wrapper = ["strace", "-f", "-o", trace.to_str().expect("a path"), "-e", &format!("trace={ACTS}")];
    let done = verb(env, name).wrapped(wrapper).args(["--json"]).args(words).finish();
    let acts = acts(&trace);
    (done, acts)
}

pub(crate) fn code(done: &Finished) -> String {
    done.envelope()["error"]["code"].as_str().unwrap_or("none").to_owned()
}

/// Arguments that are not the PID of a single process.
const NUMBERS: [(&str, &str); 60] = [
    ("", "PID_INVALID"),
    (" ", "PID_INVALID"),
    ("abc", "PID_INVALID"),
    ("self", "PID_INVALID"),
    ("thread-self", "PID_INVALID"),
    ("+5", "PID_INVALID"),
    (" 5", "PID_INVALID"),
    ("5 ", "PID_INVALID"),
    ("5\n", "PID_INVALID"),
    ("\t5", "PID_INVALID"),
    ("5\u{a0}", "PID_INVALID"),
    ("0x10", "PID_INVALID"),
    ("0b1", "PID_INVALID"),
    ("0o7", "PID_INVALID"),
    ("1e3", "PID_INVALID"),
    ("5.0", "PID_INVALID"),
    ("1,2", "PID_INVALID"),
    ("1_000", "PID_INVALID"),
    ("100-200", "PID_INVALID"),
    ("5;ls", "PID_INVALID"),
    ("$(echo 5)", "PID_INVALID"),
    ("`echo 5`", "PID_INVALID"),
    ("%1", "PID_INVALID"),
    ("/proc/5", "PID_INVALID"),
    ("../5", "PID_INVALID"),
    ("５", "PID_INVALID"),
    ("٥", "PID_INVALID"),
    ("²", "PID_INVALID"),
    ("\u{202e}5", "PID_INVALID"),
    ("5\u{200b}", "PID_INVALID"),
    ("--5", "PID_INVALID"),
    ("-", "PID_INVALID"),
    ("-a", "PID_INVALID"),
    ("01", "PID_INVALID"),
    ("0500", "PID_INVALID"),
    ("0", "PID_ZERO"),
    ("00", "PID_ZERO"),
    ("-0", "PID_ZERO"),
    ("-1", "PID_NEGATIVE"),
    ("-4711", "PID_NEGATIVE"),
    ("1", "PID_INIT"),
    ("4194305", "PID_OUT_OF_RANGE"),
    ("4294967297", "PID_OUT_OF_RANGE"),
    ("18446744073709551617", "PID_OUT_OF_RANGE"),
    ("2147483648", "PID_OUT_OF_RANGE"),
    ("4294967296", "PID_OUT_OF_RANGE"),
    ("4294967295", "PID_OUT_OF_RANGE"),
    ("99999999999999999999999999999999999999999999999999", "PID_OUT_OF_RANGE"),
    ("-2147483648", "PID_NEGATIVE"),
    ("-18446744073709551615", "PID_NEGATIVE"),
    ("-000", "PID_ZERO"),
    ("-01", "PID_NEGATIVE"),
    ("\u{2212}1", "PID_INVALID"),
    ("5\u{1b}[31m", "PID_INVALID"),
    ("5\r", "PID_INVALID"),
    ("5 6", "PID_INVALID"),
    ("*", "PID_INVALID"),
    ("~", "PID_INVALID"),
    ("NaN", "PID_INVALID"),
    ("{\"pid\":5}", "PID_INVALID"),
];

#[test]
fn what_is_not_a_process_is_refused_and_no_signal_is_sent() {
    if !has_program("strace") {
        return skip("what_is_not_a_process_is_refused_and_no_signal_is_sent", "no strace here");
    }
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"*\"]\nusers = [\"*\"]\nmin_pid = 2\n");
    for (number, wanted) in NUMBERS {
        let (done, acts) = traced(&env, "kill", &["--", number]);
        assert_eq!((done.code(), code(&done).as_str()), (Some(4), wanted), "{number:?}: {}", done.stdout);
        assert_eq!(acts, Vec::<String>::new(), "{number:?}");
        assert!(!done.envelope()["error"]["hint"].as_str().unwrap_or_default().is_empty(), "{number:?}");
    }
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    assert_eq!(log.lines().count(), NUMBERS.len(), "one line each");
}

#[test]
fn nothing_is_allowed_unless_the_policy_says_so() {
    let env = TestEnv::as_me();
    let mut stranger = Stranger::asleep(&env);
    let (done, acts) = traced(&env, "kill", &[&stranger.pid()]);
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "NOT_ALLOWED"), "{}", done.stdout);
    assert!(done.envelope()["error"]["hint"].to_string().contains("docs/guard.md"), "{}", done.stdout);
    assert_eq!(acts, Vec::<String>::new());
    assert!(stranger.is_alive());
}

/// Each with a policy that allows everything else.
#[test]
fn a_process_that_no_policy_allows_is_safe() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"*\"]\nusers = [\"*\"]\nmin_pid = 2\n");
    let me = std::process::id().to_string();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let of = |role: &str| job.process(role).expect("a process").pid.to_string();
    let shell = Command::new("sh").args(["-c", "echo $PPID"]).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), me);
    let grandparent =
        quell_tests::oracle::Process::now(std::process::id()).map(|_| parent_of(std::process::id()));
    let mut cases = vec![
        (me.clone(), "PID_IS_CALLER"),
        (of("keeper"), "PID_IS_QUELL"),
        (of("standby"), "PID_IS_QUELL"),
        (of("root"), "PID_IN_JOB"),
    ];
    if let Some(above) = grandparent.filter(|pid| *pid > 1) {
        cases.push((above.to_string(), "PID_IS_ANCESTOR"));
    }
    if fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd") {
        let threads = fs::read_to_string("/proc/2/task/2/children").unwrap_or_default();
        cases.push(("2".into(), "PID_KERNEL_THREAD"));
        // The kernel's threads also have large numbers. Workers come and go.
        let stays = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| !comm.starts_with("kworker"))
        };
        let last = threads.split_whitespace().rfind(stays);
        cases.extend(last.map(|pid| (pid.to_owned(), "PID_KERNEL_THREAD")));
    }
    // In a PID namespace the tests may be its first process.
    cases.retain(|(pid, _)| pid != "1");
    for (pid, wanted) in cases {
        let (done, acts) = traced(&env, "kill", &[&pid]);
        // Under strace the tests' own process is one step further up.
        let found = code(&done).replace("PID_IS_ANCESTOR", "PID_IS_CALLER");
        let wanted = wanted.replace("PID_IS_ANCESTOR", "PID_IS_CALLER");
        assert_eq!((done.code(), found), (Some(4), wanted), "{pid}: {}", done.stdout);
        assert_eq!(acts, Vec::<String>::new(), "{pid}");
    }
    assert!(!job.is_over());
    job.stop(&["--now"]);
    // A shell that would end itself, and one that is above it.
    let itself = "\"$@\" $$; exit $?";
    let above = "export P=$$; bash -c '\"$@\" $P; exit $?' sh \"$@\"; exit $?";
    for (script, wanted) in [(itself, "PID_IS_CALLER"), (above, "PID_IS_ANCESTOR")] {
        let done = verb(&env, "kill").wrapped(["bash", "-c", script, "sh"]).args(["--json"]).finish();
        assert_eq!((done.code(), code(&done).as_str()), (Some(4), wanted), "{}{}", done.stdout, done.stderr);
    }
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let rest = stat.rsplit_once(") ").expect("a name").1;
    rest.split(' ').nth(1).and_then(|ppid| ppid.parse().ok()).expect("a parent")
}

#[test]
fn the_policy_protects_names_users_and_low_numbers() {
    let env = TestEnv::as_me();
    let mut stranger = Stranger::asleep(&env);
    let pid = stranger.pid();
    let uid = if am_root() { "root" } else { "65534" };
    let all = "allow = [\"*\"]\nusers = [\"*\"]\nmin_pid = 2\n";
    for (rules, words, wanted) in [
        (format!("{all}protect = [\"sl*p\"]\n"), vec![], "NAME_PROTECTED"),
        (format!("{all}protect = [\"*\"]\n"), vec![], "NAME_PROTECTED"),
        (format!("{all}protect_users = [\"{uid}\", \"nobody\"]\n"), vec![], "USER_PROTECTED"),
        ("allow = [\"sleep\"]\nmin_pid = 4194303\n".into(), vec![], "PID_BELOW_FLOOR"),
        (format!("{all}signals = [\"SIGINT\", \"hup\"]\n"), vec![], "SIGNAL_NOT_ALLOWED"),
        (format!("{all}signals = [\"TERM\"]\n"), vec!["--signal", "KILL"], "SIGNAL_NOT_ALLOWED"),
        ("allow = [\"slee\", \"leep\", \"Sleep\", \"sleep2\"]\nmin_pid = 2\n".into(), vec![], "NOT_ALLOWED"),
        ("users = [\"*\"]\nmin_pid = 2\n".into(), vec![], "NOT_ALLOWED"),
        ("allow = []\nmin_pid = 2\n".into(), vec![], "NOT_ALLOWED"),
    ] {
        policy(&env, &format!("[guard.kill]\n{rules}"));
        let words: Vec<&str> = words.into_iter().chain([pid.as_str()]).collect();
        let (done, acts) = traced(&env, "kill", &words);
        assert_eq!((done.code(), code(&done).as_str()), (Some(4), wanted), "{rules}: {}", done.stdout);
        assert_eq!(acts, Vec::<String>::new(), "{rules}");
        let check = verb(&env, "guard").args(["check", "kill", "--json"]).args(&words).finish();
        assert_eq!(check.code(), Some(4), "{rules}: {}", check.stdout);
        assert_eq!(check.envelope()["data"]["decision"]["code"], wanted, "{rules}");
    }
    assert!(stranger.is_alive());
}

#[test]
fn anothers_process_needs_a_word_and_the_kernels_leave() {
    if !am_root() {
        return skip("anothers_process_needs_a_word_and_the_kernels_leave", "needs root to have two users");
    }
    let (root, ordinary) = (TestEnv::new(User::Root), TestEnv::new(User::Ordinary));
    let mut theirs = Stranger::asleep(&ordinary);
    policy(&root, "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    let (done, acts) = traced(&root, "kill", &[&theirs.pid()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("USER_NOT_ALLOWED", 0), "{}", done.stdout);
    assert!(theirs.is_alive());
    let mut ours = Stranger::asleep(&root);
    policy(&ordinary, "[guard.kill]\nallow = [\"sleep\"]\nusers = [\"*\"]\nmin_pid = 2\n");
    let done = verb(&ordinary, "kill").args(["--json", &ours.pid()]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "not_permitted"), "{}", done.stdout);
    assert!(ours.is_alive());
    policy(&root, "[guard.kill]\nallow = [\"sleep\"]\nusers = [\"nobody\"]\nmin_pid = 2\n");
    let done = verb(&root, "kill").args(["--json", &theirs.pid()]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
    assert!(!theirs.is_alive());
}

fn allowed(env: &TestEnv) {
    policy(env, "[guard.kill]\nallow = [\"sleep\", \"bash\"]\nmin_pid = 2\n");
}

#[test]
fn a_polite_process_is_asked_and_gone_at_once() {
    for user in User::all() {
        let env = TestEnv::new(user);
        allowed(&env);
        let mut stranger = Stranger::asleep(&env);
        // `finish` does not wait for that long: the grace is not a sleep.
        let done = verb(&env, "kill").args(["--json", "--grace", "60s", &stranger.pid()]).finish();
        assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
        let data = &done.envelope()["data"];
        assert_eq!((&data["kill"], &data["still_running"]), (&Value::Null, &Value::from(false)));
        assert_eq!((&data["success"], &data["verdict"]["kind"]), (&Value::from(true), &Value::from("gone")));
        assert_eq!(data["identity"]["pid"], stranger.0.id());
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&stranger.0.wait().expect("wait")),
            Some(15)
        );
    }
}

#[test]
fn one_that_does_not_heed_is_killed_when_its_grace_is_over() {
    let env = TestEnv::as_me();
    allowed(&env);
    for (grace, least) in [("300ms", 300), ("0", 0)] {
        let script = "trap '' TERM; touch $HERE/ready; while :; do read -t 60 <><(:); done";
        let mut stranger = Stranger::new(&env, env.user(), script);
        let done = verb(&env, "kill").args(["--json", "--grace", grace, &stranger.pid()]).finish();
        assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
        let data = &done.envelope()["data"];
        assert_eq!(data["kill"], if least > 0 { "grace_over" } else { "wanted" }, "{data}");
        assert!(data["took"].as_f64() >= Some(f64::from(least) / 1e3), "{data}");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&stranger.0.wait().expect("wait")), Some(9));
        let mut stranger = Stranger::new(&env, env.user(), script);
        let done = verb(&env, "kill").args(["--grace", grace, &stranger.pid()]).finish();
        let how = if least > 0 { "killed when TERM was not enough" } else { "killed (no grace)" };
        assert!(done.stdout.contains(how), "{}", done.stdout);
        stranger.0.wait().expect("wait");
    }
}

#[test]
fn a_stopped_process_hears_the_request() {
    let env = TestEnv::as_me();
    allowed(&env);
    let script =
        "trap 'echo asked >>$HERE/heard; exit 0' TERM; touch $HERE/ready; while :; do read -t 1 <><(:); done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let process = Process::now(stranger.0.id()).expect("it lives");
    assert!(process.signal("STOP") && eventually(PATIENCE, || process.state() == Some('T')));
    let done = verb(&env, "kill").args(["--json", "--grace", "20s", &stranger.pid()]).finish();
    assert_eq!(done.envelope()["data"]["kill"], Value::Null, "{}", done.stdout);
    assert_eq!(fs::read_to_string(env.path("heard")).expect("it heard"), "asked\n");
    stranger.0.wait().expect("wait");
}

#[test]
fn a_signal_that_is_not_deadly_is_sent_once_and_no_kill_follows() {
    let env = TestEnv::as_me();
    allowed(&env);
    let script = "trap 'echo heard >>$HERE/heard' USR2; touch $HERE/ready; while :; do sleep 0.1; done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let done =
        verb(&env, "kill").args(["--json", "--signal", "USR2", "--grace", "0", &stranger.pid()]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
    let data = &done.envelope()["data"];
    assert_eq!((&data["verdict"]["kind"], &data["still_running"]), (&"sent".into(), &true.into()));
    assert!(eventually(PATIENCE, || env.path("heard").exists()));
    assert!(stranger.is_alive());
}

#[test]
fn with_tree_those_below_are_gone_too_and_each_must_be_allowed() {
    let env = TestEnv::as_me();
    allowed(&env);
    // A child in another session, one that ignores TERM, and one below that.
    let script = "setsid sleep $N & (trap '' TERM; sleep $N; :) & touch $HERE/ready; wait";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let root = Process::now(stranger.0.id()).expect("it lives");
    // What has touched the file may not have ended yet.
    let comm = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let stays = |process: &Process| matches!(comm(process.pid).trim(), "sleep" | "bash");
    let all_there = || all_below(&root).len() == 3 && all_below(&root).iter().all(stays);
    assert!(eventually(PATIENCE, all_there));
    let below = all_below(&root);
    policy(&env, "[guard.kill]\nallow = [\"*\"]\nprotect = [\"sleep\"]\nmin_pid = 2\n");
    let (done, acts) = traced(&env, "kill", &["--tree", &stranger.pid()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("NAME_PROTECTED", 0), "{}", done.stdout);
    assert!(stranger.is_alive() && below.iter().all(Process::is_alive));
    allowed(&env);
    let done = verb(&env, "kill").args(["--json", "--tree", "--grace", "200ms", &stranger.pid()]).finish();
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    let members = done.envelope()["data"]["members"].as_array().map(Vec::len);
    assert!(members >= Some(4), "{}", done.stdout);
    assert!(below.iter().all(|process| !process.is_alive()), "{below:?}");
    stranger.0.wait().expect("wait");
}

fn all_below(process: &Process) -> Vec<Process> {
    process.children().into_iter().flat_map(|child| all_below(&child).into_iter().chain([child])).collect()
}

#[test]
fn a_free_pid_and_a_thread_are_not_processes() {
    let env = TestEnv::as_me();
    allowed(&env);
    let mut gone = Command::new("true").spawn().expect("true");
    let number = gone.id().to_string();
    gone.wait().expect("wait");
    let done = verb(&env, "kill").args(["--json", &number]).finish();
    // The PID may belong to another process by now, which is not allowed then.
    assert!(
        matches!((done.code(), code(&done).as_str()), (Some(3), "no_such_process") | (Some(4), _)),
        "{}",
        done.stdout
    );
    let mut zombie = Command::new("true").spawn().expect("true");
    let is_zombie = || Process::now(zombie.id()).and_then(|process| process.state()) == Some('Z');
    assert!(eventually(PATIENCE, is_zombie));
    let done = verb(&env, "kill").args(["--json", &zombie.id().to_string()]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(3), "no_such_process"), "{}", done.stdout);
    zombie.wait().expect("wait");
    // This test runs in a thread of its own.
    let tid = fs::read_link("/proc/thread-self").expect("a thread");
    let tid = tid.file_name().expect("a number").to_string_lossy().into_owned();
    assert_ne!(tid, std::process::id().to_string());
    let (done, acts) = traced(&env, "kill", &[&tid]);
    assert_eq!((done.code(), code(&done).as_str()), (Some(3), "no_such_process"), "{}", done.stdout);
    assert_eq!(acts, Vec::<String>::new());
}

#[test]
fn the_log_has_the_caller_the_act_the_reason_and_the_result() {
    let env = TestEnv::as_me();
    allowed(&env);
    let stranger = Stranger::asleep(&env);
    let done = verb(&env, "kill").args(["--reason", "it hangs", &stranger.pid()]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.iter().map(|line| &line["kind"]).collect::<Vec<_>>(), ["decision", "act"]);
    for line in &lines {
        assert_eq!((&line["verb"], &line["effect"]), (&"kill".into(), &"destructive".into()));
        assert_eq!((&line["cause"], &line["target"]), (&"it hangs".into(), &stranger.pid().into()));
        assert_eq!(line["decision"]["rule"], "guard.kill.allow");
        assert!(line["actor"]["pid"].as_u64() > Some(0) && line["actor"]["name"].is_string(), "{line}");
    }
    assert_eq!(lines[1]["result"]["verdict"]["kind"], "gone");
    assert_eq!(lines[1]["result"]["identity"]["pid"], stranger.0.id());
    // Only this user can read it.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(env.home().join("audit.jsonl")).expect("it").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    // And without it nothing is done.
    let mut other = Stranger::asleep(&env);
    fs::remove_file(env.home().join("audit.jsonl")).expect("the log");
    fs::create_dir(env.home().join("audit.jsonl")).expect("mkdir");
    let done = verb(&env, "kill").args(["--json", &other.pid()]).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stdout);
    assert!(other.is_alive());
}

/// Runs it with so many open files, as the limit that it may raise or as the one that it can't.
fn with_files(env: &TestEnv, limit: &str, words: &[&str]) -> Finished {
    let script = format!("ulimit {limit} || exit 99; exec \"$@\"");
    verb(env, "kill").wrapped(["bash", "-c", &script, "sh"]).args(["--json", "--tree"]).args(words).finish()
}

#[test]
fn a_tree_of_which_not_all_can_be_seen_gets_no_signal() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"sleep\", \"bash\"]\nprotect = [\"tail\"]\nmin_pid = 2\n");
    let script = |last: &str| {
        format!("for i in $(seq 60); do sleep $N & done; {last} touch $HERE/ready; read -t 60 <><(:)")
    };
    let mut stranger = Stranger::new(&env, env.user(), &script("tail -f /dev/null &"));
    let root = Process::now(stranger.0.id()).expect("it lives");
    let stays =
        |process: &Process| process.command.starts_with("sleep") || process.command.starts_with("tail");
    let all_there = || all_below(&root).iter().filter(|process| stays(process)).count() == 61;
    assert!(eventually(PATIENCE, all_there));
    let (done, acts) = {
        let trace = env.fresh("trace");
        let strace = format!("ulimit -n 40; exec strace -f -o {} -e trace={ACTS} \"$@\"", trace.display());
        let done = verb(&env, "kill").wrapped(["bash", "-c", &strace, "sh"]);
        (done.args(["--json", "--tree", &stranger.pid()]).finish(), acts(&trace))
    };
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "TREE_NOT_SEEN"), "{}", done.stdout);
    assert_eq!(acts, Vec::<String>::new());
    assert!(stranger.is_alive() && all_there());
    // Where the limit can be raised it is, and then the last one is seen.
    let done = with_files(&env, "-Sn 40", &[&stranger.pid()]);
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "NAME_PROTECTED"), "{}", done.stdout);
    assert!(stranger.is_alive() && all_there());
    drop(stranger);
    env.oracle.end_survivors();
    let mut stranger = Stranger::new(&env, env.user(), &script(""));
    let done = with_files(&env, "-Sn 40", &[&stranger.pid()]);
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
    stranger.0.wait().expect("wait");
    assert_eq!(env.oracle.survivors(), []);
}

#[test]
fn processes_started_in_the_grace_are_gone_too() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"sleep\", \"bash\", \"setsid\"]\nmin_pid = 2\n");
    // Left by its parent when that ends, and in a session of its own.
    let script =
        "trap 'setsid sleep $N & sleep 1; exit 0' TERM; touch $HERE/ready; while :; do sleep 0.1; done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let done = verb(&env, "kill").args(["--json", "--tree", "--grace", "3s", &stranger.pid()]).finish();
    stranger.0.wait().expect("wait");
    assert_eq!(env.oracle.survivors(), [], "{}", done.stdout);
    assert_eq!((done.code(), &done.envelope()["data"]["verdict"]["kind"]), (Some(0), &"gone".into()));
}

#[test]
fn a_process_that_is_orphaned_by_the_signal_itself_is_named_and_not_called_gone() {
    // In a session of its own, and in the group of its parent.
    for start in ["setsid sleep $N", "sleep $N"] {
        let env = TestEnv::as_me();
        policy(&env, "[guard.kill]\nallow = [\"sleep\", \"bash\", \"setsid\"]\nmin_pid = 2\n");
        let script = format!("trap '{start} & exit 0' TERM; touch $HERE/ready; while :; do sleep 0.1; done");
        let mut stranger = Stranger::new(&env, env.user(), &script);
        let done = verb(&env, "kill").args(["--json", "--tree", "--grace", "3s", &stranger.pid()]).finish();
        stranger.0.wait().expect("wait");
        let left = env.oracle.survivors();
        let verdict = &done.envelope()["data"]["verdict"];
        // A look may have found it before its parent had exited.
        let expected = if left.is_empty() { (Some(0), "gone") } else { (Some(5), "unproven") };
        assert_eq!(
            (done.code(), verdict["kind"].as_str().unwrap_or("")),
            expected,
            "{start}: {verdict}, {left:?}"
        );
        let why = verdict["why"].as_str().unwrap_or_default();
        assert!(left.iter().all(|process| why.contains(&process.pid.to_string())), "{start}: {verdict}");
    }
}

#[test]
fn processes_started_in_the_grace_that_may_not_be_touched_are_named() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"sleep\", \"bash\"]\nmin_pid = 2\n");
    let script = "trap 'tail -f /dev/null & while :; do sleep 0.1; done' TERM; touch $HERE/ready; while :; do sleep 0.1; done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let done = verb(&env, "kill").args(["--json", "--tree", "--grace", "1s", &stranger.pid()]).finish();
    stranger.0.wait().expect("wait");
    let left = env.oracle.survivors();
    assert_eq!(
        left.iter().map(|process| process.command.as_str()).collect::<Vec<_>>(),
        ["tail -f /dev/null"]
    );
    let data = &done.envelope()["data"];
    assert_eq!((done.code(), &data["verdict"]["kind"]), (Some(5), &"survivors".into()), "{data}");
    let members = data["members"].as_array().expect("members");
    let named = members.iter().find(|member| member["id"]["pid"] == left[0].pid).expect("it is named");
    assert_eq!((&named["alive"], &named["spared"]["code"]), (&true.into(), &"NOT_ALLOWED".into()), "{data}");
}
