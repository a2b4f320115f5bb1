//! The writer of a journal.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use trainmon_core::config::{Config, Csv};
use trainmon_core::{RunInfo, StepBatch, TensorInfo};

use super::bytes::ByteSink as _;
use super::error::JournalError;
use super::facts::{Facts, FileFacts};
use super::frame::FrameKind;
use super::layout::{Layout, file_name};
use super::medium::{Medium, Storage};
use super::number_names::StoredNames;
use super::region::{Label, RegionWriter};
use super::retention::earlier_journals;
use super::secrets::without_secrets;
use super::state::State;
use super::step::{encode_step, put_name};
use super::store::{Shared, Store};
use super::view::JournalView;

/// The settings of a new journal.
#[derive(Clone, Debug)]
pub struct JournalSpec<'a> {
    /// The file's total size in bytes; at least [`MIN_FILE_BYTES`](super::MIN_FILE_BYTES).
    pub file_bytes: u64,
    /// The process that writes it.
    pub run: RunInfo,
    /// The run's config.
    pub config: &'a Config,
    /// The settings of the CSV files that the run writes or would write.
    pub csv: &'a Csv,
    /// How the bytes get to the operating system.
    pub storage: Storage,
}

/// A journal that one thread at a time writes; [`Journal::view`] lets others read it.
///
/// Data that [`append`](Self::append) has written survives SIGKILL and abort at once, and power loss after the next
/// [`JournalView::flush`]. Cost of a step: its encoding, a checksum, one copy; `docs/measurements.md` has figures.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    content: Vec<u8>,
    names_stored: usize,
    /// Whether the log of names is full: later names are written with the steps that use them.
    names_full: bool,
}

impl Journal {
    /// Creates a journal file with all its space reserved, and its directory if necessary. The data reach the disk only
    /// with [`JournalView::flush`].
    ///
    /// # Errors
    /// The file exists or cannot be created, the disk is full, or the file cannot be mapped. A failed call leaves no
    /// file.
    pub fn create(path: &Path, spec: &JournalSpec<'_>) -> Result<Self, JournalError> {
        let facts = Facts {
            trainmon: env!("CARGO_PKG_VERSION").to_owned(),
            created_seconds: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            run: spec.run.clone(),
            config: serde_json::to_value(spec.config)
                .map(without_secrets)
                .map_err(|source| JournalError::Facts { path: path.to_path_buf(), source })?,
            files: FileFacts::of(spec.config, spec.csv),
            number_names: StoredNames::current(),
        };
        let facts =
            serde_json::to_vec(&facts).map_err(|source| JournalError::Facts { path: path.to_path_buf(), source })?;
        // Journals must have different numbers, so that none accepts frames that another left on the disk.
        let journal = RandomState::new().hash_one((SystemTime::now(), std::process::id()));
        let layout = Layout::new(journal, spec.file_bytes, &facts);
        let medium = Medium::create(path, layout.file_length, spec.storage)?;
        let mut store = Store {
            journal,
            state: State::default(),
            names: RegionWriter::new(layout.names),
            alerts: RegionWriter::new(layout.alerts),
            steps: RegionWriter::new(layout.steps),
            index: VecDeque::new(),
        };
        let begun = medium
            .write(layout.facts.offset, &facts)
            .and_then(|()| store.write_state(&medium))
            .and_then(|()| medium.write(0, &layout.encode()));
        if let Err(error) = begun {
            // Without its beginning the file is useless; only the first error matters.
            drop(std::fs::remove_file(path));
            return Err(error);
        }
        let shared = Arc::new(Shared { medium, store: Mutex::new(store) });
        Ok(Self { shared, content: Vec::new(), names_stored: 0, names_full: false })
    }

    /// Creates a journal in a directory, numbered after those that earlier runs left there.
    ///
    /// # Errors
    /// As [`Journal::create`].
    pub fn create_in(directory: &Path, spec: &JournalSpec<'_>) -> Result<Self, JournalError> {
        let earlier = earlier_journals(directory, spec.run.rank);
        let mut number = earlier.last().map_or(1, |(newest, _)| newest.saturating_add(1));
        loop {
            let path = directory.join(file_name(spec.run.rank, number));
            match Self::create(&path, spec) {
                Err(JournalError::Create { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists && path.is_file() && number < u32::MAX =>
                {
                    number += 1;
                }
                made => return made,
            }
        }
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.shared.medium.path().to_path_buf()
    }

    /// Whether the file is mapped into memory, or written by system calls: see [`Storage`].
    pub fn is_mapped(&self) -> bool {
        self.shared.medium.is_mapped()
    }

    /// Whether a write may block on something other than this machine's memory and disks. The file is then on a network
    /// file system, on one that a process serves, or on an unknown one.
    pub fn may_hang(&self) -> bool {
        !self.shared.medium.is_local()
    }

    /// A view of the journal for other threads.
    pub fn view(&self) -> JournalView {
        JournalView::new(Arc::clone(&self.shared))
    }

    /// Adds a step; the oldest ones are overwritten. `names[record.tensor.index()]` is the record's tensor. Returns the
    /// number of bytes written.
    ///
    /// # Errors
    /// The step is larger than the ring (its number is recorded instead), or the file cannot be written, or another
    /// process truncated it. The step is lost; the next one may be appended.
    pub fn append(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<u64, JournalError> {
        self.shared.medium.check()?;
        let mut written = self.store_names(names)?;
        encode_step(&mut self.content, names, self.names_stored, batch);
        let Self { shared, content, .. } = self;
        let label = Label { kind: FrameKind::Step, step: batch.step.0, records: batch.records.len() as u32 };
        let store = &mut *shared.store();
        if !store.steps.fits_ring(content.len()) {
            store.note_lost(&shared.medium, label)?;
            return Err(JournalError::TooLarge {
                path: shared.medium.path().to_path_buf(),
                step: batch.step,
                bytes: content.len() as u64,
                room: store.steps.length(),
            });
        }
        written += store.append_step(&shared.medium, label, content)?;
        Ok(written)
    }

    /// Adds an alert: one line of text, by convention a JSON object. Alerts have their own ring, so steps do not
    /// overwrite them. Returns the number of bytes written.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_alert(&mut self, alert: &[u8]) -> Result<u64, JournalError> {
        let medium = &self.shared.medium;
        medium.check()?;
        let store = &mut *self.shared.store();
        if !store.alerts.fits_ring(alert.len()) {
            return Err(JournalError::AlertTooLarge {
                path: medium.path().to_path_buf(),
                bytes: alert.len() as u64,
                room: store.alerts.length(),
            });
        }
        store.state.alerts_begun = store.alerts.next_seq() + 1;
        store.state.alerts_end = store.alerts.end_after(alert.len());
        store.write_state(medium)?;
        let label = Label { kind: FrameKind::Alert, step: 0, records: 0 };
        Ok(store.alerts.append(medium, store.journal, label, alert)?.total())
    }

    /// Records a clean end of the run. The file stays; flush it with [`JournalView::flush`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn close(self) -> Result<(), JournalError> {
        self.shared.medium.check()?;
        let store = &mut *self.shared.store();
        store.state.closed = 1;
        store.write_state(&self.shared.medium)
    }

    /// Writes the names that the log does not contain yet, as many as fit.
    fn store_names(&mut self, names: &[TensorInfo]) -> Result<u64, JournalError> {
        if self.names_full || names.len() <= self.names_stored {
            return Ok(0);
        }
        let first = self.names_stored;
        let store = &mut *self.shared.store();
        self.content.clear();
        self.content.put_u64(first as u64);
        let mut count = 0;
        for info in &names[first..] {
            let before = self.content.len();
            put_name(&mut self.content, info);
            if !store.names.fits_log(self.content.len()) {
                self.content.truncate(before);
                self.names_full = true;
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let label = Label { kind: FrameKind::Names, step: first as u64, records: count };
        store.state.names_begun = store.names.next_seq() + 1;
        store.state.names_end = store.names.end_after(self.content.len());
        store.write_state(&self.shared.medium)?;
        let header = store.names.append(&self.shared.medium, store.journal, label, &self.content)?;
        self.names_stored += count as usize;
        Ok(header.total())
    }
}
