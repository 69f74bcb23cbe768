//! The dashboard's files, in the program. Each has the hash of all of them in its path, so that a browser keeps it for ever and never
//! mixes two versions.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};

use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($name:literal, $kind:ident) => {
        ($name, $kind, include_bytes!(concat!("../page/", $name)))
    };
}

/// The files: path below `page/`, type, content. `index.html` is the page itself.
const FILES: &[(&str, &str, &[u8])] = &[
    file!("index.html", HTML),
    file!("ansi.js", JS),
    file!("api.js", JS),
    file!("app.js", JS),
    file!("clock.js", JS),
    file!("events.js", JS),
    file!("feed.js", JS),
    file!("filter.js", JS),
    file!("fleet.js", JS),
    file!("history.js", JS),
    file!("host.js", JS),
    file!("hub.js", JS),
    file!("job.js", JS),
    file!("live.js", JS),
    file!("log.js", JS),
    file!("logwindow.js", JS),
    file!("parts.js", JS),
    file!("phase.js", JS),
    file!("quell.css", CSS),
    file!("receipt.js", JS),
    file!("series.js", JS),
    file!("sse.js", JS),
    file!("stop.js", JS),
    file!("words.js", JS),
    file!("vendor/htm.mjs", JS),
    file!("vendor/preact.mjs", JS),
    file!("vendor/uPlot.iife.min.js", JS),
    file!("vendor/uPlot.min.css", CSS),
];

/// What `index.html` has in the place of the hash.
const PLACE: &str = "{hash}";

static HASH: LazyLock<String> = LazyLock::new(|| {
    // FNV-1a: it tells versions apart, and protects nothing.
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = FILES
        .iter()
        .flat_map(|(name, _, content)| name.as_bytes().iter().chain(*content))
        .fold(0xcbf2_9ce4_8422_2325, add);
    format!("{hash:016x}")
});

/// The page.
pub async fn page(_: HttpCall) -> Reply {
    let (_, kind, content) = FILES[0];
    let text = String::from_utf8_lossy(content).replace(PLACE, &HASH);
    Ok(sent(kind, text.into_bytes(), "no-cache"))
}

/// A file of the page.
pub async fn file(call: HttpCall) -> Reply {
    let (hash, name) = (call.part("hash"), call.part("file"));
    let found = FILES.iter().find(|(known, _, _)| *known == name && hash == *HASH);
    let Some((_, kind, content)) = found else {
        return Err(HttpFailure::new(404, "not_found", "no such file of the page", "load the page again"));
    };
    Ok(sent(kind, content.to_vec(), "public, max-age=31536000, immutable"))
}

fn sent(kind: &'static str, content: Vec<u8>, cache: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(content));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_file_of_the_page_is_served_and_named_with_the_hash_only_in_the_page_itself() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut found = BTreeSet::new();
        for folder in ["", "vendor/"] {
            for entry in std::fs::read_dir(page.join(folder)).unwrap() {
                let name = format!("{folder}{}", entry.unwrap().file_name().to_str().unwrap());
                if [".html", ".css", ".js", ".mjs"].iter().any(|end| name.ends_with(end)) {
                    found.insert(name);
                }
            }
        }
        assert_eq!(found, FILES.iter().map(|(name, _, _)| (*name).to_owned()).collect());
        for (name, _, content) in FILES {
            let has_place = String::from_utf8_lossy(content).contains(&format!("/assets/{PLACE}/"));
            assert_eq!(has_place, *name == "index.html", "{name}");
        }
    }
}
