//! Reads reports in JUnit's XML. Test cases are counted one by one, so that an incomplete report still counts. Entities that a document
//! defines are not expanded.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell_store::JobDir;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{FoundTests, Names, TestCounts};
use crate::answer::JunitReport;

/// How large a report may be, in bytes.
const MAX_SIZE: u64 = 32 << 20;

/// A file that a run may write a report to, and its state before the run.
pub(crate) struct ReportFile {
    path: PathBuf,
    name: PathBuf,
    before: Option<FileState>,
}

/// Inode, modification time in seconds and nanoseconds, size.
type FileState = (u64, i64, i64, u64);

fn state(path: &Path) -> Option<FileState> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl ReportFile {
    /// Notes the state of the file, which must be read before the run.
    pub fn before_run(cwd: &Path, name: PathBuf) -> Self {
        let path = cwd.join(&name);
        Self { before: state(&path), path, name }
    }

    /// The report in the directory of a job, which did not exist before the run.
    pub fn of_job(job: &JobDir) -> Self {
        Self { path: job.report(), name: PathBuf::new(), before: None }
    }

    /// Reads the report. One that the run did not write is a problem.
    pub fn read(&self) -> (JunitReport, Option<FoundTests>) {
        let (found, problem) =
            self.bytes().map_or_else(|problem| (None, Some(problem)), |bytes| read(&bytes));
        (JunitReport { file: self.name.display().to_string(), used: false, problem }, found)
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => "it does not exist".to_owned(),
            _ => format!("it can't be read: {error}"),
        };
        let found = fs::symlink_metadata(&self.path).map_err(unread)?;
        if !found.is_file() {
            return Err("it is not a regular file".into());
        }
        if found.len() > MAX_SIZE {
            return Err(format!("it is larger than {MAX_SIZE} bytes"));
        }
        if state(&self.path) == self.before {
            return Err("it is from before the run".into());
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(&self.path).map_err(unread)?;
        file.take(MAX_SIZE).read_to_end(&mut bytes).map_err(unread)?;
        Ok(bytes)
    }
}

/// The results of a test case by rank. If a case has several, the last one in this list counts.
const RESULTS: [&str; 4] = ["passed", "skipped", "failure", "error"];

/// The tests in a report, if it is one, and what is wrong with it.
pub(super) fn read(bytes: &[u8]) -> (Option<FoundTests>, Option<String>) {
    // Bytes that are not UTF-8 are output of a test, and don't affect the counts.
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::from_str(&text);
    reader.config_mut().expand_empty_elements = true;
    let (mut names, mut totals, mut case, mut depth, mut suites) =
        (Names::default(), [0_u64; 4], None, 0_u64, false);
    let mut announced: Option<u64> = None;
    let problem = loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                depth += 1;
                let tag = element.local_name();
                if tag.as_ref() == "testcase" {
                    case = Some((name(&element), 0));
                } else if let Some((_, result)) = &mut case {
                    let found = RESULTS.iter().position(|word| *word == tag.as_ref());
                    *result = found.unwrap_or(0).max(*result);
                }
                suites |= ["testsuite", "testsuites"].contains(&tag.as_ref());
                let tests = attribute(&element, "tests").filter(|_| tag.as_ref() == "testsuite");
                if let Some(tests) = tests.and_then(|number| number.parse::<u64>().ok()) {
                    announced = Some(announced.unwrap_or(0).saturating_add(tests));
                }
            }
            Ok(Event::End(element)) => {
                depth = depth.saturating_sub(1);
                if element.local_name().as_ref() == "testcase"
                    && let Some((name, result)) = case.take()
                {
                    totals[result] += 1;
                    if result > 1 {
                        names.add(&name);
                    }
                }
            }
            Ok(Event::Eof) if depth > 0 => break Some("it ends in the middle".to_owned()),
            Ok(Event::Eof) if !suites => break Some("it is not a report of tests".to_owned()),
            Ok(Event::Eof) => break None,
            Ok(_) => {}
            Err(error) => {
                break Some(format!("it is not XML from byte {} on: {error}", reader.error_position()));
            }
        }
    };
    // A test that ended the runner is in pytest's report as a case without a result, and not in its number of tests.
    let unfinished = announced.map_or(0, |announced| totals.iter().sum::<u64>().saturating_sub(announced));
    totals[0] = totals[0].saturating_sub(unfinished);
    let [passed, skipped, failed, errors] = totals.map(Some);
    let complete = problem.is_none() && unfinished == 0;
    let counts = TestCounts { passed, failed, skipped, errors, complete, source: "junit".into() };
    let is_cut_short = unfinished > 0;
    let found = FoundTests { counts, names, reported: complete, is_cut_short, ..FoundTests::default() };
    (suites.then_some(found), problem)
}

/// The value of an attribute, if it is not empty.
fn attribute(element: &BytesStart<'_>, key: &str) -> Option<String> {
    let attribute = element.attributes().flatten().find(|attribute| attribute.key.as_ref() == key)?;
    let raw = attribute.value.to_string();
    // Only XML's own entities are replaced.
    let text = quick_xml::escape::unescape(&raw).map(std::borrow::Cow::into_owned);
    Some(text.unwrap_or(raw)).filter(|text| !text.is_empty())
}

/// `class.name`, or the one that exists. With a file it is pytest's node id: `tests/test_a.py::TestX::test_y`.
fn name(element: &BytesStart<'_>) -> String {
    let value = |key: &str| attribute(element, key);
    let (class, name) = (value("classname"), value("name"));
    if let (Some(file), Some(name)) = (value("file"), &name)
        && let Some(module) = file.strip_suffix(".py").map(|stem| stem.replace('/', "."))
    {
        match class.as_deref().map(|class| class.strip_prefix(&module)) {
            // The file itself could not be loaded.
            None => return file,
            Some(Some(classes)) => return format!("{file}{}::{name}", classes.replace('.', "::")),
            // The test is inherited from a class of another file.
            Some(None) => {}
        }
    }
    match (class, name) {
        (Some(class), Some(name)) => format!("{class}.{name}"),
        (class, name) => class.or(name).unwrap_or_else(|| "?".into()),
    }
}
