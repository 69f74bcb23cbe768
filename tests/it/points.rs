//! "Dies exactly here": each of quell's own processes at each of its points, one after the other. The next command, of a
//! quell without points, shows the truth, and everything can be stopped, started again and removed.

use std::{collections::BTreeMap, env, fs, sync::OnceLock};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, verdict},
    faults::{self, Fault},
    host::{Contain, Setting},
    lab::Lab,
    oracle::Process,
    run::{Finished, PATIENCE, Quell},
    skip,
};

use crate::crash::{crew, signal_all, truth};

/// A root and a child in another session, both deaf to TERM. `up` is there when both are. Says more when it is told to.
const TREE: &str = "trap '' TERM; setsid bash -c 'trap \"\" TERM; touch up; sleep $N; :' & echo up; \
                    until [ -e more ]; do sleep 0.02; done; echo more; touch said; sleep $N";

/// What is done to a job while somebody dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// It is started, and stopped by a client.
    Stop,
    /// It comes to its own end.
    Own,
    /// It is started with something for an aide to do.
    Aided,
    /// It can't be started.
    Refused,
    /// Its keeper is killed.
    KeeperLost,
    /// Both keepers are killed, and it is swept.
    AllLost,
    /// Its understudy was killed before anything ran, and it is swept.
    Unmade,
    /// It lives several times.
    Lives,
    /// It is replaced by another one.
    Again,
    /// It has ended, is listed and removed.
    Tidy,
    /// It is in the foreground, until its time is up.
    Run,
    /// It is in the foreground, and its keeper is killed.
    RunKeeperLost,
}

use Scene::*;

const SCENES: [Scene; 12] =
    [Stop, Own, Aided, Refused, KeeperLost, AllLost, Unmade, Lives, Again, Tidy, Run, RunKeeperLost];

impl Scene {
    /// The causes that are true if nobody but a command is hit.
    fn causes(self) -> &'static [&'static str] {
        match self {
            Stop | Aided | Again => &["user"],
            Own | Lives | Tidy => &["own_exit", "user"],
            Refused => &["start_failed"],
            Unmade => &[],
            KeeperLost | AllLost => &["keeper_lost"],
            Run => &["timeout"],
            RunKeeperLost => &["keeper_lost"],
        }
    }
}

/// Runs it to its end, which must come in any case.
fn returned(quell: Quell<'_>, what: &str) -> Result<Finished, String> {
    let mut running = quell.start();
    let ended = running.wait_exit(PATIENCE).is_some();
    if ended { Ok(running.finish()) } else { Err(format!("{what} did not return")) }
}

/// One scene in one lab with one fault.
struct Play<'l> {
    lab: &'l Lab,
    setting: Setting,
    fault: &'l Fault,
}

impl<'l> Play<'l> {
    fn start(&self, fault: &Fault) -> Quell<'l> {
        let contain = ["--contain", self.setting.contain.word()];
        let quell = self.lab.faulty("start", fault).args(["--name", "web", "--grace", "100ms"]).args(contain);
        quell.env("N", self.lab.oracle.nap()).env("QUELL_START_RESTART_DELAY", "200ms")
    }

    fn is_hit(&self) -> bool {
        !self.fault.0.is_empty() && self.lab.hit(self.fault).is_some()
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
            self.until("the tree", || self.lab.path("up").exists())?;
        }
        Ok(Some(done.stdout.trim().to_owned()))
    }

    fn call(&self, verb: &str, args: &[&str]) -> Result<(), String> {
        returned(self.lab.faulty(verb, self.fault).args(args), verb).map(drop)
    }

    fn over(&self, id: &str) -> Result<(), String> {
        self.until("its end", || self.lab.job(id).is_over())
    }

    fn perform(&self, scene: Scene) -> Result<(), String> {
        let ready = ["--ready-log", "up"];
        match scene {
            Stop => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    self.until("readiness", || self.lab.job(&id).state() == "ready")?;
                    self.call("stop", &[&id])?;
                }
            }
            Own => {
                if let Some(id) = self.tree(&[], "echo out; echo err >&2; exit 3")? {
                    self.over(&id)?;
                }
            }
            Aided => {
                if let Some(id) = self.tree(&["--ready-cmd", "exit 1"], TREE)? {
                    self.call("stop", &[&id])?;
                }
            }
            Refused => {
                let broken = self.lab.script("broken", "#!/no/such/interpreter\n");
                let done = returned(self.start(self.fault).command([broken]), "start")?;
                if done.code() == Some(0) {
                    return Err("what can't be executed was started".into());
                }
            }
            KeeperLost => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    // What is written from now on is for the understudy to find in the pipe.
                    let keeper = crew(self.lab, "quell-keeper");
                    signal_all("STOP", &keeper);
                    self.lab.write("more", "");
                    self.until("more output", || self.lab.path("said").exists())?;
                    signal_all("KILL", &keeper);
                    self.over(&id)?;
                }
            }
            AllLost => {
                if let Some(id) = self.tree(&ready, TREE)? {
                    if !self.is_hit() {
                        self.lab.job(&id).lose();
                    }
                    self.call("sweep", &[])?;
                }
            }
            Unmade => {
                let first = Fault("understudy.recorded:kill".into());
                // Not on the log: this one doesn't do what is asked of it.
                let _ = self.start(&first).env("QUELL_FAULT_LOG", "/dev/null").command(["true"]).finish();
                self.call("sweep", &[])?;
            }
            Lives => {
                if let Some(id) = self.tree(&["--restart", "always"], "echo life; exit 3")? {
                    let waits = || {
                        let events = self.lab.job(&id).events();
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
            Tidy => {
                // The first list makes the index, the second one adds to it.
                for _ in 0..2 {
                    let Some(id) = self.tree(&[], "exit 0")? else { return Ok(()) };
                    self.over(&id)?;
                    self.call("list", &["--all"])?;
                }
                self.call("rm", &["web"])?;
            }
            Run | RunKeeperLost => self.foreground(scene)?,
        }
        Ok(())
    }

    fn foreground(&self, scene: Scene) -> Result<(), String> {
        let lab = self.lab;
        let timeout = if scene == Run { "300ms" } else { "20s" };
        let quell = lab.faulty("run", self.fault).args(["--grace", "100ms", "--timeout", timeout]);
        let quell = quell.args(["--contain", self.setting.contain.word()]).env("N", lab.oracle.nap());
        let mut running = quell.command(["bash", "-c", TREE]).start();
        if scene == RunKeeperLost {
            self.until("the tree", || lab.path("up").exists())?;
            signal_all("KILL", &crew(lab, "quell-keeper"));
        }
        running.wait_exit(PATIENCE).map(drop).ok_or("quell run did not return".into())
    }
}

/// Whom quell has started: everyone in the lab who is not quell.
fn members(lab: &Lab) -> Vec<Process> {
    let is_quell = |process: &Process| {
        let exe = fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
        exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("quell"))
    };
    lab.oracle.survivors().into_iter().filter(|process| !is_quell(process)).collect()
}

/// Nobody may be alive of a job that says that everyone is gone.
fn no_receipt_lies(lab: &Lab) -> Result<(), String> {
    let jobs: Vec<_> = lab.ids("jobs").iter().map(|id| lab.job(id)).collect();
    let all_ended = !jobs.is_empty() && jobs.iter().all(|job| job.state() == "ended");
    let gone =
        |receipt: Option<serde_json::Value>| receipt.is_some_and(|receipt| verdict(&receipt) == "gone");
    let alive = if all_ended && jobs.iter().all(|job| gone(job.receipt())) { members(lab) } else { vec![] };
    if alive.is_empty() { Ok(()) } else { Err(format!("said to be gone, and alive: {alive:?}")) }
}

/// Each job has come to an end that is told as it was, and can be removed without a trace.
fn all_ended(lab: &Lab, scene: Scene, hit_role: &str, ids: &[String]) -> Result<(), String> {
    for id in ids {
        let job = lab.job(id);
        let receipt = job.receipt().ok_or(format!("{id} has no receipt"))?;
        let lost = ["keeper_lost", "front_lost", "user"];
        let allowed = scene.causes().iter().chain(if hit_role == "command" { &lost[2..] } else { &lost });
        let state = job.record().unwrap_or_default();
        let told = [cause(&receipt), cause(&state)];
        // Of a job that waited for its next life, the receipt is that of the last one.
        if !allowed.clone().any(|allowed| *allowed == told[1]) || job.state() != "ended" {
            return Err(format!("{id}: {}, caused by {told:?}", job.state()));
        }
        if !["gone", "unproven"].contains(&verdict(&receipt)) {
            return Err(format!("{id}: {}", receipt["verdict"]));
        }
    }
    for id in lab.ids("jobs").iter().filter(|id| !id.starts_with('.')) {
        let done = lab.quell("rm").args([id]).finish();
        if done.code() != Some(0) {
            return Err(format!("rm: {}", done.stderr));
        }
    }
    let done = lab.quell("gc").finish();
    let hidden = |name: &String| name.starts_with('.');
    let mut left = lab.ids("jobs");
    left.extend(lab.ids("live").into_iter().filter(|name| !hidden(name)));
    left.extend(lab.ids("done"));
    left.extend(lab.ids("names").into_iter().filter(|name| name != ".lock"));
    match (done.code(), left.is_empty()) {
        (Some(0), true) => Ok(()),
        _ => Err(format!("left in the home: {left:?}; gc: {}", done.stderr)),
    }
}

/// The whole of it, with one fault.
fn survives(fault: &Fault, scene: Scene, setting: Setting) -> Result<(), String> {
    let lab = Lab::enclosed(setting);
    let what = |why: String| format!("{}, {scene:?}, {setting}: {why}", fault.0);
    Play { lab: &lab, setting, fault }.perform(scene).map_err(what)?;
    let Some(hit) = lab.hit(fault) else { return Err(what("the point was not reached".into())) };
    let dead = || !crew_of(&lab).contains(&hit.pid);
    if hit.what == "kill" && !eventually(PATIENCE, dead) {
        return Err(what(format!("{} is alive", hit.pid)));
    }
    // Nobody asks for one that stands still when all is done: it is missed in its time.
    let over = lab.ids("live").is_empty();
    let stands = || Process::now(hit.pid).is_some_and(|process| process.state() == Some('T'));
    if over && !eventually(PATIENCE, || !stands()) {
        return Err(what(format!("{} was not roused", hit.pid)));
    }
    no_receipt_lies(&lab).map_err(what)?;
    let before = lab.ids("jobs");
    truth(&lab, &what(String::new()))?;
    let ids: Vec<String> =
        before.into_iter().filter(|id| !id.starts_with('.') && lab.job(id).dir().exists()).collect();
    let role = fault.0.split('.').next().unwrap_or_default();
    all_ended(&lab, scene, role, &ids).map_err(what)
}

fn crew_of(lab: &Lab) -> Vec<u32> {
    lab.oracle.survivors().into_iter().map(|process| process.pid).collect()
}

/// Where each point is passed: found out by trying every scene once in every containment.
fn passages() -> &'static BTreeMap<String, Vec<(Scene, Setting)>> {
    static FOUND: OnceLock<BTreeMap<String, Vec<(Scene, Setting)>>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut plays = Vec::new();
        for setting in Setting::all() {
            plays.extend(SCENES.map(|scene| (scene, setting)));
        }
        let found = std::sync::Mutex::new(BTreeMap::<String, Vec<(Scene, Setting)>>::new());
        all_hold(3, &plays, |&(scene, setting)| {
            let lab = Lab::enclosed(setting);
            let none = Fault::default();
            let what = |why: String| format!("{scene:?}, {setting}: {why}");
            Play { lab: &lab, setting, fault: &none }.perform(scene).map_err(what)?;
            truth(&lab, &what(String::new()))?;
            let mut found = found.lock().expect("no check panics here");
            for passed in lab.passed() {
                let places = found.entry(passed.point).or_default();
                if !places.contains(&(scene, setting)) {
                    places.push((scene, setting));
                }
            }
            Ok(())
        });
        found.into_inner().expect("no check panics here")
    })
}

/// Whether there is a quell to be tested here.
fn is_built(test: &str) -> bool {
    faults::binary().inspect_err(|why| skip(test, why)).is_ok()
}

/// The points that nobody passes where the host lacks something.
fn needs(point: &str) -> Option<Contain> {
    let step = point.split('.').nth(1).unwrap_or_default();
    match step {
        "cgroup_made" | "cgroup_killed" | "nest_made" | "nest_entered" => Some(Contain::Cgroup),
        "init_killed" => Some(Contain::Pidns),
        _ => None,
    }
}

#[test]
fn every_point_is_on_the_list_and_passed_by_somebody() {
    if !is_built("every_point_is_on_the_list_and_passed_by_somebody") {
        return;
    }
    let (listed, passed) = (faults::points(), passages());
    let had = |contain: Contain| Setting::all().iter().any(|setting| setting.contain == contain);
    let dead: Vec<&String> =
        listed.iter().filter(|point| !passed.contains_key(*point) && needs(point).is_none_or(had)).collect();
    let unlisted: Vec<&String> = passed.keys().filter(|point| !listed.contains(point)).collect();
    assert!(dead.is_empty() && unlisted.is_empty(), "dead: {dead:?}\nunlisted: {unlisted:?}");
    assert!(listed.len() >= 100, "{} points", listed.len());
}

/// Each of these points in one of the places where it is passed, in turn; in another one if `QUELL_TEST_TURN` is another.
fn in_turn(points: impl Iterator<Item = String>, what: &str) -> Vec<(Fault, Scene, Setting)> {
    let turn: usize = env::var("QUELL_TEST_TURN").ok().and_then(|turn| turn.parse().ok()).unwrap_or(0);
    let place = |(at, point): (usize, String)| {
        let (scene, setting) = *passages().get(&point).and_then(|all| all.get((at + turn) % all.len()))?;
        Some((Fault(format!("{point}:{what}")), scene, setting))
    };
    points.enumerate().filter_map(place).collect()
}

#[test]
fn whoever_dies_at_any_point_the_next_command_shows_the_truth() {
    if is_built("whoever_dies_at_any_point_the_next_command_shows_the_truth") {
        let faults = in_turn(faults::points().into_iter(), "kill");
        all_hold(3, &faults, |(fault, scene, setting)| survives(fault, *scene, *setting));
    }
}

/// Whoever watches the keeper dies of its death: all that is left is what was on disk at that point.
#[test]
fn whoever_dies_with_its_keeper_the_next_command_finishes_from_the_record() {
    if is_built("whoever_dies_with_its_keeper_the_next_command_finishes_from_the_record") {
        let keepers = faults::points().into_iter().filter(|point| point.starts_with("keeper."));
        let both = "kill,understudy.keeper_missed:kill,front.keeper_missed:kill";
        let faults = in_turn(keepers, both);
        all_hold(3, &faults, |(fault, scene, setting)| survives(fault, *scene, *setting));
    }
}

/// It was made before there was a record, so no sweep dared to touch it while it was new.
#[test]
fn a_cgroup_that_was_made_just_before_front_and_keeper_died_is_put_away_at_once() {
    if is_built("a_cgroup_that_was_made_just_before_front_and_keeper_died_is_put_away_at_once") {
        let fault = Fault("keeper.cgroup_made:kill,front.keeper_missed:kill".into());
        let settings = Setting::all().into_iter().filter(|setting| setting.contain == Contain::Cgroup);
        all_hold(2, &settings.collect::<Vec<_>>(), |&setting| survives(&fault, Run, setting));
    }
}

/// It was asked, and had not told its understudy: the stop took its whole time, and failed.
#[test]
fn a_keeper_that_was_stopped_when_it_had_just_heard_of_a_stop_is_roused() {
    if is_built("a_keeper_that_was_stopped_when_it_had_just_heard_of_a_stop_is_roused") {
        let fault = Fault("keeper.stop_heard:stop".into());
        all_hold(6, &Setting::all(), |&setting| survives(&fault, Stop, setting));
    }
}

/// A start would have waited for its whole minute.
#[test]
fn a_keeper_that_was_stopped_while_it_began_is_roused() {
    if is_built("a_keeper_that_was_stopped_while_it_began_is_roused") {
        let faults = ["keeper_begun", "identity_recorded", "running_published"];
        all_hold(3, &faults, |step| {
            let setting = Setting::all()[0];
            survives(&Fault(format!("keeper.{step}:stop")), Own, setting)
        });
    }
}

#[test]
fn a_keeper_that_stands_still_at_any_point_is_roused() {
    if is_built("a_keeper_that_stands_still_at_any_point_is_roused") {
        let keepers = faults::points().into_iter().filter(|point| point.starts_with("keeper."));
        let faults = in_turn(keepers.step_by(5), "stop");
        all_hold(6, &faults, |(fault, scene, setting)| survives(fault, *scene, *setting));
    }
}
