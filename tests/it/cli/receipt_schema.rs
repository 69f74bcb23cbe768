//! The published schema says what receipts are: real ones fit it, and others don't.

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use jsonschema::Validator;
use quell_tests::{
    evidence::receipt,
    host::{Contain, Setting},
    run::{PATIENCE, Quell, Running},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema/receipt.json")
}

fn schema() -> Value {
    receipt(&published()).expect("the schema is published")
}

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).expect("the schema is one")
}

fn fits(validator: &Validator, what: &str, receipt: &Value) {
    let errors: Vec<String> =
        validator.iter_errors(receipt).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}\n{receipt:#}");
}

/// Runs to the end, with what `act` does on the way, and gives the receipt.
fn receipt_of<'l>(
    env: &'l TestEnv,
    line: impl FnOnce(Quell<'l>) -> Quell<'l>,
    act: impl FnOnce(&mut Running),
) -> Value {
    let file = env.fresh("receipt");
    let mut running = line(env.run().args(["--receipt"]).args([&file])).start();
    act(&mut running);
    let status = running.wait_exit(PATIENCE).expect("quell returns");
    receipt(&file).unwrap_or_else(|why| panic!("{status}, {}: {why}", running.stderr()))
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    let made = quell_core::schema::receipt();
    if env::var_os("QUELL_BLESS").is_some() {
        fs::write(published(), &made).expect("docs/schema/receipt.json");
    }
    let stored = fs::read_to_string(published()).unwrap_or_default();
    assert!(stored == made, "docs/schema/receipt.json is not up to date: run this with QUELL_BLESS=1");
}

#[test]
fn real_receipts_fit_the_schema() {
    let validator = validator();
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let held = ["--contain", setting.contain.as_str()];
        let cases = [
            ("a clean exit", receipt_of(&env, |q| q.args(held).command(["true"]), |_| {})),
            (
                "a timeout with escalation",
                receipt_of(
                    &env,
                    |q| {
                        q.args(held)
                            .args(["--timeout", "200ms", "--grace", "50ms"])
                            .actor("ignore-term", None)
                    },
                    |_| {},
                ),
            ),
            (
                "a leak, with name and tag",
                receipt_of(
                    &env,
                    |q| q.args(held).args(["--name", "web", "--tag", "a=b"]).actor("daemon-exit", None),
                    |_| {},
                ),
            ),
            (
                "a lost keeper",
                receipt_of(
                    &env,
                    |q| q.args(held).actor("setsid", None),
                    |running| {
                        running.wait_ready().expect("ready");
                        assert!(running.keeper().is_some_and(|keeper| keeper.signal("KILL")), "no keeper");
                    },
                ),
            ),
        ];
        for (what, receipt) in &cases {
            fits(&validator, &format!("{what} under {setting}"), receipt);
        }
    }
}

#[test]
fn the_receipt_of_a_start_that_was_stopped_fits_the_schema() {
    let validator = validator();
    let env = TestEnv::as_me();
    let mut kinds = Vec::new();
    for round in 0..200 {
        let file = env.fresh("receipt");
        let quell = env.run().args(["--contain", Contain::Reaper.as_str(), "--receipt"]).args([&file]);
        let mut running = quell.command(["sleep", &env.oracle.nap()]).start();
        // Any instant of the start will do.
        thread::sleep(Duration::from_micros(round * 20));
        running.front.signal("TERM");
        running.wait_exit(PATIENCE).expect("quell returns");
        // A front that was hit before it could listen has written nothing.
        if let Ok(receipt) = receipt(&file) {
            fits(&validator, &format!("round {round}"), &receipt);
            kinds.push(receipt["root"]["outcome"]["kind"].clone());
            if kinds.contains(&json!("not_started")) {
                return;
            }
        }
    }
    skip("the_receipt_of_a_start_that_was_stopped_fits_the_schema", "no start was slow enough to be stopped");
}

#[test]
fn the_envelope_of_run_holds_a_receipt() {
    let env = TestEnv::as_me();
    let done = env.run().args(["--json"]).sh("echo said; exit 3").finish();
    let envelope = done.envelope();
    assert_eq!(envelope["ok"], true, "{envelope:#}");
    fits(&validator(), "--json", &envelope["data"]);
}

#[test]
fn a_receipt_with_a_field_removed_or_mistyped_does_not_fit() {
    let (schema, validator, env) = (schema(), validator(), TestEnv::as_me());
    let options = ["--timeout", "200ms", "--grace", "50ms"];
    let whole = receipt_of(&env, |q| q.args(options).actor("ignore-term", None), |_| {});
    fits(&validator, "the whole receipt", &whole);
    let required: Vec<&str> =
        schema["required"].as_array().expect("required").iter().filter_map(Value::as_str).collect();
    for name in ["schema", "job", "held", "cause", "root", "members", "steps", "survivors", "verdict"] {
        assert!(required.contains(&name), "{name} is not required");
    }
    for name in required {
        let mut less = whole.clone();
        less.as_object_mut().expect("an object").remove(name);
        assert!(!validator.is_valid(&less), "it fits without {name}");
    }
    for name in whole.as_object().expect("an object").keys() {
        let mut wrong = whole.clone();
        wrong[name] = json!(true);
        assert!(!validator.is_valid(&wrong), "it fits with true for {name}");
    }
    let wrong = [
        ("/verdict/kind", json!("fine")),
        ("/root/outcome/kind", json!("vanished")),
        ("/root/outcome/signal", json!(9)),
        ("/cause", json!("bad luck")),
        ("/members/0/pid", json!("12")),
        ("/members/0/fate", json!(null)),
        ("/steps/0/at", json!("now")),
        ("/held/containment", json!("rope")),
        ("/grace/asked", json!("5s")),
    ];
    for (path, value) in wrong {
        let mut changed = whole.clone();
        *changed.pointer_mut(path).unwrap_or_else(|| panic!("no {path} in {whole:#}")) = value;
        assert!(!validator.is_valid(&changed), "it fits with another {path}");
    }
}
