//! The tensor files of a session.

use std::sync::Arc;
use std::time::Duration;

use trainmon_capture_files::{Hole, WriteError};
use trainmon_core::with_causes;

use super::Session;
use crate::file_writer::{Writing, WrittenFile};
use crate::files::{Elements, Files, TensorFile};
use crate::names::file_name;

impl Session {
    /// Passes a tensor to the file writers. Its elements are read before this returns, or not at all if the capture has ended.
    pub(crate) fn save(&self, file: &TensorFile<'_>, size: usize, elements: &mut impl Elements) {
        if !self.takes_more() {
            return;
        }
        let Some(files) = self.files() else { return };
        let config = self.plan.config();
        let mut name = file_name(file.path, config.file_format.extension());
        if config.files.compress {
            name.push_str(".zst");
        }
        if !self.state.lock().files.insert(name.clone()) {
            // Different keys may give the same path: `1` and `"1"`, `a.b` and `b` in `a`.
            name.insert_str(0, &format!("{}~", file.hole.0));
        }
        if !files.put(file, name, size, elements) {
            self.note_error(
                "tensor",
                &format!("no file for `{}`: not enough memory to copy its {size} bytes", file.path),
                &[],
            );
        }
    }

    fn files(&self) -> Option<Arc<Files>> {
        let started = self.files_or_why();
        match started {
            Ok(files) => files,
            Err(error) => {
                self.records.fail(with_causes(&error), error.hint());
                None
            }
        }
    }

    fn files_or_why(&self) -> Result<Option<Arc<Files>>, WriteError> {
        let mut files = self.files.lock();
        if let Some(files) = &*files {
            return Ok(Some(Arc::clone(files)));
        }
        // Checked under the lock, because `finish` first closes the records and then takes the files.
        if !self.takes_more() {
            return Ok(None);
        }
        let config = self.plan.config();
        let started = self.directory.lock().tensors().and_then(|directory| {
            let writing = Writing {
                format: config.file_format,
                compress: config.files.compress,
                shares: config.files.share_files,
                durable: config.files.durable,
            };
            let bound = usize::try_from(config.files.pool_mib << 20).unwrap_or(usize::MAX);
            let records = Arc::clone(&self.records);
            let done =
                Box::new(move |hole: Hole, written: Result<(&str, WrittenFile), _>| records.file_done(hole, written));
            let (spare, speed) = (self.plan.spare_memory().clone(), self.plan.disk_speed().clone());
            let files = Files::new(directory, writing, bound, spare, speed, done);
            files.start().map_err(|source| WriteError::Write { path: config.dump_path.clone(), source })
        })?;
        let started = Arc::new(started);
        *files = Some(Arc::clone(&started));
        Ok(Some(started))
    }

    /// Waits up to `at_most` for the tensor files and returns whether all of them are written.
    pub fn wait_for_files(&self, at_most: Duration) -> bool {
        let files = self.files.lock().clone();
        files.is_none_or(|files| files.drain_for(at_most))
    }
}
