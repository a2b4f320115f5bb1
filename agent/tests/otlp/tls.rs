//! Encrypted connections: a certificate authority of our own, and a receiver that wants to know its clients.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::receiver::{Log, PATIENT, PROTOCOLS, Receiver, UNHURRIED, is_provisioned};
use crate::run::{Run, counts};

/// PEM files: an authority, and a server and a client it vouches for.
struct Papers {
    directory: tempfile::TempDir,
}

impl Papers {
    fn make() -> Self {
        let papers = Self { directory: tempfile::tempdir().unwrap() };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = params.self_signed(&key).unwrap();
        papers.write("ca.pem", &authority.pem());
        let issuer = Issuer::new(params, key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).unwrap();
            papers.write(&format!("{name}.pem"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn receiver(&self, protocol: &str, log: &Path) -> Receiver {
        let (certificate, key, ca) = (self.text("server.pem"), self.text("server.key"), self.text("ca.pem"));
        Receiver::start(protocol, log, &["--certificate", &certificate, "--key", &key, "--client-ca", &ca])
    }
}

fn otlp(protocol: &str, port: u16) -> String {
    format!(r#""endpoint": "https://localhost:{port}", "protocol": "{protocol}", {PATIENT}"#)
}

#[test]
fn both_sides_know_each_other_by_their_certificates() {
    if !is_provisioned("both_sides_know_each_other_by_their_certificates") {
        return;
    }
    let papers = Papers::make();
    for protocol in PROTOCOLS {
        let log = papers.path(&format!("log-{}", protocol.len()));
        let receiver = papers.receiver(protocol, &log);
        let members = format!(
            r#"{}, "certificate": "{}", "client_certificate": "{}", "client_key": "{}", "compression": "gzip""#,
            otlp(protocol, receiver.port),
            papers.text("ca.pem"),
            papers.text("client.pem"),
            papers.text("client.key"),
        );
        let mut run = Run::start(&members, UNHURRIED);
        run.steps(20);
        let ended = run.end();
        receiver.stop();
        ended.assert_arrived_exactly_once(&Log::read(&log));
    }
}

#[test]
fn a_receiver_nobody_vouches_for_gets_nothing_and_the_user_hears_why() {
    if !is_provisioned("a_receiver_nobody_vouches_for_gets_nothing_and_the_user_hears_why") {
        return;
    }
    let (papers, others) = (Papers::make(), Papers::make());
    for protocol in PROTOCOLS {
        let log = papers.path(&format!("log-{}", protocol.len()));
        let receiver = papers.receiver(protocol, &log);
        let members = format!(r#"{}, "certificate": "{}""#, otlp(protocol, receiver.port), others.text("ca.pem"));
        let mut run = Run::start(&members, r#", "shutdown_timeout_ms": 300"#);
        run.steps(20);
        run.wait_for_notice("certificate");
        let ended = run.end();
        let otlp = counts(&ended.report, "otlp");
        assert_eq!((otlp.exported, otlp.abandoned), (0, otlp.accepted), "{}", ended.report);
        assert!(Log::read(&log).points.is_empty());
    }
}

#[test]
fn a_certificate_that_cannot_be_read_is_said_at_the_start_and_everything_else_goes_on() {
    for protocol in PROTOCOLS {
        let mut run = Run::start(&format!(r#"{}, "certificate": "/nowhere/ca.pem""#, otlp(protocol, 1)), "");
        run.steps(5);
        assert!(run.notices().contains("no OTLP export: cannot use `/nowhere/ca.pem`"), "{}", run.notices());
        assert!(run.report().sinks.iter().all(|sink| sink.name != "otlp"));
        run.end();
    }
}
