//! The soak in short: that it sees what it should. Whether 200,000 steps are flat is for `cargo xtask soak`.

use std::time::Duration;

use anyhow::Result;
use trainmon_integration_tests::{Flaps, Soak};

use crate::support::TRAINER;

#[test]
fn a_short_soak_meets_its_receiver_up_down_and_hanging_and_loses_count_of_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let phase = Duration::from_millis(150);
    let flaps = Flaps { up: phase, down: phase, hanging: phase };
    let every = Duration::from_millis(5);
    let soak = Soak { trainer: TRAINER.into(), steps: 2500, every, flaps };
    let soaked = soak.run(directory.path())?;
    let (served, account) = (soaked.served, soaked.account.join("\n"));
    assert!(served.taken > 0 && served.refused > 0 && served.unanswered > 0, "{soaked}");
    assert!(soaked.pages > 0, "{soaked}");
    for sink in ["csv", "prometheus", "otlp", "tensorboard", "journal"] {
        assert!(account.contains(&format!("sink {sink} accepted=")), "{account}");
    }
    // Memory is still filling queues and rings when so short a run ends.
    let growth = soaked.tenths.growth();
    assert!(growth.iter().all(|what| what.starts_with("memory")), "{growth:?}\n{soaked}");
    Ok(())
}
