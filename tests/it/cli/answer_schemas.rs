//! What programs read is as published: every verb's answers fit its schema in docs/schema.
//!
//! A new verb is one line in `quell::schema::ALL` and one in [`real_answers`].

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use jsonschema::Validator;
use quell::schema::{ALL, Published};
use quell_tests::{
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};
use serde_json::Value;

use crate::{
    cli::completions_man::verbs,
    guard::decisions::Stranger,
    guard::service_edges::{can_pretend, pretend, runs},
};

/// The verbs that print JSON and have no schema yet.
const MISSING: &[&str] = &[];

fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/schema/{name}.json"))
}

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(published(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("docs/schema/{name}.json: {error}"))
}

fn fits(validator: &Validator, what: &str, value: &Value) {
    let errors: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}\n{value:#}");
}

fn all() -> impl Iterator<Item = &'static Published> {
    ALL.iter().chain([&quell_serve::SCHEMA, &quell_setup::SCHEMA, &quell_test::SCHEMA])
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    for (name, make) in all() {
        let made = make();
        if env::var_os("QUELL_BLESS").is_some() {
            fs::write(published(name), &made).expect("docs/schema");
        }
        let stored = fs::read_to_string(published(name)).unwrap_or_default();
        assert!(stored == made, "docs/schema/{name}.json is not up to date: run this with QUELL_BLESS=1");
    }
}

#[test]
fn every_verb_that_prints_json_has_a_schema() {
    let env = TestEnv::as_me();
    let known: BTreeSet<&str> = all().map(|(name, _)| *name).collect();
    for verb in verbs(&env) {
        // The one below `config` prints it.
        let words: &[&str] = if verb == "config" { &["show", "--help"] } else { &["--help"] };
        let prints_json = env.quell(&verb).args(words).finish().stdout.contains("--json");
        // It prints what `list` prints.
        let verb = if verb == "top" { "list".into() } else { verb };
        if prints_json {
            let (has, misses) = (known.contains(verb.as_str()), MISSING.contains(&verb.as_str()));
            assert!(has != misses, "{verb}: published: {has}, in MISSING: {misses}");
        }
    }
}

/// The envelopes on stdout.
fn envelopes(done: &Finished) -> Vec<Value> {
    let parse = |line: &str| {
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{error}: {line:?}; stderr: {}", done.stderr))
    };
    done.stdout.lines().map(parse).collect()
}

/// Of a systemctl of the test's own: there may be no systemd here.
fn service_answers(env: &TestEnv) -> Vec<Value> {
    let wrapper = pretend(env, &runs(), "echo said; exit 0");
    let policy = env.write("service.toml", "[guard.service]\nallow = [\"web\"]\n");
    let verbs = ["start", "stop", "status"].into_iter();
    verbs
        .flat_map(|verb| {
            let quell = env.quell("service").wrapped(&wrapper).env("QUELL_CONFIG", &policy);
            envelopes(&quell.args(["--json", verb, "web"]).finish())
        })
        .collect()
}

/// What is done to a process that quell didn't start, what the guard says of it, and what the log has of both.
fn host_answers(env: &TestEnv) -> Vec<(&'static str, Vec<Value>)> {
    let policy = env.write("kill.toml", "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    let stranger = Stranger::asleep(env);
    let say = |verb: &str, words: &[&str]| {
        envelopes(&env.quell(verb).env("QUELL_CONFIG", &policy).args(words).args(["--json"]).finish())
    };
    let mut all = vec![
        ("guard", say("guard", &["check", "kill", &stranger.pid()])),
        ("guard", say("guard", &["check", "verb", "nonsense"])),
        ("error", say("kill", &["1"])),
        ("kill", say("kill", &[&stranger.pid(), "--reason", "enough"])),
    ];
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        serde_json::json!({ "schema": "quell/1", "ok": true, "data": line })
    };
    all.push(("audit", log.lines().map(line).collect()));
    all
}

/// Of a server that runs.
fn serve_answers(env: &TestEnv) -> Vec<Value> {
    let _server = crate::serve::client::Server::start(env, &[]);
    let say = |option: &str| envelopes(&env.quell("serve").args([option, "--json"]).finish());
    [say("--status"), say("--url")].concat()
}

/// Real answers: with which schema, and what was printed.
fn real_answers(env: &TestEnv) -> Vec<(&'static str, Vec<Value>)> {
    let nap = env.oracle.nap();
    let say = |verb: &str, words: &[&str]| envelopes(&env.quell(verb).args(["--json"]).args(words).finish());
    let full =
        ["--name", "full", "--tag", "a=b", "--owner", "session:s", "--ready-log", "up", "--ready-port", "1"];
    let more = [
        "--restart",
        "on-failure",
        "--ttl",
        "1h",
        "--timeout",
        "1h",
        "--stdin",
        "pipe",
        "--on-owner-exit",
        "keep",
    ];
    let live = env.start().args(full).args(more).command(["sleep", &nap]).begin();
    let ended = env.start().args(["--owner", "self"]).sh("echo x; exit 3").begin();
    let lost = env.start().args(["--contain", "reaper"]).command(["sleep", &nap]).begin();
    lost.lose();
    assert!(ended.wait_over(PATIENCE));
    let started =
        env.start().args(["--json", "--ready-log", "up", "--wait-ready", "20s"]).sh("echo up; sleep 1");
    let flooded =
        env.start().args(["--max-log", "4K"]).sh("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done");
    let flooded = flooded.begin();
    assert!(flooded.wait_over(PATIENCE));
    let spare = env.start().sh("exit 1").begin();
    assert!(spare.wait_over(PATIENCE));
    let left = env.run().args(["--json", "-q", "--leak", "keep"]).env("N", &nap);
    let left = left.sh("sleep $N >/dev/null 2>&1 & exit 0");
    let mut all = vec![
        ("start", envelopes(&started.finish())),
        ("start", envelopes(&env.start().args(["--json"]).command(["true"]).finish())),
        ("error", say("start", &["--name", "full", "--", "true"])),
        ("error", say("list", &["--nope"])),
        ("error", say("list", &["--state", "nope"])),
        ("error", say("status", &["nobody", ".."])),
        ("run", vec![left.finish().envelope()]),
        ("sweep", say("sweep", &["--dry-run"])),
        ("sweep", say("sweep", &[])),
        ("list", say("list", &[])),
        ("list", say("list", &["--limit", "1", "--state", "ended"])),
        ("status", say("status", &[&live.id, &ended.id, &lost.id])),
        ("tree", say("tree", &[&live.id, &ended.id, &lost.id])),
        ("logs", say("logs", &[&ended.id])),
        ("logs", say("logs", &[&ended.id, "--follow"])),
        ("logs", say("logs", &[&flooded.id, "--budget", "100"])),
        ("logs", say("logs", &[&flooded.id, "--follow"])),
        ("events", say("events", &[&ended.id, &live.id])),
        ("send", say("send", &[&live.id, "hello"])),
        ("signal", say("signal", &[&live.id, "CONT"])),
        ("wait", say("wait", &[&ended.id])),
        ("wait", say("wait", &[&live.id, &ended.id, "--any", "--timeout", "1s"])),
        ("restart", say("restart", &[&ended.id])),
        ("stop", say("stop", &[&live.id, "--reason", "enough"])),
        ("stop", say("stop", &[&live.id, &lost.id])),
        ("error", say("rm", &["nobody"])),
        ("rm", say("rm", &[&ended.id, &live.id])),
        ("stats", say("stats", &[])),
        ("stats", say("stats", &["--tag", "nobody=has"])),
        ("gc", say("gc", &["--max-count", "1"])),
        ("test", say("test", &["--timeout", "1h", "--", "sh", "-c", "echo x; exit 1"])),
        ("setup", say("setup", &["claude", "--yes"])),
        ("setup", say("setup", &["claude", "--check"])),
        ("setup", say("setup", &["claude", "--print"])),
        ("doctor", say("doctor", &[])),
        ("config", envelopes(&env.quell("config").args(["show", "--json"]).finish())),
        ("serve", serve_answers(env)),
    ];
    all.extend(host_answers(env));
    if can_pretend("real_answers_fit_their_schemas (service)") {
        all.push(("service", service_answers(env)));
    }
    all
}

#[test]
fn real_answers_fit_their_schemas() {
    let env = TestEnv::as_me();
    env.write("quell.toml", "[stop]\ngrace = \"1s\"\n[[hooks]]\non = [\"ended\"]\nappend = \"x\"\n");
    let mut seen = BTreeSet::new();
    for (name, envelopes) in real_answers(&env) {
        let schema = schema(name);
        let validator = jsonschema::validator_for(&schema).expect("the schema is one");
        assert!(!envelopes.is_empty(), "{name} said nothing");
        for envelope in &envelopes {
            let good = name != "error";
            assert_eq!(
                (&envelope["schema"], &envelope["ok"]),
                (&"quell/1".into(), &good.into()),
                "{envelope:#}"
            );
            let whole = if good { &envelope["data"] } else { envelope };
            fits(&validator, name, whole);
            for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let mut less = whole.clone();
                less.as_object_mut().expect("an object").remove(field);
                assert!(!validator.is_valid(&less), "{name} fits without {field}");
            }
        }
        seen.insert(name);
    }
    let untried: Vec<&str> = all().map(|(name, _)| *name).filter(|name| !seen.contains(name)).collect();
    assert!(untried.is_empty() || untried == ["service"], "every schema is tried, not {untried:?}");
}

#[test]
fn the_published_interface_is_that_of_the_routes() {
    let (path, made) = (published("openapi"), quell_serve::openapi::document());
    if env::var_os("QUELL_BLESS").is_some() {
        fs::write(&path, &made).expect("docs/schema");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == made, "docs/schema/openapi.json is not up to date: run this with QUELL_BLESS=1");
}
