//! Whether a process that quell didn't start may be signalled.

use quell_core::Signal;

use crate::{BUILT_IN, Decision, DecisionCode as Code, GUIDE, KillPolicy, WHERE, matches};

/// Facts about the process, gathered while it was pinned.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// Its PID.
    pub pid: u32,
    /// Whether it is a thread of the kernel, by its flags or its parent.
    pub kernel_thread: bool,
    /// Its names: of the thread, of its executable, and the first word of its command line. A pattern may match any of them.
    pub names: Vec<String>,
    /// The last path component of each word of its command line. Any of them may be a script, so `protect` may match any.
    pub words: Vec<String>,
    /// Whether its executable can't be read, so that its name is missing. The process can choose the other names.
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

    fn shown(&self) -> String {
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
    let refuse = |code: Code, reason: String, hint: &str| {
        Err(Box::new(Decision::refuse(code, BUILT_IN, reason, hint)))
    };
    let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let hint = "give a decimal number, such as 4711";
        return refuse(Code::PidInvalid, format!("`{shown}` is not a PID"), hint);
    }
    if digits.bytes().all(|digit| digit == b'0') {
        let reason = "0 would mean the caller's own process group";
        return refuse(Code::PidZero, reason.into(), "give the PID of a process");
    }
    if text.starts_with('-') {
        let reason = format!("`{shown}` would mean a process group, or all processes");
        return refuse(Code::PidNegative, reason, "give the PID of one process");
    }
    // The kernel's PID_MAX_LIMIT.
    const LARGEST: u32 = 4 << 20;
    match digits.parse::<u32>().ok().filter(|pid| *pid <= LARGEST) {
        Some(_) if digits.starts_with('0') => {
            let reason = format!("`{shown}` begins with a 0, which can be read as octal");
            refuse(Code::PidInvalid, reason, "leave the 0 out")
        }
        Some(1) => {
            let hint = "to shut the system down, use its own commands";
            refuse(Code::PidInit, "process 1 is init, which all others depend on".into(), hint)
        }
        Some(pid) => Ok(pid),
        None => refuse(Code::PidOutOfRange, format!("{shown} is larger than any PID"), "check the number"),
    }
}

/// How many characters of a process's word are shown.
const LONGEST_WORD: usize = 60;

/// Whether this process may get this signal.
pub fn decide_kill(policy: &KillPolicy, facts: &ProcessFacts, signal: Signal) -> Decision {
    match built_in(facts).or_else(|| refused(policy, facts, signal)) {
        Some(refusal) => refusal,
        None => allowed(policy, facts),
    }
}

/// The process in a reason. It chooses its own name, which may have control characters.
fn shown(facts: &ProcessFacts) -> String {
    format!("{} ({})", facts.pid, name(facts))
}

fn name(facts: &ProcessFacts) -> String {
    facts.names.first().map_or("?", String::as_str).escape_debug().collect()
}

/// What no policy can allow.
fn built_in(facts: &ProcessFacts) -> Option<Decision> {
    let process = shown(facts);
    let (code, why, hint) = if facts.kernel_thread {
        (
            Code::PidKernelThread,
            "is a thread of the kernel".into(),
            "kernel threads can't be signalled".into(),
        )
    } else if facts.above_caller == Some(Relation::Caller) {
        (Code::PidIsCaller, "is the caller".into(), "exit instead".into())
    } else if facts.above_caller == Some(Relation::Ancestor) {
        let why = "is an ancestor of the caller, which may end with it".into();
        (Code::PidIsAncestor, why, "run quell outside of it".into())
    } else if facts.is_quell {
        let hint = "`quell list` and `quell stop JOB` end what it keeps".into();
        (Code::PidIsQuell, "is one of quell's own processes".into(), hint)
    } else if let Some(job) = &facts.job {
        let hint = format!("`quell stop {job}` stops all of it, with a receipt");
        (Code::PidInJob, format!("belongs to the job {job}"), hint)
    } else if facts.kept {
        let hint = "run `quell stop JOB` as its user, or with its QUELL_HOME".into();
        (Code::PidInJob, "belongs to a job that is not in this home".into(), hint)
    } else {
        return None;
    };
    Some(Decision::refuse(code, BUILT_IN, format!("{process} {why}"), hint))
}

/// The first pattern that matches one of the words, and that word.
fn find_match(patterns: &[String], words: &[String]) -> Option<(String, String)> {
    let word = |pattern: &String| words.iter().find(|word| matches(pattern, word)).cloned();
    patterns.iter().find_map(|pattern| Some((pattern.clone(), word(pattern)?)))
}

/// What the policy refuses.
fn refused(policy: &KillPolicy, facts: &ProcessFacts, signal: Signal) -> Option<Decision> {
    let process = shown(facts);
    let refuse = |code: Code, rule: &str, reason: String, hint: String| {
        Some(Decision::refuse(code, rule, reason, format!("{hint}; {GUIDE}")))
    };
    if facts.pid < policy.min_pid {
        let (why, hint) = if facts.in_container {
            (
                "in this PID namespace (a container) low PIDs are common, so it may be an ordinary process",
                "set guard.kill.min_pid = 2 in the container",
            )
        } else {
            ("such processes have run since boot", "to allow it, lower guard.kill.min_pid")
        };
        let floor = policy.min_pid;
        let reason = format!("{process} is below the lowest PID that the policy allows, {floor}; {why}");
        return refuse(Code::PidBelowFloor, "guard.kill.min_pid", reason, hint.into());
    }
    let protected = |words| find_match(&policy.protect, words);
    if let Some((pattern, word)) = protected(&facts.names).or_else(|| protected(&facts.words)) {
        let word: String = word.escape_debug().take(LONGEST_WORD).collect();
        let reason = format!("{process} is protected by the pattern `{pattern}`, which matches `{word}`");
        let hint = "to allow it, remove the pattern from guard.kill.protect".into();
        return refuse(Code::NameProtected, "guard.kill.protect", reason, hint);
    }
    if facts.file_unknown && !policy.protect.is_empty() {
        let reason = format!("the executable of {process} can't be read, so guard.kill.protect may name it");
        let hint = "run quell as its user, or as root with CAP_SYS_PTRACE".into();
        return refuse(Code::NameUnknown, "guard.kill.protect", reason, hint);
    }
    if let Some(owner) = facts.owners.iter().find(|owner| owner.is_among(&policy.protect_users)) {
        let user = owner.shown();
        let reason = format!("{process} belongs to {user}, whose processes are protected");
        let hint = format!("to allow it, remove {user} from guard.kill.protect_users");
        return refuse(Code::UserProtected, "guard.kill.protect_users", reason, hint);
    }
    let stranger = |owner: &&ProcessOwner| owner.uid != facts.caller_uid && !owner.is_among(&policy.users);
    if let Some(owner) = facts.owners.iter().find(stranger) {
        let user = owner.shown();
        let reason = format!("{process} belongs to {user}, and not to the caller");
        let hint = format!("to allow it, add {user} to guard.kill.users");
        return refuse(Code::UserNotAllowed, "guard.kill.users", reason, hint);
    }
    let (signal, signals) = (signal.to_string(), &policy.signals);
    if !signals.is_empty() && !signals.contains(&signal) {
        let reason = format!("the policy does not allow the signal {signal}, only {}", signals.join(", "));
        return refuse(Code::SignalNotAllowed, "guard.kill.signals", reason, "use one of these".into());
    }
    None
}

/// Whether a pattern of the policy allows the process. What no pattern names is refused.
fn allowed(policy: &KillPolicy, facts: &ProcessFacts) -> Decision {
    let (process, name) = (shown(facts), name(facts));
    if let Some((pattern, _)) = find_match(&policy.allow, &facts.names) {
        return Decision::allow("guard.kill.allow", format!("{process} matches the pattern `{pattern}`"));
    }
    // A process chooses its own name. `*` in guard.kill.allow would allow every process.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@:".contains(&byte);
    let what = match name.bytes().all(plain) && !name.is_empty() {
        true => format!("add \"{name}\" to guard.kill.allow {WHERE}"),
        false => "its name has characters that a pattern should not have; check it first".into(),
    };
    let reason = format!("no pattern of the policy allows {process}");
    Decision::refuse(Code::NotAllowed, "guard.kill.allow", reason, format!("{what}; {GUIDE}"))
}
