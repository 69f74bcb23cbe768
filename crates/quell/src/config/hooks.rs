//! `[[hooks]]`: what is to be done at events of jobs.

use std::ops::Range;
use std::time::Duration;

use quell_core::{Hook, HookAction, HookEvent};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Reader, kind, strings};
use super::keys::{Problem, choice, nonzero};
use super::{find, suggest};

/// How long a hook may take if it doesn't say.
const TIMEOUT: Duration = Duration::from_secs(10);
const FIELDS: [&str; 4] = ["on", "run", "append", "timeout"];
const EXAMPLE: &str = "such as on = [\"ended\", \"killed\"]";
const EVENTS: [(&str, HookEvent); 7] = [
    ("started", HookEvent::Started),
    ("ready", HookEvent::Ready),
    ("ended", HookEvent::Ended),
    ("timed_out", HookEvent::TimedOut),
    ("killed", HookEvent::Killed),
    ("leaked", HookEvent::Leaked),
    ("lost", HookEvent::Lost),
];

/// What a hook does, as `config show` has it.
pub(crate) fn describe(hook: &Hook) -> String {
    let word = |event: &HookEvent| EVENTS.iter().find(|(_, known)| known == event).map(|(word, _)| *word);
    let on: Vec<&str> = hook.on.iter().filter_map(word).collect();
    let action = match &hook.action {
        HookAction::Run(argv) => format!("run {}", argv.join(" ")),
        HookAction::Append(path) => format!("append {}", path.display()),
    };
    format!("{}: {action}", on.join(","))
}

/// All hooks of a file, with their lines; what is wrong with them is reported.
pub(crate) fn read(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<(Hook, usize)> {
    let entries = value.get_ref().as_array().map(|entries| entries.iter().collect::<Vec<_>>());
    let Some(entries) = entries else {
        let message = format!("`hooks` must be a list of tables, not {}", kind(value.get_ref()));
        reader.report(value.span(), Problem::new(message, "write [[hooks]], with two brackets"));
        return Vec::new();
    };
    let mut hooks = Vec::new();
    for entry in entries {
        let line = reader.line(&entry.span());
        match entry.get_ref() {
            DeValue::Table(table) => {
                hooks.extend(hook(reader, entry.span(), table).map(|hook| (hook, line)));
            }
            other => {
                let message = format!("a hook must be a table, not {}", kind(other));
                reader.report(entry.span(), Problem::new(message, "write [[hooks]] above its keys"));
            }
        }
    }
    hooks
}

fn hook(reader: &mut Reader<'_>, whole: Range<usize>, table: &DeTable<'_>) -> Option<Hook> {
    let (mut on, mut actions, mut timeout) = (None, Vec::new(), TIMEOUT);
    let mut sound = true;
    for (name, value) in table {
        let (span, value) = (value.span(), value.get_ref());
        let result = match name.get_ref().as_ref() {
            "on" => events(value).map(|events| on = Some(events)),
            "run" => run(reader, value).map(|action| actions.push(action)),
            "append" => append(reader, value).map(|action| actions.push(action)),
            "timeout" => limit(value).map(|limit| timeout = limit),
            unknown => {
                let hint = suggest::hint(unknown, "keys", FIELDS);
                reader
                    .report(name.span(), Problem::new(format!("unknown key `{unknown}` in [[hooks]]"), hint));
                sound = false;
                Ok(())
            }
        };
        if let Err(Problem { message, hint }) = result {
            reader.report(span, Problem::new(format!("hooks.{}: {message}", name.get_ref()), hint));
            sound = false;
        }
    }
    if !sound {
        return None;
    }
    let mut lack = |message: &str, hint: &str| reader.report(whole.clone(), Problem::new(message, hint));
    if on.is_none() {
        lack("a hook without `on` is never called", EXAMPLE);
    }
    if actions.len() != 1 {
        lack("a hook has exactly one of `run` and `append`", "make two hooks for two actions");
        return None;
    }
    Some(Hook { on: on?, action: actions.pop()?, timeout })
}

fn events(value: &DeValue<'_>) -> Result<Vec<HookEvent>, Problem> {
    let words = strings(value).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| Problem::new("must be a list of events", EXAMPLE))?;
    let mut events = words.into_iter().map(|word| choice(word, &EVENTS)).collect::<Result<Vec<_>, _>>()?;
    events.sort_unstable();
    events.dedup();
    Ok(events)
}

fn limit(value: &DeValue<'_>) -> Result<Duration, Problem> {
    let example = "such as timeout = \"10s\"";
    let wrong = || Problem::new(format!("must be a string, not {}", kind(value)), example);
    nonzero(value.as_str().ok_or_else(wrong)?).map_err(|problem| Problem::new(problem.message, example))
}

/// A program with a path is found from the file's directory, not from wherever the job is started; one without is
/// searched for on the PATH. The other words are left as they are.
fn run(reader: &Reader<'_>, value: &DeValue<'_>) -> Result<HookAction, Problem> {
    let example = "such as run = [\"notify-send\", \"a job has ended\"]";
    let wrong = || Problem::new(format!("must be a list of strings, not {}", kind(value)), example);
    let mut argv: Vec<String> = strings(value).ok_or_else(wrong)?.into_iter().map(str::to_owned).collect();
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Problem::new("a word of a command can't hold a NUL", example));
    }
    match argv.first_mut() {
        None => Err(Problem::new("the command is missing", example)),
        Some(program) if program.is_empty() => Err(Problem::new("the command is missing", example)),
        Some(program) => {
            if program.contains('/') {
                let path = find::beside(reader.path, program, reader.home)?;
                *program = path.into_os_string().into_string().map_err(|path| {
                    let message = format!("`{}` is not UTF-8", path.to_string_lossy());
                    Problem::new(message, "move the file, or give the command an absolute path")
                })?;
            }
            Ok(HookAction::Run(argv))
        }
    }
}

fn append(reader: &Reader<'_>, value: &DeValue<'_>) -> Result<HookAction, Problem> {
    let example = "such as append = \"~/jobs.ndjson\"";
    match value.as_str() {
        Some(text) if !text.is_empty() && !text.contains('\0') && !text.ends_with('/') => {
            find::beside(reader.path, text, reader.home).map(HookAction::Append)
        }
        Some(text) => Err(Problem::new(format!("`{}` is no path of a file", text), example)),
        None => Err(Problem::new(format!("must be a string, not {}", kind(value)), example)),
    }
}
