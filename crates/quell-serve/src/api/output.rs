//! The output of a job as its bytes, to keep.

use std::io;

use axum::body::Body;
use axum::http::Response;
use axum::http::StatusCode;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue,
};
use quell::binary::{JobInternals, LogReader, Piece, Streams};
use quell::{Cursor, Error, Stream};

use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};
use crate::pools;

/// The most bytes of one answer. A client asks for the rest by `Range`.
const MOST: u64 = 8 << 20;

/// Bytes of a stream.
struct Part {
    from: u64,
    bytes: Vec<u8>,
    /// How many bytes the stream has.
    all: u64,
}

/// The first byte that is asked for, and the last one if it is named. `bytes=-N` asks for the last N.
fn range(header: Option<&str>, all: u64) -> Result<Option<(u64, u64)>, ()> {
    let Some(spec) = header.and_then(|header| header.strip_prefix("bytes=")) else { return Ok(None) };
    let (first, last) = spec.split_once('-').ok_or(())?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| ());
    let (first, last) = match (first, last) {
        ("", last) => (all.saturating_sub(number(last)?), u64::MAX),
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    if first >= all || last < first { Err(()) } else { Ok(Some((first, last))) }
}

pub async fn output(call: HttpCall) -> Reply {
    let stream = if call.part("stream") == "stderr" { Stream::Stderr } else { Stream::Stdout };
    if !matches!(call.part("stream"), "stdout" | "stderr") {
        return Err(HttpFailure::new(404, "not_found", "a job has the streams stdout and stderr", ""));
    }
    let pool = call.state.pools.reads.clone();
    let (id, part, is_part) = pools::run(&pool, move || {
        let access = call.access(call.part("job"), None)?;
        let job = call.job(&access)?;
        job.check_has_logs()?;
        let totals = job.logs().last(0).read()?.totals;
        let all = if stream == Stream::Stdout { totals.stdout.bytes } else { totals.stderr.bytes };
        let range = range(call.header("range"), all).map_err(|()| {
            HttpFailure::new(
                416,
                "bad_range",
                format!("the stream has {all} bytes"),
                "ask for bytes that it has",
            )
        })?;
        let (from, last) = range.unwrap_or((0, u64::MAX));
        let part = read(&job, stream, from, last, all).map_err(Error::io(job.dir().dir()))?;
        let is_part = range.is_some() || part.bytes.len() as u64 != all;
        Ok::<_, HttpFailure>((job.id(), part, is_part))
    })
    .await??;
    let length = part.bytes.len() as u64;
    let mut response = Response::new(Body::from(part.bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let mut put = |name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    put(CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.{stream}.log\""));
    if is_part && length > 0 {
        put(CONTENT_RANGE, format!("bytes {}-{}/{}", part.from, part.from + length - 1, part.all));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// The kept bytes from `from` up to `last`. What was cut between them is left out, so a part ends before a cut; the next one begins
/// after it.
fn read(job: &quell::Job, stream: Stream, from: u64, last: u64, all: u64) -> io::Result<Part> {
    let (streams, start) = match stream {
        Stream::Stdout => (Streams::Stdout, Cursor { out: from, err: 0 }),
        Stream::Stderr => (Streams::Stderr, Cursor { out: 0, err: from }),
    };
    let mut reader = LogReader::open(job.dir().dir())?.only(streams);
    reader.seek(start);
    let mut part = Part { from, bytes: Vec::new(), all };
    let most = last.saturating_sub(from).saturating_add(1).min(MOST) as usize;
    while part.bytes.len() < most {
        match reader.next_piece()? {
            Some(Piece::Data { bytes, offset, .. }) => {
                if part.bytes.is_empty() {
                    part.from = offset;
                }
                part.bytes.extend_from_slice(&bytes[..bytes.len().min(most - part.bytes.len())]);
            }
            Some(Piece::Cut(_)) if part.bytes.is_empty() => {}
            Some(Piece::Cut(_)) | None => break,
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_stream() {
        for (header, found) in [
            (None, Ok(None)),
            (Some("bytes=0-"), Ok(Some((0, u64::MAX)))),
            (Some("bytes=2-5"), Ok(Some((2, 5)))),
            (Some("bytes=-3"), Ok(Some((7, u64::MAX)))),
            (Some("bytes=-30"), Ok(Some((0, u64::MAX)))),
            (Some("bytes=10-"), Err(())),
            (Some("bytes=5-2"), Err(())),
            (Some("bytes=x"), Err(())),
            (Some("lines=1-2"), Ok(None)),
        ] {
            assert_eq!(range(header, 10), found, "{header:?}");
        }
    }
}
