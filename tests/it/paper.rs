//! Help, completions and manual pages: complete, and such that their readers can use them.

use std::{
    fs,
    process::{Command, Stdio},
};

use quell_tests::{lab::Lab, skip};

/// The verbs that `quell --help` lists.
pub(crate) fn verbs(lab: &Lab) -> Vec<String> {
    let help = lab.quell("--help").finish().stdout;
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
    let lab = Lab::as_me();
    for verb in verbs(&lab) {
        let help = lab.quell(&verb).args(["--help"]).finish();
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
    let lab = Lab::as_me();
    for verb in verbs(&lab) {
        let done = lab.quell(&verb).args(["--json", "--no-such-option"]).finish();
        let envelope = done.envelope();
        assert_eq!(envelope["ok"], false, "{verb}: {envelope}");
        assert_eq!((&envelope["type"], &envelope["error"]["code"]), (&verb.as_str().into(), &"usage".into()));
        assert_eq!(done.code(), Some(if verb == "run" { 125 } else { 2 }), "{verb}");
        assert_eq!(done.stderr, "", "{verb}");
    }
}

fn is_installed(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn completions_are_scripts_that_their_shells_can_read() {
    let lab = Lab::as_me();
    for shell in ["bash", "zsh", "fish"] {
        let done = lab.quell("completions").args([shell]).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        for verb in verbs(&lab) {
            assert!(done.stdout.contains(&verb), "no {verb} for {shell}");
        }
        assert!(!done.stdout.contains("__keep"), "what quell keeps to itself is in the script for {shell}");
        if !is_installed(shell) {
            skip("completions_are_scripts_that_their_shells_can_read", &format!("there is no {shell} here"));
            continue;
        }
        let script = lab.write(&format!("completions.{shell}"), &done.stdout);
        let read = Command::new(shell).arg("-n").arg(&script).output().expect("the shell");
        assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr));
    }
}

#[test]
fn bash_completes_verbs_options_and_jobs() {
    let lab = Lab::as_me();
    let job = lab.start().args(["--name", "webserver"]).command(["sleep", &lab.oracle.nap()]).begin();
    let script = lab.write("quell.bash", &lab.quell("completions").args(["bash"]).finish().stdout);
    fs::create_dir(lab.path("bin")).expect("mkdir");
    std::os::unix::fs::symlink(lab.quell_path(), lab.path("bin/quell")).expect("a link");
    let complete = |words: &[&str]| {
        let line = format!(
            "PATH={}:$PATH; source {}; COMP_WORDS=({}); COMP_CWORD={}; _quell_with_jobs quell '{}' ''; echo ${{COMPREPLY[*]}}",
            lab.path("bin").display(),
            script.display(),
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1,
            words.last().expect("a word"),
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &line]).env("QUELL_HOME", lab.home()).current_dir(lab.dir());
        let output = bash.output().expect("bash");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(complete(&["quell", "stat"]), "status stats");
    assert_eq!(complete(&["quell", "status", "webs"]), "webserver");
    assert_eq!(complete(&["quell", "stop", &job.id[..12]]), job.id);
    assert_eq!(complete(&["quell", "gc", "--dry"]), "--dry-run");
}

#[test]
fn there_is_a_manual_page_for_every_verb() {
    let lab = Lab::as_me();
    let done = lab.quell("man").args(["--dir"]).args([lab.path("man")]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let names = verbs(&lab).into_iter().map(|verb| format!("quell-{verb}")).chain(["quell".to_owned()]);
    for name in names {
        let path = lab.path(&format!("man/{name}.1"));
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
