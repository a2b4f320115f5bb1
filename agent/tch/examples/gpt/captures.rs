//! Captures of the steps requested on the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use trainmon_tch::trainmon_capture::{CaptureConfig, CaptureDialect, CapturePlace, CapturePlan, Notices};
use trainmon_tch::{Capture, CaptureOptions};

/// The default capture config.
const USUAL: &str =
    r#"{"task": "statistics", "level": "mix", "risk_level": "ALL", "statistics": {"summary_mode": "md5"}}"#;

/// The steps to capture, and the plan of their captures.
pub(crate) struct Captures {
    steps: Vec<u64>,
    plan: Arc<CapturePlan>,
}

impl Captures {
    pub(crate) fn new(steps: &[u64], to: &Path, config: Option<&Path>) -> Result<Self> {
        let text = match config {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?,
            None => USUAL.to_owned(),
        };
        let name = config.map_or_else(String::new, |file| file.display().to_string());
        let parsed = CaptureConfig::parse(&text, &name, CaptureDialect::Trainmon)?;
        let mut config = parsed.config;
        if config.dump_path.as_os_str().is_empty() {
            config.dump_path = to.to_path_buf();
        }
        Ok(Self { steps: steps.to_vec(), plan: Arc::new(CapturePlan::new(config)) })
    }

    /// Begins a capture if this step is requested.
    pub(crate) fn begin(&self, step: u64) -> Result<Option<Capture>> {
        if !self.steps.contains(&step) {
            return Ok(None);
        }
        let say = Notices::new(|notice| println!("capture: {}", notice.message));
        let place = CapturePlace { step, rank: Some(0) };
        Ok(Some(Capture::begin(&self.plan, place, &CaptureOptions::default(), say)?))
    }
}

/// A finished capture.
pub(crate) struct Finished {
    pub(crate) step: u64,
    pub(crate) entries: usize,
    /// The directory of the rank.
    pub(crate) directory: PathBuf,
    /// The new path of an earlier run's capture of the same step.
    pub(crate) earlier: Option<PathBuf>,
}

/// Ends the capture of a step.
pub(crate) fn finish(capture: Capture, step: u64) -> Result<Option<Finished>> {
    let earlier = capture.set_aside().map(Path::to_path_buf);
    let made = capture.finish()?;
    Ok(made.map(|made| {
        let directory = made.document.parent().unwrap_or(&made.document).to_path_buf();
        Finished { step, entries: made.entries, directory, earlier }
    }))
}
