//! `quell completions`: what a shell needs to complete quell's verbs, options and jobs.

use std::process::ExitCode;

use clap_complete::{Shell, generate};

use crate::args::{self, CompletionsArgs, ShellArg};
use crate::output;

/// What prints the words of a kind.
const WORDS: &str = "quell __complete";

/// The options whose values quell knows, and the kind of these.
const OPTIONS: [(&str, &str); 4] =
    [("tag", "tags"), ("session", "sessions"), ("state", "states"), ("signal", "signals")];

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
        ShellArg::Bash => bash(&generated(Shell::Bash)),
        ShellArg::Zsh => zsh(&generated(Shell::Zsh)),
        ShellArg::Fish => fish(&generated(Shell::Fish)),
    }
}

/// The command line without hidden verbs.
fn visible() -> clap::Command {
    let all = args::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    clap::Command::new("quell").args(all.get_arguments().cloned()).subcommands(verbs)
}

/// The verbs whose words are jobs, by the kind of these.
fn verbs_with_jobs() -> Vec<(&'static str, Vec<String>)> {
    let command = visible();
    let takes_jobs = |verb: &&clap::Command| {
        let jobs = |names: &[clap::builder::Str]| names.iter().any(|name| name == "JOB");
        verb.get_positionals().any(|arg| arg.get_value_names().is_some_and(jobs))
    };
    let kind = |verb: &str| match verb {
        "stop" | "signal" | "send" | "wait" => "live",
        "rm" => "ended",
        _ => "any",
    };
    let verbs: Vec<&str> =
        command.get_subcommands().filter(takes_jobs).map(clap::Command::get_name).collect();
    ["live", "ended", "any"]
        .into_iter()
        .map(|of| (of, verbs.iter().filter(|verb| kind(verb) == of).map(|verb| (*verb).to_owned()).collect()))
        .collect()
}

/// `VERB|VERB) kind=KIND ;;` for each kind, in the language of bash and zsh.
fn cases() -> String {
    let case = |(kind, verbs): (&str, Vec<String>)| format!("        {}) kind={kind} ;;\n", verbs.join("|"));
    verbs_with_jobs().into_iter().map(case).collect()
}

/// A function around the generated one. After `--` the words belong to another command.
fn bash(script: &str) -> String {
    let options = OPTIONS.map(|(option, kind)| format!("        --{option}) kind={kind} ;;\n")).concat();
    format!(
        r#"{script}
_quell_with_jobs() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" kind= at words=0
    for ((at = 2; at < COMP_CWORD; at++)); do
        if [[ ${{COMP_WORDS[at]}} == -- ]]; then
            COMPREPLY=()
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset $((at + 1))
            elif declare -F _command_offset >/dev/null; then
                _command_offset $((at + 1))
            elif [[ $COMP_CWORD -eq $((at + 1)) ]]; then
                COMPREPLY=($(compgen -c -- "$word"))
            fi
            return
        fi
        [[ ${{COMP_WORDS[at]}} == -* ]] || ((words++))
    done
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{options}    esac
    if [[ -z $kind && $COMP_CWORD -gt 1 && $word != -* ]]; then
        case "$verb" in
{cases}        esac
        [[ $verb == signal && $words -gt 0 ]] && kind=signals
    fi
    if [[ -n $kind ]]; then
        COMPREPLY=($(compgen -W "$({WORDS} "$kind" 2>/dev/null)" -- "$word"))
    else
        _quell "$@"
    fi
}}
complete -F _quell_with_jobs -o bashdefault -o default quell
"#,
        cases = cases(),
    )
}

/// The generated script asks for files where quell knows the words.
fn zsh(script: &str) -> String {
    let ours = |line: &str| {
        let to = |action: &str| line.replace(":_default'", &format!(":{action}'"));
        // With one colon the function sees the verb, too.
        if line.starts_with("'*::jobs -- ") || line.starts_with("':job -- ") {
            return to("_quell_jobs").replacen("'*::jobs", "'*:jobs", 1);
        }
        if line.starts_with("'*::command -- ") {
            return to("_normal");
        }
        if line.starts_with("':signal -- ") {
            return to("_quell_words signals");
        }
        let option =
            |(option, kind): &(&str, &'static str)| line.contains(&format!("--{option}=[")).then_some(*kind);
        match OPTIONS.iter().find_map(option) {
            Some(kind) => to(&format!("_quell_words {kind}")),
            None => line.to_owned(),
        }
    };
    let own: String = script.lines().map(|line| ours(line) + "\n").collect();
    let function = format!(
        r#"_quell_words() {{
    local -a found
    found=(${{(f)"$({WORDS} ${{@[-1]}} 2>/dev/null)"}})
    compadd "${{@[1,-2]}}" -a found
}}
_quell_jobs() {{
    local kind=any
    case ${{words[1]}} in
{cases}    esac
    _quell_words "$@" $kind
}}
"#,
        cases = cases(),
    );
    // The first line names the command that it is for, and must stay the first.
    match own.split_once('\n') {
        Some((first, rest)) => format!("{first}\n\n{function}{rest}"),
        None => own,
    }
}

fn fish(script: &str) -> String {
    let mut own = String::from(
        r#"
function __quell_is_own
    not contains -- -- (commandline -opc)
end
function __quell_has_word
    set -l words (string match -v -- '-*' (commandline -opc))
    test (count $words) -gt 2
end
function __quell_command
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -l line
    if test $at -lt (count $words)
        set line (string escape -- $words[(math $at + 1)..-1])
    end
    complete -C (string join ' ' -- $line (commandline -ct))
end
complete -c quell -n "not __quell_is_own" -x -a "(__quell_command)"
"#,
    );
    for (kind, verbs) in verbs_with_jobs() {
        for verb in verbs {
            let more = if verb == "signal" { "; and not __quell_has_word" } else { "" };
            own += &format!(
                "complete -c quell -n \"__fish_quell_using_subcommand {verb}; and __quell_is_own{more}\" -f -a \"({WORDS} {kind} 2>/dev/null)\"\n"
            );
        }
    }
    own += &format!(
        "complete -c quell -n \"__fish_quell_using_subcommand signal; and __quell_has_word\" -f -a \"({WORDS} signals 2>/dev/null)\"\n"
    );
    let command = visible();
    for verb in command.get_subcommands() {
        let has = |option: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(option));
        for (option, kind) in OPTIONS.iter().filter(|(option, _)| has(option)) {
            let verb = verb.get_name();
            own += &format!(
                "complete -c quell -n \"__fish_quell_using_subcommand {verb}; and __quell_is_own\" -l {option} -x -a \"({WORDS} {kind} 2>/dev/null)\"\n"
            );
        }
    }
    script.to_owned() + &own
}
