//! `quell list`: every job as it is, in lines that fit, without ghosts.

use std::{collections::BTreeSet, fs, os::unix::fs::chown, path::Path};

use quell_tests::{
    host::{NOBODY, User, am_root},
    jobs::Background,
    run::{Finished, PATIENCE},
    terminal::Terminal,
    test_env::TestEnv,
};

use crate::cli::bad_input::one_clear_line;

pub(crate) fn has_no_control_characters(text: &str) {
    let bad: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n').collect();
    assert!(bad.is_empty(), "{bad:?} in {text:?}");
}

fn list(env: &TestEnv, options: &[&str]) -> Finished {
    let done = env.quell("list").args(options).finish();
    // The end of a lost job may not be proven, which is told.
    assert!(matches!(done.code(), Some(0 | 5)), "{options:?}: {}", done.stderr);
    done
}

fn ids(env: &TestEnv, options: &[&str]) -> Vec<String> {
    list(env, &[&["--ids"], options].concat()).stdout.lines().map(str::to_owned).collect()
}

/// The line of the table for a job.
fn row<'t>(table: &'t str, job: &Background<'_>) -> &'t str {
    let is_it =
        |line: &&str| line.split(' ').next().is_some_and(|id| !id.is_empty() && job.id.starts_with(id));
    table.lines().find(is_it).unwrap_or_else(|| panic!("no {} in\n{table}", job.id))
}

#[test]
fn live_ended_and_lost_jobs_are_shown_as_what_they_are() {
    for user in User::all() {
        let env = TestEnv::new(user);
        let live = env.start().args(["--name", "web"]).command(["sleep", &env.oracle.nap()]).begin();
        let failed = env.start().sh("exit 3").begin();
        let killed = env.start().command(["sleep", &env.oracle.nap()]).begin();
        killed.stop(&["--now"]);
        assert!(failed.wait_over(PATIENCE));
        let lost = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
        lost.lose();

        let done = list(&env, &[]);
        let table = &done.stdout;
        assert!(table.starts_with("ID "), "{table}");
        assert!(row(table, &live).contains(" web ") && row(table, &live).contains(" running "), "{table}");
        assert!(row(table, &failed).contains(" ended 3 "), "{table}");
        assert!(row(table, &killed).contains(" ended SIGKILL "), "{table}");
        assert!(row(table, &lost).contains(" ended ") && row(table, &lost).contains(" reaper "), "{table}");
        assert!(done.stderr.contains(&format!("the keeper of {} was lost", lost.id)), "{}", done.stderr);
        assert_eq!(lost.receipt().expect("a receipt")["cause"], "keeper_lost");
        assert!(
            table.lines().nth(1).is_some_and(|first| row(table, &live) == first),
            "live ones first: {table}"
        );
        assert_eq!(list(&env, &[]).stderr, "", "what is finished is told once");

        let envelope = list(&env, &["--json"]).envelope();
        assert_eq!(envelope["data"]["jobs"].as_array().map(Vec::len), Some(4), "{envelope:#}");
        assert_eq!((&envelope["data"]["more"], &envelope["type"]), (&0.into(), &"list".into()));
    }
}

#[test]
fn a_lost_job_is_found_also_in_a_list_of_ended_ones() {
    let env = TestEnv::as_me();
    let lost = env.start().command(["sleep", &env.oracle.nap()]).begin();
    lost.lose();
    assert_eq!(ids(&env, &["--state", "running"]), Vec::<String>::new());
    assert_eq!(ids(&env, &["--state", "ended"]).join(" "), lost.id);
    assert!(lost.wait_quiet(PATIENCE).is_empty());
}

#[test]
fn a_program_gets_whole_lines_and_a_person_lines_that_fit() {
    let env = TestEnv::as_me();
    let long = "x".repeat(300);
    let name = "n".repeat(64);
    let nap = env.oracle.nap();
    let job =
        env.start().args(["--name", &name]).command(["sh", "-c", &format!("sleep {nap}; : {long}")]).begin();
    assert!(row(&list(&env, &[]).stdout, &job).contains(&long));
    let done = env.quell("list").env("COLUMNS", "80").finish();
    assert!(done.stdout.lines().all(|line| line.chars().count() <= 80), "{}", done.stdout);
    let line = row(&done.stdout, &job);
    assert!(line.contains("nn… ") && line.ends_with('…') && line.contains("sh -c "), "{line}");

    let terminal = Terminal::open(&env);
    terminal.line("$Q list; $Q status $($Q list --ids); echo done");
    let screen = terminal.wait_for_line("done");
    // Lines that the terminal had to wrap come as one.
    let wide: Vec<&str> = screen.lines().filter(|line| line.trim_end().chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(screen.contains("standby"), "{screen}");
}

#[test]
fn colours_are_for_terminals_and_on_request() {
    let env = TestEnv::as_me();
    let _job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let escape = '\u{1b}';
    assert!(!list(&env, &[]).stdout.contains(escape));
    let terminal = Terminal::open(&env);
    let seen = |name: &str, variable: &str| {
        let file = env.path(name);
        // script(1) gives the command a terminal and keeps what it wrote.
        terminal.line(&format!(
            "{variable} script -qec \"$Q list\" {} >/dev/null; echo {name} done",
            file.display()
        ));
        terminal.wait_for_line(&format!("{name} done"));
        fs::read_to_string(file).expect("what script(1) kept")
    };
    assert!(seen("with", "NO_COLOR=").contains("\u{1b}[32mrunning"), "no colours");
    assert!(!seen("without", "NO_COLOR=1").contains(escape), "colours in spite of NO_COLOR");
}

#[test]
fn a_command_line_can_not_speak_to_the_terminal() {
    let env = TestEnv::as_me();
    let script = format!("sleep {} # \u{1b}]0;pwned\u{7}\u{9b}2J\r\nx\u{202e}", env.oracle.nap());
    let job = env.start().args(["--tag", "k=\u{1b}[31m"]).sh(&script).begin();
    for verb in ["list", "status", "tree"] {
        let words: &[&str] = if verb == "list" { &[] } else { &[&job.id] };
        let done = env.quell(verb).args(words).finish();
        has_no_control_characters(&done.stdout);
        assert!(
            done.stdout.contains("pwned") && !done.stdout.contains('\u{202e}'),
            "{verb}: {}",
            done.stdout
        );
    }
    job.stop(&[]);
    has_no_control_characters(&env.quell("tree").args([&job.id]).finish().stdout);
}

#[test]
fn the_short_ids_of_the_table_are_understood() {
    let env = TestEnv::as_me();
    let jobs: Vec<Background<'_>> = (0..6).map(|_| env.start().command(["true"]).begin()).collect();
    assert!(jobs.iter().all(|job| job.wait_over(PATIENCE)));
    let table = list(&env, &["--limit", "3"]).stdout;
    let short: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(short.len(), 3, "{table}");
    for id in short {
        assert!((8..=26).contains(&id.len()), "{table}");
        let done = env.quell("status").args([id]).finish();
        assert_eq!(done.code(), Some(0), "{id}: {}", done.stderr);
    }
}

#[test]
fn filters_let_through_what_was_asked_for() {
    let env = TestEnv::as_me();
    let a =
        env.start().args(["--name", "a", "--tag", "team=x"]).command(["sleep", &env.oracle.nap()]).begin();
    let b = env.start().args(["--tag", "team=y", "--owner", "session:s"]).command(["true"]).begin();
    let c = env.start().args(["--name", "c"]).sh("exit 1").begin();
    assert!(b.wait_over(PATIENCE) && c.wait_over(PATIENCE));
    let only = |options: &[&str], wanted: &[&Background<'_>]| {
        let found: BTreeSet<String> = ids(&env, options).into_iter().collect();
        let wanted: BTreeSet<String> = wanted.iter().map(|job| job.id.clone()).collect();
        assert_eq!(found, wanted, "{options:?}");
    };
    only(&[], &[&a, &b, &c]);
    only(&["--tag", "team"], &[&a, &b]);
    only(&["--tag", "team=x"], &[&a]);
    only(&["--session", "s"], &[&b]);
    only(&["--name", "c"], &[&c]);
    only(&["--state", "ended"], &[&b, &c]);
    only(&["--state", "running", "--state", "ready"], &[&a]);
    only(&["--limit", "0"], &[&a]);
    only(&["--since", "1h"], &[&a, &b, &c]);
    only(&["--since", "0"], &[&a]);
    for options in [["--state", "dead"], ["--tag", "=x"], ["--since", "soon"], ["--limit", "-1"]] {
        one_clear_line(&env.quell("list").args(options).finish(), 2);
        let done = env.quell("list").args(options).args(["--json"]).finish();
        assert_eq!((done.code(), &done.envelope()["ok"]), (Some(2), &false.into()), "{options:?}");
    }
}

/// Puts copies of an ended job on record, as many as `count`; their ids, oldest first.
pub(crate) fn multiply(env: &TestEnv, job: &Background<'_>, count: usize) -> Vec<String> {
    let digits: Vec<char> = "0123456789ABCDEFGHJKMNPQRSTVWXYZ".chars().collect();
    let own = |path: &Path| {
        if env.user() == User::Ordinary && am_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("chown");
        }
    };
    let copies = (0..count).map(|number| {
        let tail: String =
            [number / 1024 % 32, number / 32 % 32, number % 32].map(|at| digits[at]).iter().collect();
        let id = format!("00{}{tail}", &job.id[2..23]);
        let dir = env.home().join("jobs").join(&id);
        fs::create_dir(&dir).expect("a job's directory");
        for name in ["spec.json", "state.jsonl", "receipt.json"] {
            let text = fs::read_to_string(job.dir().join(name)).expect("an ended job's file");
            fs::write(dir.join(name), text.replace(&job.id, &id)).expect("a job's file");
            own(&dir.join(name));
        }
        own(&dir);
        let note = env.home().join("done").join(&id);
        fs::write(&note, "").expect("a note");
        own(&note);
        id
    });
    copies.collect()
}

#[test]
fn two_thousand_finished_jobs_are_all_found() {
    let env = TestEnv::as_me();
    let first = env.start().command(["true"]).begin();
    assert!(first.wait_over(PATIENCE));
    let live = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let mut all: Vec<String> = multiply(&env, &first, 2000);
    all.extend([first.id.clone(), live.id.clone()]);
    let found = ids(&env, &["--all"]);
    assert_eq!(found.first(), Some(&live.id));
    assert_eq!(found.len(), 2002);
    let found: BTreeSet<String> = found.into_iter().collect();
    assert_eq!(found, all.into_iter().collect());
    let done = list(&env, &[]);
    assert_eq!(done.stdout.lines().count(), 12, "{}", done.stdout);
    assert!(done.stderr.contains("1991 more have ended"), "{}", done.stderr);
    let table = list(&env, &["--all"]).stdout;
    let short: BTreeSet<&str> = table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(short.len(), 2002, "some are shortened to the same");
}
