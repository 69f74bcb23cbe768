//! What a look at /proc overlooks: chains of forks, the caller itself, processes whose first thread has exited, start times of
//! another time namespace, a listing that breaks off. While such a process lives, its job is not said to be gone.

use std::{fs, process::Command, process::Stdio};

use quell_tests::{
    eventually,
    evidence::verdict,
    host::{self, Contain, Setting, User, has_program},
    jobs::Background,
    run::{Finished, PATIENCE},
    skip,
    test_env::TestEnv,
};

/// The verdict on a lost job; with the exit code that goes with it.
fn told(job: &Background<'_>, stop: &Finished) -> String {
    let receipt = job.receipt().unwrap_or_else(|| panic!("no receipt: {}{}", stop.stdout, stop.stderr));
    let code = if verdict(&receipt) == "gone" { 0 } else { 5 };
    assert_eq!(stop.code(), Some(code), "{receipt:#}");
    verdict(&receipt).to_owned()
}

/// Whether links of a slow chain are still being made.
fn chain_goes_on(env: &TestEnv) -> bool {
    let beats = || fs::metadata(env.path("beat")).map_or(0, |found| found.len());
    let before = beats();
    eventually(std::time::Duration::from_millis(500), || beats() > before)
}

#[test]
fn a_chain_without_its_environment_is_not_called_gone_after_a_loss() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let script = "exec env -i QUELL_TEST_READY=$QUELL_TEST_READY $A slow-chain $T 1500";
        let job = env.start().args(["--contain", "reaper"]).script(script).begin();
        job.lose();
        let stop = job.stop(&[]);
        let (told, goes_on) = (told(&job, &stop), chain_goes_on(&env));
        env.write("enough", "");
        assert!(told != "gone" || !goes_on, "{user:?}: {}", stop.stdout);
    }
}

#[test]
fn a_chain_with_its_environment_is_gone_after_a_loss() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let job = env.start().args(["--contain", "reaper"]).actor("slow-chain", Some("1500")).begin();
        job.lose();
        let stop = job.stop(&[]);
        let (told, goes_on) = (told(&job, &stop), chain_goes_on(&env));
        env.write("enough", "");
        assert!(!goes_on, "{user:?}: {told}: {}", stop.stdout);
    }
}

/// Dead processes that a chain leaves make each pass over /proc slower, and so would make room for more of them.
#[test]
fn a_chain_is_chased_before_all_processes_are_listed() {
    let test = "a_chain_is_chased_before_all_processes_are_listed";
    if !has_program("strace") {
        return skip(test, "no strace here");
    }
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let calls = "trace=openat,open";
    let stop =
        env.quell("stop").args([&job.id]).wrapped(["strace", "-f", "-o", "trace", "-e", calls]).finish();
    let trace = fs::read_to_string(env.path("trace")).unwrap_or_default();
    let Some(chase) = trace.lines().position(|line| line.contains("\"/proc/loadavg\"")) else {
        assert!(!trace.contains("\"/proc\""), "{}", stop.stdout);
        return skip(test, "strace sees nothing here");
    };
    let listing = trace.lines().position(|line| line.contains("\"/proc\","));
    assert!(listing.is_none_or(|listing| chase < listing), "{trace}");
}

/// A process that left all that ties it to its job asks about it: it is the one that is still there.
#[test]
fn a_caller_that_may_be_the_jobs_is_not_passed_over() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let script = "(setsid env -i PATH=$PATH HOME=$HOME QUELL_HOME=$QUELL_HOME Q=$Q N=$N bash -c '
                until [ -e go ]; do sleep 0.01; done
                $Q stop $(cat go) >said 2>&1; echo $? >code.new; mv code.new code; exec sleep $N' <&- >&- 2>&- &)
            echo ready >$QUELL_TEST_READY; sleep $N";
        let job = env.start().args(["--contain", "reaper"]).script(script).begin();
        job.lose();
        env.write("new", &job.id);
        fs::rename(env.path("new"), env.path("go")).expect("a file");
        let code = env.path("code");
        assert!(eventually(PATIENCE, || code.exists()), "{user:?}: the stop within does not end");
        let said = fs::read_to_string(env.path("said")).unwrap_or_default();
        assert_eq!(fs::read_to_string(&code).expect("a code").trim(), "5", "{user:?}: {said}");
        let receipt = job.receipt().expect("a receipt");
        assert_ne!(verdict(&receipt), "gone", "{user:?}: {receipt:#}");
        env.oracle.end_survivors();
    }
}

#[test]
fn a_listing_of_proc_that_breaks_off_proves_nothing() {
    let test = "a_listing_of_proc_that_breaks_off_proves_nothing";
    let breaks =
        ["strace", "-f", "-o", "/dev/null", "-P", "/proc", "-e", "inject=getdents64:error=EIO:when=2+"];
    let mut probe = Command::new(breaks[0]);
    probe.args(&breaks[1..]).args(["ls", "/proc"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|done| !done.success()) {
        return skip(test, "no strace here that can make calls fail");
    }
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str()]);
        let job = quell.script("setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N").begin();
        job.lose();
        let stop = env.quell("stop").args([&job.id]).wrapped(breaks).finish();
        let receipt = job.receipt().unwrap_or_else(|| panic!("{setting}: {}{}", stop.stdout, stop.stderr));
        assert_eq!((stop.code(), verdict(&receipt)), (Some(5), "unproven"), "{setting}: {receipt:#}");
        let why = receipt["verdict"]["why"].as_str().unwrap_or_default();
        assert!(why.contains("can't be listed"), "{setting}: {why}");
        env.oracle.end_survivors();
    }
}

#[test]
fn a_job_that_was_started_in_a_time_namespace_is_ended_from_outside() {
    let test = "a_job_that_was_started_in_a_time_namespace_is_ended_from_outside";
    for shift in ["10000", "-10"] {
        let shifted = ["unshare", "-T", "--boottime", shift];
        let probe = Command::new(shifted[0]).args(&shifted[1..]).arg("true").stderr(Stdio::null()).status();
        if !probe.is_ok_and(|done| done.success()) {
            return skip(test, "no time namespace can be made");
        }
        for inside in [false, true] {
            let what = format!("{shift}, inside: {inside}");
            let env = TestEnv::as_me();
            // Nothing but its identity tells of the root.
            let quell = env.start().args(["--contain", "reaper"]).wrapped(shifted);
            let job = quell.command(["env", "-i", "sleep", &env.oracle.nap()]).begin();
            job.lose();
            let stop = env.quell("stop").args([&job.id]);
            let stop = if inside { stop.wrapped(shifted).finish() } else { stop.finish() };
            told(&job, &stop);
            assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{what}: {}", stop.stdout);
        }
    }
}

/// The kernel neither lists nor kills the processes of a threaded cgroup, only their threads.
#[test]
fn a_job_that_made_its_cgroup_threaded_is_ended_after_a_loss() {
    let test = "a_job_that_made_its_cgroup_threaded_is_ended_after_a_loss";
    if !host::am_root() || Contain::Cgroup.available(User::Root).is_err() {
        return skip(test, "it needs root and a cgroup");
    }
    let env = TestEnv::in_own_cgroup(User::Root);
    // A cgroup with processes in it can't be made threaded, so the job leaves it for that.
    let script = "M=$(findmnt -nt cgroup2 -o TARGET | head -n 1); own=$M$(sed -n s/^0:://p /proc/self/cgroup)
        echo 0 >$M/cgroup.procs; echo threaded >$own/cgroup.type && echo 0 >$own/cgroup.threads || touch refused
        (setsid env -i sleep ${N}5 <&- >&- 2>&- &)
        echo ready >$QUELL_TEST_READY; exec env -i sleep $N";
    let job = env.start().args(["--contain", "cgroup"]).script(script).begin();
    if env.path("refused").exists() {
        return skip(test, "this kernel does not let a cgroup become threaded");
    }
    job.lose();
    let stop = job.stop(&[]);
    told(&job, &stop);
    assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{}", stop.stdout);
    assert!(!stop.stdout.contains("its cgroup is not empty"), "{}", stop.stdout);
}

#[test]
fn members_that_keep_the_init_of_their_namespace_from_its_end_are_killed_after_a_loss() {
    let test = "members_that_keep_the_init_of_their_namespace_from_its_end_are_killed_after_a_loss";
    for setting in Setting::all().into_iter().filter(|setting| setting.contain == Contain::Pidns) {
        let env = TestEnv::with(setting);
        let job = env.start().args(["--contain", "pidns"]).actor("hold-exit", Some("1")).begin();
        let init = job.process("root").expect("an init");
        let status = fs::read_to_string(format!("/proc/{}/status", init.pid)).unwrap_or_default();
        if status.lines().any(|line| line.starts_with("TracerPid:") && line.ends_with("\t0")) {
            skip(test, "no ptrace here");
            continue;
        }
        job.lose();
        let stop = job.stop(&[]);
        told(&job, &stop);
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{setting}: {}", stop.stdout);
        assert!(!init.is_alive(), "{setting}: {}", stop.stdout);
    }
}

/// What a stop says of a job that is alone with these in a PID namespace, and its exit code. `start` prints the job's id, and the
/// job makes the file `ready`. `$0` is quell and `$1` what to give `sleep`.
fn said_alone(test: &str, start: &str, lost: bool) -> Option<(String, String)> {
    if !host::am_root() {
        skip(test, "it needs root");
        return None;
    }
    let env = TestEnv::in_own_cgroup(User::Root);
    let lose = "for role in standby keeper; do
            pid=$(tail -n 1 $QUELL_HOME/jobs/$id/state.jsonl | sed 's/.*\"'$role'\":{\"pid\":\\([0-9]*\\).*/\\1/')
            kill -STOP $pid; pids=\"$pids $pid\"
        done
        kill -KILL $pids
        for pid in $pids; do while kill -0 $pid 2>/dev/null && ! grep -q '^State:.Z' /proc/$pid/status; do :; done; done";
    let lose = if lost { lose } else { "" };
    let script = format!(
        "id=$({start}) || exit 9
        tries=0; until [ -e ready ]; do sleep 0.01; tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 8; done
        {lose}
        $0 stop $id >said 2>&1; echo $? >code"
    );
    let mut words = env.prefix();
    words.extend(["unshare", "-pf", "--mount-proc", "sh", "-c", &script].map(String::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(env.quell_path()).arg(env.oracle.nap());
    command.env("A", env.actor_path()).env("T", env.oracle.token());
    command.env("QUELL_HOME", env.home()).current_dir(env.path("")).stdin(Stdio::null());
    let done = command.output().expect("unshare");
    let read = |name: &str| fs::read_to_string(env.path(name)).unwrap_or_default();
    let (said, code, errors) = (read("said"), read("code"), String::from_utf8_lossy(&done.stderr));
    if code.is_empty() && (errors.contains("unshare") || done.status.code() == Some(9)) {
        skip(test, errors.trim());
        return None;
    }
    Some((code.trim().to_owned(), said))
}

/// It may be a job that the lost one has started, which starts programs again and again.
#[test]
fn a_keeper_that_is_younger_than_a_lost_job_is_not_passed_over() {
    let test = "a_keeper_that_is_younger_than_a_lost_job_is_not_passed_over";
    let start = "$0 start --contain reaper -- sh -c 'env -i PATH=$PATH QUELL_HOME=$QUELL_HOME.inner $0 start --contain reaper \
        --restart always -- true >/dev/null 2>&1; echo >ready; sleep $1' $0 $1";
    if let Some((code, said)) = said_alone(test, start, true) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("(quell-standby)"), "{said}");
    }
}

#[test]
fn a_process_that_poses_as_the_keeper_of_another_job_is_not_passed_over() {
    let test = "a_process_that_poses_as_the_keeper_of_another_job_is_not_passed_over";
    let start = "mkdir live; cp -L $(command -v bash) quell-posed
        $0 start --contain reaper -- sh -c '(setsid env -i PATH=$PATH ./quell-posed -c \"echo >ready; sleep $1; :\" \
        <&- >&- 2>&- 9>live/01M7P5CZ8A4Z1GW10010B8EMW8 &); sleep $1' $0 $1";
    if let Some((code, said)) = said_alone(test, start, true) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("(quell-posed)"), "{said}");
    }
}

/// A script that makes a PID namespace outside of every job, and sets `init` to its first process.
const NAMESPACE: &str = "unshare -fp sleep $1 <&- >&- 2>&- & until init=$(pgrep -P $!); do :; done";

/// A script that leaves a process whose first thread has exited.
const THREADS: &str = "mkfifo in-place
    env -i QUELL_TEST_READY=$PWD/in-place setsid $A leader-thread $T <&- >&- 2>&- &
    read line <in-place; echo >ready";

/// What a stop says of a job that has left an orphan in a PID namespace that is not its own. The script `namespace` sets `init` to the
/// first process there; `orphan` is a script that the job runs there, and it makes the file `ready`.
fn said_of_an_orphan_elsewhere(
    test: &str,
    contain: Contain,
    namespace: &str,
    orphan: &str,
    lost: bool,
) -> Option<(String, String)> {
    let contain = contain.as_str();
    let start = format!(
        "cat >orphan.sh <<'END'
{orphan}
END
        mkdir live; cp -L $(command -v bash) quell-posed
        {namespace}
        $0 start --contain {contain} -- sh -c 'nsenter -t '$init' -p -- sh orphan.sh $0 $1; sleep $1' $0 $1"
    );
    said_alone(test, &start, lost)
}

#[test]
fn an_orphan_whose_first_thread_has_exited_is_not_called_gone() {
    let test = "an_orphan_whose_first_thread_has_exited_is_not_called_gone";
    for lost in [false, true] {
        if let Some((code, said)) =
            said_of_an_orphan_elsewhere(test, Contain::Reaper, NAMESPACE, THREADS, lost)
        {
            assert_eq!(code, "5", "lost: {lost}: {said}");
        }
    }
}

#[test]
fn a_thread_that_is_left_in_the_cgroup_is_ended_by_the_first_stop() {
    let test = "a_thread_that_is_left_in_the_cgroup_is_ended_by_the_first_stop";
    if let Err(why) = Contain::Cgroup.available(User::Root) {
        return skip(test, &why);
    }
    if let Some((code, said)) = said_of_an_orphan_elsewhere(test, Contain::Cgroup, NAMESPACE, THREADS, false)
    {
        assert_eq!(code, "0", "{said}");
        // The kernel shows no command line of a process whose first thread has exited.
        assert!(said.contains("[actor]"), "{said}");
    }
}

#[test]
fn an_orphan_that_poses_as_the_keeper_of_a_job_in_another_pid_namespace_is_not_passed_over() {
    let test = "an_orphan_that_poses_as_the_keeper_of_a_job_in_another_pid_namespace_is_not_passed_over";
    let orphan = "setsid env -i PATH=$PATH ./quell-posed -c 'echo >ready; sleep $0; :' $2 \
        <&- >&- 2>&- 9>live/01M7P5CZ8A4Z1GW10010B8EMW8 &";
    if let Some((code, said)) = said_of_an_orphan_elsewhere(test, Contain::Reaper, NAMESPACE, orphan, false) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("(quell-posed)"), "{said}");
    }
}

/// The init of that namespace is a quell, too.
#[test]
fn an_orphaned_run_in_the_namespace_of_another_job_is_not_passed_over() {
    let test = "an_orphaned_run_in_the_namespace_of_another_job_is_not_passed_over";
    let namespace = r#"other=$($0 start --contain pidns -- sleep $1)
        init=$(tail -n 1 $QUELL_HOME/jobs/$other/state.jsonl | sed 's/.*"root":{"pid":\([0-9]*\).*/\1/')"#;
    let orphan = r#"unshare -m setsid sh -c 'mount -t proc proc /proc
        exec env -i PATH=$PATH $0 run --no-record --contain reaper -- sh -c "echo >ready; sleep $1; :"' $1 $2 <&- >&- 2>&- &"#;
    if let Some((code, said)) = said_of_an_orphan_elsewhere(test, Contain::Reaper, namespace, orphan, false) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("(quell)"), "{said}");
    }
}

#[test]
fn the_shift_of_a_time_namespace_may_be_a_part_of_a_tick() {
    let test = "the_shift_of_a_time_namespace_may_be_a_part_of_a_tick";
    if !has_program("python3") {
        return skip(test, "no python3 here");
    }
    // CLONE_NEWTIME; the offset is set before the first child is born.
    let python = "import ctypes, os, sys
if ctypes.CDLL(None).unshare(0x80): sys.exit(9)
open('/proc/self/timens_offsets', 'w').write('boottime -20 5000000')
sys.exit(os.waitstatus_to_exitcode(os.system(' '.join(sys.argv[1:]))))";
    let start = format!(
        "printf %s \"(setsid env -i sleep $1 <&- >&- 2>&- &); echo >ready; sleep $1\" >job.sh
        python3 -c \"{python}\" $0 start --contain reaper -- sh job.sh"
    );
    if let Some((code, said)) = said_alone(test, &start, true) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("(sleep)"), "{said}");
    }
}

/// A job of root's that hides a process of its own behind the directory of another one.
const HIDDEN: &str = "$0 start --contain reaper -- sh -c '(setsid env -i sleep $1 <&- >&- 2>&- &)
    until pid=$(pgrep -f \"^sleep $1\"); do :; done
    mount --bind /proc/1 /proc/$pid || exit; echo >ready; exec sleep $1' $0 $1";

#[test]
fn a_process_that_is_hidden_by_a_mount_is_not_called_gone_after_a_loss() {
    let test = "a_process_that_is_hidden_by_a_mount_is_not_called_gone_after_a_loss";
    if let Some((code, said)) = said_alone(test, HIDDEN, true) {
        assert_eq!(code, "5", "{said}");
        assert!(said.contains("hidden below a mount"), "{said}");
    }
}

#[test]
fn a_process_that_is_hidden_by_a_mount_is_ended_by_its_keeper() {
    let test = "a_process_that_is_hidden_by_a_mount_is_ended_by_its_keeper";
    if let Some((code, said)) = said_alone(test, HIDDEN, false) {
        assert_eq!(code, "0", "{said}");
        assert!(said.contains("2 processes") || said.contains("3 processes"), "{said}");
    }
}
