//! What the model of the protocol is made of: the record on disk, the lock, and where each process is in its code.

/// Where the file of the lock is (`Home`: `live/.<id>`, `live/<id>`, `done/<id>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    None,
    Hidden,
    Live,
    Done,
}

/// Who has locked it. Keeper and standby of a background job share one lock; the front of a foreground job has none
/// until it takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Nobody,
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
    Unborn,
    /// Waits for its go (`Containment::spawn`).
    Held,
    /// Has its go.
    Let,
    Runs,
    Dead,
}

/// Where a process that makes, keeps or finishes a job is. Each is the instant before the step of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Not there yet, or not any more.
    Gone,
    // `JobDir::create`
    MakeHidden,
    LockHidden,
    ShowLock,
    MakeDir,
    WriteSpec,
    /// `background::split`, `front::run`.
    Fork,
    /// `Supervisor::try_start`: the stub.
    Spawn,
    /// `LifecycleEvent::Spawned`: `publish`.
    PublishStarting,
    Go,
    /// `read_status`.
    AwaitExec,
    PublishRunning,
    /// The loops: `Supervisor::wait_and_handle`, `Front::watch`.
    Watch,
    /// `Front::take_over`: `JobDir::liveness`.
    TakeLock,
    /// What there is to be finished.
    LookAtRecord,
    PublishStopping,
    Kill,
    // `write_record`, `put_on_record`
    Keep,
    PublishEnded,
    Settle,
    // `JobDir::remove`
    RemoveDir,
    RemoveLock,
    /// `Note::Done`.
    SayDone,
    // A client: `settle_lost`
    Open,
    TryLock,
    LookAgain,
    /// `Case::of`.
    Judge,
    /// `remove_unmade`.
    KillStub,
    Unlock,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    pub foreground: bool,
    pub file: File,
    pub holder: Holder,
    /// Who of the crew has the shared lock open.
    pub keeper_has_lock: bool,
    pub watcher_has_lock: bool,
    pub dir: bool,
    pub record: ModelRecord,
    /// Whether the record names keeper and watcher.
    pub names: bool,
    /// The cause that the record has.
    pub cause: Option<Why>,
    pub receipt: Option<Why>,
    /// What anybody could have read: the job has ended, and why.
    pub told: Option<Why>,
    pub program: ModelProgram,
    pub keeper: At,
    /// The standby, or the front.
    pub watcher: At,
    pub clients: [At; 2],
    /// The keeper's last word is in the line.
    pub done: bool,
    /// What the keeper had said of a stop.
    pub stopping: bool,
    /// Whether the front has no record to write: it isn't its own.
    pub aside: bool,
    pub kills: u8,
    pub commands: u8,
    pub stops: u8,
}

impl Scene {
    pub fn new(foreground: bool, kills: u8) -> Self {
        Self {
            foreground,
            file: File::None,
            holder: Holder::Nobody,
            keeper_has_lock: false,
            watcher_has_lock: false,
            dir: false,
            record: ModelRecord::None,
            names: false,
            cause: None,
            receipt: None,
            told: None,
            program: ModelProgram::Unborn,
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

    /// The kernel lets go of a lock when the last one who had it open is gone.
    pub fn unlock(&mut self) {
        if self.keeper == At::Gone {
            self.keeper_has_lock = false;
        }
        if self.watcher == At::Gone {
            self.watcher_has_lock = false;
        }
        let held = match self.holder {
            Holder::Nobody => false,
            Holder::Supervisors => self.keeper_has_lock || self.watcher_has_lock,
            Holder::Front => self.watcher != At::Gone,
            Holder::Client(number) => self.clients[usize::from(number)] != At::Gone,
        };
        if !held {
            self.holder = Holder::Nobody;
        }
        // A stub that waits exits when its keeper does: the pipe is closed.
        if self.keeper == At::Gone && self.program == ModelProgram::Held {
            self.program = ModelProgram::Dead;
        }
    }

    /// `publish`, `keep` and `remove` fail or do nothing where there is no directory.
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
