//! What the `quell` program needs and embedding programs don't. It is not part of the public API and changes without notice.

pub use quell_contain::{Doctor, doctor};
pub use quell_core::{
    BUILT_IN, InvalidAssignment, Mask, ReceiptTarget, SCHEMA, StdoutUse, account, failure, is_unsafe, json,
    parse_assignment, parse_environment, printable, printable_lines, push_escape, success,
};
pub use quell_keeper::{DESCRIPTOR, ExecRemedy, Finished};
pub use quell_sys::{closed_at_start, exit_by_signal, raised_rights, remember_user, stack_limit, supported};

#[cfg(not(target_os = "linux"))]
pub use quell_keeper::run;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use quell_core::{JobId, JobRequest};
    use quell_guard::{Permit, Verb};
    use quell_keeper::{Finished, StartError};

    pub use quell_keeper::is_below_a_helper;
    pub use quell_store::{
        Cut, Entry, Home, JobDir, Line, LineOrCut, Lines, LogEnd, LogPage, LogQuery, LogReader, Matches,
        Piece, Streams, Watch, now,
    };
    #[cfg(feature = "faults")]
    pub use quell_sys::fault::names as fault_names;
    pub use quell_sys::{
        Polled, SignalFd, Stat, columns, ignore, ignored_at_start, is_out_of_descriptors, poll_until, stat,
        thread, unblock,
    };
    pub use regex_lite::Regex;

    pub use crate::admit::{AccessRequest, permit, record_start, record_stop};
    pub use crate::config::{Config, Loaded};
    pub use crate::diagnostics::EventLog;
    pub use crate::list::list;
    pub use crate::logs::LogWatch;
    pub use crate::resolve::{SHORTEST_PREFIX, resolve};
    pub use crate::roles::{AdmitTests, AdmittedTests, keeper_main, notify_hooks_main};
    pub use crate::short_ids::short_ids;
    pub use crate::start::{is_inside_a_job, own_session};
    pub use crate::stats::stats_of;

    use crate::recover::recover_if_orphaned;
    use crate::start::resolve_request;
    use crate::{
        Error, Job, JobState, JobView, LogCut, LogLine, LogsView, ProcessTree, Quell, Result, WaitFor, Waited,
    };

    pub mod responses {
        //! What `--json` prints.
        pub use crate::responses::*;
    }

    pub mod config {
        //! The settings, and where each of them comes from.
        pub use crate::config::*;
    }

    /// The jobs in `home`, kept by the program at `program`.
    pub fn open(home: Home, program: impl Into<PathBuf>) -> Quell {
        Quell::with_program(home, program)
    }

    /// Runs a job in the foreground and waits until it is proven gone. Before: this process has one thread and has opened nothing
    /// yet. After: no process of the job is alive, or the receipt names the survivors.
    ///
    /// `home` is where its record is kept; none for no record.
    pub fn run(
        request: JobRequest,
        home: Option<PathBuf>,
        permit: &Permit,
    ) -> std::result::Result<Finished, StartError> {
        match permit.verb() {
            Verb::Run => quell_keeper::run(request, home),
            other => Err(StartError::Start(format!("a run needs a permit for `run`, not for `{other}`"))),
        }
    }

    /// An id for a job that will be run, so that the audit log can name it before it runs. None if the kernel has no random numbers.
    pub fn new_job_id() -> Option<JobId> {
        quell_contain::new_job_id().ok()
    }

    /// The state of a job by its files alone.
    pub fn view(job: &JobDir) -> Result<JobView> {
        JobView::read(job)
    }

    /// The state of a job by its files and its lock. A lost job is shown as lost.
    pub fn look(job: &JobDir) -> Result<JobView> {
        JobView::look(job)
    }

    pub fn log_line(line: &Line) -> LogLine {
        LogLine::of(line)
    }

    pub fn log_cut(cut: &Cut) -> LogCut {
        LogCut::of(cut)
    }

    pub fn logs_view(job: &Job, page: &LogPage) -> LogsView {
        LogsView::new(job, page)
    }

    /// What `quell tree --json` prints.
    pub fn tree_answer(tree: &ProcessTree, id: JobId) -> responses::TreeAnswer {
        let (state, processes, members, members_omitted) = match tree {
            ProcessTree::Alive(state, processes) => (*state, processes.clone(), Vec::new(), 0),
            ProcessTree::Ended(receipt) => {
                (JobState::Ended, Vec::new(), receipt.members.clone(), receipt.members_omitted)
            }
        };
        responses::TreeAnswer { id, state, processes, members, members_omitted }
    }

    /// The insides of [`Quell`].
    pub trait QuellInternals: Sized {
        fn home(&self) -> &Home;
        /// Calls for the verb of `permit`, and those that only look, don't ask the guard again; the holder of the permit records their
        /// results. All other calls ask for themselves.
        fn permitted(self, permit: Permit) -> Self;
        /// Starts a test run. Before: `permit` is that of the test run. The job can be stopped through this handle without another permit.
        fn start_tests(&self, request: &JobRequest, permit: &Permit) -> Result<Job>;
    }

    impl QuellInternals for Quell {
        fn home(&self) -> &Home {
            self.home()
        }

        fn permitted(self, permit: Permit) -> Self {
            Self { permit: Some(Arc::new(permit)), ..self }
        }

        fn start_tests(&self, request: &JobRequest, permit: &Permit) -> Result<Job> {
            if permit.verb() != Verb::Test {
                let why = format!("a test run needs a permit for `test`, not for `{}`", permit.verb());
                return Err(Error::BadValue(why));
            }
            let (request, stdin) = resolve_request(self.home(), request)?;
            let id = self.start_request(&request, stdin)?.id();
            Ok(Self { started: Some(id), ..self.clone() }.permitted(permit.clone()).job_with(id))
        }
    }

    /// The insides of [`Job`].
    pub trait JobInternals {
        /// The job's files.
        fn dir(&self) -> &JobDir;
        /// Watches for changes of the record, and for the exit of the keepers.
        fn watch(&self) -> Result<Watch>;
        /// Watches for output.
        fn watch_logs(&self) -> Result<LogWatch>;
        fn log_page(&self, query: &LogQuery) -> Result<LogPage>;
        fn check_has_logs(&self) -> Result<()>;
        fn check_can_meet(&self, wanted: &WaitFor) -> Result<()>;
        /// Waits until the job is or was ready, or has ended.
        fn wait_for_readiness(&self, within: Duration) -> Result<Waited>;
        /// How much the tree has done so far: CPU time in clock ticks, and bytes of output.
        fn vitals(&self) -> Result<(u64, u64)>;
        /// Finishes the job if it is lost. Returns whether it was.
        fn recover_if_orphaned(&self) -> Result<bool>;
        /// Finishes the job if it is lost. Returns whether it has ended then. The policy must allow that, unless the job is a test run
        /// that was started through this handle.
        fn has_ended_now(&self) -> Result<bool>;
    }

    impl JobInternals for Job {
        fn dir(&self) -> &JobDir {
            self.dir()
        }

        fn watch(&self) -> Result<Watch> {
            self.watch()
        }

        fn watch_logs(&self) -> Result<LogWatch> {
            self.watch_logs()
        }

        fn log_page(&self, query: &LogQuery) -> Result<LogPage> {
            self.log_page(query)
        }

        fn check_has_logs(&self) -> Result<()> {
            self.check_has_logs()
        }

        fn check_can_meet(&self, wanted: &WaitFor) -> Result<()> {
            self.check_can_meet(wanted)
        }

        fn wait_for_readiness(&self, within: Duration) -> Result<Waited> {
            self.wait_for_readiness(within)
        }

        fn vitals(&self) -> Result<(u64, u64)> {
            self.vitals_by(None)
        }

        fn recover_if_orphaned(&self) -> Result<bool> {
            recover_if_orphaned(self.dir())
        }

        fn has_ended_now(&self) -> Result<bool> {
            self.has_ended_now()
        }
    }
}
