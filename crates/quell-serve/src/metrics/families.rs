//! The families of metrics that count what has happened. Each series that matters to an alert exists from the beginning, with the
//! value 0: Prometheus sees no increase in a series that appears with its first event.

use super::exposition::MetricKind;

/// One family.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it means, in one line.
    pub help: &'static str,
    /// The upper bounds of a histogram; empty for a counter.
    pub bounds: &'static [f64],
    /// The labels of the series that exist from the beginning.
    pub initial: &'static [&'static [(&'static str, &'static str)]],
}

impl Family {
    /// Whether it is a counter or a histogram.
    pub fn kind(&self) -> MetricKind {
        if self.bounds.is_empty() { MetricKind::Counter } else { MetricKind::Histogram }
    }
}

const ALONE: &[&[(&str, &str)]] = &[&[]];

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, bounds: &[], initial: ALONE }
}

const SECONDS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0];
const STOP_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const SHARES: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 1.0];
const GRACES: &[f64] = &[0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];

pub const STARTS: &str = "quell_job_starts_total";
pub const START_FAILURES: &str = "quell_job_start_failures_total";
pub const ENDS: &str = "quell_job_ends_total";
pub const DURATION: &str = "quell_job_duration_seconds";
pub const READY: &str = "quell_job_ready_seconds";
pub const STOPS: &str = "quell_stops_total";
pub const STOP_DURATION: &str = "quell_stop_duration_seconds";
pub const ESCALATIONS: &str = "quell_stop_escalations_total";
pub const GRACE_USED: &str = "quell_grace_used_ratio";
pub const GRACE_GIVEN: &str = "quell_grace_given_seconds";
pub const MEMBERS: &str = "quell_members_total";
pub const LEAKS: &str = "quell_leaks_total";
pub const LEAKED_PROCESSES: &str = "quell_leaked_processes_total";
pub const TIMEOUTS: &str = "quell_timeouts_total";
pub const RESTARTS: &str = "quell_restarts_total";
pub const OWNERS_GONE: &str = "quell_owners_gone_total";
pub const KEEPERS_LOST: &str = "quell_keepers_lost_total";
pub const STANDBYS_LOST: &str = "quell_standbys_lost_total";
pub const HOOK_FAILURES: &str = "quell_hook_failures_total";
pub const REFUSALS: &str = "quell_guard_refusals_total";
pub const OUTPUT: &str = "quell_output_bytes_total";
pub const OUTPUT_CUT: &str = "quell_output_cut_bytes_total";

/// All of them, in the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        initial: &[
            &[("mode", "start"), ("held", "cgroup")],
            &[("mode", "start"), ("held", "scope")],
            &[("mode", "start"), ("held", "pidns")],
            &[("mode", "start"), ("held", "reaper")],
            &[("mode", "run"), ("held", "cgroup")],
            &[("mode", "run"), ("held", "scope")],
            &[("mode", "run"), ("held", "pidns")],
            &[("mode", "run"), ("held", "reaper")],
        ],
        ..counter(STARTS, "Jobs that were started, by mode and by what holds the tree.")
    },
    Family {
        initial: &[
            &[("code", "program_not_found")],
            &[("code", "start_failed")],
            &[("code", "containment_unavailable")],
            &[("code", "limit_unavailable")],
            &[("code", "name_taken")],
            &[("code", "system")],
        ],
        ..counter(START_FAILURES, "Starts that failed, by the code of the error.")
    },
    Family {
        // An end that is not proven is rare, and the first one matters.
        initial: &[
            &[("cause", "own_exit"), ("outcome", "ok"), ("verdict", "gone")],
            &[("cause", "own_exit"), ("outcome", "failed"), ("verdict", "gone")],
            &[("cause", "user"), ("outcome", "signaled"), ("verdict", "gone")],
            &[("cause", "timeout"), ("outcome", "signaled"), ("verdict", "gone")],
            &[("cause", "own_exit"), ("outcome", "ok"), ("verdict", "unproven")],
            &[("cause", "own_exit"), ("outcome", "failed"), ("verdict", "unproven")],
            &[("cause", "user"), ("outcome", "signaled"), ("verdict", "unproven")],
            &[("cause", "user"), ("outcome", "unknown"), ("verdict", "unproven")],
            &[("cause", "timeout"), ("outcome", "signaled"), ("verdict", "unproven")],
            &[("cause", "owner_gone"), ("outcome", "signaled"), ("verdict", "unproven")],
            &[("cause", "keeper_lost"), ("outcome", "signaled"), ("verdict", "unproven")],
            &[("cause", "keeper_lost"), ("outcome", "unknown"), ("verdict", "unproven")],
            &[("cause", "host_reboot"), ("outcome", "unknown"), ("verdict", "unproven")],
        ],
        ..counter(ENDS, "Jobs that have ended, by cause, by how the root ended, and by what was proven.")
    },
    Family {
        bounds: SECONDS,
        initial: &[&[("outcome", "ok")], &[("outcome", "failed")], &[("outcome", "signaled")]],
        ..counter(DURATION, "How long the last run of a job took, by how its root ended.")
    },
    Family { bounds: SECONDS, ..counter(READY, "How long a run took until it was ready.") },
    Family {
        initial: &[
            &[("cause", "user")],
            &[("cause", "own_exit")],
            &[("cause", "timeout")],
            &[("cause", "owner_gone")],
            &[("cause", "keeper_lost")],
        ],
        ..counter(STOPS, "Jobs of which processes were asked to exit or killed, by cause.")
    },
    Family {
        bounds: STOP_SECONDS,
        initial: &[&[("escalated", "no")], &[("escalated", "yes")]],
        ..counter(
            STOP_DURATION,
            "How long stops took until the tree was counted, and whether it had to be killed.",
        )
    },
    Family {
        initial: &[&[("reason", "grace_over")], &[("reason", "now")], &[("reason", "recovery")]],
        ..counter(
            ESCALATIONS,
            "Stops in which SIGKILL ended a process: after its grace, because it was wanted, or in recovery.",
        )
    },
    Family {
        bounds: SHARES,
        ..counter(GRACE_USED, "The share of the grace that a stop used; 1 is all of it.")
    },
    Family { bounds: GRACES, ..counter(GRACE_GIVEN, "The grace of stops that had one.") },
    Family {
        initial: &[
            &[("fate", "exited")],
            &[("fate", "exited_on_ask")],
            &[("fate", "killed_after_grace")],
            &[("fate", "killed")],
            &[("fate", "ended")],
            &[("fate", "alive")],
        ],
        ..counter(MEMBERS, "Processes in the receipts, by how they ended.")
    },
    counter(LEAKS, "Jobs whose root left processes that had to be stopped."),
    counter(LEAKED_PROCESSES, "Processes that outlived the root and were stopped."),
    counter(TIMEOUTS, "Jobs that were stopped because their time was up."),
    counter(RESTARTS, "Further runs of jobs by their restart policy."),
    counter(OWNERS_GONE, "Jobs that were stopped because their owner had exited."),
    counter(KEEPERS_LOST, "Keepers that were killed."),
    counter(STANDBYS_LOST, "Standbys that were killed."),
    Family {
        initial: &[
            &[("at", "started")],
            &[("at", "ready")],
            &[("at", "ended")],
            &[("at", "timed_out")],
            &[("at", "killed")],
            &[("at", "leaked")],
            &[("at", "lost")],
        ],
        ..counter(HOOK_FAILURES, "Hooks that failed, by event.")
    },
    Family {
        // What a policy can refuse as a whole. Other codes are about a target.
        initial: &[
            &[("verb", "start"), ("code", "EFFECT_DENIED")],
            &[("verb", "start"), ("code", "VERB_DENIED")],
            &[("verb", "run"), ("code", "EFFECT_DENIED")],
            &[("verb", "run"), ("code", "VERB_DENIED")],
            &[("verb", "test"), ("code", "EFFECT_DENIED")],
            &[("verb", "test"), ("code", "VERB_DENIED")],
            &[("verb", "stop"), ("code", "EFFECT_DENIED")],
            &[("verb", "stop"), ("code", "VERB_DENIED")],
            &[("verb", "restart"), ("code", "EFFECT_DENIED")],
            &[("verb", "restart"), ("code", "VERB_DENIED")],
            &[("verb", "signal"), ("code", "EFFECT_DENIED")],
            &[("verb", "signal"), ("code", "VERB_DENIED")],
            &[("verb", "send"), ("code", "EFFECT_DENIED")],
            &[("verb", "send"), ("code", "VERB_DENIED")],
            &[("verb", "kill"), ("code", "EFFECT_DENIED")],
            &[("verb", "kill"), ("code", "VERB_DENIED")],
            &[("verb", "rm"), ("code", "EFFECT_DENIED")],
            &[("verb", "rm"), ("code", "VERB_DENIED")],
        ],
        ..counter(REFUSALS, "Refusals of the guard, by verb and code.")
    },
    Family {
        initial: &[&[("stream", "stdout")], &[("stream", "stderr")]],
        ..counter(OUTPUT, "Bytes that background jobs wrote.")
    },
    Family {
        initial: &[&[("stream", "stdout")], &[("stream", "stderr")]],
        ..counter(OUTPUT_CUT, "Bytes of output that were not kept.")
    },
];

/// The upper bounds of a histogram.
pub fn bounds(name: &str) -> &'static [f64] {
    FAMILIES.iter().find(|family| family.name == name).map_or(&[], |family| family.bounds)
}
