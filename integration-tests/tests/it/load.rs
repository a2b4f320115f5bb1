//! The load tool, with a job so small that it takes seconds.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use trainmon_integration_tests::{Load, skip};

#[test]
fn a_small_job_is_scraped_whole_and_measured() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let load = Load {
        ranks: 3,
        layers: 2,
        step: Duration::from_millis(100),
        scrape: Duration::from_secs(1),
        scrapes: 3,
        rules: Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/alerting"),
    };
    let Some(borne) = load.run(directory.path())? else {
        let reason = "no prometheus on PATH (Debian: prometheus)";
        return Ok(skip("a_small_job_is_scraped_whole_and_measured", reason)?);
    };
    assert_eq!(borne.answered, 3.0, "{borne}");
    // Two layers, three groups (attention, MLP, norms), five kinds of tensors, four statistics.
    assert!(borne.samples_per_page > f64::from(2 * 3 * 5 * 4), "{borne}");
    assert!(borne.series > 3.0 * borne.samples_per_page, "{borne}");
    assert!(borne.scrape_seconds.0 > 0.0 && borne.scrape_seconds.0 <= borne.scrape_seconds.1, "{borne}");
    assert!(borne.resident_bytes > 1e6 && borne.cores > 0.0 && borne.rule_seconds > 0.0, "{borne}");
    Ok(())
}
