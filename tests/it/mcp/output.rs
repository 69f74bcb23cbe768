//! What commands print, and how much of it an answer has.

use quell_tests::test_env::TestEnv;
use serde_json::json;

use super::client::{Client, job_of};

#[test]
fn a_command_returns_its_exit_code_and_its_output() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let text = client.text("run_command", json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert!(text.contains(": exited 3 after ") && text.contains("0 left\n"), "{text}");
    assert!(text.contains("\nout\n") && text.contains("\nerr\n") && !text.contains("next:"), "{text}");
    let text = client.text("run_command", json!({ "command": "true" }));
    assert!(text.contains(": exited 0 ") && text.ends_with("[no output]\n"), "{text}");
    let text = client.text("run_command", json!({ "command": "kill -KILL $$" }));
    assert!(text.contains(": killed by KILL "), "{text}");
    let text = client.text("run_command", json!({ "command": "sleep 60", "timeout_s": 1 }));
    assert!(text.contains("(stopped: its time was up)"), "{text}");
}

#[test]
fn a_command_gets_its_input_variables_and_directory() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let dir = env.path("here");
    std::fs::create_dir(&dir).unwrap();
    let arguments = json!({
        "command": "cat; echo $GREETING; pwd", "stdin": "from stdin\n", "env": { "GREETING": "hello" }, "cwd": dir,
    });
    let text = client.text("run_command", arguments);
    assert!(text.contains("\nfrom stdin\nhello\n") && text.contains("/here\n"), "{text}");
    // A program that reads nothing, and one that stops reading, don't hold up the answer.
    let text = client.text("run_command", json!({ "command": "true", "stdin": "x".repeat(300_000) }));
    assert!(text.contains(": exited 0 "), "{text}");
    let text =
        client.text("run_command", json!({ "command": "head -c 3", "stdin": "abcdef".repeat(50_000) }));
    assert!(text.contains(": exited 0 ") && text.contains("abc"), "{text}");
}

#[test]
fn what_a_command_leaves_behind_is_stopped_and_named() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let nap = env.oracle.nap();
    let text =
        client.text("run_command", json!({ "command": format!("sleep {nap} & sleep 0.3; echo done") }));
    assert!(text.contains(": exited 0 ") && text.contains("0 left"), "{text}");
    assert!(text.contains("left behind and stopped:") && text.contains(&format!("sleep {nap}")), "{text}");
}

#[test]
fn what_is_left_out_is_counted_and_pages_give_all_of_it() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let lines = 20_000;
    let text = client.text("run_command", json!({ "command": format!("seq -f 'line %.0f' 1 {lines}") }));
    assert!(text.len() < 9000, "{} bytes", text.len());
    let (head, rest) = text.split_once("\n[").expect("a note about what is left out");
    let (note, tail) = rest.split_once("]\n").unwrap();
    let shown = head.lines().count() - 1 + tail.lines().count();
    let left_out: usize = note.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert_eq!(shown + left_out, lines, "{note}");
    // From the cursor in the note, page by page, up to where the tail begins.
    let job = job_of(&text);
    let mut cursor = note.rsplit_once("since=").unwrap().1.to_owned();
    let mut all: Vec<String> = head.lines().skip(1).map(str::to_owned).collect();
    for _ in 0..1000 {
        let page = client.text("read_output", json!({ "job": job, "since": cursor, "max_bytes": 30000 }));
        let body = page.split_once('\n').unwrap().1;
        match body.split_once("\n[") {
            Some((lines, note)) => {
                all.extend(lines.lines().map(str::to_owned));
                cursor = note.trim_end().trim_end_matches(']').rsplit_once("since=").unwrap().1.to_owned();
            }
            None => {
                all.extend(body.lines().map(str::to_owned));
                break;
            }
        }
    }
    let wanted: Vec<String> = (1..=lines).map(|number| format!("line {number}")).collect();
    assert_eq!(all.len(), wanted.len());
    assert_eq!(all, wanted);
}

#[test]
fn colours_progress_bars_repeats_and_long_lines_take_little_room() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let script = r#"printf '\033[31mred\033[0m\n'; for i in 1 2 3; do printf "$i%%\r"; done; echo 100%;
        for i in $(seq 312); do echo same; done; printf 'x%.0s' $(seq 9000); echo; printf 'a\377b\n'"#;
    let text = client.text("run_command", json!({ "command": script }));
    assert!(text.contains("\nred\n100%\nsame (× 312)\n"), "{text}");
    let (_, note) = text.split_once("[7,000 bytes of this line left out: read_output job=").expect(&text);
    let job = job_of(&text);
    let (cursor, _) = note.strip_prefix(&format!("{job} since=")).unwrap().split_once(']').unwrap();
    let page = client.text("read_output", json!({ "job": job, "since": cursor, "max_bytes": 30_000 }));
    let line = page.lines().find(|line| line.starts_with('x')).expect(&page);
    assert_eq!(line, "x".repeat(8000), "the line from there on");
    assert!(text.contains("a\u{fffd}b\n[bytes that are not UTF-8 were replaced]"), "{text}");
    assert!(text.len() < 4000, "{} bytes", text.len());
}

#[test]
fn what_was_looked_for_is_shown_in_a_long_line() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let script =
        "printf 'x%.0s' $(seq 5000); printf needle; printf 'y%.0s' $(seq 5000); echo; exec sleep 600";
    let job = job_of(&client.text("start_job", json!({ "command": script })));
    for arguments in [
        json!({ "jobs": [job], "until": "log", "pattern": "needle" }),
        json!({ "jobs": [job], "pattern": "needle" }),
    ] {
        let text = client.text("wait_for", arguments);
        let matched = text.lines().find(|line| line.starts_with("matched: ")).expect(&text);
        assert!(matched.contains("xneedley"), "{text}");
    }
    let text = client.text("read_output", json!({ "job": job, "grep": "needle" }));
    assert!(text.contains("xneedley") && text.len() < 3000, "{text}");
}

#[test]
fn output_is_read_by_head_tail_pattern_and_stream() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let text = client.text("run_command", json!({ "command": "seq 1 50; echo problem 7 >&2" }));
    let job = job_of(&text);
    let mut body = |arguments: serde_json::Value| {
        let mut arguments = arguments;
        arguments["job"] = json!(job);
        client.text("read_output", arguments).split_once('\n').unwrap().1.to_owned()
    };
    assert!(body(json!({ "head": 2 })).starts_with("1\n2\n["));
    assert!(body(json!({ "tail": 2, "stream": "stdout" })).ends_with("49\n50\n"));
    assert_eq!(body(json!({ "grep": "^4[56]$" })), "45\n46\n");
    assert_eq!(body(json!({ "stream": "stderr" })), "problem 7\n");
    assert_eq!(body(json!({ "grep": "nothing" })), "[no such output]\n");
}

#[test]
fn an_interactive_job_answers_line_by_line() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let command = "while read -r x; do echo \"got $x\"; done";
    client.text("start_job", json!({ "command": command, "name": "echo", "interactive": true }));
    for word in ["one", "two"] {
        let text = client.text("send_input", json!({ "job": "echo", "text": word }));
        assert!(text.contains(&format!("got {word}\n")), "{text}");
        assert!(word == "one" || !text.contains("got one"), "only what is new: {text}");
    }
    let text = client.text("send_input", json!({ "job": "echo", "key": "ctrl-d" }));
    assert!(text.contains("exited") || text.contains("running"), "{text}");
    let text = client.text("wait_for", json!({ "jobs": ["echo"] }));
    assert!(text.contains(": exited "), "{text}");
    let plain = job_of(&client.text("start_job", json!({ "command": "sleep 600" })));
    let error = client.error("send_input", json!({ "job": plain, "text": "x" }));
    assert!(error.contains("interactive=true"), "{error}");
}

#[test]
fn tests_are_counted_within_their_scope() {
    let env = TestEnv::as_me();
    std::fs::create_dir(env.path("sub")).unwrap();
    let mut client = Client::initialized(&env, &[]);
    let script = env.script("check", "#!/bin/sh\necho checking; exit 1\n");
    let text = client.text("run_tests", json!({ "command": "./check" }));
    assert!(
        text.starts_with("job ") && text.contains("\ntests fail: ") && text.contains("checking"),
        "{text}"
    );
    drop(script);
    let error = client.error("run_tests", json!({ "command": "pytest /etc", "scope": ["sub"] }));
    assert!(error.starts_with("error PATH_"), "{error}");
    assert!(!error.contains("retrying") && !error.contains("the user"), "{error}");
    let next = format!(
        "correct the path and call the tool again; the working directory is {}\n",
        env.dir().display()
    );
    assert!(error.ends_with(&next), "{error}");
    let error = client.error("run_tests", json!({ "command": "pytest sub/nosuch", "scope": ["sub"] }));
    assert!(error.starts_with("error PATH_MISSING") && error.ends_with(&next), "{error}");
    let slow = env.script("slow", "#!/bin/sh\nread x < fifo\nexit 0\n");
    drop(slow);
    let fifo = env.fifo();
    std::fs::rename(&fifo, env.path("fifo")).unwrap();
    let text = client.text("run_tests", json!({ "command": "./slow", "wait_s": 1 }));
    assert!(text.contains("the tests go on after 1s"), "{text}");
    std::fs::write(env.path("fifo"), "go\n").unwrap();
    let job = job_of(&text);
    let text = client.text("wait_for", json!({ "jobs": [job] }));
    assert!(text.contains(": exited 0 "), "{text}");
    let passed = quell_tests::eventually(quell_tests::run::PATIENCE, || {
        client.facts("job_status", json!({ "job": job }))["job"]["tests"].to_string().contains("tests pass")
    });
    assert!(passed, "the result of a run whose call was answered before");
}
