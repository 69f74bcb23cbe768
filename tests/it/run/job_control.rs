//! Job control under a real terminal is as without quell.

use std::fs;

use quell_tests::{
    eventually,
    host::{Contain, Setting, has_program},
    oracle::Process,
    run::PATIENCE,
    skip,
    terminal::Terminal,
    test_env::TestEnv,
};

/// Runs a test in a fresh terminal for each containment that the user of the tests has here.
pub(crate) fn in_a_terminal(name: &str, test: impl Fn(&TestEnv, &Terminal<'_>, &str)) {
    if !has_program("tmux") {
        return skip(name, "no tmux here");
    }
    let me = TestEnv::as_me().user();
    for contain in Setting::all().into_iter().filter(|s| s.user == me).map(|s| s.contain) {
        if contain == Contain::Cgroup && me != quell_tests::host::User::Root {
            continue;
        }
        eprintln!("under {}", contain.as_str());
        let env = TestEnv::as_me();
        let terminal = Terminal::open(&env);
        test(&env, &terminal, &format!("$Q run --contain {} --", contain.as_str()));
        drop(terminal);
        let left = env.leftovers_after(PATIENCE);
        assert_eq!(left, Vec::<String>::new(), "under {}", contain.as_str());
    }
}

/// The state letter of the process whose command line begins so, once it has one of these.
pub(crate) fn wait_for_state(env: &TestEnv, command: &str, wanted: &str) {
    let state = || {
        let process = env.oracle.survivors().into_iter().find(|process| process.command.starts_with(command));
        process.and_then(|process| process.state())
    };
    let is_so = || state().is_some_and(|state| wanted.contains(state));
    assert!(eventually(PATIENCE, is_so), "{command}: state {:?}, not one of {wanted}", state());
}

/// Waits until the terminal's keys are for the group of the process whose command line begins so.
fn wait_for_foreground(env: &TestEnv, command: &str) {
    let has_the_terminal = |process: &Process| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        // The name is in brackets; behind it the third is the group, and the sixth that in the foreground.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(2).is_some_and(|group| fields.get(5) == Some(group))
    };
    let is_so = || {
        let all = env.oracle.survivors();
        all.iter().any(|process| process.command.starts_with(command) && has_the_terminal(process))
    };
    assert!(eventually(PATIENCE, is_so), "{command} is not in the foreground");
}

#[test]
fn ctrl_c_ends_the_program_and_the_prompt_returns() {
    in_a_terminal("ctrl_c_ends_the_program", |env, terminal, run| {
        terminal.line(&format!("{run} sleep $N"));
        wait_for_state(env, "sleep", "S");
        terminal.key("C-c");
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=130");
    });
}

#[test]
fn ctrl_backslash_ends_the_program() {
    in_a_terminal("ctrl_backslash_ends_the_program", |env, terminal, run| {
        terminal.line("ulimit -c 0");
        terminal.line(&format!("{run} sleep $N"));
        wait_for_state(env, "sleep", "S");
        terminal.key("C-\\");
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=131");
    });
}

#[test]
fn one_ctrl_c_breaks_a_shell_loop() {
    in_a_terminal("one_ctrl_c_breaks_a_shell_loop", |env, terminal, run| {
        terminal.line(&format!("while true; do {run} sleep $N; done"));
        wait_for_state(env, "sleep", "S");
        terminal.key("C-c");
        terminal.line("echo over=$?");
        terminal.wait_for_line("over=130");
    });
}

#[test]
fn ctrl_c_does_not_end_a_program_that_handles_it() {
    in_a_terminal("ctrl_c_does_not_end_a_program_that_handles_it", |_, terminal, run| {
        let trap = r#"trap "n=\$((n+1)); echo caught \$n; [ \$n = 3 ] && exit 5" INT"#;
        terminal.line(&format!("{run} bash -c '{trap}; echo up; while :; do sleep 0.1; done'"));
        terminal.wait_for_line("up");
        for n in 1..=3 {
            terminal.key("C-c");
            terminal.wait_for("catch", |screen| screen.contains(&format!("caught {n}")));
        }
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=5");
    });
}

#[test]
fn ctrl_z_stops_and_fg_and_bg_continue() {
    in_a_terminal("ctrl_z_stops_and_fg_and_bg_continue", |env, terminal, run| {
        terminal.line(&format!("{run} sleep $N"));
        wait_for_state(env, "sleep", "S");
        terminal.key("C-z");
        terminal.wait_for("stopped job", |screen| screen.contains("Stopped"));
        wait_for_state(env, "sleep", "T");
        terminal.line("clear; jobs");
        terminal.wait_for("stopped job", |screen| screen.contains("[1]+  Stopped"));
        terminal.line("bg");
        wait_for_state(env, "sleep", "S");
        terminal.line("clear; jobs");
        terminal.wait_for("running job", |screen| screen.contains("[1]+  Running"));
        terminal.line("fg");
        // Before the shell has given the terminal away, the key would be for the shell.
        wait_for_foreground(env, "sleep");
        terminal.key("C-z");
        wait_for_state(env, "sleep", "T");
        terminal.line("clear; fg");
        wait_for_state(env, "sleep", "S");
        wait_for_foreground(env, "sleep");
        terminal.key("C-c");
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=130");
    });
}

#[test]
fn a_program_that_stops_itself_gives_the_prompt_back() {
    in_a_terminal("a_program_that_stops_itself_gives_the_prompt_back", |_, terminal, run| {
        terminal.line(&format!("{run} bash -c 'kill -STOP $$; echo resumed; exit 6'"));
        terminal.wait_for("stopped job", |screen| screen.contains("Stopped"));
        terminal.line("clear; fg");
        terminal.wait_for_line("resumed");
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=6");
    });
}

#[test]
fn a_resize_reaches_the_program() {
    in_a_terminal("a_resize_reaches_the_program", |_, terminal, run| {
        terminal.line(&format!(
            "{run} bash -c 'trap \"stty size; exit 0\" WINCH; echo up; while :; do sleep 0.1; done'"
        ));
        terminal.wait_for_line("up");
        terminal.resize(100, 30);
        terminal.wait_for_line("30 100");
    });
}

#[test]
fn the_terminal_stays_a_terminal() {
    in_a_terminal("the_terminal_stays_a_terminal", |_, terminal, run| {
        terminal.line(&format!(
            "{run} sh -c 'test -t 0 && test -t 1 && test -t 2 && tty >/dev/null && echo is-a-tty'"
        ));
        terminal.wait_for_line("is-a-tty");
        terminal.line(&format!("{run} sh -c ': </dev/tty && echo has-a-tty'"));
        terminal.wait_for_line("has-a-tty");
    });
}

#[test]
fn the_terminal_has_its_modes_again_after_a_death_by_a_signal() {
    in_a_terminal("the_terminal_has_its_modes_again_after_a_death_by_a_signal", |_, terminal, run| {
        for (round, (options, end)) in
            [("--timeout 200ms", "sleep 50"), ("", "kill -9 $$")].into_iter().enumerate()
        {
            let quell = run.replace(" run ", &format!(" run {options} "));
            let modes = "case $(stty -a) in *-icanon*|*' -echo '*) echo raw;; *) echo as before;; esac";
            terminal
                .line(&format!("{quell} sh -c 'stty raw -echo; {end}'; echo \"modes {round}: $({modes})\""));
            terminal.wait_for_line(&format!("modes {round}: as before"));
        }
    });
}

#[test]
fn a_pipeline_reads_the_terminal() {
    in_a_terminal("a_pipeline_reads_the_terminal", |_, terminal, run| {
        // What is typed before the pipeline runs may be thrown away by the shell.
        terminal.line(&format!("{run} bash -c 'echo ready; cat' | sed 's/^/got /'"));
        terminal.wait_for_line("got ready");
        terminal.line("hello");
        terminal.key("C-d");
        terminal.wait_for_line("got hello");
        terminal.line(&format!("echo there | {run} cat - /dev/tty | sed 's/^/and /'"));
        terminal.wait_for_line("and there");
        terminal.line("here");
        terminal.key("C-d");
        terminal.wait_for_line("and here");
    });
}

#[test]
fn a_background_job_that_reads_the_terminal_is_stopped_until_fg() {
    in_a_terminal("a_background_job_that_reads_the_terminal", |env, terminal, run| {
        terminal.line(&format!("{run} bash -c 'read line; echo got $line' $T &"));
        wait_for_state(env, "bash -c read", "T");
        terminal.line("jobs");
        terminal.wait_for("stopped job", |screen| screen.contains("Stopped"));
        terminal.line("fg");
        wait_for_state(env, "bash -c read", "S");
        terminal.line("hello");
        terminal.wait_for_line("got hello");
        terminal.line("echo code=$?");
        terminal.wait_for_line("code=0");
    });
}

#[test]
fn a_background_job_runs_while_the_shell_goes_on() {
    in_a_terminal("a_background_job_runs_while_the_shell_goes_on", |env, terminal, run| {
        terminal.line(&format!("{run} sleep $N &"));
        wait_for_state(env, "sleep", "S");
        terminal.line("echo still=here");
        terminal.wait_for_line("still=here");
        // Ctrl-C at the prompt is not for background jobs. The shell throws away what is typed before its next prompt.
        let prompts = |screen: &str| screen.lines().filter(|line| line.starts_with('$')).count();
        let at_prompt = |screen: &str| screen.trim_end().ends_with('$');
        let before = prompts(&terminal.wait_for("prompt", at_prompt));
        terminal.key("C-c");
        terminal.wait_for("new prompt", |screen| at_prompt(screen) && prompts(screen) > before);
        terminal.line("jobs");
        terminal.wait_for("running job", |screen| screen.contains("[1]+  Running"));
        terminal.line("kill %1; wait %1; echo code=$?");
        terminal.wait_for_line("code=143");
    });
}

#[test]
fn an_interactive_shell_inside_has_job_control() {
    in_a_terminal("an_interactive_shell_inside_has_job_control", |env, terminal, run| {
        terminal.line(&format!("{run} env PS1='inner$ ' bash --norc -i"));
        terminal.wait_for("inner prompt", |screen| screen.contains("inner$"));
        terminal.line("sleep $N");
        wait_for_state(env, "sleep", "S");
        terminal.key("C-z");
        terminal.wait_for("stopped job", |screen| screen.contains("Stopped"));
        terminal.line("fg");
        wait_for_state(env, "sleep", "S");
        terminal.key("C-c");
        terminal.line("exit 3");
        terminal.line("echo code=$?");
        let screen = terminal.wait_for_line("code=3");
        assert!(!screen.contains("no job control"), "{screen}");
    });
}

#[test]
fn a_terminal_that_is_closed_takes_the_tree_with_it() {
    in_a_terminal("a_terminal_that_is_closed_takes_the_tree_with_it", |env, terminal, run| {
        let run = run.replace(" --contain", " --grace 300ms --contain");
        terminal.line(&format!("{run} $A ignore-term $T"));
        let actor = env.actor_path().display().to_string();
        let is_up = || env.oracle.survivors().iter().filter(|p| p.command.starts_with(&actor)).count() == 2;
        let came = eventually(PATIENCE, is_up);
        assert!(came, "not up: {:?}\n{}", env.oracle.survivors(), terminal.screen());
        // The terminal goes when this returns, and then nothing may be left.
    });
}
