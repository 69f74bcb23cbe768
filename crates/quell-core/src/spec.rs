//! A job on disk, as it was requested.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{JobId, JobRequest, Receipt, Timestamp};

/// One job as it was requested, written once. `spec.json` has the request as it may be shown ([`JobRequest::masked`]). Only a
/// background job has `launch.private.json` with the unmasked request, which only `restart` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// The secret that marks the job's processes in their environment. It is random, so that no other process has it by
    /// chance. It gives no rights.
    pub marker: String,
    /// The boot that PIDs of the record belong to.
    pub boot_id: String,
    /// The inode of the PID namespace that PIDs of the record belong to: the keeper's. 0 if it is not known.
    #[serde(default)]
    pub pid_namespace: u64,
    /// When it was put on record.
    pub created: Timestamp,
    /// The request.
    pub request: JobRequest,
}

impl JobSpec {
    /// A substitute for a specification that was deleted or damaged, so that the job can be listed. The request is not known.
    pub fn unknown(id: JobId, marker: String, boot_id: String, created: Timestamp) -> Self {
        let request = JobRequest::background(Vec::<String>::new());
        Self { schema: crate::SCHEMA.into(), id, marker, boot_id, pid_namespace: 0, created, request }
    }

    /// The same for a job that has ended, with what its receipt says again.
    pub fn of_receipt(receipt: &Receipt) -> Self {
        let Receipt { job, boot_id, started, .. } = receipt;
        let mut request = JobRequest::background(&job.command);
        request.name = job.name.clone();
        request.tags = job.tags.clone();
        request.cwd = Some(job.cwd.clone().into());
        request.timeout = job.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self { request, ..Self::unknown(job.id, String::new(), boot_id.clone(), started.wall) }
    }
}
