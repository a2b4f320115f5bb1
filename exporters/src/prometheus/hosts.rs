//! The host names under which the page is served: a page of another site whose name was redirected here must not read
//! it (DNS rebinding).

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

/// The response to requests under another name.
pub(super) const REFUSAL: &str = "this page answers under localhost, an IP address, the machine's own name, a name without \
    dots, or one of prometheus.hosts in the config; under other names there are /metrics and /healthz\n";

/// The names of this host, in lower case.
#[derive(Clone, Debug)]
pub(crate) struct KnownHosts(Vec<String>);

impl KnownHosts {
    /// `machine`: the system's host name, usually without domain. `others`: names that the config allows.
    pub(crate) fn new(machine: &str, others: &[String]) -> Self {
        let names = std::iter::once(machine).chain(others.iter().map(String::as_str));
        Self(names.map(in_one_form).collect())
    }

    /// Whether a request uses a host name that cannot be redirected. A request without host is not from a browser.
    pub(super) fn allows(&self, request: &Parts) -> bool {
        let in_header = || request.headers.get(HOST).map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        match request.uri.authority().map(|authority| Some(authority.clone())).or_else(in_header) {
            None => true,
            Some(authority) => authority.is_some_and(|authority| self.knows(authority.host())),
        }
    }

    fn knows(&self, host: &str) -> bool {
        let host = in_one_form(host);
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address =
            host.parse::<Ipv4Addr>().is_ok() || address.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok());
        // A name without dots is no domain that another party could own.
        is_address || !host.contains('.') || self.0.contains(&host) || host.ends_with(".localhost")
    }
}

/// Lower case, without the trailing dot.
fn in_one_form(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn allows(uri: &str, host: Option<&str>) -> bool {
        let request = Request::get(uri);
        let request = host.into_iter().fold(request, |request, host| request.header(HOST, host));
        KnownHosts::new("Node-17.cluster.example", &[]).allows(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn names_that_somebody_elsewhere_may_own_are_refused() {
        for host in [
            "localhost:9464",
            "127.0.0.1",
            "10.1.2.3:9464",
            "[::1]:9464",
            "node-17.cluster.example:80",
            "trainer",
            "NODE-17.cluster.example.",
        ] {
            assert!(allows("/", Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "a b",
            "::1.evil.example",
        ] {
            assert!(!allows("/", Some(host)), "{host}");
        }
        assert!(allows("/", None), "no browser asks without a host");
        assert!(!allows("http://evil.example/", Some("localhost")), "the address asked for goes before the header");
    }
}
