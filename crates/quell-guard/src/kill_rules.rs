//! May a process be signalled that quell didn't start?

use crate::{BUILT_IN, Decision, GUIDE, KillPolicy, WHERE, matches};
use quell_core::Signal;

/// What is known of the process, gathered while it was pinned.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// Its number.
    pub pid: u32,
    /// A thread of the kernel, by its flags or its parent.
    pub kernel_thread: bool,
    /// Its names: the short one, that of its file, that by which it was called. Patterns are held against each.
    pub names: Vec<String>,
    /// The last part of each word of its command line. A script may be any of them, so `protect` is held against each.
    pub words: Vec<String>,
    /// The file that it executes can't be read, so its name is missing among the names. The others are its own choice.
    pub file_unknown: bool,
    /// Whose it is: the effective user first, then the real, the saved and that of its files, where they differ.
    pub owners: Vec<Owner>,
    /// The caller's user.
    pub caller_uid: u32,
    /// The process that asks, or one of those above it.
    pub above_caller: Option<Kin>,
    /// One of quell's own: a front, a keeper, a standby.
    pub is_quell: bool,
    /// The job that it is in, unless that is the caller's own.
    pub job: Option<String>,
    /// It descends from a keeper of quell's that is not the caller's, whichever job that keeps.
    pub kept: bool,
    /// Numbers are those of a PID namespace in which few have been given out, such as a container.
    pub in_container: bool,
}

/// A user by whose rights a process acts, or can act again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The number.
    pub uid: u32,
    /// The name, if it has one.
    pub name: Option<String>,
}

impl Owner {
    fn is_among(&self, users: &[String]) -> bool {
        let uid = self.uid.to_string();
        users.iter().any(|known| self.name.iter().chain([&uid]).any(|word| matches(known, word)))
    }

    fn word(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.uid.to_string())
    }
}

/// How a process stands to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// The very process that asks.
    Caller,
    /// One that it descends from.
    Ancestor,
}

/// The number, if it can be one of a process that may be signalled at all.
pub fn read_pid(text: &str) -> Result<u32, Box<Decision>> {
    let refuse = |code: &str, reason: String, hint: &str| {
        Err(Box::new(Decision::refuse(code, BUILT_IN, reason, hint)))
    };
    let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refuse(
            "PID_INVALID",
            format!("`{shown}` is no number of a process"),
            "give it in decimal, such as 4711",
        );
    }
    let zero = digits.bytes().all(|digit| digit == b'0');
    if text.starts_with('-') && !zero {
        let hint = "give one process; --tree takes those below it, too";
        return refuse("PID_NEGATIVE", format!("`{shown}` would mean a whole group, or everybody"), hint);
    }
    if zero {
        return refuse(
            "PID_ZERO",
            "0 would mean the caller's own group".into(),
            "give the number of a process",
        );
    }
    // The largest that a kernel can be told to give out (PID_MAX_LIMIT).
    const LARGEST: u32 = 4 << 20;
    match digits.parse::<u32>().ok().filter(|pid| *pid <= LARGEST) {
        Some(_) if digits.starts_with('0') => refuse(
            "PID_INVALID",
            format!("`{shown}` begins with a 0, which some read as octal"),
            "leave the 0 out",
        ),
        Some(1) => refuse(
            "PID_INIT",
            "1 is the process that all others depend on".into(),
            "shut the system down by its own means",
        ),
        Some(pid) => Ok(pid),
        None => refuse(
            "PID_OUT_OF_RANGE",
            format!("no process has a number as large as {shown}"),
            "check the number",
        ),
    }
}

/// How much of a word of a process is shown.
const LONGEST_WORD: usize = 60;

/// Whether this process may get this signal.
pub fn decide_kill(policy: &KillPolicy, facts: &ProcessFacts, signal: Signal) -> Decision {
    let pid = facts.pid;
    // A process calls itself what it likes, also what a terminal or a reader would obey.
    let name: String = facts.names.first().map_or("?", String::as_str).escape_debug().collect();
    let built_in = |code: &str, reason: String, hint: &str| Decision::refuse(code, BUILT_IN, reason, hint);
    if facts.kernel_thread {
        let hint = "the kernel does with its threads as it likes; no signal is for them";
        return built_in("PID_KERNEL_THREAD", format!("{pid} ({name}) is a thread of the kernel"), hint);
    }
    match facts.above_caller {
        Some(Kin::Caller) => {
            return built_in("PID_IS_CALLER", format!("{pid} ({name}) is the one who asks"), "exit instead");
        }
        Some(Kin::Ancestor) => {
            let reason = format!("{pid} ({name}) is above the one who asks, which would end with it");
            return built_in("PID_IS_ANCESTOR", reason, "ask from outside of it");
        }
        None => {}
    }
    if facts.is_quell {
        let reason = format!("{pid} ({name}) is one of quell's own processes");
        return built_in("PID_IS_QUELL", reason, "`quell list` and `quell stop JOB` end what it keeps");
    }
    if let Some(job) = &facts.job {
        let reason = format!("{pid} ({name}) belongs to the job {job}");
        return built_in(
            "PID_IN_JOB",
            reason,
            &format!("`quell stop {job}` stops all of it, with a receipt"),
        );
    }
    if facts.kept {
        let reason = format!("{pid} ({name}) belongs to a job of quell's that is not known here");
        return built_in(
            "PID_IN_JOB",
            reason,
            "`quell stop JOB` of its user, or with its QUELL_HOME, stops it",
        );
    }
    if pid < policy.min_pid {
        let floor = policy.min_pid;
        let (why, hint) = if facts.in_container {
            (
                "; in this PID namespace (a container) numbers begin anew, so that it may well be an ordinary process",
                "set guard.kill.min_pid = 2 in here",
            )
        } else {
            (
                "; so low are those that have been there since the boot",
                "lower guard.kill.min_pid if you mean it",
            )
        };
        let reason = format!("{pid} ({name}) is below the floor of {floor}{why}");
        return Decision::refuse("PID_BELOW_FLOOR", "guard.kill.min_pid", reason, format!("{hint}; {GUIDE}"));
    }
    let fits = |patterns: &[String], words: &[String]| {
        let word = |pattern: &String| words.iter().find(|word| matches(pattern, word)).cloned();
        patterns.iter().find_map(|pattern| Some((pattern.clone(), word(pattern)?)))
    };
    let by_name = fits(&policy.protect, &facts.names);
    if let Some((pattern, word)) = by_name.or_else(|| fits(&policy.protect, &facts.words)) {
        let word: String = word.escape_debug().take(LONGEST_WORD).collect();
        let reason = format!("{pid} ({name}) is protected by the pattern `{pattern}`, which fits `{word}`");
        let hint = format!("take it out of guard.kill.protect if you mean it; {GUIDE}");
        return Decision::refuse("NAME_PROTECTED", "guard.kill.protect", reason, hint);
    }
    if facts.file_unknown && !policy.protect.is_empty() {
        let reason = format!(
            "it can't be read which file {pid} ({name}) executes, so it may be one of those that guard.kill.protect names"
        );
        let hint =
            format!("ask as its user, or as root with the right to trace it (CAP_SYS_PTRACE); {GUIDE}");
        return Decision::refuse("NAME_UNKNOWN", "guard.kill.protect", reason, hint);
    }
    if let Some(owner) = facts.owners.iter().find(|owner| owner.is_among(&policy.protect_users)) {
        let user = owner.word();
        let hint = format!("take {user} out of guard.kill.protect_users if you mean it; {GUIDE}");
        let reason = format!("{pid} ({name}) belongs to {user}, whose processes are protected");
        return Decision::refuse("USER_PROTECTED", "guard.kill.protect_users", reason, hint);
    }
    let stranger = |owner: &&Owner| owner.uid != facts.caller_uid && !owner.is_among(&policy.users);
    if let Some(owner) = facts.owners.iter().find(stranger) {
        let user = owner.word();
        let reason = format!("{pid} ({name}) belongs to {user}, and not to the caller");
        let hint = format!("add {user} to guard.kill.users if that is meant; {GUIDE}");
        return Decision::refuse("USER_NOT_ALLOWED", "guard.kill.users", reason, hint);
    }
    let word = signal.to_string();
    if !policy.signals.is_empty() && !policy.signals.contains(&word) {
        let reason =
            format!("{word} is not among the signals that may be sent ({})", policy.signals.join(", "));
        return Decision::refuse(
            "SIGNAL_NOT_ALLOWED",
            "guard.kill.signals",
            reason,
            format!("choose one of them; {GUIDE}"),
        );
    }
    match fits(&policy.allow, &facts.names) {
        Some((pattern, _)) => {
            Decision::allow("guard.kill.allow", format!("{pid} ({name}) fits the pattern `{pattern}`"))
        }
        None => {
            let reason = format!("no pattern of the policy allows {pid} ({name})");
            // What a process calls itself is not always fit to be copied: `*` would open the host.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@:".contains(&byte);
            let what = match name.bytes().all(plain) && !name.is_empty() {
                true => format!("add \"{name}\" to guard.kill.allow {WHERE}"),
                false => "its name has characters that a pattern should not have; look at it first".into(),
            };
            let hint = format!("{what}; {GUIDE}");
            Decision::refuse("NOT_ALLOWED", "guard.kill.allow", reason, hint)
        }
    }
}
