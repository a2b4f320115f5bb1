//! The notifier that POSTs alerts over HTTP, on its own thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use trainmon_core::config::Webhook;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use super::delivery::{Failed, Notifier, Payload};

/// The pause before the first retry; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Posts alerts.
pub(crate) struct WebhookNotifier {
    agent: Agent,
    webhook: Webhook,
}

impl WebhookNotifier {
    pub(crate) fn new(webhook: Webhook) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(Duration::from_millis(webhook.timeout_ms)))
            .tls_config(tls())
            .user_agent(concat!("trainmon/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into(), webhook }
    }

    fn post(&self, body: &str) -> Result<(), ureq::Error> {
        self.agent.post(&self.webhook.url).header("content-type", "application/json").send(body).map(drop)
    }
}

impl Notifier for WebhookNotifier {
    type Message = Arc<Payload>;

    fn deliver(&mut self, payload: &Arc<Payload>, closing: &Receiver<Instant>) -> Result<(), Failed> {
        let (mut pause, mut tries_left) = (FIRST_PAUSE, self.webhook.retries);
        loop {
            let error = match self.post(&payload.json) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if tries_left == 0 || is_final(&error) {
                let hint = "check `alert.webhook.url`, and that its server accepts a POST of JSON";
                return Err(Failed { what: format!("{}: {error}", host(&self.webhook.url)), hint });
            }
            tries_left -= 1;
            match closing.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => pause = (2 * pause).min(MAX_PAUSE),
                // During shutdown, there is one more try without a pause.
                Ok(_) | Err(RecvTimeoutError::Disconnected) => tries_left = 0,
            }
        }
    }
}

/// Scheme and host of an address; the rest may contain a credential.
fn host(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", authority.rsplit('@').next().unwrap_or_default())
}

/// Whether the server's refusal is final, so that a retry would not help.
fn is_final(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::StatusCode(400..=499) if !matches!(error, ureq::Error::StatusCode(408 | 425 | 429)))
        || matches!(error, ureq::Error::BadUri(_))
}

/// The root certificates that this host trusts. Without any, `https` fails with an error and `http` works.
fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs();
    let certificates: Vec<Certificate<'static>> =
        found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .build()
}
