//! Which requests are for this server at all: by the name that they use for it, and by the page that they come from. A page of
//! another site, or of another server on this host, must not reach a job, nor see that there is one.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, Request};

use crate::answer::HttpFailure;

/// The names of this server.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Those of loopback with `port`, and those that the user has added.
    pub fn new(port: Option<u16>, added: &[String]) -> Self {
        let own = port.into_iter().flat_map(|port| {
            let names = ["127.0.0.1", "[::1]", "localhost"];
            // A client leaves the port of HTTP out.
            let bare = names.into_iter().filter(move |_| port == 80).map(str::to_owned);
            names.map(|name| format!("{name}:{port}")).into_iter().chain(bare)
        });
        Self(own.chain(added.iter().map(|name| name.to_ascii_lowercase())).collect())
    }

    fn has(&self, host: &str) -> bool {
        self.0.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

/// Refuses a request over TCP that names another server, or comes from a page of one.
pub fn check<B>(hosts: &Hosts, request: &Request<B>) -> Result<(), HttpFailure> {
    let host = host(request)?;
    if !hosts.has(&host) {
        let hint =
            "use the address that `quell serve --status` shows; behind a proxy, start it with --allow-host";
        return Err(HttpFailure::new(403, "host_not_allowed", "the request names another host", hint));
    }
    let headers = request.headers();
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(&host)) {
            return Err(foreign());
        }
    }
    let is_page = request.method() == Method::GET && request.uri().path() == "/";
    for site in headers.get_all("sec-fetch-site") {
        match site.as_bytes() {
            b"same-origin" => {}
            // The page holds no secret, so it may be opened from an address bar, a link or a file.
            _ if is_page && is_navigation(headers) => {}
            _ => return Err(foreign()),
        }
    }
    Ok(())
}

fn foreign() -> HttpFailure {
    let hint = "open the dashboard itself; programs send neither Origin nor Sec-Fetch-Site";
    HttpFailure::new(403, "origin_not_allowed", "the request comes from a page of another site", hint)
}

/// Whether a browser opens a page in a tab of its own.
fn is_navigation(headers: &HeaderMap) -> bool {
    let is =
        |name: HeaderName, value: &[u8]| headers.get(name).is_some_and(|found| found.as_bytes() == value);
    is(HeaderName::from_static("sec-fetch-mode"), b"navigate")
        && is(HeaderName::from_static("sec-fetch-dest"), b"document")
}

/// The host that the request names, once.
fn host<B>(request: &Request<B>) -> Result<String, HttpFailure> {
    let bad = |why: &str| HttpFailure::new(400, "bad_request", why, "send one Host header, and a path");
    let mut named = request.headers().get_all(HOST).iter();
    let host = named.next().ok_or_else(|| bad("the request has no Host header"))?;
    if named.next().is_some() {
        return Err(bad("the request has more than one Host header"));
    }
    let host = host.to_str().map_err(|_| bad("the Host header is not text"))?;
    // A request line with a whole address names the host again.
    if request.uri().authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
        return Err(bad("the request line and the Host header name different hosts"));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(path: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let hosts = Hosts::new(Some(7835), &["quell.example.net".into()]);
        check(&hosts, &request.body(()).unwrap()).map_err(|failure| failure.body().code.clone())
    }

    #[test]
    fn only_own_names_with_the_port_are_let_in() {
        for host in ["127.0.0.1:7835", "localhost:7835", "LOCALHOST:7835", "[::1]:7835", "quell.example.net"]
        {
            assert_eq!(checked("/v1/jobs", &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.test", "127.0.0.1", "127.0.0.1:80", "localhost:7835.evil.test", "", "quell.example.net:1"]
        {
            assert_eq!(checked("/v1/jobs", &[("host", host)]), Err("host_not_allowed".into()), "{host}");
        }
        assert_eq!(checked("/v1/jobs", &[]), Err("bad_request".into()));
    }

    #[test]
    fn only_own_pages_are_let_in() {
        let own = ("host", "127.0.0.1:7835");
        let with = |more: &[(&str, &str)]| checked("/v1/jobs", &[&[own], more].concat());
        assert_eq!(with(&[("origin", "http://127.0.0.1:7835")]), Ok(()));
        for origin in
            ["null", "http://127.0.0.1:3000", "http://localhost:7835", "http://evil.test", "file://"]
        {
            assert_eq!(with(&[("origin", origin)]), Err("origin_not_allowed".into()), "{origin}");
        }
        assert_eq!(with(&[("sec-fetch-site", "same-origin")]), Ok(()));
        for site in ["same-site", "cross-site", "none", "x"] {
            assert_eq!(with(&[("sec-fetch-site", site)]), Err("origin_not_allowed".into()), "{site}");
        }
    }

    #[test]
    fn only_the_page_itself_can_be_opened_from_elsewhere() {
        let opened =
            [("host", "127.0.0.1:7835"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        for site in ["none", "cross-site", "same-site"] {
            let headers = [&opened[..], &[("sec-fetch-site", site)]].concat();
            assert_eq!(checked("/", &headers), Ok(()), "{site}");
            assert_eq!(checked("/v1/jobs", &headers), Err("origin_not_allowed".into()), "{site}");
            assert!(
                checked("/", &[opened[0], ("sec-fetch-site", site)]).is_err(),
                "{site}: not a navigation"
            );
        }
    }
}
