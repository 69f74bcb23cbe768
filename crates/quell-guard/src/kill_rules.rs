//! Whether a process that quell didn't start may be signalled.

use crate::{BUILT_IN, Decision, DecisionCode, GUIDE, KillPolicy, WHERE, matches};
use quell_core::Signal;

/// Facts about the process, gathered while it was pinned.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// Its PID.
    pub pid: u32,
    /// A thread of the kernel, by its flags or its parent.
    pub kernel_thread: bool,
    /// Its names: of the thread, of its executable, and the first word of its command line. A pattern may match any of them.
    pub names: Vec<String>,
    /// The last path component of each word of its command line. Any of them may be a script, so `protect` may match any.
    pub words: Vec<String>,
    /// Its executable can't be read, so that name is missing. The process can choose the others.
    pub file_unknown: bool,
    /// Its users: effective, real, saved, and for files, where they differ.
    pub owners: Vec<ProcessOwner>,
    /// The caller's user.
    pub caller_uid: u32,
    /// Whether it is the caller or an ancestor of it.
    pub above_caller: Option<Relation>,
    /// Whether it is one of quell's own: a front, a keeper, a standby.
    pub is_quell: bool,
    /// The job that it is in, unless that is the caller's own.
    pub job: Option<String>,
    /// Whether it descends from a keeper that is not the caller's, of a job that is not known here.
    pub kept: bool,
    /// Whether this is a PID namespace of its own, such as a container, where low PIDs are common.
    pub in_container: bool,
}

/// A user whose rights a process has, or can take again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOwner {
    /// The user's id.
    pub uid: u32,
    /// The user's name, if there is one.
    pub name: Option<String>,
}

impl ProcessOwner {
    fn is_among(&self, users: &[String]) -> bool {
        let uid = self.uid.to_string();
        users.iter().any(|known| self.name.iter().chain([&uid]).any(|word| matches(known, word)))
    }

    fn word(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.uid.to_string())
    }
}

/// The relation of a process to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the caller.
    Caller,
    /// It is an ancestor of the caller.
    Ancestor,
}

/// The PID, if a process with it may be signalled at all.
pub fn read_pid(text: &str) -> Result<u32, Box<Decision>> {
    let refuse = |code: DecisionCode, reason: String, hint: &str| {
        Err(Box::new(Decision::refuse(code, BUILT_IN, reason, hint)))
    };
    let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refuse(
            DecisionCode::PidInvalid,
            format!("`{shown}` is not a PID"),
            "give a decimal number, such as 4711",
        );
    }
    let zero = digits.bytes().all(|digit| digit == b'0');
    if text.starts_with('-') && !zero {
        let hint = "give the PID of one process";
        return refuse(
            DecisionCode::PidNegative,
            format!("`{shown}` would mean a process group, or all processes"),
            hint,
        );
    }
    if zero {
        return refuse(
            DecisionCode::PidZero,
            "0 would mean the caller's own process group".into(),
            "give the PID of a process",
        );
    }
    // The kernel's PID_MAX_LIMIT.
    const LARGEST: u32 = 4 << 20;
    match digits.parse::<u32>().ok().filter(|pid| *pid <= LARGEST) {
        Some(_) if digits.starts_with('0') => refuse(
            DecisionCode::PidInvalid,
            format!("`{shown}` begins with a 0, which can be read as octal"),
            "leave the 0 out",
        ),
        Some(1) => refuse(
            DecisionCode::PidInit,
            "process 1 is init, which all others depend on".into(),
            "to shut the system down, use its own commands",
        ),
        Some(pid) => Ok(pid),
        None => {
            refuse(DecisionCode::PidOutOfRange, format!("{shown} is larger than any PID"), "check the number")
        }
    }
}

/// How many characters of a process's word are shown.
const LONGEST_WORD: usize = 60;

/// Whether this process may get this signal.
pub fn decide_kill(policy: &KillPolicy, facts: &ProcessFacts, signal: Signal) -> Decision {
    let pid = facts.pid;
    // A process chooses its own name, which may have control characters.
    let name: String = facts.names.first().map_or("?", String::as_str).escape_debug().collect();
    let built_in =
        |code: DecisionCode, reason: String, hint: &str| Decision::refuse(code, BUILT_IN, reason, hint);
    if facts.kernel_thread {
        let hint = "kernel threads can't be signalled";
        return built_in(
            DecisionCode::PidKernelThread,
            format!("{pid} ({name}) is a thread of the kernel"),
            hint,
        );
    }
    match facts.above_caller {
        Some(Relation::Caller) => {
            return built_in(
                DecisionCode::PidIsCaller,
                format!("{pid} ({name}) is the caller"),
                "exit instead",
            );
        }
        Some(Relation::Ancestor) => {
            let reason = format!("{pid} ({name}) is an ancestor of the caller, which may end with it");
            return built_in(DecisionCode::PidIsAncestor, reason, "run quell outside of it");
        }
        None => {}
    }
    if facts.is_quell {
        let reason = format!("{pid} ({name}) is one of quell's own processes");
        return built_in(
            DecisionCode::PidIsQuell,
            reason,
            "`quell list` and `quell stop JOB` end what it keeps",
        );
    }
    if let Some(job) = &facts.job {
        let reason = format!("{pid} ({name}) belongs to the job {job}");
        return built_in(
            DecisionCode::PidInJob,
            reason,
            &format!("`quell stop {job}` stops all of it, with a receipt"),
        );
    }
    if facts.kept {
        let reason = format!("{pid} ({name}) belongs to a job that is not in this home");
        return built_in(
            DecisionCode::PidInJob,
            reason,
            "run `quell stop JOB` as its user, or with its QUELL_HOME",
        );
    }
    if pid < policy.min_pid {
        let floor = policy.min_pid;
        let (why, hint) = if facts.in_container {
            (
                "; in this PID namespace (a container) low PIDs are common, so it may be an ordinary process",
                "set guard.kill.min_pid = 2 in the container",
            )
        } else {
            ("; such processes have run since boot", "to allow it, lower guard.kill.min_pid")
        };
        let reason = format!("{pid} ({name}) is below the lowest PID that the policy allows, {floor}{why}");
        return Decision::refuse(
            DecisionCode::PidBelowFloor,
            "guard.kill.min_pid",
            reason,
            format!("{hint}; {GUIDE}"),
        );
    }
    let fits = |patterns: &[String], words: &[String]| {
        let word = |pattern: &String| words.iter().find(|word| matches(pattern, word)).cloned();
        patterns.iter().find_map(|pattern| Some((pattern.clone(), word(pattern)?)))
    };
    let by_name = fits(&policy.protect, &facts.names);
    if let Some((pattern, word)) = by_name.or_else(|| fits(&policy.protect, &facts.words)) {
        let word: String = word.escape_debug().take(LONGEST_WORD).collect();
        let reason =
            format!("{pid} ({name}) is protected by the pattern `{pattern}`, which matches `{word}`");
        let hint = format!("to allow it, remove the pattern from guard.kill.protect; {GUIDE}");
        return Decision::refuse(DecisionCode::NameProtected, "guard.kill.protect", reason, hint);
    }
    if facts.file_unknown && !policy.protect.is_empty() {
        let reason =
            format!("the executable of {pid} ({name}) can't be read, so guard.kill.protect may name it");
        let hint = format!("run quell as its user, or as root with CAP_SYS_PTRACE; {GUIDE}");
        return Decision::refuse(DecisionCode::NameUnknown, "guard.kill.protect", reason, hint);
    }
    if let Some(owner) = facts.owners.iter().find(|owner| owner.is_among(&policy.protect_users)) {
        let user = owner.word();
        let hint = format!("to allow it, remove {user} from guard.kill.protect_users; {GUIDE}");
        let reason = format!("{pid} ({name}) belongs to {user}, whose processes are protected");
        return Decision::refuse(DecisionCode::UserProtected, "guard.kill.protect_users", reason, hint);
    }
    let stranger = |owner: &&ProcessOwner| owner.uid != facts.caller_uid && !owner.is_among(&policy.users);
    if let Some(owner) = facts.owners.iter().find(stranger) {
        let user = owner.word();
        let reason = format!("{pid} ({name}) belongs to {user}, and not to the caller");
        let hint = format!("to allow it, add {user} to guard.kill.users; {GUIDE}");
        return Decision::refuse(DecisionCode::UserNotAllowed, "guard.kill.users", reason, hint);
    }
    let word = signal.to_string();
    if !policy.signals.is_empty() && !policy.signals.contains(&word) {
        let reason =
            format!("the policy does not allow the signal {word}, only {}", policy.signals.join(", "));
        return Decision::refuse(
            DecisionCode::SignalNotAllowed,
            "guard.kill.signals",
            reason,
            format!("use one of these; {GUIDE}"),
        );
    }
    match fits(&policy.allow, &facts.names) {
        Some((pattern, _)) => {
            Decision::allow("guard.kill.allow", format!("{pid} ({name}) matches the pattern `{pattern}`"))
        }
        None => {
            let reason = format!("no pattern of the policy allows {pid} ({name})");
            // A process chooses its own name. `*` in guard.kill.allow would allow every process.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@:".contains(&byte);
            let what = match name.bytes().all(plain) && !name.is_empty() {
                true => format!("add \"{name}\" to guard.kill.allow {WHERE}"),
                false => "its name has characters that a pattern should not have; check it first".into(),
            };
            let hint = format!("{what}; {GUIDE}");
            Decision::refuse(DecisionCode::NotAllowed, "guard.kill.allow", reason, hint)
        }
    }
}
