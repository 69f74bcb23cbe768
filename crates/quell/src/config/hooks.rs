//! `[[hooks]]`: programs and files that receive events of jobs.

use std::path::Path;
use std::time::Duration;

use quell_core::{Hook, HookAction, HookEvent};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::keys::{Problem, nonzero};
use super::{find, settings_file};

/// The default timeout of a hook.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The expected form of each key.
pub(crate) const EXAMPLES: [(&str, &str); 4] = [
    ("hooks.on", "such as on = [\"ended\", \"killed\"]"),
    ("hooks.run", "such as run = [\"notify-send\", \"a job has ended\"]"),
    ("hooks.append", "such as append = \"~/jobs.ndjson\""),
    ("hooks.timeout", "such as timeout = \"10s\""),
];

/// A hook as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct HookTable {
    on: Option<Spanned<Vec<HookEvent>>>,
    run: Option<Spanned<Vec<String>>>,
    append: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
}

/// A hook as `config show` prints it.
pub(crate) fn describe(hook: &Hook) -> String {
    let on: Vec<String> = hook.on.iter().map(|event| event_name(*event)).collect();
    let action = match &hook.action {
        HookAction::Run(argv) => format!("run {}", argv.join(" ")),
        HookAction::Append(path) => format!("append {}", path.display()),
    };
    format!("{}: {action}", on.join(","))
}

fn event_name(event: HookEvent) -> String {
    serde_json::to_value(event).ok().and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_default()
}

/// Reads and checks one hook.
pub(crate) fn read(value: Spanned<DeValue<'_>>, file: &Path, home: Option<&Path>) -> Result<Hook, Problem> {
    let HookTable { on, run, append, timeout } =
        settings_file::read(value).map_err(|problem| problem.below("hooks"))?;
    let on = on.ok_or_else(|| Problem::new("a hook without `on` is never called", EXAMPLES[0].1))?;
    let action = match (run, append) {
        (Some(run), None) => field("hooks.run", run, |run| command(run, file, home))?,
        (None, Some(append)) => field("hooks.append", append, |append| target(&append, file, home))?,
        (None, None) | (Some(_), Some(_)) => {
            let hint = "make two hooks for two actions";
            return Err(Problem::new("a hook has exactly one of `run` and `append`", hint));
        }
    };
    let timeout = timeout.map_or(Ok(TIMEOUT), |text| field("hooks.timeout", text, |text| nonzero(&text)))?;
    let on = field("hooks.on", on, |mut on| {
        on.sort_unstable();
        on.dedup();
        if on.is_empty() { Err(Problem::new("must be a list of events", "")) } else { Ok(on) }
    })?;
    Ok(Hook { on, action, timeout })
}

/// Checks the value of a key. A problem carries the position of the value.
fn field<T, U>(key: &str, value: Spanned<T>, check: impl Fn(T) -> Result<U, Problem>) -> Result<U, Problem> {
    let span = value.span();
    check(value.into_inner()).map_err(|problem| Problem { span: Some(span), ..problem.below(key) })
}

/// Resolves the program of a hook. A relative path starts at the directory of the file, not of the job; a name without a slash is
/// searched on the PATH. The arguments are unchanged.
fn command(mut argv: Vec<String>, file: &Path, home: Option<&Path>) -> Result<HookAction, Problem> {
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Problem::new("a word of a command can't hold a NUL", ""));
    }
    let missing = || Problem::new("the command is missing", "");
    let program = argv.first_mut().filter(|program| !program.is_empty()).ok_or_else(missing)?;
    if program.contains('/') {
        let path = find::beside(file, program, home)?;
        *program = path.into_os_string().into_string().map_err(|path| {
            let message = format!("`{}` is not UTF-8", path.to_string_lossy());
            Problem::new(message, "move the file, or give the command an absolute path")
        })?;
    }
    Ok(HookAction::Run(argv))
}

fn target(text: &str, file: &Path, home: Option<&Path>) -> Result<HookAction, Problem> {
    if text.is_empty() || text.contains('\0') || text.ends_with('/') {
        return Err(Problem::new(format!("`{text}` is not the path of a file"), ""));
    }
    find::beside(file, text, home).map(HookAction::Append)
}
