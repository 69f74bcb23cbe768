//! What the model of the protocol is made of: the record on disk, the lock, and where each process is in its code.

/// Where the file of the lock is (`Home`: `live/.<id>`, `live/<id>`, `done/<id>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    None,
    Hidden,
    Live,
    Done,
}

/// The process that has locked it. Keeper and standby of a background job share one lock; the front of a foreground job has none
/// until it takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    None,
    Supervisors,
    Front,
    Client(u8),
}

/// `state.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelRecord {
    None,
    Starting,
    Running,
    Stopping,
    Ended,
}

/// The cause on a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    Own,
    Asked,
    KeeperLost,
}

/// The root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelProgram {
    NotStarted,
    /// Waits for permission to run (`Containment::spawn`).
    Held,
    /// Has the permission.
    Let,
    Runs,
    Dead,
}

/// Where a process that makes, keeps or finishes a job is. Each is the instant before the step of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It does not exist yet, or has exited.
    Gone,
    // `JobDir::create`
    MakeHidden,
    LockHidden,
    ShowLock,
    MakeDir,
    WriteSpec,
    /// `background.rs`, `foreground.rs`: the fork of the keeper.
    Fork,
    /// `Supervisor::try_start`: the stub.
    Spawn,
    /// `LifecycleEvent::Spawned`: the state on record.
    PublishStarting,
    Go,
    /// The pipe of the stub.
    AwaitExec,
    PublishRunning,
    /// The loops: `Supervisor::wait_and_handle`, `KeeperWatch::wait_and_handle`.
    Watch,
    /// `take_over`: `JobDir::liveness`.
    TakeLock,
    /// What is left to finish.
    LookAtRecord,
    PublishStopping,
    Kill,
    // `JobEnd::write`
    Keep,
    PublishEnded,
    Settle,
    // `JobDir::remove`
    RemoveDir,
    RemoveLock,
    /// The last message of the keeper.
    SayDone,
    // A client: `recover_if_orphaned`
    Open,
    TryLock,
    LookAgain,
    /// `RecoveryCase::of`.
    Judge,
    /// `JobEnd::discard`.
    KillStub,
    Unlock,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiskState {
    pub foreground: bool,
    pub file: File,
    pub holder: Holder,
    /// Which of the keeper and the watcher has the shared lock open.
    pub keeper_has_lock: bool,
    pub watcher_has_lock: bool,
    pub dir: bool,
    pub record: ModelRecord,
    /// Whether the record names keeper and watcher.
    pub names: bool,
    /// The cause that the record has.
    pub cause: Option<Why>,
    pub receipt: Option<Why>,
    /// What a reader could have seen: the job has ended, and why.
    pub told: Option<Why>,
    pub program: ModelProgram,
    pub keeper: At,
    /// The standby, or the front.
    pub watcher: At,
    pub clients: [At; 2],
    /// The keeper's last message is in the channel.
    pub done: bool,
    /// Whether the keeper has reported a stop.
    pub stopping: bool,
    /// Whether the record is not the front's to write.
    pub aside: bool,
    pub kills: u8,
    pub commands: u8,
    pub stops: u8,
}

impl DiskState {
    pub fn new(foreground: bool, kills: u8) -> Self {
        Self {
            foreground,
            file: File::None,
            holder: Holder::None,
            keeper_has_lock: false,
            watcher_has_lock: false,
            dir: false,
            record: ModelRecord::None,
            names: false,
            cause: None,
            receipt: None,
            told: None,
            program: ModelProgram::NotStarted,
            keeper: At::Gone,
            watcher: if foreground { At::Fork } else { At::MakeHidden },
            clients: [At::Gone; 2],
            done: false,
            stopping: false,
            aside: false,
            kills,
            commands: 2,
            stops: 1,
        }
    }

    pub fn alive(&self) -> bool {
        matches!(self.program, ModelProgram::Held | ModelProgram::Let | ModelProgram::Runs)
    }

    /// The kernel releases a lock when the last process that has it open exits.
    pub fn unlock(&mut self) {
        if self.keeper == At::Gone {
            self.keeper_has_lock = false;
        }
        if self.watcher == At::Gone {
            self.watcher_has_lock = false;
        }
        let held = match self.holder {
            Holder::None => false,
            Holder::Supervisors => self.keeper_has_lock || self.watcher_has_lock,
            Holder::Front => self.watcher != At::Gone,
            Holder::Client(number) => self.clients[usize::from(number)] != At::Gone,
        };
        if !held {
            self.holder = Holder::None;
        }
        // A stub that waits exits when its keeper does: the pipe is closed.
        if self.keeper == At::Gone && self.program == ModelProgram::Held {
            self.program = ModelProgram::Dead;
        }
    }

    /// Writing the record and removing it fail or do nothing without a directory.
    pub fn publish(&mut self, record: ModelRecord, names: bool, cause: Option<Why>) {
        if self.dir {
            (self.record, self.names) = (record, names);
            self.cause = cause;
        }
    }

    pub fn remove_dir(&mut self) {
        (self.dir, self.record, self.names, self.receipt) = (false, ModelRecord::None, false, None);
        self.cause = None;
        // A job that is removed has nothing to contradict.
        self.told = None;
    }
}
