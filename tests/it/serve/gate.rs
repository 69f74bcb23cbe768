//! Which requests are let in at all: by host, by origin, by token, in this order.

use quell_tests::test_env::TestEnv;

use super::client::Server;

/// Headers that every answer has.
const GUARDING: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

#[test]
fn a_request_is_let_in_by_host_then_origin_then_token() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &["--allow-host", "quell.example.net"]);
    let (own, port) = (server.host(), server.port);
    let hosts = [
        (own.clone(), true),
        (format!("localhost:{port}"), true),
        (format!("[::1]:{port}"), true),
        ("quell.example.net".to_owned(), true),
        ("evil.test".to_owned(), false),
        (format!("evil.test:{port}"), false),
        ("127.0.0.1".to_owned(), false),
        (format!("127.0.0.1:{}", port ^ 1), false),
    ];
    let bearer = format!("Bearer {}", server.token);
    let tokens = [Some(bearer.as_str()), Some("Bearer nonsense"), None];
    let routes = [
        ("GET", "/v1/jobs"),
        ("GET", "/"),
        ("POST", "/v1/jobs/x/stop"),
        ("GET", "/nowhere"),
        ("OPTIONS", "/v1/jobs"),
    ];
    for (host, is_own_host) in &hosts {
        let origins = [
            (None, true),
            (Some(format!("http://{host}")), true),
            (Some("http://evil.test".to_owned()), false),
            (Some(format!("http://127.0.0.1:{}", port ^ 1)), false),
            (Some("null".to_owned()), false),
        ];
        for (origin, is_own_origin) in &origins {
            for site in [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")] {
                // Two hundred combinations with one route each are enough, and quick.
                let at = host.len() + origin.as_ref().map_or(0, String::len) + site.map_or(0, str::len);
                let ((method, path), token) = (routes[at % routes.len()], tokens[at % tokens.len()]);
                let mut headers = vec![("Host", host.as_str()), ("Content-Type", "application/json")];
                headers.extend(origin.as_deref().map(|origin| ("Origin", origin)));
                headers.extend(site.map(|site| ("Sec-Fetch-Site", site)));
                headers.extend(token.map(|token| ("Authorization", token)));
                let answer = server.send(method, path, &headers, if method == "POST" { "{}" } else { "" });
                let is_own_site = matches!(site, None | Some("same-origin"));
                let what = format!("{method} {path} {headers:?}: {}", answer.head);
                let expected = match (is_own_host, is_own_origin & is_own_site) {
                    (false, _) => Some("host_not_allowed"),
                    (true, false) => Some("origin_not_allowed"),
                    (true, true) => None,
                };
                match expected {
                    Some(code) => assert_eq!((answer.status, answer.code().as_str()), (403, code), "{what}"),
                    None if method == "OPTIONS" => {
                        assert_eq!(
                            (answer.status, answer.header("allow")),
                            (405, Some("GET, POST")),
                            "{what}"
                        )
                    }
                    None if path == "/" => assert_eq!(answer.status, 200, "{what}"),
                    None if path == "/nowhere" => assert_eq!(answer.status, 404, "{what}"),
                    None if token == Some(bearer.as_str()) => {
                        assert!([200, 404].contains(&answer.status), "{what}")
                    }
                    None if token.is_none() => assert_eq!(answer.status, 401, "{what}"),
                    // Ten wrong ones in a second are looked at.
                    None => assert!([401, 429].contains(&answer.status), "{what}"),
                }
                for (name, value) in GUARDING {
                    assert_eq!(answer.header(name), Some(value), "{what}");
                }
                let head = answer.head.to_ascii_lowercase();
                assert!(!head.contains("access-control-") && !head.contains("set-cookie"), "{what}");
                assert!(
                    !answer.body.contains(&server.token) && !answer.head.contains(&server.token),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn the_page_can_be_opened_from_anywhere_and_holds_no_secret() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let opened =
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    let page = server.send("GET", "/", &opened, "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap_or_default();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!page.body.contains(&server.token));
    let framed =
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")];
    assert_eq!(server.send("GET", "/", &framed, "").status, 403);
    assert_eq!(server.send("GET", "/v1/jobs", &opened, "").status, 403);
    let health = server.send("GET", "/healthz", &[], "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
}

#[test]
fn a_request_line_or_a_second_host_cannot_name_another_host() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let (host, token) = (server.host(), &server.token);
    let rest = format!("Authorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    for (head, status) in [
        (format!("GET http://{host}/v1/jobs HTTP/1.1\r\nHost: {host}\r\n"), 200),
        (format!("GET http://evil.test/v1/jobs HTTP/1.1\r\nHost: {host}\r\n"), 400),
        (format!("GET /v1/jobs HTTP/1.1\r\nHost: {host}\r\nHost: evil.test\r\n"), 400),
        (format!("GET /v1/jobs HTTP/1.1\r\nHost: evil.test\r\nHost: {host}\r\n"), 403),
        ("GET /v1/jobs HTTP/1.1\r\n".to_owned(), 400),
        ("GET /v1/jobs HTTP/1.0\r\n".to_owned(), 400),
    ] {
        let answer = server.raw(format!("{head}{rest}").as_bytes());
        // Which of two hosts is read first is not said; neither is let in.
        let is_refused = status != 200 && [400, 403].contains(&answer.status);
        assert!(answer.status == status || is_refused, "{head}: {}", answer.head);
    }
}

#[test]
fn many_wrong_tokens_do_not_lock_the_right_one_out() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let statuses: Vec<u16> =
        (0..60).map(|_| server.ask_with("0123456789", "GET", "/v1/jobs", "").status).collect();
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    assert_eq!(server.get("/v1/jobs").status, 200);
}

#[test]
fn a_login_address_works_once() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let url = env.quell("serve").args(["--url"]).finish();
    let code = url.stdout.trim().split_once("#code=").expect("a code in the fragment").1.to_owned();
    let body = format!("{{\"code\":\"{code}\"}}");
    let login = || server.send("POST", "/v1/login", &[("Content-Type", "application/json")], &body);
    let first = login();
    let token = first.json()["data"]["token"].as_str().expect("a token").to_owned();
    assert_eq!(server.ask_with(&token, "GET", "/v1/jobs", "").status, 200);
    assert_eq!(server.ask_with(&code, "GET", "/v1/jobs", "").status, 401, "the code is not a token");
    assert_eq!(login().status, 401);
}

#[test]
fn a_removed_token_ends_what_was_made_with_it() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let admin = env.quell("serve").args(["--add-token", "phone", "--role", "admin"]).finish();
    let admin = admin.stdout.trim();
    let code = |token: &str| {
        let url = server.ask_with(token, "POST", "/v1/login/code", "{}").json()["data"]["url"].clone();
        url.as_str().and_then(|url| Some(url.split_once("#code=")?.1.to_owned())).expect("a code")
    };
    let login = |code: &str| {
        let body = format!("{{\"code\":\"{code}\"}}");
        server.send("POST", "/v1/login", &[("Content-Type", "application/json")], &body)
    };
    let session =
        |token: &str| login(&code(token)).json()["data"]["token"].as_str().expect("a token").to_owned();
    let of_phone = session(admin);
    let of_session = session(&of_phone);
    let of_default = session(&server.token);
    let waiting = code(admin);
    let logs = env.start().args(["--name", "loud"]).sh("while :; do echo line; sleep 0.05; done").begin();
    let mut stream = server.stream(&of_phone, "?events=0&logs=loud", None);
    stream.until("log", |_| true);
    std::fs::write(env.home().join("serve/tokens.toml"), "").unwrap();
    let said = stream.until("bye", |_| true);
    assert_eq!(said.data["why"], "logged_out");
    for token in [admin, of_phone.as_str(), of_session.as_str()] {
        assert_eq!(server.ask_with(token, "GET", "/v1/jobs", "").status, 401);
    }
    assert_eq!(login(&waiting).status, 401);
    assert_eq!(server.ask_with(&of_default, "GET", "/v1/jobs", "").status, 200, "it has another token");
    std::fs::write(env.home().join("serve/token"), "b".repeat(64)).unwrap();
    assert_eq!(server.ask_with(&of_default, "GET", "/v1/jobs", "").status, 401);
    logs.stop(&[]);
}
