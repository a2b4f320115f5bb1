//! The files `request.json` and `steps_before.jsonl` beside a dump.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use trainmon_control::AgreedCapture;
use trainmon_core::Step;

use super::before::Before;
use super::replay_outcome::ReplayOutcome;

/// Writable by the owner and readable by the group, as the files of the dump.
const FILE_MODE: u32 = 0o640;
const REQUEST: &str = "request.json";
const STEPS_BEFORE: &str = "steps_before.jsonl";

/// The files beside a dump.
pub(crate) struct RequestFile {
    pub(crate) place: PathBuf,
    pub(crate) run: String,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    pub(crate) capture: Arc<AgreedCapture>,
    pub(crate) step: Step,
    pub(crate) began: SystemTime,
    pub(crate) bytes: u64,
    pub(crate) why: Option<String>,
    /// The outcome of a replay; `None` for a step that was not replayed.
    pub(crate) replayed: Option<ReplayOutcome>,
    /// The steps before the capture; only for its first step.
    pub(crate) before: Option<Before>,
}

impl RequestFile {
    /// Writes the files. A file that cannot be written is skipped, because the dump is complete without it.
    pub(crate) fn write(&self) {
        let has_steps = self
            .before
            .as_ref()
            .is_some_and(|before| put(&self.place.join(STEPS_BEFORE), |out| before.write(out)).is_ok());
        let text = format!("{:#}\n", self.document(has_steps));
        let _written = put(&self.place.join(REQUEST), |out| out.write_all(text.as_bytes())).is_ok();
    }

    fn document(&self, has_steps: bool) -> Value {
        let AgreedCapture { id, first, order, asked, asked_at_step, asked_at_ms, may_shift: _, replay } =
            &*self.capture;
        let asked_at = SystemTime::UNIX_EPOCH + Duration::from_millis(*asked_at_ms);
        json!({
            "trainmon": env!("CARGO_PKG_VERSION"),
            "run": self.run,
            "rank": self.rank,
            "world_size": self.world_size,
            "id": id,
            "asked": asked,
            "asked_at_step": asked_at_step,
            "asked_at": text_of(asked_at),
            "order": order,
            "first_step": first,
            "step": self.step.0,
            "is_replay": replay.is_some(),
            "replayed": self.replayed.map(|replayed| json!({ "same_loss": replayed.same_loss, "is_finite": replayed.is_finite })),
            "captured_at": text_of(self.began),
            "bytes": self.bytes,
            "is_whole": self.why.is_none(),
            "why": self.why,
            "steps_before": has_steps.then_some(STEPS_BEFORE),
        })
    }
}

/// The time in RFC 3339; `None` if it is outside the supported years.
fn text_of(time: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok().map(|stamp| stamp.to_string())
}

/// Writes a new temporary file and renames it to `path`, so that a partial file never appears there. Follows no link.
fn put(path: &Path, write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _gone = fs::remove_file(&temporary).is_ok();
    }
    written
}
