//! `quell top`: the screen in a real terminal, and the table without one.

use quell_tests::{
    eventually, host::has_program, oracle::Process, run::PATIENCE, skip, terminal::Terminal,
    test_env::TestEnv,
};

/// A terminal in which `quell top` shows these jobs.
fn shown<'l>(env: &'l TestEnv, names: &[&str]) -> Terminal<'l> {
    let terminal = Terminal::open(env);
    terminal.line("$Q top; echo left $?");
    terminal.wait_for("table", |screen| {
        screen.contains("quell top") && names.iter().all(|name| screen.contains(name))
    });
    terminal
}

#[test]
fn a_job_that_ignores_term_is_stopped_from_the_screen_until_none_is_left() {
    if !has_program("tmux") {
        return skip(
            "verbs::top::a_job_that_ignores_term_is_stopped_from_the_screen_until_none_is_left",
            "no tmux here",
        );
    }
    let env = TestEnv::as_me();
    let job = env.start().args(["--name", "agent", "--grace", "60s"]).actor("ignore-term", None).begin();
    let terminal = shown(&env, &["agent", "Running"]);
    terminal.key("x");
    terminal.wait_for("question", |screen| screen.contains("Stop agent (") && screen.contains("[Y/n]"));
    terminal.key("y");
    terminal.wait_for("countdown", |screen| {
        screen.lines().any(|line| line.contains("Stopping") && line.contains(" s "))
    });
    terminal.key("x");
    terminal.wait_for("second question", |screen| {
        screen.contains("Kill agent now (") && screen.contains("[y/N]")
    });
    terminal.key("y");
    terminal.wait_for("receipt", |screen| screen.contains("0 left"));
    assert!(job.wait_over(PATIENCE));
    terminal.wait_for("state", |screen| screen.contains("Stopped"));
    terminal.key("q");
    terminal.wait_for_line("left 0");
    // The terminal carries the mark of this test too.
    drop(terminal);
    assert_eq!(env.oracle.survivors_after(PATIENCE), []);
}

#[test]
fn a_stop_works_while_the_keeper_is_stopped_and_the_screen_goes_on() {
    if !has_program("tmux") {
        return skip(
            "verbs::top::a_stop_works_while_the_keeper_is_stopped_and_the_screen_goes_on",
            "no tmux here",
        );
    }
    let env = TestEnv::as_me();
    let job = env.start().args(["--name", "agent"]).command(["sleep", &env.oracle.nap()]).begin();
    let terminal = shown(&env, &["agent"]);
    let keeper = job.process("keeper").expect("a keeper");
    assert!(keeper.signal("STOP"));
    terminal.key("x");
    terminal.wait_for("question", |screen| screen.contains("Stop agent ("));
    terminal.key("y");
    // While the stop waits for the keeper, keys are answered.
    terminal.key("?");
    terminal.wait_for("keys", |screen| screen.contains("jobs are not touched"));
    terminal.key("Escape");
    terminal.wait_for("receipt", |screen| screen.contains("0 left"));
    assert!(job.wait_over(PATIENCE));
    terminal.key("q");
    terminal.wait_for_line("left 0");
}

#[test]
fn the_page_of_a_job_follows_output_that_tries_to_command_the_terminal() {
    if !has_program("tmux") {
        return skip(
            "verbs::top::the_page_of_a_job_follows_output_that_tries_to_command_the_terminal",
            "no tmux here",
        );
    }
    let env = TestEnv::as_me();
    let script = r#"printf 'first\033]0;TITLE\007 \033[2Jsecond\033[31m red\033[0m\n'; echo ready >$QUELL_TEST_READY; sleep $N"#;
    let job = env.start().args(["--name", "noisy"]).script(script).begin();
    let terminal = shown(&env, &["noisy"]);
    terminal.key("Enter");
    terminal.wait_for("output", |screen| screen.contains("first second red"));
    terminal.wait_for("tree", |screen| screen.contains("sleep"));
    terminal.resize(40, 10);
    terminal.wait_for("narrow page", |screen| {
        screen.contains("quell top") && screen.contains("first second red")
    });
    job.stop(&[]);
    terminal.wait_for("end", |screen| screen.contains("Stopped"));
    terminal.key("Escape");
    terminal.resize(100, 30);
    terminal.wait_for("table", |screen| screen.contains("STATE") && screen.contains("noisy"));
    terminal.key("q");
    terminal.wait_for_line("left 0");
}

#[test]
fn a_filter_a_suspend_and_a_signal_leave_the_terminal_as_it_was() {
    if !has_program("tmux") {
        return skip(
            "verbs::top::a_filter_a_suspend_and_a_signal_leave_the_terminal_as_it_was",
            "no tmux here",
        );
    }
    let env = TestEnv::as_me();
    let web = env.start().args(["--name", "web"]).command(["sleep", &env.oracle.nap()]).begin();
    let _lint = env.start().args(["--name", "lint"]).command(["sleep", &env.oracle.nap()]).begin();
    let terminal = shown(&env, &["web", "lint"]);
    terminal.key("/");
    terminal.key("w");
    terminal.key("Enter");
    terminal.wait_for("filtered table", |screen| screen.contains("web") && !screen.contains("lint"));
    terminal.key("C-z");
    terminal.wait_for("shell", |screen| screen.contains("Stopped") && screen.contains("$Q top"));
    terminal.line("fg");
    terminal.wait_for("table again", |screen| screen.contains("quell top") && !screen.contains("lint"));
    let top = process_of_top(&env);
    assert!(top.signal("TERM"));
    // 128 + SIGTERM, and the echo of the terminal works again.
    terminal
        .wait_for("end by the signal", |screen| screen.contains("left 143") || screen.contains("Terminated"));
    terminal.line("stty -a | grep -o ' icanon'");
    terminal.wait_for_line(" icanon");
    drop(web);
}

/// The process of `quell top` of this environment.
fn process_of_top(env: &TestEnv) -> Process {
    let is_top = |process: &Process| process.command.ends_with("quell top");
    let found = || env.oracle.survivors().into_iter().find(is_top);
    assert!(eventually(PATIENCE, || found().is_some()), "no quell top among the processes of the test");
    found().expect("it was there")
}

#[test]
fn without_a_terminal_it_prints_one_table_and_with_json_what_list_prints() {
    if !has_program("tmux") {
        return skip(
            "verbs::top::without_a_terminal_it_prints_one_table_and_with_json_what_list_prints",
            "no tmux here",
        );
    }
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args(["--name", "web"])
        .script("echo hello; echo ready >$QUELL_TEST_READY; sleep $N")
        .begin();
    let done = env.quell("top").finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("NAME"), "{}", done.stdout);
    assert!(lines[1].starts_with("web") && lines[1].contains("Running"), "{}", done.stdout);
    assert!(!done.stdout.contains('\u{1b}'));
    let (top, list) =
        (env.quell("top").args(["--json"]).finish(), env.quell("list").args(["--json"]).finish());
    assert_eq!(top.envelope(), list.envelope());
    let terminal = Terminal::open(&env);
    terminal.line("TERM=dumb $Q top; echo left $?");
    terminal.wait_for_line("left 0");
    assert!(terminal.screen().contains("Running"));
    drop(job);
}

#[test]
fn no_keeper_wakes_up_for_the_figures() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--name", "web"]).command(["sleep", &env.oracle.nap()]).begin();
    let keeper = job.process("keeper").expect("a keeper");
    let wakeups = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", keeper.pid)).expect("a live keeper");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).map(str::to_owned);
        line.expect("its switches")
    };
    let table = || {
        let done = env.quell("top").finish();
        assert!(done.stdout.contains("Running"), "{}{}", done.stdout, done.stderr);
    };
    // What its own start still does is over when it has slept through a whole table.
    let is_quiet = || {
        let before = wakeups();
        table();
        wakeups() == before
    };
    assert!(eventually(PATIENCE, is_quiet), "the keeper wakes up for each table");
}

#[test]
fn a_job_without_a_name_is_shown_by_an_id_that_verbs_accept() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let table = env.quell("top").finish().stdout;
    let shown = table.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a row");
    assert!(job.id.starts_with(shown), "{table}");
    let stopped = env.quell("stop").args([shown]).finish();
    assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
}
