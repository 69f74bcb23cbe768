//! What the `quell` program needs and embedding programs don't. It is not part of the public API and changes without notice.

pub use quell_contain::{Ability, Doctor, doctor};
pub use quell_core::{
    AskedThrough, BUILT_IN, ClientProcess, InvalidAssignment, Mask, ReceiptTarget, SCHEMA, ServerRules,
    StdoutUse, account, columns_of_char, failure, grouped, is_unsafe, json, parse_assignment,
    parse_environment, printable, printable_lines, push_escape, success, width,
};
pub use quell_keeper::{DESCRIPTOR, ExecRemedy, Finished, Left, Returned};
pub use quell_sys::{closed_at_start, exit_by_signal, raised_rights, remember_user, stack_limit, supported};

#[cfg(not(target_os = "linux"))]
pub use quell_keeper::run;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use quell_core::{AskedThrough, JobId, JobRequest};
    use quell_guard::{Permit, Verb};
    use quell_keeper::{Returned, StartError};

    pub use quell_store::{
        Change, Changes, Cut, Entry, Home, Interest, JobDir, Line, LineOrCut, Lines, Liveness, LogEnd,
        LogPage, LogQuery, LogReader, Matches, Piece, SharedWatch, Streams, Watch, WatchId, now,
    };
    #[cfg(feature = "faults")]
    pub use quell_sys::fault::names as fault_names;
    pub use quell_sys::{
        OpenMode, Polled, SignalFd, Stat, columns, create_private, free_space, host_name, ignore,
        ignored_at_start, is_out_of_descriptors, open_files_allowed, open_private, page_size, poll_until,
        raise_open_files, random_u128, read_private, stat, stop_self, thread, ticks_per_second, uid, unblock,
    };

    pub use crate::admit::{AccessRequest, permit};
    pub use crate::client::clients;
    pub use crate::config::{Config, Loaded};
    pub use crate::diagnostics::EventLog;
    pub use crate::list::list;
    pub use crate::logs::{LogWatch, regex};
    pub use crate::resolve::{SHORTEST_PREFIX, resolve};
    pub use crate::roles::{AdmitTests, AdmittedTests, keeper_main, notify_hooks_main};
    pub use crate::short_ids::short_ids;
    pub use crate::start::{agent_session, is_inside_a_job, own_session};
    pub use crate::stats::stats_of;

    use crate::recover::recover_if_orphaned;
    use crate::start::{Around, resolve_request};
    use crate::sweep::unproven;
    use crate::{
        Error, Filter, Job, JobState, JobView, LogCut, LogLine, LogsView, ProcessTree, Quell, Result,
        WaitFor, Waited,
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

    /// The same for a caller that has a permit, if the home may be used. Calls for the verb of `permit`, and those that only look,
    /// don't ask the guard again. Their results are recorded with it.
    pub fn open_permitted(
        home: Option<Home>,
        program: impl Into<PathBuf>,
        permit: Option<Permit>,
    ) -> Result<Quell> {
        let home = home.ok_or(Error::NoHome)?;
        home.check().map_err(Error::io(home.dir()))?;
        Ok(Quell { permit: permit.map(Arc::new), ..open(home, program) })
    }

    /// The same for a program that asks through an interface of this process: the audit log names it.
    pub fn open_through(
        home: Home,
        program: impl Into<PathBuf>,
        permit: Option<Permit>,
        through: AskedThrough,
    ) -> Result<Quell> {
        let quell = open_permitted(Some(home), program, permit)?;
        Ok(Quell { through: Some(through), ..quell })
    }

    /// The same for a server: a job that is started takes nothing over from this process, neither its session nor the job that it is
    /// in, nor its raised limit of open files.
    pub fn open_for_server(
        home: Home,
        program: impl Into<PathBuf>,
        permit: Option<Permit>,
        through: AskedThrough,
    ) -> Result<Quell> {
        Ok(Quell { around: Around::Nothing, ..open_through(home, program, permit, through)? })
    }

    /// Runs a job in the foreground and waits until it is proven gone. Before: this process has one thread and has opened nothing
    /// yet. After: no process of the job is alive, or the receipt names the survivors, or the root has exited and what it left is a live
    /// job.
    ///
    /// `home` is where its record is kept; none for no record.
    pub fn run(
        request: JobRequest,
        home: Option<PathBuf>,
        permit: &Permit,
    ) -> std::result::Result<Returned, StartError> {
        let is_server = request.as_foreground().is_some_and(|foreground| foreground.server.is_some());
        let needed = if is_server { Verb::Wrap } else { Verb::Run };
        if permit.verb() != needed {
            let why = format!("a run needs a permit for `{needed}`, not for `{}`", permit.verb());
            return Err(StartError::Start(why));
        }
        quell_keeper::run(request, home)
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
        /// Starts a test run. Before: `permit` is that of the test run. The job can be stopped through this handle without another permit.
        fn start_tests(&self, request: &JobRequest, permit: &Permit) -> Result<Job>;
        /// The jobs that a stop of `group` is about: those that have not ended, and those that have ended and are not proven dead. A job
        /// whose record is damaged belongs to no group but that of all.
        fn to_stop(&self, group: &Filter) -> Result<Vec<Job>>;
    }

    impl QuellInternals for Quell {
        fn home(&self) -> &Home {
            self.home()
        }

        fn start_tests(&self, request: &JobRequest, permit: &Permit) -> Result<Job> {
            if permit.verb() != Verb::Test {
                let why = format!("a test run needs a permit for `test`, not for `{}`", permit.verb());
                return Err(Error::BadValue(why));
            }
            let (request, stdin) = resolve_request(self.home(), request, Around::Caller)?;
            let id = self.start_request(&request, stdin)?.id();
            let permit = Some(Arc::new(permit.clone()));
            Ok(Self { started: Some(id), permit, ..self.clone() }.job_with(id))
        }

        fn to_stop(&self, group: &Filter) -> Result<Vec<Job>> {
            let is_of_all = group.tags.is_empty() && group.session.is_none();
            let group = Filter { limit: Some(0), ..group.clone() };
            let mut jobs = if is_of_all {
                self.live()?
            } else {
                self.list(&group)?.jobs.iter().map(|view| self.job_with(view.id)).collect()
            };
            let unproven = unproven(self.home())?.into_iter().map(|id| self.job_with(id));
            jobs.extend(unproven.filter(|job| job.view().is_ok_and(|view| group.matches(&view))));
            jobs.sort_by_key(Job::id);
            jobs.dedup_by_key(|job| job.id());
            Ok(jobs)
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
        /// The command of the job as it was given, and not as it may be shown.
        fn command(&self) -> Result<Vec<OsString>>;
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

        fn command(&self) -> Result<Vec<OsString>> {
            let path = self.dir().dir().join("launch.private.json");
            Ok(self.dir().launch().map_err(Error::io(path))?.request.command)
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
