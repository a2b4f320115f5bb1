//! A port that another process listens on.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;

use crate::support::{EVERYTHING, Scene, assert_csv_complete, assert_unharmed};

#[test]
fn a_taken_port_costs_the_scrape_page_and_nothing_else() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let port = address.port();
    let scene = Scene::new(&format!("{EVERYTHING}, \"queue_steps\": 100, \"prometheus\": {{\"port\": {port}}}"))?;
    let ended = scene.trainer(10).run()?;
    assert_unharmed(&ended, 10)?;
    assert_csv_complete(&ended, &scene.out(), 10)?;
    assert_eq!(
        ended.stderr,
        format!(
            "trainmon: warning: no scrape page: cannot listen on {address}: Address already in use (os error 98); \
             all else continues\n  hint: another process uses the port: set `prometheus.port` (0 lets the system \
             choose)"
        )
    );
    assert!(ended.line("sink prometheus").is_err(), "a page that was never served has no counts");
    Ok(())
}
