//! The processes of a job.

use quell_core::{JobSpec, ModeKind, Receipt};
use quell_keeper::control_protocol::LiveMember;

use quell_guard::Verb;

use crate::recover::{LostJob, mask_of, masked_text};
use crate::{Error, Job, JobState, Result};

/// The processes of a job.
#[derive(Clone, Debug)]
pub enum ProcessTree {
    /// The job is alive: its state and its processes, parents first.
    Alive(JobState, Vec<LiveMember>),
    /// The job has ended: its receipt has the members and their fates.
    Ended(Box<Receipt>),
}

impl Job {
    /// The processes of the job, or what became of them if it has ended. A lost job is finished first.
    ///
    /// The processes of a job in the foreground are found from outside: one that was just forked may be missing.
    pub fn tree(&self) -> Result<ProcessTree> {
        self.quell.permit(Verb::Tree, "")?;
        // A second time if the job ends between the two calls.
        for _ in 0..2 {
            let view = self.view()?;
            if view.state == JobState::Ended {
                break;
            }
            let seen = match view.mode {
                ModeKind::Start => self.members(),
                ModeKind::Run => self.seen_from_outside(),
            };
            match seen {
                Ok(members) => return Ok(ProcessTree::Alive(view.state, members)),
                Err(Error::State(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.receipt().map(|receipt| ProcessTree::Ended(Box::new(receipt)))
    }

    fn seen_from_outside(&self) -> Result<Vec<LiveMember>> {
        let at = |name: &str| Error::io(self.dir().dir().join(name));
        let spec: JobSpec = self.dir().spec().map_err(at("spec.json"))?;
        let record = self.dir().record().map_err(at("state.jsonl"))?;
        let mask = mask_of(self.dir(), &spec);
        let found = LostJob::new(self.dir(), Some(Box::new(spec)), Some(Box::new(record)));
        let (tick, page) = (quell_sys::ticks_per_second() as f64, quell_sys::page_size());
        let members =
            quell_contain::living_members(&found.orphaned(self.dir())).map_err(Error::io("/proc"))?;
        let members = members.into_iter();
        Ok(members
            .filter_map(|member| {
                let stat =
                    quell_sys::stat(member.id.pid).ok().filter(|stat| stat.start == member.id.start)?;
                Some(LiveMember {
                    id: member.id,
                    ppid: stat.ppid,
                    pgid: stat.pgid,
                    sid: stat.sid,
                    uid: member.uid,
                    state: stat.state as char,
                    cpu: stat.cpu as f64 / tick,
                    memory: stat.resident * page,
                    command: masked_text(&mask, &member.command),
                    ignores_term: quell_sys::ignores_term(member.id.pid),
                })
            })
            .collect())
    }
}
