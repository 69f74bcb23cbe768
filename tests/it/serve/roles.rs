//! Which role may call which route: each role with each operation of the published document.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quell_tests::test_env::TestEnv;
use serde_json::Value;

use super::client::Server;

const ROLES: [&str; 5] = ["view", "stop", "operate", "admin", "metrics"];

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the document")).expect("JSON")
}

/// Whether a role includes another one, by the words of the documentation.
fn includes(has: &str, needed: &str) -> bool {
    let place = |role: &str| ROLES.iter().position(|known| *known == role).expect("a role");
    needed == "metrics" || (has != "metrics" && place(has) >= place(needed))
}

#[test]
fn each_role_may_call_what_the_document_says_and_nothing_else() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let token = |role: &str| {
        let added = env.quell("serve").args(["--add-token", role, "--role", role]).finish();
        (role.to_owned(), added.stdout.trim().to_owned())
    };
    let tokens: BTreeMap<String, String> = ROLES.into_iter().map(token).collect();
    let mut tried = 0;
    for (path, methods) in document()["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let needs = operation["description"].as_str().unwrap_or_default();
            let Some(needed) = needs.strip_prefix("Needs: role ") else { continue };
            let needed = needed.split([',', '.']).next().unwrap_or_default();
            let path = path.replace("{job}", "nosuchjob").replace("{stream}", "stdout");
            // Nothing is selected, and nothing is waited for.
            let path = if path == "/v1/wait" { "/v1/wait?job=nosuchjob".to_owned() } else { path };
            for (role, token) in &tokens {
                let answer = if path == "/v1/stream" {
                    // It has no end, but an error has.
                    let query = "/v1/stream?logs=nosuchjob";
                    server.ask_with(token, "GET", query, "")
                } else {
                    server.ask_with(
                        token,
                        &method.to_uppercase(),
                        &path,
                        if method == "post" { "{}" } else { "" },
                    )
                };
                let code = if answer.status >= 400 { answer.code() } else { String::new() };
                let what = format!("{role}: {method} {path}: {} {code}", answer.status);
                if includes(role, needed) {
                    assert!(code != "role_too_low" && ![0, 401, 403, 500].contains(&answer.status), "{what}");
                } else {
                    assert_eq!((answer.status, code.as_str()), (403, "role_too_low"), "{what}");
                }
                let declared = &operation["responses"];
                assert!(declared.get(answer.status.to_string()).is_some(), "not declared: {what}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 5 * 25, "{tried}");
    let over_socket = server.over_socket("GET", "/v1/server", "").json();
    assert_eq!(over_socket["data"]["role"], "admin", "the socket needs no token");
}
