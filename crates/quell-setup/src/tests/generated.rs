//! Generated files: what is added and undone leaves what was there.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{add, undo};
use crate::Agent;
use crate::edit::ConfigText;

/// White space and comments between tokens.
fn gap() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => Just(String::new()),
        3 => Just(" ".to_owned()),
        3 => Just("\n".to_owned()),
        1 => Just("\t".to_owned()),
        1 => Just("\n\n  ".to_owned()),
        1 => "[a-z ]{0,6}".prop_map(|text| format!("// {text}\n")),
        1 => "[a-z ]{0,6}".prop_map(|text| format!("/*{text}*/")),
    ];
    vec(part, 0..3).prop_map(|parts| parts.concat())
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,4}", "[ -~äö\u{1F600}]{0,6}"].prop_map(|text| serde_json::json!(text).to_string())
}

fn joined(
    items: Vec<(String, String, String)>,
    trailing: bool,
    end: String,
    [open, close]: [char; 2],
) -> String {
    let mut text = open.to_string();
    let count = items.len();
    for (index, (before, item, after)) in items.into_iter().enumerate() {
        text.push_str(&before);
        text.push_str(&item);
        text.push_str(&after);
        if index + 1 < count || trailing {
            text.push(',');
        }
    }
    text.push_str(&end);
    text.push(close);
    text
}

/// An object of these members, which have different keys.
fn object(member: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    let members = vec((gap(), gap(), gap(), member, gap()), 0..most);
    (members, any::<bool>(), gap()).prop_map(|(members, trailing, end)| {
        let items = members.into_iter().enumerate().map(|(number, (before, inner, middle, value, after))| {
            (before, format!("\"k{number}\"{inner}:{middle}{value}"), after)
        });
        joined(items.collect(), trailing, end, ['{', '}'])
    })
}

fn list(item: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    (vec((gap(), item, gap()), 0..most), any::<bool>(), gap()).prop_map(|(items, trailing, end)| {
        let trailing = trailing && !items.is_empty();
        joined(items, trailing, end, ['[', ']'])
    })
}

fn value() -> impl Strategy<Value = String> {
    let leaf =
        prop_oneof![string(), Just("null".to_owned()), Just("-1.5e3".to_owned()), Just("true".to_owned())];
    leaf.prop_recursive(3, 12, 3, |inner| prop_oneof![object(inner.clone(), 3), list(inner, 3)])
}

/// A server: a process with or without arguments, or a URL.
fn server() -> impl Strategy<Value = String> {
    let process = (gap(), gap(), proptest::option::of(list(string(), 4)), gap(), value()).prop_map(
        |(before, after, args, end, env)| {
            let args = args.map(|args| format!("\"args\":{args},")).unwrap_or_default();
            format!("{{{before}\"command\":{after}\"npx\",{args}{end}\"env\": {env}}}")
        },
    );
    prop_oneof![3 => process, 1 => gap().prop_map(|gap| format!("{{\"url\":{gap}\"https://example.com\"}}"))]
}

/// A file for Claude Code, with or without servers.
pub(super) fn file() -> impl Strategy<Value = String> {
    let servers = prop_oneof![3 => object(server(), 4).prop_map(Some), 1 => Just(None)];
    (gap(), value(), gap(), servers, gap(), value(), any::<bool>(), gap(), any::<bool>()).prop_map(
        |(start, first, before, servers, after, last, bom, end, crlf)| {
            let servers = servers
                .map(|servers| format!("{before}\"mcpServers\":{after}{servers},"))
                .unwrap_or_default();
            let bom = if bom { "\u{feff}" } else { "" };
            let text = format!("{bom}{start}{{\"first\": {first},{servers}\"last\": {last}}}{end}");
            if crlf { text.replace('\n', "\r\n") } else { text }
        },
    )
}

/// The comments of a text, in their order. No string of the generated files has them.
fn comments(text: &str) -> Vec<String> {
    let mut comments = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['/', '"']) {
        rest = &rest[start..];
        let end = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find(['\r', '\n']).unwrap_or(rest.len()),
            [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
            [b'"', ..] => {
                let mut escaped = false;
                let end = rest[1..].find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                rest = &rest[end.map_or(rest.len(), |end| end + 2)..];
                continue;
            }
            _ => 1,
        };
        if end > 1 {
            comments.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    comments
}

/// The text as a value, without comments.
fn parsed(text: &str) -> serde_json::Value {
    let text = text.trim_start_matches('\u{feff}');
    let root =
        jsonc_parser::cst::CstRootNode::parse(text, &jsonc_parser::ParseOptions::default()).expect(text);
    plain(&root.value().expect(text))
}

fn plain(node: &jsonc_parser::cst::CstNode) -> serde_json::Value {
    if let Some(object) = node.as_object() {
        let member = |property: &jsonc_parser::cst::CstObjectProp| {
            Some((property.decoded_name()?, plain(&property.value()?)))
        };
        serde_json::Value::Object(object.properties().iter().filter_map(member).collect())
    } else if let Some(array) = node.as_array() {
        serde_json::Value::Array(array.elements().iter().map(plain).collect())
    } else if let Some(text) = node.as_string_lit() {
        serde_json::Value::String(text.decoded_value().expect("string"))
    } else {
        serde_json::from_str(&node.to_string()).expect("leaf")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_added_can_be_undone_without_a_backup(text in file(), wrap: bool) {
        let agent = Agent::Claude;
        let added = add(agent, wrap, &text);
        prop_assert!(added.own);
        // A second run changes nothing.
        prop_assert_eq!(&add(agent, wrap, &added.text).text, &added.text);
        // All values are as before but for quell's entry and the commands, and no comment is lost.
        prop_assert_eq!(comments(&added.text), comments(&text));
        let after = undo(agent, &added);
        prop_assert_eq!(comments(&after), comments(&text));
        let mut before = parsed(&text);
        // A server without `args` has empty ones then.
        for server in before["mcpServers"].as_object_mut().into_iter().flat_map(|servers| servers.values_mut()) {
            if wrap && server.get("command").is_some() && server.get("args").is_none() {
                server["args"] = serde_json::json!([]);
            }
        }
        if before["mcpServers"].is_null() {
            before.as_object_mut().expect("object").remove("mcpServers");
        }
        prop_assert_eq!(parsed(&after), before);
        // The order of the keys stays.
        let facts = agent.facts();
        let names = |text: &str| {
            let document = ConfigText::parse(facts.syntax, text.trim_start_matches('\u{feff}')).expect("parses");
            document.servers(facts).expect("reads").into_iter().map(|server| server.path).collect::<Vec<_>>()
        };
        prop_assert_eq!(names(&after), names(&text));
    }
}
