//! The client of the official Rust SDK, in each of its ways to begin.

use std::process::Command;
use std::time::{Duration, Instant};

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};

type Client = RunningService<RoleClient, ()>;

const TOOLS: [&str; 10] = [
    "run_command",
    "start_job",
    "wait_for",
    "read_output",
    "list_jobs",
    "job_status",
    "stop_jobs",
    "send_input",
    "restart_job",
    "run_tests",
];

async fn call(client: &Client, tool: &'static str, arguments: Value) -> (String, CallToolResult) {
    let arguments = arguments.as_object().cloned().expect("arguments are an object");
    let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await;
    let result = result.unwrap_or_else(|error| panic!("{tool}: {error}"));
    let text = result.content.first().and_then(|content| content.as_text()).map(|text| text.text.clone());
    (text.unwrap_or_default(), result)
}

async fn lists_runs_and_stops(client: &Client) {
    let tools = client.list_all_tools().await.expect("a list of tools");
    assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), TOOLS);
    let (text, ran) = call(client, "run_command", json!({ "command": "echo from rmcp; exit 3" })).await;
    assert!(
        ran.is_error != Some(true) && text.contains(": exited 3 ") && text.contains("from rmcp"),
        "{text}"
    );
    let (text, refused) = call(client, "run_command", json!({ "command": "true", "nonsense": 1 })).await;
    assert!(refused.is_error == Some(true) && text.contains("has no argument `nonsense`"), "{text}");
    let start =
        json!({ "command": "setsid sleep 600 & echo up; sleep 600", "name": "web", "ready_log": "up" });
    let (text, _) = call(client, "start_job", start).await;
    assert!(text.contains("(web): ready"), "{text}");
    let (_, stopped) = call(client, "stop_jobs", json!({ "jobs": ["web"], "reason": "done" })).await;
    let stopped = stopped.structured_content.expect("facts are structured");
    assert_eq!(stopped["jobs"][0]["left"], 0, "{stopped}");
    let left_running = json!({ "command": "sleep 600", "name": "last" });
    call(client, "start_job", left_running).await;
}

/// Begins in this way, uses the tools and closes the connection. Returns how long the server took to exit.
async fn session(quell: Command, mode: ClientLifecycleMode, expected: &ProtocolVersion) -> Duration {
    let transport = TokioChildProcess::new(tokio::process::Command::from(quell)).expect("quell mcp starts");
    let client: Client = ().serve_with_lifecycle(transport, mode).await.expect("quell mcp answers");
    let version = client.peer().peer_info().map(|info| info.protocol_version.clone());
    assert_eq!(version.as_ref(), Some(expected));
    lists_runs_and_stops(&client).await;
    let begun = Instant::now();
    client.cancel().await.expect("the connection is closed");
    begun.elapsed()
}

#[test]
fn the_rust_sdk_uses_the_tools_in_each_of_its_modes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let newest = ProtocolVersion::V_2026_07_28;
    let modes = [
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25),
        (ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] }, newest.clone()),
        (
            ClientLifecycleMode::Auto { preferred_versions: vec![newest.clone()], legacy_version: None },
            newest,
        ),
    ];
    for (mode, expected) in modes {
        let env = TestEnv::as_me();
        let quell = env.quell("mcp").env("QUELL_SESSION", "rmcp").to_command();
        let session = session(quell, mode.clone(), &expected);
        let took = runtime.block_on(async { tokio::time::timeout(PATIENCE, session).await });
        let took = took.expect("the session ends");
        // The client kills a server that is still there after three seconds.
        assert!(took < Duration::from_secs(2), "{mode:?}: {took:?}");
        // The client of the server is this test: the job lives as long as that, and a stop finds it.
        let stopped = env.quell("stop").args(["--session", "rmcp"]).finish();
        assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
        assert_eq!(env.ids("live"), Vec::<String>::new());
    }
}
