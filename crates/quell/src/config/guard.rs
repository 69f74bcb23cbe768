//! `[guard]`: the policy in a file, and how the policies of several files are combined.
//!
//! Refusals of all files add up. Permissions count from the machine's file only, if it exists; otherwise from the user's file and
//! from a trusted project. For keys that narrow a list, the strongest file that has the key wins. `guard.test.commands` lifts the
//! scope for the listed commands, but only if it comes from a file as strong as the scope's. `--scope` is stronger than a project.

use quell_core::Signal;
use quell_guard::{Effect, KillPolicy, Policy, Verb};
use toml::Spanned;
use toml::de::DeValue;

use super::keys::Problem;
use super::{Layer, settings_file, suggest};

/// The policy of the machine. It belongs to root and is read first.
pub(crate) const MACHINE_FILE: &str = "/etc/quell/guard.toml";

/// The default variable that approves a test run.
pub(crate) const APPROVAL: &str = "QUELL_APPROVE_TESTS";

/// A key of `[guard]` with its value and line.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub key: &'static str,
    pub value: Value,
    pub line: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Effect(Effect),
    Words(Vec<String>),
    Number(u32),
    Flag(bool),
    Text(String),
}

impl Value {
    /// The value as `config show` prints it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Effect(effect) => effect.as_str().into(),
            Self::Words(words) => words.join(","),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// How a word of a list is checked and written.
type Word = fn(String) -> Result<String, Problem>;
/// The list of the policy that a key fills.
type Field = fn(&mut Policy) -> &mut Vec<String>;

/// How a key is written, and how the values of several files are combined.
#[derive(Clone, Copy)]
pub(crate) enum PolicyForm {
    /// The smallest value of all files counts.
    MaxEffect,
    /// A list of verbs; the lists of all files add up.
    Deny,
    /// The lists of all files add up.
    Adds(Word, Field),
    /// The list of the strongest file counts. It is not empty.
    Narrows(Word, Field),
    /// The greatest value of all files counts.
    Pid,
    /// True if any file says so.
    Flag,
    /// The value of the strongest file counts.
    Variable,
}

/// All keys of `[guard]`.
pub(crate) const KEYS: &[(&str, PolicyForm)] = &[
    ("guard.max_effect", PolicyForm::MaxEffect),
    ("guard.deny", PolicyForm::Deny),
    ("guard.kill.allow", PolicyForm::Adds(pattern, |policy| &mut policy.kill.allow)),
    ("guard.kill.users", PolicyForm::Adds(pattern, |policy| &mut policy.kill.users)),
    ("guard.kill.protect", PolicyForm::Adds(pattern, |policy| &mut policy.kill.protect)),
    ("guard.kill.protect_users", PolicyForm::Adds(pattern, |policy| &mut policy.kill.protect_users)),
    ("guard.kill.min_pid", PolicyForm::Pid),
    ("guard.kill.signals", PolicyForm::Narrows(signal, |policy| &mut policy.kill.signals)),
    ("guard.service.allow", PolicyForm::Adds(pattern, |policy| &mut policy.service.allow)),
    ("guard.service.protect", PolicyForm::Adds(pattern, |policy| &mut policy.service.protect)),
    ("guard.service.verbs", PolicyForm::Narrows(service_verb, |policy| &mut policy.service.verbs)),
    ("guard.test.scope", PolicyForm::Narrows(name, |policy| &mut policy.test.scope)),
    ("guard.test.commands", PolicyForm::Narrows(name, |policy| &mut policy.test.commands)),
    ("guard.test.allow", PolicyForm::Adds(name, |policy| &mut policy.test.allow)),
    ("guard.test.approval", PolicyForm::Flag),
    ("guard.test.approval_variable", PolicyForm::Variable),
];

impl PolicyForm {
    /// Reads a value of this form.
    pub(crate) fn read(self, value: Spanned<DeValue<'_>>) -> Result<Value, Problem> {
        match self {
            Self::MaxEffect => {
                settings_file::variant(&settings_file::read::<String>(value)?).map(Value::Effect)
            }
            Self::Deny => words(value, verb),
            Self::Adds(word, _) => words(value, word),
            // An empty list would allow everything, while its author meant to allow nothing.
            Self::Narrows(..) if value.get_ref().as_array().is_some_and(|list| list.is_empty()) => {
                Err(Problem::new("an empty list would let everything pass", "leave it out, or deny the verb"))
            }
            Self::Narrows(word, _) => words(value, word),
            // A number in another base is not a PID.
            Self::Pid if value.get_ref().as_integer().is_some_and(|number| number.radix() != 10) => {
                Err(Problem::new("must be a whole number", ""))
            }
            Self::Pid => match settings_file::read(value)? {
                small @ 0..2 => Err(Problem::new(format!("`{small}` is too small"), "2 is the least")),
                pid => Ok(Value::Number(pid)),
            },
            Self::Flag => settings_file::read(value).map(Value::Flag),
            Self::Variable => variable(settings_file::read(value)?).map(Value::Text),
        }
    }
}

fn words(value: Spanned<DeValue<'_>>, word: Word) -> Result<Value, Problem> {
    let words: Vec<String> = settings_file::read(value)?;
    words.into_iter().map(word).collect::<Result<_, _>>().map(Value::Words)
}

fn among(word: String, known: impl Iterator<Item = &'static str> + Clone) -> Result<String, Problem> {
    if known.clone().any(|known| known == word) {
        return Ok(word);
    }
    Err(Problem::new(format!("`{word}` is not a verb"), suggest::hint(&word, "verbs", known)))
}

fn verb(word: String) -> Result<String, Problem> {
    among(word, Verb::ALL.iter().map(|verb| verb.as_str()))
}

fn service_verb(word: String) -> Result<String, Problem> {
    among(word, ["start", "stop", "restart", "status"].into_iter())
}

/// A name, which must not be empty: an empty one is a mistake.
fn name(word: String) -> Result<String, Problem> {
    let bad = word.trim().is_empty() || word.contains(['\0', '\n']);
    if bad { Err(Problem::new(format!("`{word}` is not a name"), "")) } else { Ok(word) }
}

/// A pattern over names of processes, users or services.
fn pattern(word: String) -> Result<String, Problem> {
    if word.is_empty() || word.trim() != word || word.contains(['/', '?', '[', ']', '\0', '\n']) {
        let hint =
            "write a name, without its directory and without blanks around it; `*` stands for anything";
        return Err(Problem::new(format!("`{word}` cannot match a name"), hint));
    }
    Ok(word)
}

fn signal(word: String) -> Result<String, Problem> {
    word.parse().map(|signal: Signal| signal.to_string()).map_err(|error| Problem::new(error, ""))
}

fn variable(name: String) -> Result<String, Problem> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(sound) || name.as_bytes()[0].is_ascii_digit() {
        let message = format!("`{name}` is not a name of a variable");
        return Err(Problem::new(message, "such as QUELL_APPROVE_TESTS"));
    }
    Ok(name)
}

impl Rule {
    /// Whether the rule allows something that is refused by default. A lower `min_pid` than the default does.
    pub(crate) fn allows(&self) -> bool {
        match (self.key, &self.value) {
            ("guard.kill.allow" | "guard.kill.users" | "guard.service.allow" | "guard.test.allow", _) => true,
            ("guard.kill.min_pid", Value::Number(pid)) => *pid < KillPolicy::default().min_pid,
            _ => false,
        }
    }

    /// Whether the rule is only accepted from a trusted file. An untrusted project could name an approval variable that is always
    /// set.
    pub(crate) fn needs_trust(&self) -> bool {
        self.allows() || self.key == "guard.test.approval_variable"
    }

    /// Whether the rule says what approves a test run, and a stronger file requires the approval: that file says what approves, too.
    pub(crate) fn approves_for_stronger(&self, layer: Layer, before: &[(&str, Layer)]) -> bool {
        self.key == "guard.test.approval_variable"
            && before.iter().any(|&(key, of)| key == "guard.test.approval" && of != layer)
    }

    /// Whether the rule changes nothing. It is not among the keys that a file has set.
    pub(crate) fn is_void(&self) -> bool {
        matches!(self.value, Value::Flag(false))
    }

    /// Removes absolute paths from a scope, because they would allow more than the default. Returns the number of remaining paths
    /// if any were removed.
    pub(crate) fn drop_absolute_scopes(&mut self) -> Option<usize> {
        let (true, Value::Words(words)) = (self.key == "guard.test.scope", &mut self.value) else {
            return None;
        };
        let all = words.len();
        words.retain(|word| !word.starts_with('/'));
        (words.len() < all).then_some(words.len())
    }

    /// The user names that this machine does not know.
    pub(crate) fn unknown_users(&self) -> Vec<&str> {
        let (true, Value::Words(words)) = (self.key.ends_with("users"), &self.value) else {
            return Vec::new();
        };
        let is_name = |word: &&str| !word.contains('*') && !word.bytes().all(|byte| byte.is_ascii_digit());
        words.iter().map(String::as_str).filter(is_name).filter(|name| !quell_sys::is_user(name)).collect()
    }

    /// Adds the rule to the policy. `before` lists the keys that stronger files have set, with their layers.
    pub(crate) fn put(&self, policy: &mut Policy, layer: Layer, before: &[(&str, Layer)]) {
        let Some((_, form)) = KEYS.iter().find(|(key, _)| *key == self.key) else { return };
        let first = !before.iter().any(|(key, _)| *key == self.key);
        match (form, &self.value) {
            (PolicyForm::MaxEffect, Value::Effect(effect)) => {
                policy.max_effect = policy.max_effect.min(*effect)
            }
            (PolicyForm::Deny, Value::Words(words)) => {
                for verb in words.iter().filter_map(|word| Verb::of(word)) {
                    if !policy.deny.contains(&verb) {
                        policy.deny.push(verb);
                    }
                }
            }
            (PolicyForm::Adds(_, field), Value::Words(words)) => {
                let all = field(policy);
                for word in words {
                    if !all.contains(word) {
                        all.push(word.clone());
                    }
                }
            }
            (PolicyForm::Narrows(_, field), Value::Words(words)) if first => field(policy).clone_from(words),
            (PolicyForm::Pid, Value::Number(pid)) => {
                policy.kill.min_pid = if first { *pid } else { policy.kill.min_pid.max(*pid) };
            }
            (PolicyForm::Flag, Value::Flag(flag)) => policy.test.approval |= flag,
            (PolicyForm::Variable, Value::Text(name)) if first => {
                policy.test.approval_variable.clone_from(name)
            }
            _ => {}
        }
        if first && self.key == "guard.test.commands" {
            policy.test.commands_lift_scope =
                !before.iter().any(|&(key, of)| key == "guard.test.scope" && of != layer);
            policy.test.commands_of_project = layer == Layer::Project;
        }
    }
}
