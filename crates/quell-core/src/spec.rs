//! A job as it was asked for, on disk.

use serde::{Deserialize, Serialize};

use crate::{JobId, JobRequest, Timestamp};

/// One job as it was asked for, written once. `spec.json` has the request as it may be shown ([`JobRequest::masked`]);
/// `launch.private.json`, which only a background job has and which is shown to no process but `restart`, has the true one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// The secret that marks the job's processes in their environment. Unguessable, so that no other process carries it by
    /// chance; it gives no power.
    pub marker: String,
    /// The boot this belongs to: no pid means anything in another one.
    pub boot_id: String,
    /// The PID namespace of the keeper, by its inode: no PID of the record means anything in another one. 0 if it is not
    /// known.
    #[serde(default)]
    pub pid_namespace: u64,
    /// When it was made.
    pub created: Timestamp,
    /// What was asked for.
    pub request: JobRequest,
}

impl JobSpec {
    /// What takes the place of a specification that was deleted or damaged, so that the job can be listed: what was asked
    /// for is not known.
    pub fn unknown(id: JobId, marker: String, boot_id: String, created: Timestamp) -> Self {
        let request = JobRequest::background(Vec::<String>::new());
        Self { schema: crate::SCHEMA.into(), id, marker, boot_id, pid_namespace: 0, created, request }
    }
}
