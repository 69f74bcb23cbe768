//! The history of a job: `events.jsonl`.

use std::fs;
use std::io::{self, Write};

use quell_core::{EventKind, JobEvent, Receipt, RootOutcome, Signal, StepKind, Timestamp};
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};

use crate::files::{at, is_own_file, line_of};
use crate::job::JobDir;

const EVENTS: &str = "events.jsonl";
/// The older part of the history, once the present file was full.
const OLD_EVENTS: &str = "events.old.jsonl";
/// The size at which a file is full. There are at most two, and the older one is dropped: a job can be restarted without end.
const EVENTS_CAP: u64 = 4 * 1024 * 1024;

impl JobDir {
    /// Adds to the history.
    pub fn log_event(&self, event: &JobEvent) -> io::Result<()> {
        let path = self.dir().join(EVENTS);
        let open = || quell_sys::open_private_found(&path, OpenMode::Append).map_err(at(&path));
        let (mut file, found) = match open() {
            // Something else is in its place.
            Err(_) if path.symlink_metadata().is_ok_and(|found| !is_own_file(&found)) => {
                self.home().clear_place(&path)?;
                open()?
            }
            other => other?,
        };
        if found.len() > EVENTS_CAP {
            let old = self.dir().join(OLD_EVENTS);
            let rename = || fs::rename(&path, &old);
            rename().or_else(|_| self.home().clear_place(&old).and_then(|()| rename()))?;
            (file, _) = open()?;
        }
        // One write, so that the lines of two writers don't mix.
        file.write_all(&line_of(event)?)?;
        fault_point(FaultPoint::EventLogged);
        Ok(())
    }

    /// The history, oldest first. A line that a crash has cut is left out.
    pub fn events(&self) -> io::Result<Vec<JobEvent>> {
        let mut events = Vec::new();
        for name in [OLD_EVENTS, EVENTS] {
            let path = self.dir().join(name);
            match quell_sys::read_private(&path, 2 * EVENTS_CAP) {
                Ok(bytes) => {
                    let lines = bytes.split(|&byte| byte == b'\n');
                    events.extend(lines.filter_map(|line| serde_json::from_slice::<JobEvent>(line).ok()));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&path)(error)),
            }
        }
        Ok(events)
    }

    /// Adds an event of the run of `receipt`, unless a process that was killed has added it already. Returns the event if it is
    /// new.
    pub fn log_once(&self, receipt: &Receipt, what: EventKind) -> io::Result<Option<JobEvent>> {
        let event = self.once(receipt, what)?;
        if let Some(event) = &event {
            self.log_event(event)?;
        }
        Ok(event)
    }

    /// The event that [`JobDir::log_once`] would add. Its time is the one in the receipt: the end may be put on record later.
    pub fn once(&self, receipt: &Receipt, what: EventKind) -> io::Result<Option<JobEvent>> {
        let same = |old: &JobEvent| {
            old.run == receipt.run && std::mem::discriminant(&old.what) == std::mem::discriminant(&what)
        };
        // The end of a run that another run follows is not the end of the job.
        let of_now = |old: &&JobEvent| !matches!(old.what, EventKind::Restarting { .. });
        let events = match self.events() {
            // A history that can't be read says nothing.
            Err(error) if !quell_sys::is_out_of_descriptors(&error) => Vec::new(),
            other => other?,
        };
        if events.iter().rev().take_while(of_now).any(same) {
            return Ok(None);
        }
        let time = time_of(receipt, &what);
        Ok(Some(match self.spec() {
            Ok(spec) => JobEvent::new(&spec, time, receipt.run, what),
            Err(_) => {
                let (name, tags) = (receipt.job.name.clone(), receipt.job.tags.clone());
                JobEvent { time, job: self.id(), name, session: None, tags, run: receipt.run, what }
            }
        }))
    }
}

/// When something happened by the steps of the receipt. A loss is as old as the first thing that was done about it.
fn time_of(receipt: &Receipt, what: &EventKind) -> Timestamp {
    let first =
        |kind: StepKind| receipt.steps.iter().find(|step| step.step == kind).map(|step| step.moment.wall);
    let verified = || first(StepKind::Verify);
    let time = match what {
        EventKind::Lost { .. } | EventKind::Killed { .. } => first(StepKind::Kill).or_else(verified),
        EventKind::RootExited { outcome: RootOutcome::Signaled { signal: Signal::KILL, .. } } => {
            first(StepKind::RootExited).or_else(|| first(StepKind::Kill)).or_else(verified)
        }
        EventKind::RootExited { .. } => first(StepKind::RootExited).or_else(verified),
        _ => None,
    };
    time.unwrap_or(receipt.ended.wall)
}
