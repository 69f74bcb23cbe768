//! May these tests be run? Decided by the words of the command and the policy alone; what is on disk is looked at elsewhere.

mod command;
mod options;
mod path;
mod report_name;
mod runner;
mod scan;
mod scope;
mod variables;
mod wrapper;

pub(crate) use command::{Runner, TestCommand, read_command};
pub(crate) use path::{Root, check_target};
pub(crate) use quell_guard::{BUILT_IN, Decision, GUIDE, TestPolicy, matches};
pub(crate) use report_name::{decide_evidence_name, is_any_report, is_report_dir};
pub(crate) use runner::{PathWord, Place, Rules, added_words, path_words};
pub(crate) use scan::split_words;
pub(crate) use scope::{
    Resolved, Scope, decide_approval, decide_command, decide_link, decide_place, decide_presence,
};
pub(crate) use variables::is_runner_variable;
