//! TensorBoard event files: tags with a value, a step and a time.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use trainmon_exporters::tensorboard::{EventFault, EventReader, ReadEvent};
use trainmon_report::{counted, first_of, quoted};

use crate::error::LogError;
use crate::paths::file_name;
use crate::raw::RawLog;

/// The number of names listed in a sentence.
const SHOWN: usize = 4;

/// Whether a file has the name of an event file.
pub(crate) fn is_event_file(path: &Path) -> bool {
    file_name(path).contains("tfevents") && path.is_file()
}

/// Reads event files in order, as of a run that was resumed in its directory.
pub(crate) fn read(files: &[PathBuf]) -> Result<RawLog, LogError> {
    let mut raw = RawLog::default();
    let mut others: BTreeSet<String> = BTreeSet::new();
    for file in files {
        let opened = File::open(file).map_err(|source| LogError::Read { path: file.clone(), source })?;
        let mut reader = EventReader::new(BufReader::new(opened));
        let (mut place, mut damaged) = (0, 0_u64);
        loop {
            place += 1;
            match reader.next_event() {
                Ok(Some(event)) => take(&mut raw, event, place, &mut others),
                Ok(None) => break,
                Err(EventFault::Read { source, .. }) => return Err(LogError::Read { path: file.clone(), source }),
                Err(fault) if fault.is_passed() => damaged += 1,
                Err(fault) => {
                    raw.notes.push(format!("`{}`: {fault}: ignored the rest of the file", file.display()));
                    break;
                }
            }
        }
        if damaged > 0 {
            raw.notes.push(format!(
                "`{}`: ignored {}",
                file.display(),
                counted(damaged, "damaged record", "damaged records")
            ));
        }
    }
    if files.len() > 1 {
        raw.remarks.push(format!("read {} event files in order", files.len()));
    }
    if !others.is_empty() {
        let listed = first_of(others.iter().map(quoted), SHOWN);
        raw.remarks.push(format!("ignored tags without single numbers: {listed}"));
    }
    Ok(raw)
}

fn take(raw: &mut RawLog, event: ReadEvent, place: u64, others: &mut BTreeSet<String>) {
    for (tag, value) in &event.scalars {
        raw.point(place, event.step, event.wall_time, (tag, *value));
    }
    for tag in event.others {
        others.insert(tag);
    }
}
