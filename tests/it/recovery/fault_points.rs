//! "Dies exactly here": each of quell's own processes at each of its points, one after the other. The next command, of a
//! quell without points, shows the truth, and everything can be stopped, started again and removed.

use std::{collections::BTreeMap, env, fs, sync::OnceLock};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, verdict},
    faults::{self, Fault},
    host::{Contain, Setting},
    oracle::Process,
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};

use crate::recovery::crash::truth;
use crate::recovery::end_of_job::{ends_of_last_run, of_last_run};
use crate::recovery::scenarios::{Play, SCENARIOS, Scenario, Scenario::*};

/// What quell has started: every process of this environment that is not quell.
fn members(env: &TestEnv) -> Vec<Process> {
    let is_quell = |process: &Process| {
        let exe = fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
        // One that is about to be gone has a command line longer than a program.
        exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("quell"))
            || process.command.starts_with("quell ")
            // The probes of the helper are not members of the job, and may exit after it.
            || process.command == "/bin/sh -c exit 1"
    };
    env.oracle.survivors().into_iter().filter(|process| !is_quell(process)).collect()
}

/// No process may be alive of a job whose verdict is `gone`.
fn no_receipt_lies(env: &TestEnv) -> Result<(), String> {
    let jobs: Vec<_> = env.ids("jobs").iter().map(|id| env.job(id)).collect();
    let all_ended = !jobs.is_empty() && jobs.iter().all(|job| job.state() == "ended");
    let gone =
        |receipt: Option<serde_json::Value>| receipt.is_some_and(|receipt| verdict(&receipt) == "gone");
    let alive = if all_ended && jobs.iter().all(|job| gone(job.receipt())) { members(env) } else { vec![] };
    if alive.is_empty() { Ok(()) } else { Err(format!("said to be gone, and alive: {alive:?}")) }
}

/// Each job has come to an end that is told as it was, and can be removed without a trace.
fn all_ended(env: &TestEnv, scenario: Scenario, hit_role: &str, ids: &[String]) -> Result<(), String> {
    for id in ids {
        let job = env.job(id);
        let receipt = job.receipt().ok_or(format!("{id} has no receipt"))?;
        let lost = ["keeper_lost", "front_lost", "user"];
        let allowed = scenario.causes().iter().chain(if hit_role == "command" { &lost[2..] } else { &lost });
        let state = job.record().unwrap_or_default();
        let told = [cause(&receipt), cause(&state["last"]["ending"])];
        // Of a job that waited for its next life, the receipt is that of the last one.
        if !allowed.clone().any(|allowed| *allowed == told[1]) || job.state() != "ended" {
            return Err(format!("{id}: {}, caused by {told:?}", job.state()));
        }
        if !["gone", "unproven"].contains(&verdict(&receipt)) {
            return Err(format!("{id}: {}", receipt["verdict"]));
        }
        let (events, ends) = (of_last_run(&job), ends_of_last_run(&job));
        // A job in the foreground has a history only if a command had to finish it.
        if ends != 1 && !(scenario.is_in_front() && events.is_empty()) {
            return Err(format!("{id}: {ends} ends in the history: {events:?}"));
        }
    }
    for id in env.ids("jobs").iter().filter(|id| !id.starts_with('.')) {
        let done = env.quell("rm").args([id]).finish();
        if done.code() != Some(0) {
            return Err(format!("rm: {}", done.stderr));
        }
    }
    let done = env.quell("gc").finish();
    let hidden = |name: &String| name.starts_with('.');
    let mut left = env.ids("jobs");
    left.extend(env.ids("live").into_iter().filter(|name| !hidden(name)));
    left.extend(env.ids("done"));
    left.extend(env.ids("names").into_iter().filter(|name| name != ".lock"));
    match (done.code(), left.is_empty()) {
        (Some(0), true) => Ok(()),
        _ => Err(format!("left in the home: {left:?}; gc: {}", done.stderr)),
    }
}

/// The whole of it, with one fault; whether its point was reached.
fn survives(fault: &Fault, scenario: Scenario, setting: Setting) -> Result<bool, String> {
    let env = TestEnv::enclosed(setting);
    let what = |why: String| format!("{}, {scenario:?}, {setting}: {why}", fault.0);
    Play { env: &env, setting, fault }.perform(scenario).map_err(what)?;
    // The keepers of a job that has ended still have its sync and their own exit to do.
    if env.ids("live").is_empty() {
        eventually(PATIENCE, || env.hit(fault).is_some() || crew_of(&env).is_empty());
    }
    let Some(hit) = env.hit(fault) else { return truth(&env, &what(String::new())).map(|()| false) };
    let dead = || !crew_of(&env).contains(&hit.pid);
    if hit.what == "kill" && !eventually(PATIENCE, dead) {
        return Err(what(format!("{} is alive", hit.pid)));
    }
    // No process waits for one that is stopped when all is done: a timeout notices it.
    let over = env.ids("live").is_empty();
    let stands = || Process::now(hit.pid).is_some_and(|process| process.state() == Some('T'));
    if over && !eventually(PATIENCE, || !stands()) {
        return Err(what(format!("{} was not resumed", hit.pid)));
    }
    no_receipt_lies(&env).map_err(what)?;
    let before = env.ids("jobs");
    truth(&env, &what(String::new()))?;
    let ids: Vec<String> =
        before.into_iter().filter(|id| !id.starts_with('.') && env.job(id).dir().exists()).collect();
    let role = fault.0.split('.').next().unwrap_or_default();
    all_ended(&env, scenario, role, &ids).map(|()| true).map_err(what)
}

/// The same where it has to be reached.
fn hits(fault: &Fault, scenario: Scenario, setting: Setting) -> Result<(), String> {
    let hit = survives(fault, scenario, setting)?;
    if hit { Ok(()) } else { Err(format!("{}, {scenario:?}, {setting}: was not reached", fault.0)) }
}

fn crew_of(env: &TestEnv) -> Vec<u32> {
    env.oracle.survivors().into_iter().map(|process| process.pid).collect()
}

/// Where each point is passed: found out by trying every scenario once in every containment.
fn passages() -> &'static BTreeMap<String, Vec<(Scenario, Setting)>> {
    static FOUND: OnceLock<BTreeMap<String, Vec<(Scenario, Setting)>>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut plays = Vec::new();
        for setting in Setting::all() {
            plays.extend(SCENARIOS.map(|scenario| (scenario, setting)));
        }
        let found = std::sync::Mutex::new(BTreeMap::<String, Vec<(Scenario, Setting)>>::new());
        all_hold(3, &plays, |&(scenario, setting)| {
            let env = TestEnv::enclosed(setting);
            let none = Fault::default();
            let what = |why: String| format!("{scenario:?}, {setting}: {why}");
            Play { env: &env, setting, fault: &none }.perform(scenario).map_err(what)?;
            truth(&env, &what(String::new()))?;
            let mut found = found.lock().expect("no check panics here");
            for passed in env.passed() {
                let places = found.entry(passed.point).or_default();
                if !places.contains(&(scenario, setting)) {
                    places.push((scenario, setting));
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

/// The points that no process passes where the host lacks something.
fn needs(point: &str) -> Option<Contain> {
    let step = point.split('.').nth(1).unwrap_or_default();
    match step {
        "cgroup_made" | "cgroup_killed" | "nest_made" | "nest_entered" => Some(Contain::Cgroup),
        "init_killed" => Some(Contain::Pidns),
        _ => None,
    }
}

/// Nothing that a user has can be made to die by a variable.
#[test]
fn the_product_has_no_points() {
    let env = TestEnv::as_me();
    assert_eq!(env.quell("__points").finish().code(), Some(2));
    let product = fs::read(env.quell_path()).expect("the quell under test");
    assert!(!product.windows(11).any(|word| word == b"QUELL_FAULT"), "points are in the product");
}

#[test]
fn every_point_is_listed_and_passed() {
    if !is_built("every_point_is_listed_and_passed") {
        return;
    }
    // One is passed where no job is: recycled.rs is about it.
    let of_a_job = |point: &String| point != "command.victim_validated";
    let listed: Vec<String> = faults::points().into_iter().filter(of_a_job).collect();
    let passed = passages();
    let had = |contain: Contain| Setting::all().iter().any(|setting| setting.contain == contain);
    let dead: Vec<&String> =
        listed.iter().filter(|point| !passed.contains_key(*point) && needs(point).is_none_or(had)).collect();
    let unlisted: Vec<&String> = passed.keys().filter(|point| !listed.contains(point)).collect();
    assert!(dead.is_empty() && unlisted.is_empty(), "dead: {dead:?}\nunlisted: {unlisted:?}");
    assert!(listed.len() >= 100, "{} points", listed.len());
}

/// Each of these points in one of the places where it is passed, in turn; in another one if `QUELL_TEST_TURN` is another.
fn in_turn(width: usize, points: impl Iterator<Item = String>, what: &str) {
    let turn: usize = env::var("QUELL_TEST_TURN").ok().and_then(|turn| turn.parse().ok()).unwrap_or(0);
    let points: Vec<(usize, String)> =
        points.enumerate().filter(|(_, point)| passages().contains_key(point)).collect();
    all_hold(width, &points, |(at, point)| {
        let fault = Fault(format!("{point}:{what}"));
        let places = &passages()[point];
        // Some are passed by chance in some places: a second kill round, for one.
        for (scenario, setting) in places.iter().cycle().skip((at + turn) % places.len()).take(CHANCES) {
            if survives(&fault, *scenario, *setting)? {
                return Ok(());
            }
        }
        Err(format!("{}: was not reached", fault.0))
    });
}

/// In how many places a point is looked for before it counts as not reached.
const CHANCES: usize = 3;

#[test]
fn after_a_death_at_any_point_the_next_command_shows_the_truth() {
    if is_built("after_a_death_at_any_point_the_next_command_shows_the_truth") {
        in_turn(3, faults::points().into_iter(), "kill");
    }
}

/// The process that watches the keeper dies with it: all that is left is what was on disk at that point.
#[test]
fn after_the_death_of_both_keepers_the_next_command_finishes_from_the_record() {
    if is_built("after_the_death_of_both_keepers_the_next_command_finishes_from_the_record") {
        let keepers = faults::points().into_iter().filter(|point| point.starts_with("keeper."));
        in_turn(3, keepers, "kill,standby.keeper_missed:kill,front.keeper_missed:kill");
    }
}

/// It was made before there was a record, so no sweep dared to touch it while it was new.
#[test]
fn a_cgroup_that_was_made_just_before_front_and_keeper_died_is_put_away_at_once() {
    if is_built("a_cgroup_that_was_made_just_before_front_and_keeper_died_is_put_away_at_once") {
        let fault = Fault("keeper.cgroup_made:kill,front.keeper_missed:kill".into());
        let settings = Setting::all().into_iter().filter(|setting| setting.contain == Contain::Cgroup);
        all_hold(2, &settings.collect::<Vec<_>>(), |&setting| hits(&fault, Run, setting));
    }
}

/// It was asked, and had not told its standby: the stop took its whole time, and failed.
#[test]
fn a_keeper_that_was_stopped_when_it_had_just_heard_of_a_stop_is_roused() {
    if is_built("a_keeper_that_was_stopped_when_it_had_just_heard_of_a_stop_is_roused") {
        let fault = Fault("keeper.stop_heard:stop".into());
        all_hold(6, &Setting::all(), |&setting| hits(&fault, Stop, setting));
    }
}

/// A start would have waited for its whole minute.
#[test]
fn a_keeper_that_was_stopped_while_it_began_is_roused() {
    if is_built("a_keeper_that_was_stopped_while_it_began_is_roused") {
        let faults = ["keeper_begun", "identity_recorded", "running_published"];
        all_hold(3, &faults, |step| {
            let setting = Setting::all()[0];
            hits(&Fault(format!("keeper.{step}:stop")), Own, setting)
        });
    }
}

#[test]
fn a_keeper_that_stands_still_at_any_point_is_roused() {
    if is_built("a_keeper_that_stands_still_at_any_point_is_roused") {
        let keepers = faults::points().into_iter().filter(|point| point.starts_with("keeper."));
        in_turn(6, keepers.step_by(5), "stop");
    }
}
