//! The standard's switch for everything of OpenTelemetry.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;

use crate::support::{EVERYTHING, Scene, assert_csv_complete, assert_unharmed};

#[test]
fn a_process_with_opentelemetry_switched_off_sends_nothing_and_says_so_once() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let otlp = format!(r#""format": ["csv", "otlp"], "otlp": {{"endpoint": "{endpoint}"}}"#);
    let scene = Scene::new(&format!("{EVERYTHING}, \"queue_steps\": 100, {otlp}"))?;
    let trainer = scene.trainer(10).variable("OTEL_SDK_DISABLED", "True").variable("TRAINMON_QUIET", "0");
    let ended = trainer.run()?;
    assert_unharmed(&ended, 10)?;
    assert_csv_complete(&ended, &scene.out(), 10)?;
    let notice = "trainmon: no OTLP export: `OTEL_SDK_DISABLED` is true; all else continues";
    assert_eq!(
        (ended.stderr.lines().next(), ended.notices("OTEL_SDK_DISABLED")),
        (Some(notice), 1),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("warning"), "{}", ended.stderr);
    assert!(ended.line("sink otlp").is_err(), "what was never started has no counts");
    assert_eq!(listener.accept().map_err(|error| error.kind()).err(), Some(ErrorKind::WouldBlock), "nobody came");
    Ok(())
}
