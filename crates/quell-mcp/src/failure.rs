//! Why a tool call failed, as the model reads it.

use quell::binary::{BUILT_IN, printable};
use quell::{Decision, Error, ErrorBody, JobId, StartError};
use rmcp::model::{CallToolResult, ContentBlock};

/// Why a call failed.
#[derive(Debug)]
pub enum ToolFailure {
    /// The library refused or failed.
    Quell(Error),
    /// Something that only this interface has.
    Here(ErrorBody),
}

impl From<Error> for ToolFailure {
    fn from(error: Error) -> Self {
        Self::Quell(error)
    }
}

impl From<quell_guard::Error> for ToolFailure {
    fn from(error: quell_guard::Error) -> Self {
        Self::Quell(error.into())
    }
}

impl ToolFailure {
    /// A failure with its own code.
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (code, message, hint) = (code.into(), message.into(), hint.into());
        Self::Here(ErrorBody { code, message, hint, retryable: false, details: serde_json::json!({}) })
    }

    /// An argument that can't be used.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new("bad_arguments", message, "correct the arguments and call the tool again")
    }

    /// The same, with the job that runs although the call has failed: its caller could not learn its id otherwise.
    pub fn about(self, job: JobId, hint_for: fn(&Error) -> String) -> Self {
        let body = match self {
            Self::Here(body) => body,
            Self::Quell(error) => ErrorBody {
                code: error.code().into(),
                message: error.to_string(),
                hint: hint(&error, hint_for),
                retryable: error.is_retryable(),
                details: error.details(),
            },
        };
        let hint = format!("the job exists all the same: {job}; job_status shows it. {}", body.hint);
        Self::Here(ErrorBody { hint, ..body })
    }

    /// The result of the call. The text is all there is: some clients check the structured part of an error against the schema of a
    /// success.
    pub fn into_result(self, hint_for: fn(&Error) -> String) -> CallToolResult {
        let mut text = match &self {
            Self::Here(body) => format!("error {}: {}\n", body.code, body.message),
            Self::Quell(error) => format!("error {}: {error}\n", error.code()),
        };
        let hint = match &self {
            Self::Here(body) => body.hint.clone(),
            Self::Quell(error) => hint(error, hint_for),
        };
        if !hint.is_empty() {
            text += &format!("hint: {hint}\n");
        }
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

/// What to do about an error, in words for a model: those of the command line name options that tools don't have.
fn hint(error: &Error, hint_for: fn(&Error) -> String) -> String {
    match error {
        Error::Refused(decision) => refusal(decision),
        Error::NoSuchJob(_) => "list_jobs shows this session's jobs".into(),
        Error::NotRead { .. } => "the program does not read its input".into(),
        Error::NoReadyCheck(_) => "start it with ready_port, ready_log or ready_url".into(),
        Error::BadValue(_) => "correct the arguments and call the tool again".into(),
        Error::Start(StartError::Cwd { .. }) => {
            "give `cwd` a directory that exists and that the user may enter".into()
        }
        error => hint_for(error),
    }
}

/// What a refusal says besides its reason.
fn refusal(decision: &Decision) -> String {
    if decision.rule == BUILT_IN && decision.code.as_str().starts_with("PATH_") {
        let cwd = std::env::current_dir().unwrap_or_else(|_| ".".into());
        let hint = if decision.hint.is_empty() { String::new() } else { format!("{}; ", decision.hint) };
        return format!(
            "{hint}correct the path and call the tool again; the working directory is {}",
            printable(&cwd.display().to_string())
        );
    }
    let rule = if decision.rule == BUILT_IN { "a built-in rule" } else { &decision.rule };
    let hint =
        if decision.hint.is_empty() { String::new() } else { format!("; for the user: {}", decision.hint) };
    format!("refused by {rule}: retrying won't help{hint}")
}
