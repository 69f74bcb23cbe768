//! `quell completions`: what a shell needs to complete quell's verbs, options and jobs.

use std::process::ExitCode;

use clap_complete::{Shell, generate};

use crate::args::{self, CompletionsArgs, ShellArg};
use crate::output;

/// What prints the words that may stand for a job.
const WORDS: &str = "quell list --limit 50 --words 2>/dev/null";

/// Prints the script.
pub fn completions(args: &CompletionsArgs) -> ExitCode {
    output::to_stdout(&script(args.shell)).unwrap_or(ExitCode::SUCCESS)
}

fn script(shell: ShellArg) -> String {
    let generated = |shell: Shell| {
        let mut bytes = Vec::new();
        generate(shell, &mut visible(), "quell", &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match shell {
        ShellArg::Bash => bash(&generated(Shell::Bash), &verbs_with_jobs()),
        ShellArg::Zsh => zsh(&generated(Shell::Zsh)),
        ShellArg::Fish => fish(&generated(Shell::Fish), &verbs_with_jobs()),
    }
}

/// The command line without what quell keeps to itself.
fn visible() -> clap::Command {
    let all = args::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    clap::Command::new("quell").args(all.get_arguments().cloned()).subcommands(verbs)
}

/// The verbs whose plain words are jobs.
fn verbs_with_jobs() -> Vec<String> {
    let command = visible();
    let takes_jobs = |verb: &&clap::Command| {
        let jobs = |names: &[clap::builder::Str]| names.iter().any(|name| name == "JOB");
        verb.get_positionals().any(|arg| arg.get_value_names().is_some_and(jobs))
    };
    command.get_subcommands().filter(takes_jobs).map(|verb| verb.get_name().to_owned()).collect()
}

/// A function around the one that was generated, which adds the jobs.
fn bash(script: &str, verbs: &[String]) -> String {
    format!(
        r#"{script}
_quell_with_jobs() {{
    _quell "$@"
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[1]}}" in
        {verbs})
            if [[ $COMP_CWORD -gt 1 && $word != -* ]]; then
                COMPREPLY+=($(compgen -W "$({WORDS})" -- "$word"))
            fi
            ;;
    esac
}}
complete -F _quell_with_jobs -o bashdefault -o default quell
"#,
        verbs = verbs.join("|"),
    )
}

/// The generated script asks for files where jobs are meant.
fn zsh(script: &str) -> String {
    let is_job = |line: &str| line.contains("jobs -- ") || line.contains("job -- ");
    let own: String = script
        .lines()
        .map(|line| if is_job(line) { line.replace(":_default'", ":_quell_jobs'") } else { line.to_owned() } + "\n")
        .collect();
    let function = format!(
        "_quell_jobs() {{\n    local -a jobs\n    jobs=(${{(f)\"$({WORDS})\"}})\n    compadd -a jobs\n}}\n"
    );
    // The first line names the command that it is for, and must stay the first.
    match own.split_once('\n') {
        Some((first, rest)) => format!("{first}\n\n{function}{rest}"),
        None => own,
    }
}

fn fish(script: &str, verbs: &[String]) -> String {
    let jobs = |verb: &String| {
        format!("complete -c quell -n \"__fish_quell_using_subcommand {verb}\" -f -a \"({WORDS})\"\n")
    };
    script.to_owned() + &verbs.iter().map(jobs).collect::<String>()
}
