//! Death of quell's own processes, damaged records, and what the next command makes of them.

pub mod crash;
pub mod damaged_records;
pub mod end_of_job;
pub mod fault_points;
pub mod forged_records;
pub mod hidden_processes;
pub mod limited_view;
pub mod lost_jobs;
pub mod older_records;
pub mod proof;
pub mod scenarios;
pub mod untrusted_records;
