//! Help, completions and manual pages: complete, and such that their readers can use them.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use quell_tests::{jobs::Background, run::PATIENCE, skip, test_env::TestEnv};

/// The verbs that `quell --help` lists.
pub(crate) fn verbs(env: &TestEnv) -> Vec<String> {
    let help = env.quell("--help").finish().stdout;
    let list = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let list = list.take_while(|line| line.starts_with("  "));
    let words =
        list.filter(|line| !line.starts_with("    ")).filter_map(|line| line.split_whitespace().next());
    let verbs: Vec<String> = words.filter(|word| *word != "help").map(str::to_owned).collect();
    assert!(verbs.len() > 10 && verbs.iter().any(|verb| verb == "list"), "{help}");
    assert!(!verbs.iter().any(|verb| verb.starts_with("__") || verb == "man"), "{help}");
    verbs
}

#[test]
fn every_verb_has_examples_and_exit_codes() {
    let env = TestEnv::as_me();
    for verb in verbs(&env) {
        let help = env.quell(&verb).args(["--help"]).finish();
        assert_eq!(help.code(), Some(0), "{verb}");
        for words in ["\nExamples:\n", "\nExit codes"] {
            assert!(help.stdout.contains(words), "no {words:?} in the help of {verb}:\n{}", help.stdout);
        }
        let example = format!("  quell {verb}");
        let has_example =
            help.stdout.split("\nExamples:\n").nth(1).is_some_and(|text| text.contains(&example));
        assert!(has_example, "no example of {verb} itself:\n{}", help.stdout);
    }
}

#[test]
fn every_wrong_call_with_json_is_answered_with_an_envelope() {
    let env = TestEnv::as_me();
    for verb in verbs(&env) {
        let done = env.quell(&verb).args(["--json", "--no-such-option"]).finish();
        let envelope = done.envelope();
        assert_eq!(envelope["ok"], false, "{verb}: {envelope}");
        assert_eq!((&envelope["type"], &envelope["error"]["code"]), (&verb.as_str().into(), &"usage".into()));
        assert_eq!(
            done.code(),
            Some(if ["run", "wrap"].contains(&verb.as_str()) { 125 } else { 2 }),
            "{verb}"
        );
        assert_eq!(done.stderr, "", "{verb}");
    }
}

/// For a person the help; for a script, whose variable may be empty, a failure that leaves stdout alone.
#[test]
fn quell_alone_prints_its_help() {
    let env = TestEnv::as_me();
    let output = Command::new(env.quell_path()).current_dir(env.dir()).output().expect("quell");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let help = env.quell("--help").finish().stdout;
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), help.trim_end());
}

#[test]
fn ls_and_ps_are_list() {
    let env = TestEnv::as_me();
    let job = env.start().command(["true"]).begin();
    for verb in ["list", "ls", "ps"] {
        assert_eq!(env.quell(verb).args(["--ids"]).finish().stdout.trim(), job.id, "{verb}");
        let wrong = env.quell(verb).args(["--json", "--no-such-option"]).finish().envelope();
        assert_eq!(wrong["type"], "list", "{verb}");
    }
    let none = env.quell("ls").args(["--name", "nosuch"]).finish();
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "quell: no job matches\n"));
}

fn is_installed(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn completions_are_scripts_that_their_shells_can_read() {
    let env = TestEnv::as_me();
    for shell in ["bash", "zsh", "fish"] {
        let done = env.quell("completions").args([shell]).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        for verb in verbs(&env) {
            assert!(done.stdout.contains(&verb), "no {verb} for {shell}");
        }
        assert!(!done.stdout.contains("__keep"), "what quell keeps to itself is in the script for {shell}");
        if !is_installed(shell) {
            skip("completions_are_scripts_that_their_shells_can_read", &format!("there is no {shell} here"));
            continue;
        }
        let script = env.write(&format!("completions.{shell}"), &done.stdout);
        let read = Command::new(shell).arg("-n").arg(&script).output().expect("the shell");
        assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr));
    }
}

/// An environment in which `quell` is on the PATH, with a live job, an ended one, and the completion script of a shell.
fn completing<'l>(env: &'l TestEnv, shell: &str) -> Option<(Background<'l>, PathBuf)> {
    if !is_installed(shell) {
        skip("completions", &format!("there is no {shell} here"));
        return None;
    }
    let start = env.start().args(["--name", "webserver", "--tag", "team=a", "--owner", "session:agent"]);
    let live = start.command(["sleep", &env.oracle.nap()]).begin();
    let ended = env.start().args(["--name", "gone"]).command(["true"]).begin();
    assert!(ended.wait_over(PATIENCE));
    fs::create_dir(env.path("bin")).expect("mkdir");
    std::os::unix::fs::symlink(env.quell_path(), env.path("bin/quell")).expect("a link");
    let name = if shell == "zsh" { "_quell".to_owned() } else { format!("quell.{shell}") };
    let script = env.write(&name, &env.quell("completions").args([shell]).finish().stdout);
    Some((live, script))
}

/// What `shell` completes: each line, with the words that have to be offered, and those that must not.
fn completes(shell: &str, live: &Background<'_>, complete: impl Fn(&str) -> String) {
    let id = &live.id[..8];
    let cases: [(&str, &[&str], &[&str]); 11] = [
        ("quell stat", &["status", "stats"], &["stop"]),
        ("quell stop ", &["webserver", id], &["gone", "--now"]),
        ("quell stop web", &["webserver"], &["gone"]),
        ("quell rm ", &["gone"], &["webserver"]),
        ("quell status ", &["webserver", "gone"], &["--json"]),
        ("quell signal webserver ", &["TERM", "HUP"], &["webserver"]),
        ("quell list --state r", &["ready", "running"], &["ended"]),
        ("quell stop --tag ", &["team=a"], &["webserver"]),
        ("quell list --session ", &["agent"], &["webserver"]),
        ("quell gc --dry", &["--dry-run"], &["--json"]),
        ("quell run --timeout 1s -- mkfif", &["mkfifo"], &["webserver"]),
    ];
    for (line, offered, not) in cases {
        let found = complete(line);
        // One word alone may be put into the line: then its beginning stands there already.
        let has = |word: &str| found.contains(word);
        assert!(offered.iter().all(|word| has(word)), "{shell}: {line:?}: {found:?}");
        assert!(!not.iter().any(|word| has(word)), "{shell}: {line:?}: {found:?}");
    }
}

fn in_shell(env: &TestEnv, shell: &str, args: &[&str]) -> String {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", env.path("bin").display());
    let mut command = Command::new(shell);
    command.args(args).env("QUELL_HOME", env.home()).env("HOME", env.dir()).env("PATH", path);
    let output = command.env("TERM", "dumb").current_dir(env.dir()).output().expect("the shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn bash_completes_verbs_options_jobs_and_commands() {
    let env = TestEnv::as_me();
    let Some((live, script)) = completing(&env, "bash") else { return };
    completes("bash", &live, |line| {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _quell_with_jobs quell {} ''; printf '%s\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1,
            words.last().expect("a word"),
        );
        in_shell(&env, "bash", &["--norc", "-c", &line])
    });
}

#[test]
fn fish_completes_verbs_options_jobs_and_commands() {
    let env = TestEnv::as_me();
    let Some((live, script)) = completing(&env, "fish") else { return };
    completes("fish", &live, |line| {
        let line = format!("source {}; complete -C '{line}'", script.display());
        let found = in_shell(&env, "fish", &["--no-config", "-c", &line]);
        // Without the descriptions.
        found.lines().filter_map(|line| line.split('\t').next()).map(|word| format!("{word}\n")).collect()
    });
}

/// In a terminal of its own, where Tab lists what there is. Nothing is typed before the prompt shows that the line editor reads:
/// until then the terminal itself would take the Tab. What is typed next marks the end.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1='at your service> ' PROMPT_EOL_MARK=; unsetopt zle_bracketed_paste 2>/dev/null; stty cols 200; fpath=($1 \$fpath)"
zpty -w shell "autoload -Uz compinit && compinit -u -D; bindkey '^I' list-choices; zstyle ':completion:*' verbose no"
zpty -w shell "print READY\$((1+1))"
zpty -r -m shell text '*READY2*at your service> *'
zpty -w -n shell "$2"$'\t'$'\x15'"print DONE\$((1+1))"$'\n'
zpty -r -m shell text '*DONE2*'
# What was typed comes back first, and once more below the list.
print -r -- "${text//"$2"/}"
zpty -d shell
"#;

#[test]
fn zsh_completes_verbs_options_jobs_and_commands() {
    let env = TestEnv::as_me();
    let Some((live, script)) = completing(&env, "zsh") else { return };
    let dir = script.parent().expect("a directory").display().to_string();
    completes("zsh", &live, |line| in_shell(&env, "zsh", &["-f", "-c", ZSH, "zsh", &dir, line]));
}

#[test]
fn there_is_a_manual_page_for_every_verb() {
    let env = TestEnv::as_me();
    let done = env.quell("man").args(["--dir"]).args([env.path("man")]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let names = verbs(&env).into_iter().map(|verb| format!("quell-{verb}")).chain(["quell".to_owned()]);
    for name in names {
        let path = env.path(&format!("man/{name}.1"));
        let page = fs::read_to_string(&path).unwrap_or_default();
        let mut sections = vec![".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS"];
        if name != "quell" {
            sections.extend([".SH \"EXIT STATUS\"", ".SH EXAMPLES"]);
        }
        for section in sections {
            assert!(page.contains(section), "no {section} in {name}:\n{page}");
        }
        if !is_installed("groff") {
            skip("there_is_a_manual_page_for_every_verb", "there is no groff here");
            continue;
        }
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-Kutf8", "-ww"]).arg(&path);
        let output = groff.output().expect("groff");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains(&name), "{name}: {said}\n{text}");
        assert_eq!(said, "", "{name}: groff complains");
    }
}
