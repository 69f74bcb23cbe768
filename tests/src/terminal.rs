//! A real terminal with an interactive shell in it: tmux with a server of its own.

use std::{
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use crate::{UNIGNORED, run::PATIENCE, test_env::TestEnv};

/// A bash in a terminal of 80 by 24. Ended when dropped.
#[derive(Debug)]
pub struct Terminal<'l> {
    env: &'l TestEnv,
}

impl<'l> Terminal<'l> {
    /// Opens it, in the environment's directory, with the variables of [`crate::run::Quell::script`].
    pub fn open(env: &'l TestEnv) -> Terminal<'l> {
        let terminal = Terminal { env };
        let mut tmux = terminal.tmux();
        tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"]);
        tmux.arg(format!("{} PS1='$ ' bash --norc --noprofile -i", UNIGNORED.join(" ")));
        tmux.env("QUELL_HOME", env.home()).env("HOME", env.dir()).current_dir(env.dir());
        tmux.env("N", env.oracle.nap())
            .env("Q", env.quell_path())
            .env("A", env.actor_path())
            .env("T", env.oracle.token());
        tmux.env_remove("TMUX").env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        // Otherwise the shell of the passwd entry, which for an unprivileged test user may be nologin.
        tmux.env("SHELL", "/bin/sh");
        let output = tmux.output().expect("tmux");
        assert!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        terminal.wait_for("the prompt", |screen| screen.contains("$ "));
        terminal
    }

    /// Types a line and Enter.
    pub fn line(&self, text: &str) {
        self.send(&["-l", text]);
        self.key("Enter");
    }

    /// Presses one key, by tmux's name for it: `C-c`, `C-z`, `Enter`.
    pub fn key(&self, name: &str) {
        self.send(&[name]);
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u32, rows: u32) {
        self.ok(self.tmux().args(["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]));
    }

    /// All the text on it, from its beginning.
    pub fn screen(&self) -> String {
        let output = self.ok(self.tmux().args(["capture-pane", "-p", "-J", "-S", "-"]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen is as wanted, and gives it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {what} on the terminal:\n{}", screen.trim_end());
            // tmux has no event for "the text on the screen has changed".
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits for a line that is exactly this: the echo of what was typed has the prompt before it.
    pub fn wait_for_line(&self, line: &str) -> String {
        self.wait_for(&format!("line {line:?}"), |screen| screen.lines().any(|l| l.trim_end() == line))
    }

    fn send(&self, keys: &[&str]) {
        self.ok(self.tmux().arg("send-keys").args(keys));
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", self.env.oracle.token()]);
        tmux.env("TMUX_TMPDIR", self.env.dir());
        tmux
    }

    fn ok(&self, tmux: &mut Command) -> Output {
        let output = tmux.output().expect("tmux");
        assert!(output.status.success(), "{tmux:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
    }
}
