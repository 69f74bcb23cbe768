//! A report in JUnit's XML: the test cases are counted one by one, so that a report that was cut short still tells what it
//! has. Nothing that a document defines for itself is expanded.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{Found, Names};

/// What a report came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Suite {
    /// The tests; none if it is no report at all.
    pub found: Option<Found>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// Reads the text of a report.
pub(in super::super) fn read(bytes: &[u8]) -> Suite {
    // What is no UTF-8 is some test's own output, and no reason to count nothing.
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::from_str(&text);
    reader.config_mut().expand_empty_elements = true;
    let (mut names, mut tally, mut case, mut depth, mut suites) =
        (Names::default(), [0_u64; 4], None, 0_u64, false);
    let problem = loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                depth += 1;
                match element.local_name().as_ref() {
                    "testcase" => case = Some(Case { name: name(&element), came_to: Passed }),
                    "failure" => case.iter_mut().for_each(|case| case.came_to = case.came_to.max(Failed)),
                    "error" => case.iter_mut().for_each(|case| case.came_to = case.came_to.max(Broke)),
                    "skipped" => case.iter_mut().for_each(|case| case.came_to = case.came_to.max(Skipped)),
                    "testsuite" | "testsuites" => suites = true,
                    _ => {}
                }
            }
            Ok(Event::End(element)) => {
                depth = depth.saturating_sub(1);
                if element.local_name().as_ref() == "testcase"
                    && let Some(case) = case.take()
                {
                    tally[case.came_to as usize] += 1;
                    if matches!(case.came_to, Failed | Broke) {
                        names.add(&case.name);
                    }
                }
            }
            Ok(Event::Eof) if depth > 0 => break Some("it ends in the middle".to_owned()),
            Ok(Event::Eof) if !suites => break Some("it is no report of tests".to_owned()),
            Ok(Event::Eof) => break None,
            Ok(_) => {}
            Err(error) => {
                break Some(format!("it is no XML from byte {} on: {error}", reader.error_position()));
            }
        }
    };
    let [passed, skipped, failed, errors] = tally.map(Some);
    let complete = problem.is_none();
    let found = Found { passed, failed, skipped, errors, complete, names, ..Found::default() };
    Suite { found: suites.then_some(found), problem }
}

struct Case {
    name: String,
    came_to: CameTo,
}

/// In the order of weight: a case that failed and broke has broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CameTo {
    Passed,
    Skipped,
    Failed,
    Broke,
}

use CameTo::{Broke, Failed, Passed, Skipped};

/// `class.name`, as far as there is one.
fn name(element: &BytesStart<'_>) -> String {
    let value = |key: &str| {
        let attribute = element.attributes().flatten().find(|attribute| attribute.key.as_ref() == key)?;
        let raw = attribute.value.to_string();
        // What is no entity of XML's own stays as it is written.
        let text = quick_xml::escape::unescape(&raw).map(std::borrow::Cow::into_owned);
        Some(text.unwrap_or(raw)).filter(|text| !text.is_empty())
    };
    let (class, name) = (value("classname"), value("name"));
    match (class, name) {
        (Some(class), Some(name)) => format!("{class}.{name}"),
        (class, name) => class.or(name).unwrap_or_else(|| "?".into()),
    }
}
