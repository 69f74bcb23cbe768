//! What quell says, and where: results on stdout, everything else on stderr, errors in one line or in JSON. All of it
//! leaves here, and nothing that leaves here can give a terminal orders.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use quell::ErrorBody;
use quell::binary::{Mask, printable, printable_lines};
use serde_json::Value;

/// The exit code when quell itself could not do its work.
pub const FAILED: u8 = 125;

static MASKS: Mutex<Vec<Mask>> = Mutex::new(Vec::new());

/// Masks these values, too, in all errors and messages from here on.
pub fn hide(mask: Mask) {
    MASKS.lock().unwrap_or_else(PoisonError::into_inner).push(mask);
}

fn hidden(text: &str) -> String {
    let masks = MASKS.lock().unwrap_or_else(PoisonError::into_inner);
    masks.iter().fold(text.to_owned(), |text, mask| mask.apply(&text))
}

fn hide_in(value: &mut Value) {
    match value {
        Value::String(text) => *text = hidden(text),
        Value::Array(values) => values.iter_mut().for_each(hide_in),
        Value::Object(fields) => fields.values_mut().for_each(hide_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Says an error, and gives its exit code. With `json` it goes to stdout as an envelope, else, or if that can't be written,
/// to stderr.
pub fn fail(verb: &str, json: bool, code: u8, error: &ErrorBody) -> ExitCode {
    let mut error = ErrorBody { message: hidden(&error.message), hint: hidden(&error.hint), ..error.clone() };
    hide_in(&mut error.details);
    let said = json
        && !quell::binary::closed_at_start()[1]
        && print(&format!("{}\n", quell::binary::failure(verb, &error))).is_ok();
    if !said {
        let [message, hint] = [&error.message, &error.hint].map(|text| printable(text));
        to_stderr(&format!("quell: {message} ({hint})\n"));
    }
    ExitCode::from(code)
}

/// Writes a result; an error has been said already and its exit code comes back. A reader that left is no error.
pub fn to_stdout(text: &str) -> Option<ExitCode> {
    match write(&printable_lines(text)) {
        Ok(()) | Err(None) => None,
        Err(Some(code)) => Some(code),
    }
}

/// Writes a result with quell's own styles in it.
#[cfg(target_os = "linux")]
pub fn painted_to_stdout(text: &str) -> Option<ExitCode> {
    match write(&crate::render::painted(text)) {
        Ok(()) | Err(None) => None,
        Err(Some(code)) => Some(code),
    }
}

/// Writes one of many results. The exit code comes back when no more is to be written: something went wrong, which has
/// been said already, or the reader has left, which is no error.
#[cfg(target_os = "linux")]
pub fn to_reader(text: &str) -> Option<ExitCode> {
    write(&printable_lines(text)).err().map(|failed| failed.unwrap_or(ExitCode::SUCCESS))
}

/// Without an exit code the reader has left.
fn write(text: &str) -> Result<(), Option<ExitCode>> {
    if quell::binary::closed_at_start()[1] {
        to_stderr("quell: can't write the result: stdout is closed (open it, or send it to a file)\n");
        return Err(Some(ExitCode::from(FAILED)));
    }
    match print(text) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(None),
        Err(error) => {
            to_stderr(&format!("quell: can't write the result to stdout: {error} (free some space there)\n"));
            Err(Some(ExitCode::from(FAILED)))
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Says something to a person. If that fails there is no one to tell.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(printable_lines(&hidden(text)).as_bytes());
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;

    use quell::Error;
    use quell::RunError;
    use quell::binary::BUILT_IN;
    use quell::binary::ExecRemedy;
    use quell::{Decision, JobId};
    use quell_guard::Error as HostError;

    /// One of each, with the parts that are the caller's in capitals.
    fn all() -> Vec<Error> {
        let text = |text: &str| text.to_owned();
        let io = |errno| std::io::Error::from_raw_os_error(errno);
        let path = || PathBuf::from("/PATH");
        let not_executable =
            |remedy| RunError::NotExecutable { program: "PROGRAM".into(), why: "WHY".into(), remedy };
        let refused = Decision::refuse("VERB_DENIED", BUILT_IN, "REASON", "HINT");
        let start = [
            RunError::NotFound(text("PROGRAM")),
            not_executable(ExecRemedy::Right),
            not_executable(ExecRemedy::ShorterArguments),
            not_executable(ExecRemedy::ClosedFile),
            not_executable(ExecRemedy::FewerLinks),
            RunError::Directory(text("PROGRAM")),
            RunError::NoInterpreter { program: text("PROGRAM"), why: text("WHY") },
            RunError::Cwd { path: path(), error: text("WHY") },
            RunError::Nul(text("WHAT")),
            RunError::MaskedName,
            RunError::Proc(text("WHY")),
            RunError::Containment(text("WHY")),
            RunError::Limit(text("WHY")),
            RunError::NameTaken { name: text("NAME"), by: JobId::new(0, 0) },
            RunError::OwnerGone(text("WHY")),
            RunError::Stdin { path: path(), error: text("WHY") },
            RunError::Record { path: path(), error: text("WHY") },
            RunError::Receipt { target: text("FILE"), error: text("WHY") },
            RunError::Receipt { target: text("descriptor 9"), error: text("WHY") },
            RunError::Start(text("WHY")),
            RunError::Stopped(text("WHY")),
            RunError::System { what: text("WHAT"), error: text("WHY") },
            RunError::Unsupported(text("WHY")),
        ];
        let others = [
            Error::Refused(Box::new(refused)),
            Error::Host(HostError::NoSuchProcess(4711)),
            Error::Host(HostError::NotPermitted(text("WHY"))),
            Error::Host(HostError::NoSuchService(text("NAME"))),
            Error::Host(HostError::NoSystemd { message: text("WHY"), user: true }),
            Error::Host(HostError::NoSystemd { message: text("WHY"), user: false }),
            Error::Host(HostError::Systemctl(text("WHY"))),
            Error::NoSuchJob(text("JOB")),
            Error::NoSuchJob(text("01K")),
            Error::Ambiguous { prefix: text("01KA"), ids: vec![text("ID"), text("ID")], more: true },
            Error::InvalidJob(text("JOB")),
            Error::NameTaken { name: text("NAME"), by: text("ID") },
            Error::State(text("WHY")),
            Error::KeptElsewhere { id: JobId::new(0, 0), keeper: 4711, home: path() },
            Error::NotProvenDead(text("WHY")),
            Error::EndNotRecorded { id: JobId::new(0, 0), proven: true, path: path(), error: io(30) },
            Error::TimedOut(text("WHY")),
            Error::NotRead { job: text("JOB"), sent: 7 },
            Error::BadValue(text("WHY")),
            Error::Variable { name: text("QUELL_X"), message: text("WHY"), hint: text("HINT") },
            Error::UnknownVariable { name: text("QUELL_X"), hint: text("HINT") },
            Error::Config { file: path(), line: 3, message: text("WHY"), hint: text("HINT") },
            Error::Io { path: path(), error: io(2) },
            Error::Io { path: path(), error: io(13) },
            Error::Io { path: path(), error: io(24) },
            Error::Index(text("WHY")),
            Error::Keeper(text("WHY")),
            Error::NoHome,
            Error::NoProgram(text("WHY")),
        ];
        start.into_iter().map(Error::Start).chain(others).collect()
    }

    #[test]
    fn every_error_has_a_text_a_hint_and_an_exit_code() {
        let line = |error: &Error| {
            let body = error.body();
            let again = if body.retryable { ", retryable" } else { "" };
            format!(
                "{} (exit {}{again})\n  {}\n  {}\n",
                body.code,
                error.exit_code(),
                body.message,
                body.hint
            )
        };
        let text: String = all().iter().map(line).collect();
        insta::with_settings!({
            omit_expression => true,
            prepend_module_to_snapshot => false,
            snapshot_path => "../tests/snapshots",
        }, {
            insta::assert_snapshot!("errors", text);
        });
    }
}
