//! What is done to a job while one of quell's own processes dies at a point: see `fault_points.rs`.

use quell_tests::{
    eventually,
    faults::Fault,
    host::Setting,
    run::{Finished, PATIENCE, Quell},
    test_env::TestEnv,
};

use crate::recovery::crash::{signal_all, supervisors};

/// A root and a child in another session, both deaf to TERM. `up` is there when both are. Says more when it is told to.
const TREE: &str = "trap '' TERM; setsid bash -c 'trap \"\" TERM; touch up; sleep $N; :' & echo up; \
                    until [ -e more ]; do sleep 0.02; done; echo more; touch said; sleep $N";

/// What is done to a job while one of quell's processes dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// It is started, and stopped by a client.
    Stop,
    /// It comes to its own end.
    Own,
    /// It is started with something for a helper to do.
    Helped,
    /// It can't be started.
    Refused,
    /// Its keeper is killed.
    KeeperLost,
    /// Both keepers are killed, and it is swept.
    AllLost,
    /// Its standby was killed before anything ran, and it is swept.
    Unmade,
    /// It lives several times.
    Lives,
    /// It is replaced by another one.
    Again,
    /// It has ended, is listed and removed.
    Gc,
    /// It is in the foreground, until its time is up.
    Run,
    /// It is in the foreground, and its keeper is killed.
    RunKeeperLost,
    /// It is in the foreground, its front returns at the exit of the root, and the rest is stopped by a client.
    RunLeft,
}

use Scenario::*;

pub(crate) const SCENARIOS: [Scenario; 13] =
    [Stop, Own, Helped, Refused, KeeperLost, AllLost, Unmade, Lives, Again, Gc, Run, RunKeeperLost, RunLeft];

impl Scenario {
    /// Whether the job is a `quell run`.
    pub(crate) fn is_in_front(self) -> bool {
        matches!(self, Run | RunKeeperLost | RunLeft)
    }

    /// The causes that are true if only a command is hit.
    pub(crate) fn causes(self) -> &'static [&'static str] {
        match self {
            Stop | Helped | Again => &["user"],
            Own | Lives | Gc => &["own_exit", "user"],
            Refused => &["start_failed"],
            Unmade => &[],
            KeeperLost | AllLost => &["keeper_lost"],
            Run => &["timeout"],
            RunKeeperLost => &["keeper_lost"],
            RunLeft => &["user", "own_exit"],
        }
    }
}

/// Runs it to its end, which must come in any case.
fn returned(quell: Quell<'_>, what: &str) -> Result<Finished, String> {
    let mut running = quell.start();
    let ended = running.wait_exit(PATIENCE).is_some();
    if ended { Ok(running.finish()) } else { Err(format!("{what} did not return")) }
}

/// One scenario in one environment with one fault.
pub(crate) struct Play<'l> {
    pub(crate) env: &'l TestEnv,
    pub(crate) setting: Setting,
    pub(crate) fault: &'l Fault,
}

impl<'l> Play<'l> {
    fn start(&self, fault: &Fault) -> Quell<'l> {
        let contain = ["--contain", self.setting.contain.as_str()];
        let quell = self.env.faulty("start", fault).args(["--name", "web", "--grace", "100ms"]).args(contain);
        quell.env("N", self.env.oracle.nap()).env("QUELL_START_RESTART_DELAY", "200ms")
    }

    fn is_hit(&self) -> bool {
        !self.fault.0.is_empty() && self.env.hit(self.fault).is_some()
    }

    /// Waits for something that may never be, because of the fault.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let came = eventually(PATIENCE, || is_so() || self.is_hit());
        if came { Ok(()) } else { Err(format!("waited in vain: {what}")) }
    }

    /// Starts the tree, and gives its id if it runs.
    fn tree(&self, options: &[&str], script: &str) -> Result<Option<String>, String> {
        let done = returned(self.start(self.fault).args(options).command(["bash", "-c", script]), "start")?;
        if done.code() != Some(0) {
            return if self.is_hit() { Ok(None) } else { Err(format!("start: {}", done.stderr)) };
        }
        if script == TREE {
            self.until("the tree", || self.env.path("up").exists())?;
        }
        Ok(Some(done.stdout.trim().to_owned()))
    }

    fn call(&self, verb: &str, args: &[&str]) -> Result<(), String> {
        returned(self.env.faulty(verb, self.fault).args(args), verb).map(drop)
    }

    fn over(&self, id: &str) -> Result<(), String> {
        self.until("its end", || self.env.job(id).is_over())
    }

    /// Plays it. Whatever the fault does, each command has to return.
    pub(crate) fn perform(&self, scenario: Scenario) -> Result<(), String> {
        let ready = ["--ready-log", "up"];
        match scenario {
            Stop => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    self.until("readiness", || self.env.job(&id).state() == "ready")?;
                    self.call("stop", &[&id])?;
                }
            }
            Own => {
                if let Some(id) = self.tree(&[], "echo out; echo err >&2; exit 3")? {
                    self.over(&id)?;
                }
            }
            Helped => {
                if let Some(id) = self.tree(&["--ready-cmd", "exit 1"], TREE)? {
                    self.call("stop", &[&id])?;
                }
            }
            Refused => {
                let broken = self.env.script("broken", "#!/no/such/interpreter\n");
                let done = returned(self.start(self.fault).command([broken]), "start")?;
                if done.code() == Some(0) {
                    return Err("what can't be executed was started".into());
                }
            }
            KeeperLost => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    // What is written from now on is for the standby to find in the pipe.
                    let keeper = supervisors(self.env, "quell-keeper");
                    signal_all("STOP", &keeper);
                    self.env.write("more", "");
                    self.until("more output", || self.env.path("said").exists())?;
                    signal_all("KILL", &keeper);
                    self.over(&id)?;
                }
            }
            AllLost => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    if !self.is_hit() {
                        self.env.job(&id).lose();
                    }
                    self.call("sweep", &[])?;
                }
            }
            Unmade => {
                let first = Fault("standby.recorded:kill".into());
                // Not on the log: this one doesn't do what is asked of it.
                let _ = self.start(&first).env("QUELL_FAULT_LOG", "/dev/null").command(["true"]).finish();
                self.call("sweep", &[])?;
            }
            Lives => {
                if let Some(id) = self.tree(&["--restart", "always"], "echo life; exit 3")? {
                    let waits = || {
                        let events = self.env.job(&id).events();
                        events.iter().filter(|event| *event == "restarting").count() > 1
                    };
                    self.until("a second wait", waits)?;
                    self.call("stop", &[&id])?;
                }
            }
            Again => {
                if self.tree(&ready, TREE)?.is_some() {
                    self.call("restart", &["web"])?;
                }
            }
            Gc => {
                // The first list makes the index, the second one adds to it.
                for _ in 0..2 {
                    let Some(id) = self.tree(&[], "exit 0")? else { return Ok(()) };
                    self.over(&id)?;
                    self.call("list", &["--all"])?;
                }
                self.call("rm", &["web"])?;
            }
            Run | RunKeeperLost => self.foreground(scenario)?,
            RunLeft => self.left()?,
        }
        Ok(())
    }

    fn left(&self) -> Result<(), String> {
        let quell =
            self.env.faulty("run", self.fault).args(["--name", "web", "--grace", "100ms", "--leak", "keep"]);
        let quell = quell.args(["--contain", self.setting.contain.as_str()]).env("N", self.env.oracle.nap());
        let script = "setsid bash -c 'trap \"\" TERM; touch up; sleep $N; :' & \
                      until [ -e up ]; do sleep 0.02; done; exit 3";
        let mut running = quell.command(["bash", "-c", script]).start();
        running.wait_exit(PATIENCE).ok_or("quell run did not return")?;
        for id in self.env.ids("live").iter().filter(|id| !id.starts_with('.')) {
            self.call("stop", &[id])?;
        }
        Ok(())
    }

    fn foreground(&self, scenario: Scenario) -> Result<(), String> {
        let env = self.env;
        // Long enough for the tree to be up.
        let timeout = if scenario == Run { "1s" } else { "20s" };
        let quell = env.faulty("run", self.fault).args(["--name", "web", "--grace", "100ms"]);
        let quell = quell.args(["--timeout", timeout]);
        let quell = quell.args(["--contain", self.setting.contain.as_str()]).env("N", env.oracle.nap());
        let mut running = quell.command(["bash", "-c", TREE]).start();
        if scenario == RunKeeperLost {
            self.until("the tree", || env.path("up").exists())?;
            signal_all("KILL", &supervisors(env, "quell-keeper"));
        }
        running.wait_exit(PATIENCE).map(drop).ok_or("quell run did not return".into())
    }
}
