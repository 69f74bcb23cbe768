//! The clients: each calls quell from the command line, one command after the other, notes what it was told, and holds it
//! against the processes at once.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    ledger::{Harm, Job},
    metrics::Metrics,
    rng::Rng,
    scenario::{BOUND, FaultClass, Scenario},
    worker_journal::Work,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Start,
    Run,
    Stop,
    StopAll,
    Restart,
    Wait,
    List,
    Status,
    Tree,
    Logs,
    Follow,
    Events,
    Send,
    Signal,
    Rm,
    Gc,
    Sweep,
    Stats,
}

const MIX: [(usize, Verb); 18] = [
    (30, Verb::Start),
    (4, Verb::Run),
    (18, Verb::Stop),
    (1, Verb::StopAll),
    (5, Verb::Restart),
    (6, Verb::Wait),
    (6, Verb::List),
    (6, Verb::Status),
    (3, Verb::Tree),
    (4, Verb::Logs),
    (2, Verb::Follow),
    (2, Verb::Events),
    (2, Verb::Send),
    (3, Verb::Signal),
    (4, Verb::Rm),
    (1, Verb::Gc),
    (2, Verb::Sweep),
    (1, Verb::Stats),
];

/// What a command said, if it was let finish.
#[derive(Debug)]
struct Reply {
    words: String,
    code: i32,
    answers: Vec<Value>,
    stderr: String,
}

/// One client.
#[derive(Debug)]
pub struct Client<'w> {
    pub scenario: &'w Scenario,
    pub metrics: &'w Metrics,
    pub rng: Rng,
    /// Injection points of the quell under test, if it was built with them.
    pub points: &'w [String],
    /// Whether the last call was to die at one of them.
    pub dies_at_point: bool,
    /// How many `gc` were done when it began.
    pub gcs: usize,
}

impl Client<'_> {
    /// Calls quell so many times.
    pub fn work(mut self, calls: usize) {
        for _ in 0..calls {
            let verb = self.rng.weighed(&MIX);
            match verb {
                Verb::Start => self.start(),
                Verb::Run => self.run(),
                Verb::StopAll => self.stop_all(),
                Verb::Gc => self.gc(),
                Verb::List => self.list(),
                Verb::Sweep | Verb::Stats => self.look_around(verb),
                _ => self.with_job(verb),
            }
            self.metrics.calls.add(1);
        }
    }

    /// Runs a command, kills it in the midst at times, and checks what every answer has to be like.
    fn call(&mut self, verb: &str, words: &[String], command: &[String], may_die: bool) -> Option<Reply> {
        self.gcs = self.scenario.ledger.gcs_done();
        let mut quell = self.scenario.quell(verb).args(["--json"]).args(words);
        if !command.is_empty() {
            quell = quell.command(command);
        }
        let dies_at_point = may_die && !self.points.is_empty() && self.rng.percent(40);
        self.dies_at_point = dies_at_point;
        if let Some(point) = self.rng.one(self.points).filter(|_| dies_at_point) {
            let act = if self.rng.percent(85) { "kill" } else { "stop" };
            quell = quell.env("QUELL_FAULT", format!("{point}:{act}"));
            self.metrics.fault("point");
        }
        let shown = format!("quell {verb} {} {}", words.join(" "), command.join(" "));
        let mut running = quell.start();
        let dies = may_die && !dies_at_point && self.rng.percent(8);
        if dies {
            let pause = Duration::from_micros(self.rng.below(20_000) as u64);
            if running.wait_exit(pause).is_none() {
                running.front.signal("KILL");
                self.metrics.fault("client killed");
            }
        }
        // A command that stopped itself at a point is left so for a while, and then killed.
        let bound = if dies_at_point { Duration::from_secs(4) } else { BOUND };
        let Some(status) = running.wait_exit(bound) else {
            if dies_at_point {
                running.front.signal("KILL");
            } else {
                let stderr = running.stderr();
                self.scenario.violation("P8", format!("`{shown}` did not return in {BOUND:?}: {stderr}"));
            }
            return None;
        };
        running.wait_output_closed(Duration::from_secs(2));
        let (stdout, stderr) = (running.stdout(), running.stderr());
        if stderr.contains("panicked") || stdout.contains("panicked") {
            self.scenario.violation("no panics", format!("`{shown}`: {stderr}"));
        }
        let Some(code) = status.code() else {
            // `run` ends as its program did, by the same signal.
            if !dies && !dies_at_point && verb != "run" {
                self.scenario.violation("no panics", format!("`{shown}` ended by {status}: {stderr}"));
            }
            return None;
        };
        let answers: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let said_so = answers.iter().all(|answer| answer["schema"] == "quell/1");
        if verb != "run" && (answers.len() != stdout.lines().count() || answers.is_empty() || !said_so) {
            // A job that was removed while it was followed, or `logs -f` of one without output, has nothing to say.
            let silent = stdout.is_empty() && code == 0;
            if !silent {
                self.scenario.violation("P5", format!("`{shown}` ({code}) answered {stdout:?} {stderr:?}"));
            }
        }
        // Without an excuse no command fails.
        if code == 125
            && verb != "start"
            && verb != "run"
            && verb != "restart"
            && !self.scenario.is_harsh()
            && !dies_at_point
        {
            self.scenario.violation("P6", format!("`{shown}` failed: {stdout} {stderr}"));
        }
        if verb != "run" && (code == 2 || code > 128) {
            self.scenario.violation("P5", format!("`{shown}` exited with {code}: {stdout} {stderr}"));
        }
        Some(Reply { words: shown, code, answers, stderr })
    }

    fn start(&mut self) {
        let work = Work::draw(&mut self.rng);
        let tag = self.scenario.fresh();
        let contain = self.scenario.setting.contain.as_str();
        let grace = format!("{}ms", self.rng.below(120));
        let mut words: Vec<String> = ["--contain", contain, "--grace", &grace].map(String::from).to_vec();
        let name = if self.rng.percent(40) {
            self.rng.one(&["web", "db"]).map_or_else(String::new, |name| (*name).to_owned())
        } else {
            tag.clone()
        };
        words.extend(["--name".to_owned(), name]);
        let again = self.rng.percent(15);
        if again {
            words.extend(["--restart", "on-failure", "--restart-limit", "2"].map(String::from));
        }
        let timed = self.rng.percent(10);
        if timed {
            words.extend(["--timeout".to_owned(), format!("{}ms", 20 + self.rng.below(400))]);
        }
        if self.rng.percent(30) {
            words.extend(["--stdin", "pipe"].map(String::from));
        }
        let mut owner = self.rng.percent(12).then(owner);
        if let Some(owner) = &owner {
            words.extend(["--owner".to_owned(), owner.id().to_string()]);
        }
        let mut command = vec![
            self.scenario.worker().display().to_string(),
            self.scenario.env.oracle.token().to_owned(),
            self.scenario.journals.display().to_string(),
            tag.clone(),
        ];
        command.extend(work.words());
        self.metrics.escapes.add(work.escapes());
        let enters = self.rng.percent(30);
        let (script, orphan) = self.scenario.enter_foreign().filter(|_| enters).unzip();
        if let Some(script) = script {
            command.splice(0..0, ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]);
            self.metrics.fault("orphan in a foreign namespace");
        }
        let reply = self.call("start", &words, &command, true);
        let dies_at_point = self.dies_at_point;
        let id = reply
            .as_ref()
            .filter(|reply| reply.code == 0)
            .and_then(|reply| Some(reply.answers.last()?["data"]["id"].as_str()?.to_owned()));
        if let Some(id) = id {
            self.metrics.jobs.add(1);
            let facts = Job { tag, work, told: true, again, timed, orphan, ..Job::default() };
            let collected = self.scenario.ledger.may_be_collected(self.gcs);
            self.scenario.ledger.note(&id, |job| {
                let harms = std::mem::take(&mut job.harms);
                *job = Job { harms, stops: job.stops, removed: job.removed || collected, ..facts };
                if dies_at_point {
                    job.harms.insert(Harm::Start);
                }
            });
            if let Some(owner) = &mut owner {
                self.scenario.ledger.harm(&id, Harm::Owner);
                let _ = owner.kill().and_then(|()| owner.wait());
                self.metrics.fault("owner killed");
            }
        } else if let Some(reply) = reply.filter(|reply| {
            // 5: a lost job of that name is not proven dead, because a traced keeper of it still hangs.
            let unproven = reply.code == 5 && self.scenario.fault_class == FaultClass::Hostile;
            !unproven && !matches!(reply.code, 0 | 1 | 125)
        }) {
            let (words, code) = (&reply.words, reply.code);
            self.scenario.violation("P5", format!("`{words}` exited with {code}: {}", reply.stderr));
        }
        if let Some(mut owner) = owner {
            let _ = owner.kill().and_then(|()| owner.wait());
        }
    }

    fn run(&mut self) {
        let code = self.rng.below(5);
        let mut command = vec![
            self.scenario.worker().display().to_string(),
            self.scenario.env.oracle.token().to_owned(),
            self.scenario.journals.display().to_string(),
            self.scenario.fresh(),
        ];
        command.extend([format!("exit={code}"), "kids=sd".into(), "after=20".into()]);
        let contain = self.scenario.setting.contain.as_str().to_owned();
        let words = ["--contain".to_owned(), contain, "--grace".to_owned(), "50ms".to_owned()];
        let reply = self.call("run", &words, &command, true);
        self.metrics.jobs.add(1);
        self.metrics.escapes.add(2);
        let Some(reply) = reply else { return };
        // Its own code, or what quell says of a run that was cut short: 137 from its end by SIGKILL.
        let fine = [code as i32, 125, 137, 143, 122].contains(&reply.code);
        if !fine {
            self.scenario.violation("P5", format!("`{}` exited with {}", reply.words, reply.code));
        }
    }

    /// A job to do something with; one that a client was told of.
    fn pick(&mut self) -> Option<String> {
        let told = self.scenario.ledger.told();
        // The latest are the ones where most is going on.
        let recent = told.len().saturating_sub(12);
        let from = if self.rng.percent(80) { &told[recent..] } else { &told[..] };
        self.rng.one(from).cloned()
    }

    fn with_job(&mut self, verb: Verb) {
        let Some(id) = self.pick() else { return };
        let before = self.scenario.ledger.get(&id);
        let mut words = vec![id.clone()];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        let name = match verb {
            Verb::Stop => {
                self.scenario.ledger.note(&id, |job| job.stops += 1);
                if self.rng.percent(30) {
                    add(&["--now"]);
                }
                "stop"
            }
            Verb::Restart => {
                // The next one leaves an orphan with the same command line.
                self.scenario.ledger.note(&id, |job| (job.stops, job.orphan) = (job.stops + 1, None));
                "restart"
            }
            Verb::Wait => {
                let timeout = format!("{}ms", 1 + self.rng.below(150));
                add(&["--timeout", &timeout]);
                "wait"
            }
            Verb::Status => "status",
            Verb::Tree => "tree",
            Verb::Logs => "logs",
            Verb::Follow => {
                add(&["-f", "--tail", "5"]);
                "logs"
            }
            Verb::Events => "events",
            Verb::Send => {
                add(&["--timeout", "100ms", "hello"]);
                "send"
            }
            Verb::Signal => {
                let signal = *self.rng.one(&["TERM", "HUP", "USR1"]).unwrap_or(&"HUP");
                add(&[signal]);
                let is_term = signal == "TERM";
                self.scenario.ledger.note(&id, |job| if is_term { job.terms += 1 } else { job.others += 1 });
                "signal"
            }
            Verb::Rm => {
                self.scenario.ledger.note(&id, |job| job.removed = true);
                "rm"
            }
            Verb::Start | Verb::Run | Verb::StopAll | Verb::List | Verb::Gc | Verb::Sweep | Verb::Stats => {
                return;
            }
        };
        if verb == Verb::Follow {
            // It would last as long as the job; a follower that leaves in the midst is what is tried here.
            return self.follow(&words);
        }
        let Some(reply) = self.call(name, &words, &[], true) else { return };
        let removed = self.scenario.ledger.get(&id).removed;
        if reply.code == 3 && before.told && !removed && !self.scenario.is_harsh() {
            self.scenario.violation("P6", format!("`{}`: {} is lost", reply.words, id));
        }
        match verb {
            Verb::Stop | Verb::Restart => {
                for answer in reply.answers.iter().filter(|answer| answer["ok"] == true) {
                    if let Some(new) = answer["data"]["id"].as_str().filter(|new| *new != id) {
                        self.succeed(&id, new);
                    }
                    let old = self.scenario.env.job(&id).receipt().unwrap_or_default();
                    let receipt =
                        if verb == Verb::Stop { &answer["data"]["jobs"][0]["receipt"] } else { &old };
                    if receipt["verdict"]["kind"] == "gone" {
                        self.is_gone(&id, &reply.words);
                    }
                }
                if verb == Verb::Stop && !matches!(reply.code, 0 | 3 | 5 | 125) {
                    self.scenario.violation("P5", format!("`{}` exited with {}", reply.words, reply.code));
                }
            }
            Verb::Wait | Verb::Status => {
                let answers = reply.answers.iter();
                let job = answers.map(|answer| {
                    if verb == Verb::Wait {
                        &answer["data"]["jobs"][0]["job"]
                    } else {
                        &answer["data"]["job"]
                    }
                });
                for job in job.filter(|job| job["state"] == "ended" && job["verdict"]["kind"] == "gone") {
                    if job["id"] == id.as_str() {
                        self.is_gone(&id, &reply.words);
                    }
                }
            }
            _ => {}
        }
    }

    /// A restart gave a job a new id: the new one does what the old one did.
    fn succeed(&self, old: &str, new: &str) {
        let old = self.scenario.ledger.get(old);
        self.metrics.jobs.add(1);
        self.scenario.ledger.note(new, |job| {
            job.tag = old.tag.clone();
            job.work = old.work.clone();
            (job.told, job.again, job.timed) = (true, old.again, old.timed);
            job.removed |= self.scenario.ledger.may_be_collected(self.gcs);
            // Its keepers have the same fault before them as the command.
            if self.dies_at_point {
                job.harms.insert(Harm::Start);
            }
            // The owner goes with the job, and may have gone meanwhile.
            if old.harms.contains(&Harm::Owner) {
                job.harms.insert(Harm::Owner);
            }
        });
    }

    fn follow(&mut self, words: &[String]) {
        let mut running = self.scenario.quell("logs").args(words).start();
        let pause = Duration::from_millis(self.rng.below(60) as u64);
        if running.wait_exit(pause).is_none() {
            running.front.signal("KILL");
            self.metrics.fault("client killed");
        }
        if running.wait_exit(BOUND).is_none() {
            self.scenario.violation("P8", "a killed `logs -f` lives on");
        }
    }

    fn stop_all(&mut self) {
        let jobs: Vec<String> = self.scenario.ledger.jobs().keys().cloned().collect();
        jobs.iter().for_each(|id| self.scenario.ledger.note(id, |job| job.stops += 1));
        let Some(reply) = self.call("stop", &["--all".to_owned()], &[], true) else { return };
        for answer in &reply.answers {
            let data = &answer["data"];
            if let (Some(id), "gone") =
                (data["id"].as_str(), data["receipt"]["verdict"]["kind"].as_str().unwrap_or_default())
            {
                self.scenario.ledger.note(id, |job| job.stops += 1);
                self.is_gone(id, &reply.words);
            }
        }
    }

    fn gc(&mut self) {
        // What is removed is not known beforehand: whatever has ended by then.
        let count = self.rng.below(8).to_string();
        let scenario = self.scenario;
        scenario.ledger.while_tidying(|| {
            self.call("gc", &["--max-count".to_owned(), count], &[], true);
        });
    }

    fn list(&mut self) {
        let before = self.scenario.ledger.jobs().clone();
        let Some(reply) = self.call("list", &["--all".to_owned()], &[], true) else { return };
        let Some(jobs) = reply.answers.last().and_then(|answer| answer["data"]["jobs"].as_array()) else {
            return;
        };
        let listed = |id: &str| jobs.iter().any(|job| job["id"] == id);
        for (id, _) in before.iter().filter(|(_, job)| job.told && !job.removed) {
            let since = self.scenario.ledger.get(id);
            if !listed(id) && !since.removed && !self.scenario.is_harsh() {
                self.scenario
                    .violation("P6", format!("`list` does not show {id}, of which a client was told"));
            }
        }
        let alive = |name: &str| {
            let with = |job: &&Value| job["name"] == name && job["state"] != "ended";
            jobs.iter().filter(with).filter_map(|job| job["id"].as_str()).collect::<Vec<_>>()
        };
        for name in ["web", "db"] {
            let bearers = alive(name);
            // A list is put together from one job after the other: an end and a start in between do not contradict it,
            // two at the same time by the processes are.
            let live: Vec<_> = bearers
                .iter()
                .map(|id| (id, self.scenario.members(id)))
                .filter(|(_, m)| !m.is_empty())
                .collect();
            if live.len() > 1 {
                self.scenario.violation("P6", format!("two live jobs are named {name}: {live:?}"));
            }
        }
    }

    fn look_around(&mut self, verb: Verb) {
        let dry = self.rng.percent(30);
        match verb {
            Verb::Sweep if dry => self.call("sweep", &["--dry-run".to_owned()], &[], true),
            Verb::Sweep => self.call("sweep", &[], &[], true),
            _ => self.call("stats", &[], &[], true),
        };
    }

    /// A client was told that a job is gone: no process of it may be alive from that instant on.
    fn is_gone(&self, id: &str, words: &str) {
        self.metrics.checks.add(1);
        let mut left = self.scenario.members(id);
        // One that is born after the word is of a program that is not gone, and that was checked.
        left.extend(self.scenario.ledger.get(id).orphan.and_then(|orphan| self.scenario.orphan(&orphan)));
        if !left.is_empty() {
            let facts = self.scenario.ledger.get(id);
            self.scenario.violation("P2", format!("`{words}` said gone, and alive are {left:?}; {facts:?}"));
        }
    }
}

fn owner() -> Child {
    Command::new("sleep").arg("45").stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("sleep")
}
