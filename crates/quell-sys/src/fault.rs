//! The steps of quell's own processes. Each is an event for [`tracing`], which `QUELL_LOG` shows. And each is a point at which
//! a test can have the process die, or stand still: "exactly here".
//!
//! Without the feature `faults`, and while nothing listens to events, a point is one load of an atomic. With the feature, the variable
//! `QUELL_FAULT` names one point by the role of the process and the step: `keeper.go_given:kill`, or `:stop`, or
//! `keeper.event_logged:kill@3` for the third time that it is passed; with commas, several. Every process that passes a point
//! adds a line to the file `QUELL_FAULT_LOG`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::level_filters::LevelFilter;

/// The role in which a process passes a point. Much code is shared: a process that takes over runs the keeper's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What a user called, or a program that uses the library.
    Command,
    /// `quell run`.
    Front,
    /// The process above the keeper of a background job.
    Standby,
    /// The keeper.
    Keeper,
    /// The process that runs hooks and readiness checks.
    Helper,
}

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident $step:literal [$($role:ident)*])*) => {
        /// A step that is done, before the next one is. All of them are here, with the roles that pass them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FaultPoint { $($(#[$doc])* $name,)* }

        impl FaultPoint {
            /// The step's name.
            pub fn step(self) -> &'static str {
                match self { $(Self::$name => $step,)* }
            }

            #[cfg(feature = "faults")]
            /// All of them: the step's name, and the roles that pass it.
            pub const ALL: &[(FaultPoint, &str, &[Role])] =
                &[$((FaultPoint::$name, $step, &[$(Role::$role),*]),)*];
        }
    };
}

points! {
    // The start, as its caller sees it.
    /// `__keep` is executed; it has not got its request.
    KeepExecuted "keep_executed" [Command]
    /// It has, and nothing has answered.
    RequestSent "request_sent" [Command]

    // A process that quell didn't start.
    /// The guard lets it be killed; no signal was sent.
    VictimValidated "victim_validated" [Command]

    // The standby, up to the keeper's birth.
    /// The request is read; nothing exists.
    RequestRead "request_read" [Standby]
    /// The pipes for the output are there.
    PipesMade "pipes_made" [Standby]
    /// The lock is there and held; it can't be found yet.
    LockMade "lock_made" [Standby Keeper]
    /// The lock can be found; there is no directory.
    LockShown "lock_shown" [Standby Keeper]
    /// The directory is there, and empty.
    DirMade "dir_made" [Standby Keeper]
    /// launch.private.json is there, spec.json isn't.
    LaunchWritten "launch_written" [Standby]
    /// spec.json is complete under another name.
    SpecWritten "spec_written" [Standby Keeper]
    /// The job is on record.
    Recorded "recorded" [Standby Keeper]
    /// The link for the name exists under a temporary name.
    NameLinked "name_linked" [Standby Keeper]
    /// The name is taken.
    NameClaimed "name_claimed" [Standby Keeper]
    /// The helper, if there is one, lives.
    HelperStarted "helper_started" [Standby]
    /// The keeper is forked.
    KeeperForked "keeper_forked" [Standby Front]
    /// The standby, or the front, has heard that the stub is born.
    BirthHeard "birth_heard" [Standby Front]

    // The helper.
    /// It lives, and has heard nothing.
    HelperBegun "helper_begun" [Helper]
    /// It has heard of a task and not begun with it.
    TaskHeard "task_heard" [Helper]

    // The keeper, up to the program's first instruction and the report of it.
    /// It has its name, and nothing else.
    KeeperBegun "keeper_begun" [Keeper]
    /// A segment's bytes have a file, its index has none.
    SegmentMade "segment_made" [Keeper]
    /// Bytes are in the segment, and not in its index.
    OutputTaken "output_taken" [Keeper Standby]
    /// The files for the output are there.
    OutputOpened "output_opened" [Keeper]
    /// The control socket is there.
    Listening "listening" [Keeper]
    /// The job's cgroup is there, and not open yet.
    CgroupMade "cgroup_made" [Keeper]
    /// What is to hold the job is there.
    PlaceAcquired "place_acquired" [Keeper]
    /// The stub exists; it is not on record.
    StubBorn "stub_born" [Keeper]
    /// The standby has the root's identity.
    BirthTold "birth_told" [Keeper]
    /// The first state is complete under another name.
    StateWritten "state_written" [Keeper]
    /// It is the last line of state.jsonl.
    StatePublished "state_published" [Keeper Standby Front Command]
    /// The stub's identity is on record.
    IdentityRecorded "identity_recorded" [Keeper]
    /// The keeper has left the caller's session; the stub waits for its go.
    SessionLeft "session_left" [Keeper]
    /// The stub has its go.
    GoGiven "go_given" [Keeper]
    /// The program was executed.
    ExecSeen "exec_seen" [Keeper]
    /// "running" is on record.
    RunningPublished "running_published" [Keeper]
    /// The standby knows.
    RunningTold "running_told" [Keeper]
    /// The starter knows.
    StarterTold "starter_told" [Keeper]
    /// A line is added to the history.
    EventLogged "event_logged" [Keeper Standby Command]
    /// "ready" is on record.
    ReadyPublished "ready_published" [Keeper]

    // The stop.
    /// A client has asked for it, and heard nothing.
    StopSent "stop_sent" [Command]
    /// The client is told that it was heard; nothing else is done.
    StopHeard "stop_heard" [Keeper]
    /// The request is in the history; no signal was sent.
    StopNoted "stop_noted" [Keeper]
    /// The root's group is asked, the others are not.
    GroupAsked "group_asked" [Keeper]
    /// All members are asked, and continued.
    AllAsked "all_asked" [Keeper]
    /// The end of the root is seen, and not told.
    RootExitSeen "root_exit_seen" [Keeper Standby Front]
    /// The tree can't grow.
    Braked "braked" [Keeper Standby Front]
    /// The root's group is killed.
    GroupKilled "group_killed" [Keeper Standby Front]
    /// The namespace's init is killed.
    InitKilled "init_killed" [Keeper Standby Front]
    /// The cgroup is killed.
    CgroupKilled "cgroup_killed" [Keeper Standby Front Command]
    /// One pass of the sweep is done.
    Swept "swept" [Keeper Standby Front]
    /// One round of the kill is done.
    KillRoundDone "kill_round_done" [Keeper Standby Front Command]

    // The end.
    /// The count is zero; the proof begins.
    FinishBegun "finish_begun" [Keeper Standby Front]
    /// The search for marked processes is done.
    MarkedKilled "marked_killed" [Keeper Standby Front]
    /// The root is collected.
    RootCollected "root_collected" [Keeper Standby Front]
    /// The last of the output is on disk.
    OutputFinished "output_finished" [Keeper Standby]
    /// The cgroup is removed; no receipt is written.
    PlaceReleased "place_released" [Keeper Standby Front]
    /// receipt.json is complete under another name.
    ReceiptWritten "receipt_written" [Keeper Standby Front Command]
    /// receipt.json is there; the state is the old one.
    ReceiptKept "receipt_kept" [Keeper Standby Front Command]
    /// The record says "ended", the history doesn't.
    EndPublished "end_published" [Keeper Standby Front Command]
    /// The end is on record and in the history; the lock is in `live/`.
    EndLogged "end_logged" [Keeper Standby Front Command]
    /// All of it is synced to the disk.
    EndSynced "end_synced" [Keeper Standby Command]
    /// The control socket is removed.
    SocketRemoved "socket_removed" [Keeper Standby Front Command]
    /// The lock is in `done/`.
    Settled "settled" [Keeper Standby Front Command]
    /// The standby, or the front, is told.
    EndTold "end_told" [Keeper]
    /// It has heard.
    EndHeard "end_heard" [Standby Front]
    /// A job that never ran has given its name back; its record is there.
    NameGiven "name_given" [Keeper]
    /// The directory of a job that never ran, or was removed, is gone; its notes are there.
    RecordRemoved "record_removed" [Keeper Standby Command]

    // The root has exited, and the front leaves.
    /// The record says that the job has no front. The front does not know it yet.
    LeftNoted "left_noted" [Keeper]
    /// The front was sent the message.
    LeftTold "left_told" [Keeper]
    /// The front has read the message, and has not exited.
    LeftHeard "left_heard" [Front]

    // Between two lives.
    /// The standby knows that it waits.
    RestTold "rest_told" [Keeper]
    /// The wait is over; nothing of the next life exists.
    WaitOver "wait_over" [Keeper]
    /// A stop has ended the wait; the record says "waiting".
    WaitEnding "wait_ending" [Keeper]

    // The keeper is lost.
    /// It is known; nothing is done.
    KeeperMissed "keeper_missed" [Standby Front]
    /// Its zombie is collected: its children are ours.
    KeeperCollected "keeper_collected" [Standby Front]
    /// The tree is held by us.
    TreeTaken "tree_taken" [Standby Front]
    /// All is done; the starter, if one waits, is not told.
    TakenOver "taken_over" [Standby Front]

    // Both keepers are lost, and a command finishes the job.
    /// The lock is ours.
    LostLocked "lost_locked" [Command]
    /// Others can see what for.
    FinishingSaid "finishing_said" [Command]
    /// A job of which nothing had run has lost its cgroup; its record is there.
    UnmadeEmptied "unmade_emptied" [Command]
    /// The members are stopped and listed.
    LostBraked "lost_braked" [Command]
    /// All members are killed and the cgroup is removed; nothing is written.
    LostKilled "lost_killed" [Command]
    /// That it was lost is in the history; there is no receipt yet.
    LossLogged "loss_logged" [Command]
    /// Everything is on record, and the lock is held.
    LostSettled "lost_settled" [Command]

    // What finished jobs become.
    /// The old job is stopped, the new one not begun.
    RestartStopped "restart_stopped" [Command]
    /// The rows are in the index, the notes in `done/`.
    IndexAdded "index_added" [Command]
    /// The directory is on its way out, and whole.
    TakenOut "taken_out" [Command]
    /// It is gone; its notes and its row are there.
    TakenAway "taken_away" [Command]
}

/// The variable that names the file for diagnostics.
pub const LOG_VARIABLE: &str = "QUELL_LOG";

/// The variables that are for quell's own processes. They are not for the programs that quell runs.
#[cfg(feature = "faults")]
pub const VARIABLES: &[&str] = &[LOG_VARIABLE, "QUELL_FAULT", "QUELL_FAULT_LOG"];
/// The variables that are for quell's own processes. They are not for the programs that quell runs.
#[cfg(not(feature = "faults"))]
pub const VARIABLES: &[&str] = &[LOG_VARIABLE];

const ROLES: [(Role, &str); 5] = [
    (Role::Command, "command"),
    (Role::Front, "front"),
    (Role::Standby, "standby"),
    (Role::Keeper, "keeper"),
    (Role::Helper, "helper"),
];

/// The place in [`ROLES`]. A fork inherits it, and says what it is itself.
static ROLE: AtomicU8 = AtomicU8::new(0);

thread_local! {
    /// The job that this thread works for. A fork inherits it.
    static JOB: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Says as what this process goes on.
pub fn act_as(role: Role) {
    let at = ROLES.iter().position(|(known, _)| *known == role).unwrap_or(0);
    ROLE.store(at as u8, Ordering::Relaxed);
}

/// What this process is, in one word.
pub fn role() -> &'static str {
    ROLES[usize::from(ROLE.load(Ordering::Relaxed))].1
}

/// Whether this is the word for a role.
pub fn is_role(word: &str) -> bool {
    ROLES.iter().any(|(_, known)| *known == word)
}

/// Says which job this thread works for from now on.
pub fn work_for(job: &impl std::fmt::Display) {
    if is_logged() {
        JOB.with_borrow_mut(|known| *known = job.to_string());
    }
}

/// The job that this thread works for; empty if it is not known.
pub fn job() -> String {
    JOB.with_borrow(Clone::clone)
}

fn is_logged() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// Passes a point.
#[inline(always)]
pub fn fault_point(point: FaultPoint) {
    // Each piece of output passes that one.
    if is_logged() && point != FaultPoint::OutputTaken {
        tell(point);
    }
    #[cfg(all(feature = "faults", target_os = "linux"))]
    armed::fault_point(point);
}

#[cold]
fn tell(point: FaultPoint) {
    tracing::debug!("step {}", point.step());
}

#[cfg(all(feature = "faults", target_os = "linux"))]
pub use armed::names;

/// What tests have instead.
#[cfg(all(feature = "faults", target_os = "linux"))]
mod armed {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{FaultPoint, ROLES, Role, role};

    /// What is to happen where.
    struct Fault {
        at: String,
        signal: Signal,
        /// How often it is passed unharmed.
        spared: AtomicUsize,
    }

    impl Fault {
        fn parse(text: &str) -> Option<Self> {
            let (text, turn) = text.split_once('@').unwrap_or((text, "1"));
            let (at, what) = text.split_once(':')?;
            let signal = match what {
                "kill" => Signal::KILL,
                "stop" => Signal::STOP,
                _ => return None,
            };
            let spared = turn.parse::<usize>().unwrap_or(1).saturating_sub(1);
            Some(Self { at: at.to_owned(), signal, spared: spared.into() })
        }

        /// Whether it is time.
        fn is_due(&self) -> bool {
            let fewer = |left: usize| left.checked_sub(1);
            self.spared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_err()
        }
    }

    struct Plan {
        faults: Vec<Fault>,
        log: Option<PathBuf>,
    }

    /// Read once: the variable is set before quell begins.
    fn plan() -> &'static Plan {
        static PLAN: OnceLock<Plan> = OnceLock::new();
        PLAN.get_or_init(|| Plan {
            faults: std::env::var("QUELL_FAULT")
                .map(|text| text.split(',').filter_map(Fault::parse).collect())
                .unwrap_or_default(),
            log: std::env::var_os("QUELL_FAULT_LOG").map(PathBuf::from),
        })
    }

    fn role_name(role: Role) -> &'static str {
        ROLES.iter().find(|(known, _)| *known == role).map_or("", |(_, word)| word)
    }

    /// Passes a point, or does not.
    pub fn fault_point(point: FaultPoint) {
        let plan = plan();
        let name = format!("{}.{}", role(), point.step());
        let fault = plan.faults.iter().find(|fault| fault.at == name && fault.is_due());
        if let Some(log) = &plan.log
            && let Ok(mut log) = OpenOptions::new().append(true).open(log)
        {
            let what = match fault.map(|fault| fault.signal) {
                Some(Signal::KILL) => "kill",
                Some(_) => "stop",
                None => "pass",
            };
            let _ = log.write_all(format!("{} {name} {what}\n", getpid().as_raw_nonzero()).as_bytes());
        }
        if let Some(fault) = fault {
            // A process that was continued is not stopped again.
            fault.spared.store(usize::MAX, Ordering::Relaxed);
            let _ = kill_process(getpid(), fault.signal);
        }
    }

    /// All points with all roles that pass them, as `QUELL_FAULT` names them.
    pub fn names() -> Vec<String> {
        let of = |(_, step, roles): &(FaultPoint, &str, &[Role])| {
            roles.iter().map(|role| format!("{}.{step}", role_name(*role))).collect::<Vec<_>>()
        };
        FaultPoint::ALL.iter().flat_map(of).collect()
    }
}
