//! Asking the user. An approval comes from the client's user interface and never from an argument, which the model would set.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult, JsonObject, ProtocolVersion,
    ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

/// How long a user may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The name of the one field, and of the one question.
const FIELD: &str = "approve";

/// What the user decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// It may be done.
    Given,
    /// It may not: declined, cancelled, or no answer in time.
    Denied,
    /// The client can't ask.
    Unavailable,
}

/// What the user has decided, and about what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The question. Where it would be another one by now, the decision does not count.
    pub question: String,
    pub approval: Approval,
}

/// Questions that were asked through `input_required`: the client repeats the call with the answer.
#[derive(Debug, Default)]
pub struct Questions(Mutex<BTreeMap<String, Question>>);

/// What was asked about. The answer counts once, for this tool and these arguments.
#[derive(Debug)]
struct Question {
    message: String,
    tool: String,
    arguments: JsonObject,
    asked: Instant,
}

impl Questions {
    /// Remembers a question, and returns the number that stands for it.
    fn remember(&self, message: &str, tool: &str, arguments: &JsonObject) -> std::io::Result<String> {
        let mut random = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let state: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (message, tool, arguments) = (message.into(), tool.into(), arguments.clone());
        let question = Question { message, tool, arguments, asked: Instant::now() };
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        questions.retain(|_, question| question.asked.elapsed() < PATIENCE);
        questions.insert(state.clone(), question);
        Ok(state)
    }

    /// The decision that a repeated call carries; none if it carries none, or one that was used, is too old or is about something
    /// else.
    pub fn answered(&self, request: &CallToolRequestParams) -> Option<Decided> {
        let state = request.request_state.as_deref()?;
        let question = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(state)?;
        let same = question.tool == request.name
            && question.arguments == request.arguments.clone().unwrap_or_default()
            && question.asked.elapsed() < PATIENCE;
        let answer = request.input_responses.as_ref()?.get(FIELD)?;
        let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
        same.then(|| Decided { question: question.message, approval: decision(&answer) })
    }

    /// Asks the user `message` about a call. The answer is an approval, or a result that makes the client ask and call again.
    pub async fn ask(
        &self,
        message: &str,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Asked, ErrorData> {
        let capabilities = context.client_capabilities();
        let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
        // Before 2025-11-25 the capability had no parts, and meant forms.
        let has_forms = elicitation.is_some_and(|forms| forms.form.is_some() || forms.url.is_none());
        if !has_forms {
            return Ok(Asked::Decided(Approval::Unavailable));
        }
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message.into(),
            requested_schema: form(),
        };
        let question = ElicitRequest::new(params);
        if context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28) {
            let arguments = request.arguments.clone().unwrap_or_default();
            let state = self
                .remember(message, &request.name, &arguments)
                .map_err(|error| ErrorData::internal_error(format!("/dev/urandom: {error}"), None))?;
            let requests = BTreeMap::from([(FIELD.to_owned(), InputRequest::Elicitation(question))]);
            return Ok(Asked::AskAgain(InputRequiredResult::new(Some(requests), Some(state)).into()));
        }
        let sent = context.peer.send_request(ServerRequest::ElicitRequest(question));
        let answer = tokio::time::timeout(PATIENCE, sent).await;
        Ok(Asked::Decided(match answer {
            Ok(Ok(ClientResult::ElicitResult(answer))) => decision(&answer),
            Ok(Ok(_) | Err(_)) | Err(_) => Approval::Denied,
        }))
    }
}

/// The result of a question.
pub enum Asked {
    /// The user has decided, or can't be asked.
    Decided(Approval),
    /// The client asks, and calls the tool again.
    AskAgain(CallToolResponse),
}

fn form() -> ElicitationSchema {
    ElicitationSchema::builder().required_bool(FIELD).build_unchecked()
}

fn decision(answer: &ElicitResult) -> Approval {
    let approves = answer.content.as_ref().and_then(|content| content.get(FIELD)) == Some(&Value::Bool(true));
    if answer.action == ElicitationAction::Accept && approves { Approval::Given } else { Approval::Denied }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(tool: &str, pid: u32, state: &str, answer: Value) -> CallToolRequestParams {
        let mut request = CallToolRequestParams::new(tool.to_owned());
        request.arguments = json!({ "pid": pid }).as_object().cloned();
        request.request_state = Some(state.into());
        request.input_responses = Some(BTreeMap::from([(FIELD.to_owned(), answer)]));
        request
    }

    #[test]
    fn an_answer_counts_once_and_only_for_what_was_asked() {
        let questions = Questions::default();
        let arguments = json!({ "pid": 7 }).as_object().cloned().unwrap();
        let decided = |approval| Some(Decided { question: "Kill 7?".into(), approval });
        let yes = || json!({ "action": "accept", "content": { "approve": true } });
        let state = questions.remember("Kill 7?", "host_kill", &arguments).unwrap();
        assert_eq!(questions.answered(&request("host_kill", 7, "forged", yes())), None);
        assert_eq!(questions.answered(&request("host_kill", 7, &state, yes())), decided(Approval::Given));
        assert_eq!(questions.answered(&request("host_kill", 7, &state, yes())), None, "used");
        let state = questions.remember("Kill 7?", "host_kill", &arguments).unwrap();
        assert_eq!(questions.answered(&request("host_kill", 8, &state, yes())), None, "other arguments");
        for answer in
            [json!({ "action": "decline" }), json!({ "action": "accept", "content": { "approve": false } })]
        {
            let state = questions.remember("Kill 7?", "host_kill", &arguments).unwrap();
            assert_eq!(
                questions.answered(&request("host_kill", 7, &state, answer)),
                decided(Approval::Denied)
            );
        }
    }
}
