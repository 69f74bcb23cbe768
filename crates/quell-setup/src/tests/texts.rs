//! What is written for each agent, and what stays.

use super::{QUELL, add, is_quell, undo, wanted};
use crate::Agent;
use crate::change::{self, ChangeError};
use crate::edit::EditError;

#[test]
fn each_agent_gets_its_entry_in_a_new_file() {
    let claude = r#"{
  "mcpServers": {
    "quell": {
      "type": "stdio",
      "command": "/opt/bin/quell",
      "args": ["mcp", "--max-wait", "25m"]
    }
  }
}
"#;
    let codex = r#"[mcp_servers.quell]
command = "/opt/bin/quell"
args = ["mcp", "--max-wait", "4m"]
env_vars = ["QUELL_HOME", "QUELL_CONFIG", "QUELL_SESSION", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"]
tool_timeout_sec = 300
"#;
    let gemini = claude.replace("      \"type\": \"stdio\",\n", "").replace("25m", "9m");
    let opencode = r#"{
  "mcp": {
    "quell": {
      "type": "local",
      "command": ["/opt/bin/quell", "mcp", "--max-wait", "25m"],
      "enabled": true
    }
  }
}
"#;
    let cursor = claude.replace(r#", "--max-wait", "25m""#, "");
    let vscode = cursor.replace("mcpServers", "servers");
    let windsurf = cursor.replace("      \"type\": \"stdio\",\n", "");
    let all = [claude, codex, &gemini, opencode, &cursor, &vscode, &windsurf];
    for (agent, text) in Agent::ALL.into_iter().zip(all) {
        assert_eq!(add(agent, false, "").text, text, "{agent}");
        assert!(add(agent, true, "").servers.is_empty(), "quell's own entry is not wrapped");
    }
}

/// What an agent's user might have, with comments where they can be.
fn lived_in(agent: Agent) -> String {
    let json = |key: &str, servers: &str| {
        format!(
            "// mine\n{{\n\t\"theme\": \"dark\", // keep\n\t\"{key}\": {{\n{servers}\n\t}},\n\t\"z\": [1, 2,],\n}}\n"
        )
    };
    match agent {
        Agent::Codex => "# mine\nmodel = \"m\" # keep\n\n[mcp_servers.files]\n# the server\ncommand = \"npx\"\nargs = [\n  # quiet\n  \"-y\",\n  \"files\",\n]\nenv = { KEY = \"v\" }\nenabled = false\n\n[mcp_servers.web]\nurl = \"https://example.com/mcp\"\n\n[tui]\nx = 1\n\n[mcp_servers.bare]\ncommand = \"server\"\n"
            .into(),
        Agent::Opencode => json(
            "mcp",
            "\t\t\"files\": { \"type\": \"local\", \"command\": [\"npx\", \"-y\", \"files\"], \"environment\": {\"KEY\": \"v\"}, \"enabled\": false },\n\t\t\"web\": {\"type\": \"remote\", \"url\": \"https://example.com/mcp\"},\n\t\t/* off */ \"bare\": {\"command\": [\"server\"]}",
        ),
        _ => json(
            agent.facts().tables[0][0],
            "\t\t\"files\": { \"command\": \"npx\", \"args\": [\"-y\", \"files\"], \"env\": {\"KEY\": \"v\"}, \"disabled\": true },\n\t\t\"web\": {\"type\": \"http\", \"url\": \"https://example.com/mcp\"},\n\t\t/* off */ \"bare\": {\"type\": \"stdio\", \"command\": \"server\"}",
        ),
    }
}

/// The lines of `text` that are not in `other`.
fn only_in(text: &str, other: &str) -> Vec<String> {
    let other: Vec<&str> = other.lines().collect();
    text.lines().filter(|line| !other.contains(line)).map(str::to_owned).collect()
}

#[test]
fn adding_quell_changes_no_other_line() {
    for agent in Agent::ALL {
        let before = lived_in(agent);
        let added = add(agent, false, &before);
        assert!(added.own && !added.table, "{agent}");
        // At most the line before the new entry, which gets a comma.
        let lost = only_in(&before, &added.text);
        assert!(lost.len() <= 1 && lost.iter().all(|line| line.contains("bare")), "{agent}: {lost:?}");
        assert!(added.text.contains("\"mcp\""), "{agent}: {}", added.text);
    }
}

#[test]
fn wrapping_keeps_all_other_keys_and_servers_with_urls() {
    for agent in Agent::ALL {
        let added = add(agent, true, &lived_in(agent));
        let names: Vec<&str> = added.servers.iter().map(|path| path[1].as_str()).collect();
        // A server that is switched off is wrapped too: it may be switched on later.
        assert_eq!(names, ["files", "bare"], "{agent}");
        for kept in ["KEY", "keep", "mine", "https://example.com/mcp"] {
            assert_eq!(added.text.matches(kept).count(), 1, "{agent}: {kept}: {}", added.text);
        }
        assert!(added.text.contains("false") || added.text.contains("\"disabled\": true"), "{agent}");
        let facts = agent.facts();
        let document = crate::edit::ConfigText::parse(facts.syntax, &added.text).expect("parses");
        let words = |name: &str| {
            let path = [facts.tables[0][0], name].map(str::to_owned);
            document.server(facts, &path).expect("reads").expect("is there").words.expect("is a process")
        };
        assert_eq!(words("files"), [QUELL, "wrap", "--", "npx", "-y", "files"], "{agent}");
        assert_eq!(words("bare"), [QUELL, "wrap", "--", "server"], "{agent}");
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for agent in Agent::ALL {
        for wrap in [false, true] {
            for text in [String::new(), lived_in(agent)] {
                let once = add(agent, wrap, &text);
                let twice = add(agent, wrap, &once.text);
                assert!(!twice.is_change(), "{agent}: {twice:?}");
                assert_eq!(twice.text, once.text, "{agent}");
            }
        }
    }
}

#[test]
fn without_a_backup_all_but_quells_entries_stay() {
    for agent in Agent::ALL {
        let before = lived_in(agent);
        let added = add(agent, true, &before);
        let after = undo(agent, &added);
        assert!(!after.contains("quell"), "{agent}: {after}");
        // The same servers with the same words, and every comment.
        let facts = agent.facts();
        let servers = |text: &str| {
            crate::edit::ConfigText::parse(facts.syntax, text).expect("parses").servers(facts).expect("reads")
        };
        assert_eq!(servers(&after), servers(&before), "{agent}");
        for kept in ["// mine", "// keep", "/* off */", "# mine", "# keep", "# the server", "# quiet", "KEY"]
        {
            assert_eq!(after.contains(kept), before.contains(kept), "{agent}: {kept}: {after}");
        }
        // Nothing was wrapped: then it is the very same text, but for a comma that JSON with comments may have.
        let plain = undo(agent, &add(agent, false, &before));
        assert_eq!(plain.replace("},\n\t},", "}\n\t},"), before, "{agent}");
    }
}

#[test]
fn what_setup_writes_is_found_without_a_record() {
    for agent in Agent::ALL {
        let added = add(agent, true, &lived_in(agent));
        let after = change::remove(&added.text, agent, None, &|_| false).expect("remove");
        assert!(after.own && after.servers.len() == 2, "{agent}");
        assert!(!after.text.contains("quell"), "{agent}: {}", after.text);
    }
}

#[test]
fn what_the_user_wrapped_stays_wrapped() {
    let mine = r#"{"mcpServers": {"mine": {"command": "quell", "args": ["wrap", "--name", "x", "--", "npx", "a"]}}}"#;
    let after = change::remove(mine, Agent::Claude, None, &is_quell).expect("remove");
    assert_eq!(after.text, mine);
    let hand = mine.replace(r#""--name", "x", "#, "");
    let added = add(Agent::Claude, false, &hand);
    assert!(undo(Agent::Claude, &added).contains("wrap"), "setup did not write it");
}

#[test]
fn what_runs_under_quell_already_is_not_wrapped() {
    for words in [r#""run", "--", "npx""#, r#""mcp", "--scope", "all""#, r#""wrap", "--", "npx""#] {
        let text = format!(r#"{{"mcpServers": {{"a": {{"command": "quell", "args": [{words}]}}}}}}"#);
        assert!(add(Agent::Claude, true, &text).servers.is_empty(), "{text}");
    }
    let text = r#"{"mcpServers": {"a": {"command": "quell", "args": ["--version"]}}}"#;
    assert_eq!(add(Agent::Claude, true, text).servers.len(), 1);
}

#[test]
fn a_path_that_is_not_this_quell_is_corrected_and_other_options_stay() {
    let old = |quell: &str| {
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "{quell}", "args": ["wrap", "--grace", "9s", "--", "npx"]}}, "quell": {{"command": "{quell}", "args": ["mcp", "--scope", "all"]}}}}}}"#
        )
    };
    let changed = add(Agent::Cursor, true, &old("/gone/quell"));
    assert_eq!((changed.text.as_str(), changed.corrected.len()), (old(QUELL).as_str(), 2));
    // Without --wrap the other servers are left alone.
    assert_eq!(add(Agent::Cursor, false, &old("/gone/quell")).corrected.len(), 1);
    let list = r#"{"mcp": {"quell": {"type": "local", "command": ["/gone/quell", "mcp"]}}}"#;
    assert_eq!(add(Agent::Opencode, false, list).text, list.replace("/gone/quell", QUELL));
    let toml = "[mcp_servers.quell] # note\ncommand = '/gone/quell' # path\nargs = [\"mcp\"]\n";
    assert_eq!(add(Agent::Codex, false, toml).text, toml.replace("'/gone/quell'", "\"/opt/bin/quell\""));
}

#[test]
fn a_server_of_another_program_is_not_replaced() {
    for text in [
        r#"{"mcpServers": {"quell": {"command": "npx", "args": ["quell"]}}}"#,
        r#"{"mcpServers": {"quell": {"url": "https://example.com"}}}"#,
    ] {
        let error = change::add(text, &wanted(Agent::Gemini, false)).unwrap_err();
        assert_eq!(error, ChangeError::NameTaken(vec!["mcpServers".into(), "quell".into()]));
        let kept = change::remove(text, Agent::Gemini, None, &is_quell).expect("remove");
        assert_eq!(kept.text, text);
    }
}

#[test]
fn claudes_servers_of_single_projects_are_wrapped() {
    let text = r#"{
  "numStartups": 3,
  "projects": {
    "/a": {"mcpServers": {"x": {"command": "npx", "args": ["x"]}}},
    "/b": {"allowedTools": []}
  }
}"#;
    let added = add(Agent::Claude, true, text);
    assert_eq!(added.servers, [["projects", "/a", "mcpServers", "x"].map(str::to_owned)]);
    assert!(added.text.contains(r#"{"command": "/opt/bin/quell", "args": ["wrap", "--", "npx", "x"]}"#));
    assert_eq!(undo(Agent::Claude, &added), text);
}

#[test]
fn line_ends_indentation_and_a_byte_order_mark_stay() {
    for agent in Agent::ALL {
        for (text, wrap) in [(lived_in(agent), false), (lived_in(agent), true)] {
            let crlf = format!("\u{feff}{}", text.replace('\n', "\r\n"));
            let added = add(agent, wrap, &crlf);
            assert!(added.text.starts_with('\u{feff}') && added.text.matches('\u{feff}').count() == 1);
            let ends = (added.text.matches('\n').count(), added.text.matches("\r\n").count());
            assert_eq!(ends.0, ends.1, "{agent}: {:?}", added.text);
            let plain = format!("\u{feff}{}", add(agent, wrap, &text).text.replace('\n', "\r\n"));
            assert_eq!(added.text, plain, "{agent}");
        }
    }
    assert!(
        add(Agent::Claude, false, &lived_in(Agent::Claude))
            .text
            .contains("\n\t\t\"quell\": {\n\t\t\t\"type\"")
    );
}

#[test]
fn text_that_is_not_understood_is_refused() {
    let unparsable = |agent, text: &str| {
        let error = change::add(text, &wanted(agent, true)).unwrap_err();
        assert!(matches!(error, ChangeError::Edit(EditError::Unparsable(_))), "{text}: {error:?}");
    };
    for text in ["{", "{\"a\": }", "{'a': 1}", "{a: 1}", "{\"a\": 1 \"b\": 2}", "{} {}", "{\"a\": 0x1}", "\0"]
    {
        unparsable(Agent::Claude, text);
    }
    for text in ["[", "a = 1\na = 2\n", "a = 1\r\nb = 2\n", "[mcp_servers]\n[mcp_servers]\n"] {
        unparsable(Agent::Codex, text);
    }
    let deep = "[".repeat(100_000);
    unparsable(Agent::Claude, &deep);
    unparsable(Agent::Codex, &format!("a = {deep}"));
}

#[test]
fn a_key_of_the_wrong_type_or_twice_is_refused() {
    let refused = |agent, wrap, text: &str| match change::add(text, &wanted(agent, wrap)).unwrap_err() {
        ChangeError::Edit(error) => error,
        other => panic!("{text}: {other:?}"),
    };
    let path = |path: &str| -> Vec<String> {
        path.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect()
    };
    for (text, at) in [
        ("[]", ""),
        ("null", ""),
        (r#"{"mcpServers": []}"#, "mcpServers"),
        (r#"{"mcpServers": null}"#, "mcpServers"),
        (r#"{"mcpServers": {"quell": 1}}"#, "mcpServers.quell"),
        (r#"{"mcpServers": {"a": {"command": 1}}}"#, "mcpServers.a.command"),
        (r#"{"mcpServers": {"a": {"command": ""}}}"#, "mcpServers.a.command"),
        (r#"{"mcpServers": {"a": {"command": "x", "args": "y"}}}"#, "mcpServers.a.args"),
        (r#"{"mcpServers": {"a": {"command": "x", "args": ["y", 1]}}}"#, "mcpServers.a.args"),
    ] {
        match refused(Agent::Claude, true, text) {
            EditError::WrongType { path: found, .. } => assert_eq!(found, path(at), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    for (text, at) in [
        (r#"{"mcpServers": {}, "mcpServers": {}}"#, "mcpServers"),
        (r#"{"mcpServers": {}, "mcp\u0053ervers": {}}"#, "mcpServers"),
        (r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#, "mcpServers.a"),
        (r#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#, "mcpServers.a.command"),
    ] {
        assert_eq!(refused(Agent::Claude, true, text), EditError::Duplicate(path(at)), "{text}");
    }
    for (text, at) in [
        ("mcp_servers = 1\n", "mcp_servers"),
        ("[mcp_servers]\nquell = 1\n", "mcp_servers.quell"),
        ("[mcp_servers.a]\ncommand = [\"x\"]\n", "mcp_servers.a.command"),
    ] {
        match refused(Agent::Codex, true, text) {
            EditError::WrongType { path: found, .. } => assert_eq!(found, path(at), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    // What is not needed is not looked at.
    add(Agent::Claude, false, r#"{"mcpServers": {"a": {"command": 1}}, "b": 1, "b": 2}"#);
}

#[test]
fn tables_of_toml_are_found_however_they_are_written() {
    for text in [
        "mcp_servers = { a = { command = \"x\" } }\n",
        "mcp_servers.a.command = \"x\"\n",
        "[mcp_servers]\na = { command = \"x\", args = [] }\n",
        "[mcp_servers.a]\ncommand = \"x\"",
        "[mcp_servers.a.env]\nK = \"v\"\n[mcp_servers.a]\ncommand = \"x\"\n",
    ] {
        let added = add(Agent::Codex, true, text);
        assert_eq!(added.servers, [["mcp_servers", "a"].map(str::to_owned)], "{text}");
        assert!(!add(Agent::Codex, true, &added.text).is_change(), "{}", added.text);
        let document: toml_edit::DocumentMut = added.text.parse().expect("parses");
        let a = &document["mcp_servers"]["a"];
        assert_eq!(a["command"].as_str(), Some(QUELL), "{}", added.text);
        assert_eq!(a["args"].as_array().map(toml_edit::Array::len), Some(3), "{}", added.text);
        assert_eq!(document["mcp_servers"]["quell"]["command"].as_str(), Some(QUELL), "{}", added.text);
    }
}
