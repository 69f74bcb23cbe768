//! What programs read has one shape: durations, the answer of a stop, the line of a run.

use std::fs::{self, OpenOptions};

use quell_tests::{
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};
use serde_json::{Value, json};

/// Every number or object under a name that means a duration.
fn durations(value: &Value, name: &str, found: &mut Vec<(String, Value)>) {
    const NAMES: [&str; 10] =
        ["grace", "delay", "max_delay", "timeout", "ttl", "took", "after", "duration", "asked", "used"];
    if NAMES.contains(&name) && !value.is_null() {
        found.push((name.to_owned(), value.clone()));
    }
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| durations(value, name, found)),
        Value::Array(all) => all.iter().for_each(|value| durations(value, "", found)),
        _ => {}
    }
}

fn envelopes(done: &Finished) -> Vec<Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

#[test]
fn every_duration_is_seconds_as_a_number() {
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args([
            "--restart",
            "on-failure",
            "--restart-limit",
            "1",
            "--timeout",
            "90s",
            "--ttl",
            "1h",
            "--grace",
            "1500ms",
        ])
        .env("QUELL_START_RESTART_DELAY", "10ms")
        .script("[ -e again ] || { touch again; exit 1; }; echo ready >$QUELL_TEST_READY; exec sleep $N")
        .begin();
    let id = job.id.as_str();
    let before = env.quell("status").args([id, "--json"]).finish().envelope();
    assert_eq!(before["data"]["restart_rules"]["delay"], json!(0.01), "{before:#}");
    assert_eq!(before["data"]["restart_rules"]["max_delay"], json!(60.0));
    assert_eq!(before["data"]["ttl"], json!(3600.0));
    let mut all = vec![before, env.quell("stop").args([id, "--json"]).finish().envelope()];
    for (verb, words) in [("events", vec![id]), ("list", vec![]), ("stats", vec![]), ("status", vec![id])] {
        all.extend(envelopes(&env.quell(verb).args(words).args(["--json"]).finish()));
    }
    let mut found = Vec::new();
    all.iter().for_each(|envelope| durations(&envelope["data"], "", &mut found));
    // The grace of a receipt and a spread of statistics have the numbers inside.
    let bad: Vec<_> =
        found.iter().filter(|(_, value)| !value.is_number() && value.get("secs").is_some()).collect();
    assert!(bad.is_empty(), "{bad:?}");
    let asked = all.iter().find(|envelope| envelope["data"]["event"] == "asked").expect("it was asked");
    assert_eq!(asked["data"]["grace"], json!(1.5), "{asked:#}");
    let again = all.iter().find(|envelope| envelope["data"]["event"] == "restarting").expect("a restart");
    assert_eq!(again["data"]["delay"], json!(0.01), "{again:#}");

    let config =
        env.quell("config").args(["show", "--json"]).env("QUELL_STOP_GRACE", "1m30s").finish().envelope();
    let values = config["data"]["values"].as_array().expect("settings").clone();
    let value = |key: &str| {
        values.iter().find(|setting| setting["key"] == key).map(|setting| setting["value"].clone())
    };
    assert_eq!(value("stop.grace"), Some(json!(90.0)));
    assert_eq!(value("gc.max_age"), Some(json!(2_592_000.0)));
    assert_eq!(value("start.restart_limit"), Some(json!("10")), "a count is not a duration");
    assert_eq!(value("start.max_log"), Some(json!("64M")));
}

#[test]
fn a_stop_is_one_answer_for_none_one_and_several() {
    let env = TestEnv::as_me();
    let stop = |words: &[&str]| env.quell("stop").args(words).args(["--json"]).finish();
    for words in [&["--all"][..], &["--tag", "no=such"], &["--session", "none"]] {
        let done = stop(words);
        assert_eq!((done.code(), envelopes(&done).len()), (Some(0), 1), "{}", done.stdout);
        assert_eq!(done.envelope()["data"], json!({ "jobs": [], "failed": [] }));
    }
    let start = || env.start().command(["sleep", &env.oracle.nap()]).begin();
    let jobs = [start(), start(), start()];
    let one = stop(&[&jobs[0].id]);
    assert_eq!(one.envelope()["data"]["jobs"][0]["id"], jobs[0].id.as_str());
    let all = stop(&[&jobs[0].id, &jobs[1].id, "nobody", &jobs[2].id]);
    assert_eq!((all.code(), envelopes(&all).len()), (Some(3), 1), "{}", all.stdout);
    let data = &all.envelope()["data"];
    let ids: Vec<&str> =
        data["jobs"].as_array().expect("jobs").iter().filter_map(|job| job["id"].as_str()).collect();
    assert_eq!(ids, jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>());
    assert_eq!(
        (&data["jobs"][0]["already_ended"], &data["jobs"][1]["already_ended"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(data["failed"][0]["code"], "job_not_found", "{data:#}");
    for words in [&["nobody"][..], &["nobody", "no-one"]] {
        let done = stop(words);
        assert_eq!((done.code(), envelopes(&done).len()), (Some(3), 1), "{}", done.stdout);
        assert_eq!(
            (&done.envelope()["ok"], &done.envelope()["error"]["code"]),
            (&json!(false), &json!("job_not_found"))
        );
    }
}

#[test]
fn the_receipts_of_several_jobs_name_their_job() {
    let env = TestEnv::as_me();
    let start = |name: &str| env.start().args(["--name", name]).command(["sleep", &env.oracle.nap()]).begin();
    let jobs = [start("web"), start("worker")];
    let done = env.quell("stop").args(["--all"]).finish();
    for (job, name) in jobs.iter().zip(["web", "worker"]) {
        let line = format!("quell: {} ({name}): stopped: 1 process", job.id);
        assert!(done.stdout.contains(&line), "no {line:?} in {}", done.stdout);
    }
    let job = start("alone");
    assert!(job.stop(&[]).stdout.starts_with("quell: stopped: "));
}

#[test]
fn the_answer_of_a_run_begins_a_line_and_leaves_no_empty_one() {
    let env = TestEnv::as_me();
    let is_answer =
        |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|value| value["type"] == "run");
    for (script, said) in [("true", ""), ("echo a", "a\n"), ("printf a", "a\n")] {
        // The last byte in a pipe can't be seen: there may be an empty line.
        let done = env.run().args(["--json"]).sh(script).finish();
        let answer = done.stdout.lines().last().unwrap_or_default();
        assert!(is_answer(answer), "{script}: {:?}", done.stdout);
        let before = done.stdout.strip_suffix(&format!("{answer}\n")).expect("a whole line");
        assert!(before == said || before == format!("{said}\n"), "{script}: {before:?}");

        for append in [false, true] {
            let path = env.fresh("stdout");
            fs::write(&path, "").expect("a file");
            let file = OpenOptions::new().write(true).append(append).open(&path).expect("a file");
            env.run().args(["--json"]).sh(script).stdout(file).finish();
            let text = fs::read_to_string(&path).expect("what was written");
            let answer = text.lines().last().unwrap_or_default();
            assert!(is_answer(answer), "{script}: {text:?}");
            assert_eq!(text.strip_suffix(&format!("{answer}\n")), Some(said), "{script}, append {append}");
        }
    }
    let path = env.write("log", "what was there");
    let file = OpenOptions::new().append(true).open(&path).expect("a file");
    env.run().args(["--json"]).command(["true"]).stdout(file).finish();
    let text = fs::read_to_string(&path).expect("what was written");
    assert!(text.starts_with("what was there\n{"), "{text:?}");
    assert!(env.oracle.survivors_after(PATIENCE).is_empty());
}
