//! The checker: when the storm is over, what quell says is held against what the processes did and what the clients were
//! told. It reads `/proc`, the workers' journals and quell's published files, and shares no code with quell.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use quell_tests::{
    evidence::cgroups_of,
    host::Contain,
    run::{Finished, PATIENCE},
};
use serde_json::Value;

use crate::{
    ledger::{Harm, Job},
    scenario::{FaultClass, Scenario, is_foreign},
    worker_journal::WorkerJournal,
};

/// Ends everything as a user would, and checks every promise.
pub fn check(scenario: &mut Scenario) {
    scenario.check_bystanders();
    stop_all(scenario);
    scenario.end_foreign();
    nothing_is_left(scenario);
    let known = scenario.ledger.jobs().clone();
    for id in scenario.env.ids("jobs").iter().filter(|id| !id.starts_with('.')) {
        // A job whose id was never printed: its starter was killed, or got an error.
        let mut facts = known.get(id).cloned().unwrap_or_default();
        if !facts.told {
            facts.harms.insert(Harm::Start);
        }
        one_job(scenario, id, &facts);
    }
    for (id, facts) in known.iter().filter(|(_, job)| job.told && !job.removed) {
        // A job of another boot, or whose keeper could not open a file to write its end, has no age but that of the clock,
        // which may have been set to another decade.
        let aged = scenario.fault_class == FaultClass::Host && facts.suffered(&[Harm::Reboot, Harm::Files]);
        // If it ended before its keeper could make its files again, nothing is left of them.
        let deleted = facts.suffered(&[Harm::Deleted]);
        if !scenario.env.job(id).dir().exists() && !aged && !deleted {
            scenario.violation("P6", format!("{id}, of which a client was told, is nowhere: {facts:?}"));
        }
    }
    everything_can_be_removed(scenario);
    scenario.check_bystanders();
}

fn stop_all(scenario: &Scenario) {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let Some(stop) = scenario.ask("stop", &["--all", "--grace", "300ms", "--json"]) else { return };
        let Some(sweep) = scenario.ask("sweep", &["--json"]) else { return };
        let live: Vec<String> =
            scenario.env.ids("live").into_iter().filter(|id| !id.starts_with('.')).collect();
        let all = |done: &Finished, codes: &[i32]| done.code().is_some_and(|code| codes.contains(&code));
        if live.is_empty() && all(&stop, &[0, 3, 5]) && all(&sweep, &[0, 5]) {
            return;
        }
        if Instant::now() > deadline {
            let facts: Vec<_> = live.iter().map(|id| (id, scenario.ledger.get(id))).collect();
            let said = format!("{} {} {} {}", stop.stdout, stop.stderr, sweep.stdout, sweep.stderr);
            return scenario.violation(
                "P6",
                format!(
                    "not over after all: {live:?}; stop {:?}, sweep {:?}: {said}; {facts:?}",
                    stop.code(),
                    sweep.code()
                ),
            );
        }
        // A process that was killed a moment ago holds its lock until it has exited. No event tells of that.
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn nothing_is_left(scenario: &Scenario) {
    let left = scenario.env.oracle.survivors_after(Duration::from_secs(8));
    for process in &left {
        // After a loss some processes can't be found or must be left alone: without a marker, as the record was deleted, or in
        // a cgroup to which another process has moved them. Their job must not be said to be gone.
        let facts = job_of(process.pid).map(|id| (scenario.ledger.get(&id), id));
        if facts.as_ref().is_some_and(|(facts, id)| is_loose(scenario, facts) && !is_said_gone(scenario, id))
        {
            process.signal("KILL");
            continue;
        }
        let doing = what_it_does(process.pid);
        scenario.violation("P2", format!("alive in the end: {process:?}, of {facts:?}, {doing}"));
    }
    // A keeper that was killed at its last step, after the job was over and swept, has left its own cgroup.
    if scenario.ask("sweep", &["--json"]).is_none() {
        return;
    }
    let cgroups = || {
        let ids = scenario.ledger.jobs().keys().cloned().collect::<Vec<_>>();
        let mut all: Vec<_> = ids.iter().flat_map(|id| cgroups_of(id)).collect();
        all.extend(scenario.env.made_cgroups());
        // One without a record may belong to another home: it is put away when it has been empty for a minute.
        let on_record = |dir: &PathBuf| {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let id = name.trim_start_matches("quell-").to_owned();
            scenario.env.job(&id).dir().exists()
        };
        all.retain(|dir| on_record(dir) || is_populated(dir));
        all
    };
    quell_tests::eventually(Duration::from_secs(5), || cgroups().is_empty());
    for cgroup in cgroups() {
        scenario.violation("nothing left", format!("a cgroup is left: {}", cgroup.display()));
    }
}

/// Whether processes of a job may outlive its stop.
fn is_loose(scenario: &Scenario, facts: &Job) -> bool {
    let unmarked = facts.suffered(&[Harm::Deleted]) && scenario.setting.contain == Contain::Reaper;
    facts.lost() && (unmarked || facts.suffered(&[Harm::Cgroup]))
}

fn is_said_gone(scenario: &Scenario, id: &str) -> bool {
    scenario.env.job(id).record().is_some_and(|record| record["last"]["verdict"]["kind"] == "gone")
}

/// Of which job a process is.
fn job_of(pid: u32) -> Option<String> {
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
    environment.split('\0').find_map(|word| word.strip_prefix("QUELL_JOB=")).map(str::to_owned)
}

/// What may tell why a process has not ended: whether it runs, where it waits, what it has open.
fn what_it_does(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = read("status");
    let keep = |line: &&str| ["State", "PPid", "Sig", "Shd"].iter().any(|word| line.starts_with(word));
    let status: Vec<&str> = status.lines().filter(keep).collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let open: Vec<String> = open
        .map(|entry| {
            let what = fs::read_link(entry.path()).unwrap_or_default();
            format!("{}={}", entry.file_name().display(), what.display())
        })
        .collect();
    format!(
        "{status:?} at {:?}, call {:?}, {}; open: {open:?}",
        read("wchan"),
        read("syscall"),
        read("stack")
    )
}

fn is_populated(dir: &Path) -> bool {
    fs::read_to_string(dir.join("cgroup.events")).is_ok_and(|events| events.contains("populated 1"))
}

fn one_job(scenario: &Scenario, id: &str, facts: &Job) {
    if facts.suffered(&[Harm::Damaged, Harm::Closed, Harm::Deleted, Harm::Forged]) {
        // What was damaged or forged can't be believed, and what was deleted is not all made again; that it is over was checked.
        return;
    }
    let job = scenario.env.job(id);
    let Some(record) = job.record() else {
        // One that never ran is removed, file by file.
        let leaves = || quell_tests::eventually(Duration::from_secs(5), || !job.dir().exists());
        if !facts.removed && scenario.fault_class != FaultClass::Disk && (facts.told || !leaves()) {
            scenario.violation("P6", format!("{id} has no record: {facts:?}"));
        }
        return;
    };
    let journals = WorkerJournal::of_job(&scenario.journals, id);
    let what = || format!("{id}: {facts:?} {record} {journals:?}");
    if record["state"] != "ended" {
        return scenario.violation("P6", format!("not ended: {}", what()));
    }
    cause(scenario, facts, &record, &what);
    verdict(scenario, facts, &record, &what);
    outcome(scenario, facts, &record, &journals, &what);
    signals(scenario, facts, &journals, &what);
    for journal in &journals {
        if let Some(other) = journal.met {
            scenario
                .violation("P6", format!("two generations at once, the other was pid {other}: {}", what()));
        }
    }
    output(scenario, id, facts, &journals, &what);
}

fn cause(scenario: &Scenario, facts: &Job, record: &Value, what: &dyn Fn() -> String) {
    let cause = record["last"]["ending"]["cause"].as_str().unwrap_or_default();
    let fine = match cause {
        "own_exit" => {
            facts.work.exit.is_some() || facts.terms > 0 || facts.suffered(&[Harm::Start]) || facts.stops > 0
        }
        "user" => facts.stops > 0 || facts.suffered(&[Harm::Start]) || facts.told,
        "user_signal" => facts.terms + facts.others > 0,
        "timeout" => facts.timed || facts.suffered(&[Harm::Start]),
        "external_signal" => {
            facts.suffered(&[Harm::Root, Harm::Start, Harm::Reboot]) || facts.terms + facts.others > 0
        }
        "keeper_lost" => {
            facts.suffered(&[Harm::Keeper, Harm::Both, Harm::Stopped, Harm::Files, Harm::Start, Harm::Reboot])
                || facts.harms.contains(&Harm::Standby)
                || scenario.fault_class == FaultClass::Disk
        }
        "front_lost" => facts.suffered(&[Harm::Standby, Harm::Both, Harm::Start]),
        "owner_gone" => facts.suffered(&[Harm::Owner, Harm::Start]),
        "host_reboot" => facts.suffered(&[Harm::Reboot]),
        "start_failed" => facts.again || facts.suffered(&[Harm::Start]),
        _ => false,
    };
    if !fine {
        scenario.violation("P9", format!("the cause can't be {cause:?}: {}", what()));
    }
}

fn verdict(scenario: &Scenario, facts: &Job, record: &Value, what: &dyn Fn() -> String) {
    let verdict = record["last"]["verdict"]["kind"].as_str().unwrap_or_default();
    let fine = match verdict {
        "gone" => true,
        // Without a keeper the end is proven only if no other process can be the job's.
        "unproven" => {
            facts.lost()
                || facts.suffered(&[Harm::Keeper, Harm::Standby, Harm::Stopped, Harm::Files])
                || is_foreign(&record["last"]["verdict"].to_string())
        }
        _ => false,
    };
    if !fine {
        scenario.violation("P5", format!("the verdict can't be {verdict:?}: {}", what()));
    }
}

fn outcome(
    scenario: &Scenario,
    facts: &Job,
    record: &Value,
    journals: &[WorkerJournal],
    what: &dyn Fn() -> String,
) {
    let outcome = &record["last"]["outcome"];
    let last = journals.last().copied();
    let left = last.and_then(|journal| journal.leaving);
    let kind = outcome["kind"].as_str().unwrap_or_default();
    let fine = match kind {
        // A code that the program never gave is an invention.
        "exited" => left == outcome["code"].as_i64(),
        "signaled" => {
            // A program that nothing touched was not killed.
            let touched =
                facts.stops + facts.terms + facts.others > 0 || facts.timed || !facts.harms.is_empty();
            touched || left.is_none()
        }
        "not_started" => facts.again || facts.suffered(&[Harm::Start]) || journals.is_empty(),
        "unknown" | "" => facts.lost() || facts.suffered(&[Harm::Keeper, Harm::Stopped, Harm::Files]),
        _ => false,
    };
    if !fine {
        scenario.violation("P5", format!("the outcome can't be {outcome}: {}", what()));
    }
    let undisturbed = facts.harms.is_empty() && facts.stops + facts.terms + facts.others == 0 && !facts.timed;
    if undisturbed
        && facts.work.exit.is_some()
        && scenario.fault_class != FaultClass::Disk
        && record["last"]["ending"]["cause"] != "user"
    {
        let code = facts.work.exit.map(i64::from);
        if kind != "exited" || outcome["code"].as_i64() != code {
            scenario.violation("P6", format!("the exit code {code:?} is lost: {}", what()));
        }
    }
}

/// One polite request at most, and no signal that no client sent.
fn signals(scenario: &Scenario, facts: &Job, journals: &[WorkerJournal], what: &dyn Fn() -> String) {
    for journal in journals {
        let most = 1 + facts.terms as u64;
        if journal.terms > most && facts.harms.is_empty() {
            scenario.violation("P4", format!("asked {} times: {}", journal.terms, what()));
        }
        if journal.others > facts.others as u64 {
            scenario.violation("P3", format!("signals that no client sent: {}", what()));
        }
    }
}

/// Every line that was written is there once, in its order.
fn output(scenario: &Scenario, id: &str, facts: &Job, journals: &[WorkerJournal], what: &dyn Fn() -> String) {
    if facts.tag.is_empty() || scenario.fault_class == FaultClass::Disk || facts.suffered(&[Harm::Files]) {
        return;
    }
    let job = scenario.env.job(id);
    for (stream, letter) in [("stdout", 'o'), ("stderr", 'e')] {
        let text = job.output(stream);
        let mut runs: Vec<u64> = Vec::new();
        for line in text.lines() {
            let number = line.strip_prefix(&format!("{} {letter} ", facts.tag));
            let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
                return scenario
                    .violation("P7", format!("a line that no worker wrote, {line:?}: {}", what()));
            };
            match runs.last_mut() {
                Some(last) if number == *last + 1 => *last = number,
                _ if number == 1 => runs.push(1),
                last => {
                    return scenario
                        .violation("P7", format!("{stream}: {number} after {last:?}: {}", what()));
                }
            }
        }
        let written: Vec<u64> = journals
            .iter()
            .map(|journal| if letter == 'o' { journal.out } else { journal.err })
            .filter(|lines| *lines > 0)
            .collect();
        if facts.lost() {
            continue;
        }
        // A line may have been taken by the pipe before the worker could count it.
        let fits = |run: &u64, wrote: &u64| run == wrote || *run == wrote + 1;
        let runs: Vec<u64> = match runs.len().checked_sub(written.len()) {
            // Killed between its first line and its first count.
            Some(1) => runs.into_iter().filter(|run| *run > 1).collect(),
            _ => runs,
        };
        if runs.len() != written.len() || !runs.iter().zip(&written).all(|(run, wrote)| fits(run, wrote)) {
            let found = format!("{stream}: written {written:?}, kept {runs:?}");
            scenario.violation("P7", format!("{found}: {}", what()));
        }
    }
}

fn everything_can_be_removed(scenario: &Scenario) {
    let ids: Vec<String> = scenario.env.ids("jobs").into_iter().filter(|id| !id.starts_with('.')).collect();
    if !ids.is_empty() {
        let mut said = BTreeMap::new();
        for chunk in ids.chunks(50) {
            let words: Vec<&str> =
                ["--json", "--force"].into_iter().chain(chunk.iter().map(String::as_str)).collect();
            let Some(done) = scenario.ask("rm", &words) else { return };
            said.insert(done.code(), done.stdout + &done.stderr);
        }
        let damaged = |id: &String| scenario.ledger.get(id).suffered(&[Harm::Damaged, Harm::Closed]);
        let left: Vec<String> = scenario
            .env
            .ids("jobs")
            .into_iter()
            .filter(|id| !id.starts_with('.') && !damaged(id) && scenario.fault_class != FaultClass::Disk)
            .collect();
        if !left.is_empty() {
            scenario.violation("P6", format!("can't be removed: {left:?}: {said:?}"));
        }
    }
    for name in ["web", "db"] {
        let Some(again) = scenario.ask("start", &["--name", name, "--", "sleep", "30"]) else { return };
        let Some(stop) = scenario.ask("stop", &[name, "--now"]) else { return };
        let stopped = stop.code() == Some(0) || stop.code() == Some(5) && is_foreign(&stop.stdout);
        if again.code() != Some(0) || !stopped {
            let said = |reply: &Finished| format!("{:?} {} {}", reply.code(), reply.stdout, reply.stderr);
            scenario.violation("P6", format!("the name {name} is lost: {}; {}", said(&again), said(&stop)));
        }
    }
    if !scenario.env.oracle.survivors_after(PATIENCE).is_empty() {
        scenario.violation("P2", "the last jobs left something behind");
    }
}
