//! The protocol on disk between keepers, standbys, fronts and clients, with a SIGKILL of any of them at any step.
//!
//! The steps are those of `quell-keeper/src/linux/{background,foreground,engine,conclude}.rs`, `quell-store/src/{home,job}.rs`
//! and `quell/src/recover/`; `disk.rs` names the function of each. A step is one system call that other processes can see.

use crate::disk::{At, DiskState, File, Holder, ModelProgram, ModelRecord, Why};
use crate::explore::{Model, Move, explore};

/// A defect of the protocol. The checker must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// The stub does not wait for permission to run.
    Handshake,
    /// The permission is given before the record is written.
    RecordFirst,
    /// Clients don't look at the lock.
    Lock,
    /// A lock is shown before it is taken.
    HiddenLock,
    /// A watcher does not check whether its keeper had finished.
    LookAtTheEnd,
    /// A front takes over also when it can't have the lock.
    FrontsLock,
    /// The lock is removed before the directory.
    OrderOfRemoval,
    /// The lock is moved away before the end is on record.
    OrderOfTheEnd,
    /// A client kills no process.
    Kill,
}

struct Protocol {
    lacks: Lacks,
    kills: u8,
}

type Next = Vec<Move<DiskState>>;

fn add(next: &mut Next, fair: bool, name: &'static str, from: &DiskState, what: impl FnOnce(&mut DiskState)) {
    let mut to = from.clone();
    what(&mut to);
    to.unlock();
    if to.record == ModelRecord::Ended && to.told.is_none() {
        to.told = to.receipt;
    }
    next.push(Move { name, fair, to });
}

/// The process that makes a record: `JobDir::create`. The next step is `then`.
fn create(lacks: Lacks, state: &mut DiskState, at: At, then: At) -> At {
    match at {
        At::MakeHidden => {
            state.file = if lacks == Lacks::HiddenLock { File::Live } else { File::Hidden };
            At::LockHidden
        }
        At::LockHidden if state.holder != Holder::None => At::Gone,
        At::LockHidden => {
            state.holder = Holder::Supervisors;
            At::ShowLock
        }
        At::ShowLock => {
            // A lock that was shown already is not shown again.
            if lacks != Lacks::HiddenLock {
                state.file = File::Live;
            }
            At::MakeDir
        }
        At::MakeDir => {
            state.dir = true;
            At::WriteSpec
        }
        _ => then,
    }
}

/// The end of a record that `At::Keep` begins: `JobEnd::write`.
fn end(lacks: Lacks, state: &mut DiskState, at: At, why: Why, then: At) -> At {
    match at {
        At::Keep => {
            if state.dir {
                state.receipt = Some(why);
            }
            if lacks == Lacks::OrderOfTheEnd { At::Settle } else { At::PublishEnded }
        }
        At::PublishEnded => {
            state.publish(ModelRecord::Ended, false, Some(why));
            if lacks == Lacks::OrderOfTheEnd { then } else { At::Settle }
        }
        _ => {
            if state.file == File::Live {
                state.file = File::Done;
            }
            if lacks == Lacks::OrderOfTheEnd && state.record != ModelRecord::Ended {
                At::PublishEnded
            } else {
                then
            }
        }
    }
}

/// `JobDir::remove`.
fn remove(lacks: Lacks, state: &mut DiskState, at: At, then: At) -> At {
    let (first, last) = match lacks {
        Lacks::OrderOfRemoval => (At::RemoveLock, At::RemoveDir),
        _ => (At::RemoveDir, At::RemoveLock),
    };
    match at {
        At::RemoveDir => state.remove_dir(),
        _ => state.file = File::None,
    }
    if at == first { last } else { then }
}

impl Protocol {
    fn keeper(&self, state: &DiskState, next: &mut Next) {
        let at = state.keeper;
        let removal = if self.lacks == Lacks::OrderOfRemoval { At::RemoveLock } else { At::RemoveDir };
        let mut go = |name, what: &dyn Fn(&mut DiskState)| add(next, true, name, state, what);
        let watcher_gone = state.watcher == At::Gone;
        match at {
            At::Gone => {}
            At::MakeHidden | At::LockHidden | At::ShowLock | At::MakeDir | At::WriteSpec => {
                go("the keeper makes the record", &|to| {
                    to.keeper = create(self.lacks, to, at, At::Spawn);
                    to.keeper_has_lock = to.keeper_has_lock || to.holder == Holder::Supervisors;
                });
            }
            At::Spawn => go("the stub is born", &|to| {
                to.program =
                    if self.lacks == Lacks::Handshake { ModelProgram::Let } else { ModelProgram::Held };
                to.keeper = if self.lacks == Lacks::RecordFirst { At::Go } else { At::PublishStarting };
            }),
            At::PublishStarting => go("the keeper publishes starting", &|to| {
                to.publish(ModelRecord::Starting, true, None);
                to.keeper = if self.lacks == Lacks::RecordFirst { At::AwaitExec } else { At::Go };
            }),
            At::Go => go("the go", &|to| {
                if to.program == ModelProgram::Held {
                    to.program = ModelProgram::Let;
                }
                to.keeper =
                    if self.lacks == Lacks::RecordFirst { At::PublishStarting } else { At::AwaitExec };
            }),
            At::AwaitExec => {
                if matches!(state.program, ModelProgram::Runs | ModelProgram::Dead) {
                    go("the keeper sees the exec", &|to| to.keeper = At::PublishRunning);
                }
                if state.program == ModelProgram::Dead {
                    go("the keeper sees a failed exec", &|to| to.keeper = removal);
                }
                if watcher_gone {
                    // No process would know of it.
                    go("the keeper gives up a start", &|to| {
                        to.program = ModelProgram::Dead;
                        to.keeper = removal;
                    });
                }
            }
            At::PublishRunning => go("the keeper publishes running", &|to| {
                to.publish(ModelRecord::Running, true, None);
                to.keeper = At::Watch;
            }),
            At::Watch => {
                if state.program == ModelProgram::Dead {
                    go("the keeper sees the exit", &|to| to.keeper = At::Keep);
                }
                if watcher_gone && state.foreground {
                    go("the front is lost", &|to| to.keeper = At::PublishStopping);
                }
                if state.stops > 0 {
                    add(next, false, "a stop", state, |to| {
                        (to.stops, to.keeper, to.stopping) = (to.stops - 1, At::PublishStopping, true);
                    });
                }
            }
            At::PublishStopping => go("the keeper publishes stopping", &|to| {
                to.publish(ModelRecord::Stopping, true, Some(Why::Asked));
                to.keeper = At::Kill;
            }),
            At::Kill => go("the keeper kills", &|to| {
                (to.program, to.keeper) = (ModelProgram::Dead, At::Keep);
            }),
            At::Keep | At::PublishEnded | At::Settle => go("the keeper writes the end", &|to| {
                let why = if to.cause == Some(Why::Asked) { Why::Asked } else { Why::Own };
                to.keeper = end(self.lacks, to, at, why, At::SayDone);
            }),
            At::RemoveDir | At::RemoveLock => go("the keeper removes the record", &|to| {
                to.keeper = remove(self.lacks, to, at, At::SayDone);
            }),
            At::SayDone => go("the keeper's last word", &|to| (to.done, to.keeper) = (true, At::Gone)),
            _ => unreachable!("a keeper is never there: {at:?}"),
        }
    }

    /// The standby or the front.
    fn watcher(&self, state: &DiskState, next: &mut Next) {
        let at = state.watcher;
        let mut go = |name, what: &dyn Fn(&mut DiskState)| add(next, true, name, state, what);
        match at {
            At::Gone => {}
            At::MakeHidden | At::LockHidden | At::ShowLock | At::MakeDir | At::WriteSpec => {
                go("the standby makes the record", &|to| {
                    to.watcher = create(self.lacks, to, at, At::Fork);
                    to.watcher_has_lock = to.watcher_has_lock || to.holder == Holder::Supervisors;
                });
            }
            At::Fork => go("the keeper is forked", &|to| {
                to.keeper = if to.foreground { At::MakeHidden } else { At::Spawn };
                (to.keeper_has_lock, to.watcher) = (to.watcher_has_lock, At::Watch);
            }),
            At::Watch if state.keeper != At::Gone => {}
            At::Watch => go("the watcher sees its keeper's end", &|to| {
                to.watcher = match (to.done, to.foreground) {
                    (true, _) => At::Gone,
                    (false, true) => At::TakeLock,
                    (false, false) => At::LookAtRecord,
                };
            }),
            At::TakeLock => {
                let other = matches!(state.holder, Holder::Client(_));
                if !other || self.lacks == Lacks::FrontsLock {
                    go("the front takes the lock", &|to| {
                        // The front does not write the record of a job that has ended or never existed.
                        to.aside = to.file != File::Live;
                        if !other && !to.aside {
                            to.holder = Holder::Front;
                        }
                        to.watcher = At::LookAtRecord;
                    });
                }
            }
            At::LookAtRecord => go("the watcher takes over", &|to| {
                let over = to.record == ModelRecord::Ended && self.lacks != Lacks::LookAtTheEnd;
                to.watcher = match (over, to.aside) {
                    (true, _) => At::Settle,
                    (false, true) => At::Kill,
                    (false, false) => At::PublishStopping,
                };
            }),
            At::PublishStopping => go("the watcher publishes stopping", &|to| {
                let cause = if to.stopping { Why::Asked } else { Why::KeeperLost };
                to.publish(ModelRecord::Stopping, !to.foreground, Some(cause));
                to.watcher = At::Kill;
            }),
            At::Kill => go("the watcher kills", &|to| {
                if to.alive() {
                    to.program = ModelProgram::Dead;
                }
                to.watcher = if to.aside { At::Gone } else { At::Keep };
            }),
            At::Keep | At::PublishEnded | At::Settle => go("the watcher writes the end", &|to| {
                let why = if to.stopping { Why::Asked } else { Why::KeeperLost };
                // Without a directory nothing could be written, so the job has not ended.
                let unwritten = at == At::Settle && !to.dir;
                to.watcher = if unwritten { At::Gone } else { end(self.lacks, to, at, why, At::Gone) };
            }),
            _ => unreachable!("a watcher is never there: {at:?}"),
        }
    }

    fn client(&self, state: &DiskState, number: usize, next: &mut Next) {
        let at = state.clients[number];
        let me = Holder::Client(number as u8);
        let removal = if self.lacks == Lacks::OrderOfRemoval { At::RemoveLock } else { At::RemoveDir };
        let mut go = |name, what: &dyn Fn(&mut DiskState) -> At| {
            add(next, true, name, state, |to| to.clients[number] = what(to));
        };
        let if_live = |to: &DiskState, then| if to.file == File::Live { then } else { At::Gone };
        match at {
            At::Gone => {}
            At::Open => go("a client opens the lock", &|to| if_live(to, At::TryLock)),
            At::TryLock => go("a client tries the lock", &|to| match to.holder {
                Holder::None => {
                    to.holder = me;
                    At::LookAgain
                }
                _ if self.lacks == Lacks::Lock => At::LookAgain,
                _ => At::Gone,
            }),
            At::LookAgain => go("a client looks again", &|to| if_live(to, At::Judge)),
            At::Judge => go("a client judges the record", &|to| {
                let kept = to.names && (to.keeper != At::Gone || to.watcher != At::Gone);
                match to.record {
                    _ if !to.dir => At::KillStub,
                    ModelRecord::None => At::KillStub,
                    _ if kept => At::Gone,
                    ModelRecord::Ended => At::Settle,
                    ModelRecord::Starting | ModelRecord::Running | ModelRecord::Stopping => At::Kill,
                }
            }),
            At::KillStub | At::Kill => go("a client kills", &|to| {
                if to.alive() && self.lacks != Lacks::Kill {
                    to.program = ModelProgram::Dead;
                }
                if at == At::Kill { At::Keep } else { removal }
            }),
            At::Keep | At::PublishEnded | At::Settle => go("a client writes the end", &|to| {
                let why = to.cause.unwrap_or(Why::KeeperLost);
                end(self.lacks, to, at, why, At::Unlock)
            }),
            At::RemoveDir | At::RemoveLock => {
                go("a client removes the record", &|to| remove(self.lacks, to, at, At::Unlock));
            }
            At::Unlock => go("a client is done", &|_| At::Gone),
            _ => unreachable!("a client is never there: {at:?}"),
        }
    }

    fn processes(&self, state: &DiskState, next: &mut Next) {
        match state.program {
            ModelProgram::Let => {
                add(next, true, "exec", state, |to| to.program = ModelProgram::Runs);
                add(next, false, "exec fails", state, |to| to.program = ModelProgram::Dead);
            }
            ModelProgram::Runs => {
                add(next, false, "the program exits", state, |to| to.program = ModelProgram::Dead)
            }
            ModelProgram::NotStarted | ModelProgram::Held | ModelProgram::Dead => {}
        }
        if state.kills == 0 {
            return;
        }
        let mut kill = |name, what: &dyn Fn(&mut DiskState)| {
            add(next, false, name, state, |to| {
                to.kills -= 1;
                what(to);
            });
        };
        if state.keeper != At::Gone {
            kill("SIGKILL of the keeper", &|to| to.keeper = At::Gone);
        }
        if state.watcher != At::Gone {
            kill("SIGKILL of the watcher", &|to| to.watcher = At::Gone);
        }
        for number in 0..2 {
            if state.clients[number] != At::Gone {
                kill("SIGKILL of a client", &|to| to.clients[number] = At::Gone);
            }
        }
    }
}

/// The processes that act on the job as if each were the only one.
fn owners(state: &DiskState) -> usize {
    let keeps = !matches!(state.keeper, At::Gone | At::SayDone | At::MakeHidden | At::LockHidden);
    let takes_over =
        !state.aside && matches!(state.watcher, At::PublishStopping | At::Kill | At::Keep | At::PublishEnded);
    let makes =
        !state.foreground && matches!(state.watcher, At::ShowLock | At::MakeDir | At::WriteSpec | At::Fork);
    let finishes = |at: &&At| {
        matches!(at, At::Kill | At::KillStub | At::Keep | At::PublishEnded | At::RemoveDir | At::RemoveLock)
    };
    usize::from(keeps)
        + usize::from(takes_over)
        + usize::from(makes)
        + state.clients.iter().filter(finishes).count()
}

fn no_process(state: &DiskState) -> bool {
    state.keeper == At::Gone && state.watcher == At::Gone && state.clients == [At::Gone; 2]
}

impl Model for Protocol {
    type State = DiskState;

    fn starts(&self) -> Vec<DiskState> {
        vec![DiskState::new(false, self.kills), DiskState::new(true, self.kills)]
    }

    fn moves(&self, state: &DiskState) -> Next {
        let mut next = vec![];
        self.processes(state, &mut next);
        self.keeper(state, &mut next);
        self.watcher(state, &mut next);
        for number in 0..2 {
            self.client(state, number, &mut next);
            let free = state.clients[number] == At::Gone && (number == 0 || state.clients[0] != At::Gone);
            if free && state.commands > 0 {
                add(&mut next, false, "a command", state, |to| {
                    (to.commands, to.clients[number]) = (to.commands - 1, At::Open);
                });
            }
        }
        // The one more command of the promise, once no process is left that could act.
        if no_process(state) && state.file == File::Live {
            add(&mut next, true, "the next command", state, |to| to.clients[0] = At::Open);
        }
        next
    }

    fn broken(&self, state: &DiskState) -> Option<String> {
        let said = |text: &str| Some(text.to_owned());
        let named = state.file == File::Live
            && state.dir
            && matches!(state.record, ModelRecord::Starting | ModelRecord::Running | ModelRecord::Stopping);
        if state.program == ModelProgram::Runs && !named {
            return said("the program runs, and nothing on disk names it");
        }
        if state.record == ModelRecord::Ended && state.alive() {
            return said("it has ended on record, and is alive");
        }
        if owners(state) > 1 {
            return said("two act on one job");
        }
        if state.told.is_some() && (state.record != ModelRecord::Ended || state.receipt != state.told) {
            return said("what was told was taken back");
        }
        None
    }

    fn is_end(&self, state: &DiskState) -> bool {
        let on_disk = match state.file {
            File::Live => false,
            File::Done => !state.dir || (state.record == ModelRecord::Ended && state.receipt.is_some()),
            File::None | File::Hidden => !state.dir,
        };
        no_process(state) && !state.alive() && state.holder == Holder::None && on_disk
    }

    fn may_rest(&self, state: &DiskState) -> bool {
        state.keeper == At::Watch && state.program == ModelProgram::Runs && state.clients == [At::Gone; 2]
    }
}

#[test]
fn three_kills_at_any_steps_leave_one_writer_and_a_job_that_the_next_command_ends() {
    let explored =
        explore(&Protocol { lacks: Lacks::Nothing, kills: 3 }).unwrap_or_else(|why| panic!("{why}"));
    println!("the protocol, 3 kills, 2 commands: {explored:?}");
    assert!(explored.states > 10_000 && explored.ends > 100, "{explored:?}");
}

fn finds(lacks: Lacks, what: &str) {
    let found = explore(&Protocol { lacks, kills: 3 }).map(|explored| explored.states);
    let found = found.expect_err("the checker found nothing");
    assert!(found.starts_with(what), "{found}");
}

#[test]
fn without_the_handshake_the_checker_finds_a_program_that_nothing_names() {
    finds(Lacks::Handshake, "the program runs, and nothing on disk names it");
}

#[test]
fn with_the_record_after_the_go_the_checker_finds_a_program_that_nothing_names() {
    finds(Lacks::RecordFirst, "the program runs, and nothing on disk names it");
}

#[test]
fn without_a_look_at_the_lock_the_checker_finds_two_who_act() {
    finds(Lacks::Lock, "two act on one job");
}

#[test]
fn with_a_lock_that_is_shown_before_it_is_taken_the_checker_finds_a_program_that_nothing_names() {
    finds(Lacks::HiddenLock, "the program runs, and nothing on disk names it");
}

#[test]
fn without_a_look_at_the_end_the_checker_finds_what_was_taken_back() {
    finds(Lacks::LookAtTheEnd, "what was told was taken back");
}

#[test]
fn without_the_fronts_lock_the_checker_finds_two_who_act() {
    finds(Lacks::FrontsLock, "two act on one job");
}

#[test]
fn with_the_lock_removed_first_the_checker_finds_a_record_without_a_lock() {
    finds(Lacks::OrderOfRemoval, "a dead end");
}

#[test]
fn with_the_lock_moved_before_the_end_the_checker_finds_a_job_that_never_ends() {
    finds(Lacks::OrderOfTheEnd, "a dead end");
}

#[test]
fn without_the_kill_the_checker_finds_an_ended_job_that_is_alive() {
    finds(Lacks::Kill, "it has ended on record, and is alive");
}
