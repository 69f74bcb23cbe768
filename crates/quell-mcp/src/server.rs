//! The server: what rmcp asks it, and a thread for each call of a tool.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell::binary::AskedThrough;
use quell::{Interrupt, Job};
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::approval::{Asked, Decided, Questions};
use crate::failure::ToolFailure;
use crate::tools::{self, Outcome, Shared, ToolCall};

/// How many calls may be under way. Each has a thread.
const AT_ONCE: usize = 64;
/// Enough for every call also where the code is not optimized; only what is used takes memory.
const STACK: usize = 2 << 20;
/// How often a client that wants to know hears that a call goes on.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long clients may keep the list of tools, in milliseconds: it changes only with the policy.
const LIST_TTL_MS: u64 = 60_000;
/// How much of a client's name the audit log gets.
const LONGEST_NAME: usize = 100;

const INSTRUCTIONS: &str = "Runs commands as jobs that can't leak. Use run_command for anything that ends, start_job for \
servers and watchers. Both return a job id; nothing is lost if a wait ends early: call wait_for again. Never poll in a loop, \
never `sleep`; wait_for returns as soon as something happens. stop_jobs proves that nothing is left. Jobs end with this client \
unless keep is set. Times are in seconds.";

/// The server of one client.
pub struct Server {
    shared: Arc<Shared>,
    questions: Questions,
    /// Each call that is under way holds a clone.
    slots: Arc<()>,
    /// Cancelled when the server is about to exit.
    ending: CancellationToken,
}

impl Server {
    pub fn new(shared: Arc<Shared>, ending: CancellationToken) -> Self {
        Self { shared, questions: Questions::default(), slots: Arc::new(()), ending }
    }

    /// Carries out a call on a thread of its own. None if the client has cancelled it.
    async fn carry_out(
        &self,
        tool: &'static Tool,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        approval: Option<Decided>,
    ) -> Option<Result<Outcome, ToolFailure>> {
        let slot = self.slots.clone();
        if Arc::strong_count(&slot) > AT_ONCE + 1 {
            let why = format!("{AT_ONCE} calls are under way");
            return Some(Err(ToolFailure::new("busy", why, "wait for one of them to end")));
        }
        let interrupt = match Interrupt::new() {
            Ok(interrupt) => interrupt,
            Err(error) => return Some(Err(error.into())),
        };
        let watched = Arc::new(Mutex::new(None));
        let call = ToolCall {
            id: key(&context.id),
            shared: self.shared.clone(),
            tool,
            arguments: request.arguments.clone().unwrap_or_default(),
            through: through(context),
            interrupt: interrupt.clone(),
            watched: watched.clone(),
            approval,
            slot,
            began: Instant::now(),
        };
        let (done, mut outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("mcp-call".into()).stack_size(STACK);
        if let Err(error) = thread.spawn(move || tools::carry_out(call, |outcome| drop(done.send(outcome)))) {
            let why = format!("can't start a thread: {error}");
            return Some(Err(ToolFailure::new("busy", why, "wait for another call to end")));
        }
        let token = context.meta.get_progress_token();
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
        let began = Instant::now();
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    let lost = || Err(ToolFailure::new("internal", "the call ended without a result", ""));
                    return Some(outcome.unwrap_or_else(|_| lost()));
                }
                () = context.ct.cancelled() => {
                    interrupt.raise();
                    return None;
                }
                () = self.ending.cancelled() => {
                    interrupt.raise();
                    // No client expects an answer any more, and some fail if one comes.
                    std::future::pending::<()>().await;
                }
                _ = ticks.tick(), if token.is_some() => {
                    if let Some(token) = token.clone() {
                        report(context, token, began, &watched).await;
                    }
                }
            }
        }
    }
}

/// The id of a request. The number 5 and the text "5" are two.
fn key(id: &RequestId) -> String {
    serde_json::to_string(id).unwrap_or_default()
}

/// Tells the client that a call goes on, with the last line of the job's output.
async fn report(
    context: &RequestContext<RoleServer>,
    token: ProgressToken,
    began: Instant,
    watched: &Mutex<Option<Job>>,
) {
    let job = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (send, line) = oneshot::channel();
    // Reading a file may block.
    let read =
        std::thread::Builder::new().spawn(move || send.send(job.and_then(|job| tools::last_line(&job))));
    let line = if read.is_ok() { line.await.ok().flatten() } else { None };
    let mut progress = ProgressNotificationParam::new(token, began.elapsed().as_secs_f64().round());
    progress.message = line;
    let _ = context.peer.notify_progress(progress).await;
}

/// What the audit log says about the client: its own words.
fn through(context: &RequestContext<RoleServer>) -> AskedThrough {
    let client = context.client_info().map(|client| {
        let name = format!("{} {}", client.name, client.version);
        name.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME).collect()
    });
    AskedThrough { client, ..AskedThrough::new("mcp") }
}

/// Methods that have parameters: a request for one of them that rmcp did not recognize has wrong ones.
const WITH_PARAMETERS: [&str; 4] = ["initialize", "tools/call", "tools/list", "subscriptions/listen"];

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("quell", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        let protocol_version = result.protocol_version.clone();
        let mut info = request;
        info.protocol_version = protocol_version;
        context.peer.set_peer_info(info);
        Ok(result)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = ListToolsResult::with_all_items(tools::allowed().cloned().collect());
        let is_modern = context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28);
        Ok(if is_modern { list.with_ttl_ms(LIST_TTL_MS) } else { list })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::named(&request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None));
        };
        let cancelled = || ErrorData::internal_error("cancelled", None);
        let mut approval = self.questions.answered(&request);
        loop {
            let outcome = self.carry_out(tool, &request, &context, approval.clone()).await;
            // From here on the answer reaches the client, unless it has cancelled the call meanwhile: see on_cancelled.
            if outcome.is_none() || context.ct.is_cancelled() || self.ending.is_cancelled() {
                self.shared.stop_unheard(&key(&context.id));
            }
            let outcome = outcome.ok_or_else(cancelled)?;
            let failure = match outcome {
                Ok(Outcome::Answer(answer)) => return Ok(answer.into()),
                Ok(Outcome::Ask(question))
                    if approval.as_ref().is_none_or(|decided| decided.question != question) =>
                {
                    let asked = tokio::select! {
                        asked = self.questions.ask(&question, &request, &context) => asked?,
                        () = context.ct.cancelled() => return Err(cancelled()),
                    };
                    match asked {
                        Asked::Decided(decided) => approval = Some(Decided { question, approval: decided }),
                        Asked::AskAgain(response) => return Ok(response),
                    }
                    continue;
                }
                Ok(Outcome::Ask(_)) => ToolFailure::new("internal", "the question was answered already", ""),
                Err(failure) => failure,
            };
            return Ok(failure.into_result(self.shared.options.hint).into());
        }
    }

    /// A client that cancels a call whose answer is on its way does not take that answer.
    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        if let Some(id) = cancelled.request_id {
            self.shared.stop_unheard(&key(&id));
        }
    }

    /// Some clients open a subscription whatever the server offers. It is acknowledged, and nothing ever comes.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::default())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        context.cancelled().await;
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if WITH_PARAMETERS.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params(
                format!("the parameters of {} don't fit", request.method),
                None,
            ));
        }
        let unknown = format!("method `{}` not found", request.method);
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, unknown, None))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }
}
