//! `[guard]`: what a file says about what may be done, and how the files' words are put together.
//!
//! Whatever refuses adds up over all files. What allows counts from the machine's file alone, if there is one; else from the
//! user's own and from a project that the user trusts. Of what narrows a list, the strongest file that has it wins. With a scope
//! `guard.test.commands` allows, too; but only from a place that is as strong as the scope's.

use std::ops::Range;

use quell_core::Signal;
use quell_core::guard::{EFFECTS, Effect, KillPolicy, Policy};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Reader, kind, strings};
use super::keys::{Problem, choice};
use super::{Layer, suggest};

/// The policy of the machine. Root's, and read before all others.
pub(crate) const MACHINE_FILE: &str = "/etc/quell/guard.toml";

/// The variable that approves a test run if the policy names no other one.
pub(crate) const APPROVAL: &str = "QUELL_APPROVE_TESTS";

const TABLES: [&str; 5] = ["most", "deny", "kill", "service", "test"];
const VERBS: [&str; 4] = ["start", "stop", "restart", "status"];
const MOST: [(&str, Effect); 3] =
    [("read", Effect::Read), ("write", Effect::Write), ("destructive", Effect::Destructive)];

/// What is said about one key, and where.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub key: &'static str,
    pub value: Value,
    pub line: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Most(Effect),
    Words(Vec<String>),
    Number(u32),
    Flag(bool),
    Text(String),
}

impl Value {
    /// As `config show` has it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Most(effect) => effect.word().into(),
            Self::Words(words) => words.join(","),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// How a key is written.
#[derive(Clone, Copy)]
enum Form {
    Most,
    Verbs,
    Names,
    /// Patterns over names of processes, users or services.
    Patterns,
    /// Names, and at least one.
    Some,
    Pid,
    Signals,
    ServiceVerbs,
    Flag,
    Variable,
}

const KEYS: &[(&str, Form)] = &[
    ("guard.most", Form::Most),
    ("guard.deny", Form::Verbs),
    ("guard.kill.allow", Form::Patterns),
    ("guard.kill.users", Form::Patterns),
    ("guard.kill.protect", Form::Patterns),
    ("guard.kill.protect_users", Form::Patterns),
    ("guard.kill.min_pid", Form::Pid),
    ("guard.kill.signals", Form::Signals),
    ("guard.service.allow", Form::Patterns),
    ("guard.service.protect", Form::Patterns),
    ("guard.service.verbs", Form::ServiceVerbs),
    ("guard.test.scope", Form::Some),
    ("guard.test.commands", Form::Some),
    ("guard.test.allow", Form::Names),
    ("guard.test.approval", Form::Flag),
    ("guard.test.approval_variable", Form::Variable),
];

/// Whether it allows what is refused without it: also a floor below the one that holds where nobody has spoken.
pub(crate) fn allows(said: &Said) -> bool {
    match (said.key, &said.value) {
        ("guard.kill.allow" | "guard.kill.users" | "guard.service.allow" | "guard.test.allow", _) => true,
        ("guard.kill.min_pid", Value::Number(pid)) => *pid < KillPolicy::default().min_pid,
        _ => false,
    }
}

/// Whether it says how a test run is approved: a project that nobody trusts could name a variable that is always set.
pub(crate) fn approves(said: &Said) -> bool {
    said.key == "guard.test.approval_variable"
}

/// The users that it names and that this machine does not know, so that no process is theirs by that name.
pub(crate) fn unknown_users(said: &Said) -> Vec<&str> {
    let (true, Value::Words(words)) = (said.key.ends_with("users"), &said.value) else { return Vec::new() };
    let is_name = |word: &&str| !word.contains('*') && !word.bytes().all(|byte| byte.is_ascii_digit());
    words.iter().map(String::as_str).filter(is_name).filter(|name| !quell_sys::is_user(name)).collect()
}

/// What is left of it if the file is not trusted. A scope that is no part of the working directory would allow what is refused
/// without it: only the others are kept, and `distrust` is told.
pub(crate) fn as_trusted(said: Said, trusted: bool, distrust: impl FnOnce(usize, &str)) -> Option<Said> {
    let Said { key, line, ref value } = said;
    let Value::Words(words) = value else { return Some(said) };
    let kept: Vec<String> = words.iter().filter(|word| !word.starts_with('/')).cloned().collect();
    if trusted || key != "guard.test.scope" || kept.len() == words.len() {
        return Some(said);
    }
    distrust(line, "an absolute path in guard.test.scope");
    (!kept.is_empty()).then_some(Said { key, line, value: Value::Words(kept) })
}

/// Reads the table; what is wrong with it is reported.
pub(crate) fn read(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<Said> {
    let mut said = Vec::new();
    if let Some(table) = reader.table("guard", value) {
        keys(reader, "guard", table, &mut said);
    }
    said
}

fn keys(reader: &mut Reader<'_>, above: &str, table: &DeTable<'_>, said: &mut Vec<Said>) {
    for (name, value) in table {
        let full = format!("{above}.{}", name.get_ref());
        if above == "guard" && ["kill", "service", "test"].contains(&name.get_ref().as_ref()) {
            if let Some(table) = reader.table(&full, value) {
                keys(reader, &full, table, said);
            }
            continue;
        }
        let Some((key, form)) = KEYS.iter().find(|(key, _)| *key == full) else {
            let below = format!("{above}.");
            let known = KEYS.iter().filter_map(|(key, _)| key.strip_prefix(below.as_str()));
            let known: Vec<&str> = known.filter(|key| !key.contains('.')).collect();
            let known = if above == "guard" { TABLES.to_vec() } else { known };
            let hint = suggest::hint(name.get_ref(), "keys", known);
            let problem = Problem::new(format!("unknown key `{}` in [{above}]", name.get_ref()), hint);
            reader.report(name.span(), problem);
            continue;
        };
        let line = reader.line(&name.span());
        match of(*form, value.get_ref()) {
            Ok(value) => said.push(Said { key, value, line }),
            Err(problem) => report(reader, value.span(), key, problem),
        }
    }
}

fn report(reader: &mut Reader<'_>, span: Range<usize>, key: &str, problem: Problem) {
    let hint =
        if problem.hint.is_empty() { "docs/guard.md has an example of each".into() } else { problem.hint };
    reader.report(span, Problem::new(format!("{key}: {}", problem.message), hint));
}

fn of(form: Form, value: &DeValue<'_>) -> Result<Value, Problem> {
    let wrong = |wanted: &str| Problem::new(format!("must be {wanted}, not {}", kind(value)), "");
    let words = || {
        let words = strings(value).ok_or_else(|| wrong("a list of strings"))?;
        Ok::<Vec<String>, Problem>(words.into_iter().map(str::to_owned).collect())
    };
    // Of what narrows an empty list would mean everything, and was meant as nothing.
    let some = |words: Vec<String>| {
        let none =
            || Problem::new("an empty list would let everything pass", "leave it out, or deny the verb");
        if words.is_empty() { Err(none()) } else { Ok(words) }
    };
    let among = |words: Vec<String>, known: &[&str]| match words
        .iter()
        .find(|word| !known.contains(&word.as_str()))
    {
        Some(bad) => Err(Problem::new(
            format!("`{bad}` is no verb"),
            suggest::hint(bad, "verbs", known.iter().copied()),
        )),
        None => Ok(Value::Words(words)),
    };
    match form {
        Form::Most => {
            let text = value.as_str().ok_or_else(|| wrong("a string"))?;
            choice(text, &MOST).map(Value::Most)
        }
        Form::Verbs => among(words()?, &EFFECTS.iter().map(|listed| listed.verb).collect::<Vec<_>>()),
        Form::ServiceVerbs => among(some(words()?)?, &VERBS),
        Form::Names | Form::Some => {
            let words = if matches!(form, Form::Some) { some(words()?)? } else { words()? };
            // An empty pattern fits nothing that exists: somebody meant something else.
            match words.iter().find(|word| word.trim().is_empty() || word.contains(['\0', '\n'])) {
                Some(bad) => Err(Problem::new(format!("`{bad}` is no name"), "")),
                None => Ok(Value::Words(words)),
            }
        }
        Form::Patterns => {
            let words = words()?;
            let fits_nothing = |word: &&String| {
                let blank = word.trim().is_empty() || word.trim() != word.as_str();
                blank || word.contains(['/', '?', '[', ']', '\0', '\n'])
            };
            match words.iter().find(fits_nothing) {
                Some(bad) => Err(Problem::new(
                    format!("`{bad}` fits no name"),
                    "write a name, without its directory and without blanks around it; `*` stands for anything",
                )),
                None => Ok(Value::Words(words)),
            }
        }
        Form::Pid => match value {
            DeValue::Integer(number) if number.radix() == 10 => {
                let pid = number.as_str().parse().ok().filter(|pid| *pid >= 2);
                pid.map(Value::Number).ok_or_else(|| {
                    Problem::new(format!("`{}` is too small or too large", number.as_str()), "2 is the least")
                })
            }
            _ => Err(wrong("a whole number")),
        },
        Form::Signals => {
            let parsed =
                some(words()?)?.iter().map(|word| word.parse::<Signal>()).collect::<Result<Vec<_>, _>>();
            let parsed = parsed.map_err(|error| Problem::new(error, ""))?;
            Ok(Value::Words(parsed.iter().map(ToString::to_string).collect()))
        }
        Form::Flag => match value {
            DeValue::Boolean(flag) => Ok(Value::Flag(*flag)),
            _ => Err(wrong("true or false")),
        },
        Form::Variable => {
            let text = value.as_str().ok_or_else(|| wrong("a string"))?;
            let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if text.is_empty() || !text.bytes().all(sound) || text.as_bytes()[0].is_ascii_digit() {
                return Err(Problem::new(
                    format!("`{text}` is no name of a variable"),
                    "such as QUELL_APPROVE_TESTS",
                ));
            }
            Ok(Value::Text(text.to_owned()))
        }
    }
}

/// Puts the words of a file under those of the stronger ones. `before` are the keys that those have set, and whose files they are.
pub(crate) fn put(policy: &mut Policy, said: &Said, layer: Layer, before: &[(&str, Layer)]) {
    let first = !before.iter().any(|(key, _)| *key == said.key);
    let scope_is_stronger = before.iter().any(|&(key, of)| key == "guard.test.scope" && of != layer);
    let add = |all: &mut Vec<String>, words: &[String]| {
        for word in words {
            if !all.contains(word) {
                all.push(word.clone());
            }
        }
    };
    match (said.key, &said.value) {
        ("guard.most", Value::Most(most)) => policy.most = policy.most.min(*most),
        ("guard.deny", Value::Words(words)) => add(&mut policy.deny, words),
        ("guard.kill.allow", Value::Words(words)) => add(&mut policy.kill.allow, words),
        ("guard.kill.users", Value::Words(words)) => add(&mut policy.kill.users, words),
        ("guard.kill.protect", Value::Words(words)) => add(&mut policy.kill.protect, words),
        ("guard.kill.protect_users", Value::Words(words)) => add(&mut policy.kill.protect_users, words),
        ("guard.kill.min_pid", Value::Number(pid)) => {
            policy.kill.min_pid = if first { *pid } else { policy.kill.min_pid.max(*pid) };
        }
        ("guard.kill.signals", Value::Words(words)) if first => policy.kill.signals.clone_from(words),
        ("guard.service.allow", Value::Words(words)) => add(&mut policy.service.allow, words),
        ("guard.service.protect", Value::Words(words)) => add(&mut policy.service.protect, words),
        ("guard.service.verbs", Value::Words(words)) if first => policy.service.verbs.clone_from(words),
        ("guard.test.scope", Value::Words(words)) if first => policy.test.scope.clone_from(words),
        ("guard.test.commands", Value::Words(words)) if first => {
            policy.test.commands.clone_from(words);
            policy.test.commands_lift_scope = !scope_is_stronger;
        }
        ("guard.test.allow", Value::Words(words)) => add(&mut policy.test.allow, words),
        ("guard.test.approval", Value::Flag(flag)) => policy.test.approval |= flag,
        ("guard.test.approval_variable", Value::Text(name)) if first => {
            policy.test.approval_variable.clone_from(name);
        }
        _ => {}
    }
}
