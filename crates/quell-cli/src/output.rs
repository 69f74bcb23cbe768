//! quell's output: results on stdout, everything else on stderr, errors in one line or in JSON. All output goes through
//! here, without control sequences that a terminal would obey.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use quell::ErrorBody;
use quell::binary::{Mask, printable, printable_lines};
use serde_json::Value;

use crate::errors::exit::FAILED;

static MASKS: Mutex<Vec<Mask>> = Mutex::new(Vec::new());

/// Masks these values in all later errors and messages.
pub fn hide(mask: Mask) {
    MASKS.lock().unwrap_or_else(PoisonError::into_inner).push(mask);
}

/// Masks what the settings name, as far as they can be read. For errors that come before a verb has its settings.
#[cfg(target_os = "linux")]
pub fn hide_by_settings() {
    hide(quell::binary::Config::readable_mask_here());
}

/// The text without the values that are masked.
pub fn hidden(text: &str) -> String {
    let masks = MASKS.lock().unwrap_or_else(PoisonError::into_inner);
    masks.iter().fold(text.to_owned(), |text, mask| mask.apply(&text))
}

fn hide_in(value: &mut Value) {
    let masks = MASKS.lock().unwrap_or_else(PoisonError::into_inner);
    masks.iter().for_each(|mask| mask.apply_to_json(value));
}

/// The hint that is shown as `see quell VERB --help`.
pub const SEE_HELP: &str = "see --help";

/// How many characters of an error are shown.
const LONGEST: usize = 4000;

/// The text without its middle if it is very long: it may quote a word of the caller's of any length.
fn shortened(text: String) -> String {
    let left_out = text.chars().count().saturating_sub(LONGEST);
    if left_out == 0 {
        return text;
    }
    let head: String = text.chars().take(LONGEST / 2).collect();
    let tail: String = text.chars().skip(LONGEST / 2 + left_out).collect();
    format!("{head}… ({left_out} characters left out) …{tail}")
}

/// Prints an error and returns its exit code. With `json` it goes to stdout as an envelope, else, or if that can't be written,
/// to stderr.
pub fn fail(verb: &str, json: bool, code: u8, error: &ErrorBody) -> ExitCode {
    let see = format!("see `quell {verb} --help`");
    let hint = if error.hint == SEE_HELP { &see } else { &error.hint };
    let [message, hint] = [&error.message, hint].map(|text| shortened(hidden(text)));
    let mut error = ErrorBody { message, hint, ..error.clone() };
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

/// Prints a result. Returns the exit code of an error, which is printed too. A closed pipe is not an error.
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

/// Prints one of many results. Returns an exit code when no more can be printed: after an error, which is printed too, or
/// after the reader has closed the pipe, which is not an error.
#[cfg(target_os = "linux")]
pub fn to_reader(text: &str) -> Option<ExitCode> {
    write(&printable_lines(text)).err().map(|failed| failed.unwrap_or(ExitCode::SUCCESS))
}

/// Without an exit code the reader has closed the pipe.
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

/// Prints a message for people on stderr. A failure to print is ignored, because it could not be reported anywhere else.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(printable_lines(&hidden(text)).as_bytes());
}
