//! One job, as both sides of the fork know it: the keeper, and the front or standby above it.

use std::io;
use std::path::{Path, PathBuf};

use quell_contain::{Containment, Unavailable};
use quell_core::{
    JobId, JobRequest, JobSpec, LifecycleRules, Mask, ProcId, RootOutcome, SCHEMA, ServerRules, SessionKind,
    Signal,
};
use quell_store::{Home, JobDir, now};
use quell_sys::{LaunchError, Program, Stage, fault};

use super::preflight;
use super::receipt_sink::ReceiptSink;
use crate::StartError;

#[derive(Debug)]
pub struct SupervisedJob {
    pub request: JobRequest,
    /// The request as it may be shown, with the job's identity.
    pub spec: JobSpec,
    pub rules: LifecycleRules,
    pub session: SessionKind,
    pub program: Program,
    pub mask: Mask,
    /// None for a job without a record.
    pub store: Option<JobDir>,
    /// The front or the standby, for the record.
    pub standby: Option<ProcId>,
    pub receipts: Vec<ReceiptSink>,
}

impl SupervisedJob {
    /// Finds the program and gives the job its identity. Nothing is made yet.
    pub fn new(
        mut request: JobRequest,
        id: Option<JobId>,
        home: Option<PathBuf>,
        session: SessionKind,
    ) -> Result<Self, StartError> {
        let random = system("get random bytes");
        let id = id.map_or_else(quell_contain::new_job_id, Ok).map_err(random)?;
        fault::work_for(&id);
        let marker = format!("{:032x}", quell_sys::random_u128().map_err(system("get random bytes"))?);
        let store = home.map(|home| Home::at(home).job(id));
        if let Some(store) = &store {
            request.add_report_words(&store.report());
        }
        let program = preflight::program(&request, id, &marker)?;
        let mask = request.masked_values();
        let cwd = mask.apply(&program.cwd.to_string_lossy());
        let spec = JobSpec {
            schema: SCHEMA.into(),
            id,
            marker,
            boot_id: quell_sys::boot_id(),
            pid_namespace: quell_sys::own_pid_namespace(),
            created: now(),
            request: JobRequest { cwd: Some(cwd.into()), ..request.masked(&mask) },
        };
        Ok(Self {
            rules: request.rules(),
            standby: store.as_ref().and_then(|_| quell_contain::identify(quell_sys::pid())),
            store,
            request,
            spec,
            session,
            program,
            mask,
            receipts: Vec::new(),
        })
    }

    pub fn is_background(&self) -> bool {
        self.request.as_background().is_some()
    }

    /// The rules for a server that its client talks to over standard input and output.
    pub fn server(&self) -> Option<&ServerRules> {
        self.request.as_foreground()?.server.as_ref()
    }

    /// Whether what outlives the root is kept as a live job.
    pub fn keeps_left(&self) -> bool {
        self.request.keeps_left()
    }

    /// Whether it is meant to run for long, so that memory which is needed only at its start is freed.
    pub fn is_long_lived(&self) -> bool {
        self.is_background() || self.server().is_some()
    }

    /// Acquires the containment for a run of the program. A cgroup is made below `base`.
    pub fn acquire(&self, base: Option<&Path>) -> Result<Containment, StartError> {
        let (request, spec) = (&self.request, &self.spec);
        let containment =
            Containment::acquire(spec.id, base, request.contain, &request.limits, self.session, &spec.marker);
        Ok(containment?)
    }

    /// The error if the record could not be written. A lack of descriptors is reported as such.
    pub fn unrecorded(&self, error: io::Error) -> StartError {
        if quell_sys::is_out_of_descriptors(&error) {
            return StartError::other(error);
        }
        let home = self.store.as_ref().map(|store| store.home().dir().to_owned());
        StartError::Record { path: home.unwrap_or_default(), error: error.to_string() }
    }

    /// The error if the stub could not execute the program.
    pub fn not_executed(&self, failed: &LaunchError) -> StartError {
        let program = self.request.command.first().map(|word| word.to_string_lossy().into_owned());
        let (program, why) = (program.unwrap_or_default(), failed.error.to_string());
        match failed.stage {
            // The program itself was found before.
            Stage::Exec if failed.error.kind() == io::ErrorKind::NotFound => {
                StartError::NoInterpreter { program, why }
            }
            Stage::Exec => {
                StartError::NotExecutable { program, why, remedy: preflight::remedy(&failed.error) }
            }
            Stage::Cwd => {
                StartError::Cwd { path: self.request.cwd.clone().unwrap_or_else(|| ".".into()), error: why }
            }
            Stage::Proc => StartError::Containment(failed.to_string()),
            Stage::Limit | Stage::Fork | Stage::Stdio => StartError::Start(failed.to_string()),
        }
    }
}

impl StartError {
    /// An error that has no variant of its own.
    pub(super) fn other(error: io::Error) -> Self {
        Self::Start(error.to_string())
    }
}

impl From<Unavailable> for StartError {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Containment { .. } => Self::Containment(error.to_string()),
            Unavailable::Limit { .. } => Self::Limit(error.to_string()),
        }
    }
}

pub fn system(what: &str) -> impl FnOnce(std::io::Error) -> StartError {
    move |error| StartError::System { what: what.to_owned(), error: error.to_string() }
}

pub fn signals(names: &[&str]) -> Vec<Signal> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// An outcome in words, for a step of the receipt.
pub fn describe(outcome: &RootOutcome) -> String {
    match outcome {
        RootOutcome::Exited { code } => format!("exit code {code}"),
        RootOutcome::Signaled { signal, core: true } => format!("died of {signal}, core dumped"),
        RootOutcome::Signaled { signal, core: false } => format!("died of {signal}"),
        RootOutcome::NotStarted { reason } => reason.clone(),
        RootOutcome::Unknown => "unknown".into(),
    }
}

/// What unit tests need.
#[cfg(test)]
pub mod sample {
    use quell_core::{Lifecycle, Receipt, Verdict};

    use super::*;
    use crate::platform::evidence::Evidence;

    /// A background job that is not on record yet.
    pub fn job(home: &Path) -> SupervisedJob {
        let request = JobRequest::background(["true"]);
        SupervisedJob::new(request, None, Some(home.to_owned()), SessionKind::Own).unwrap()
    }

    pub fn receipt(job: &SupervisedJob, life: &Lifecycle) -> Receipt {
        let nothing = Containment::empty(job.spec.id, &job.spec.marker);
        Evidence::new().receipt(&job.spec, life, &nothing, Verdict::Gone, Vec::new())
    }
}
