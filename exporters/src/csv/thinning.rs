//! Old steps are thinned out where the files are more than they may be: of a file that is complete every second step goes, the
//! file with most steps first, the oldest of several. The newest steps are whole, and the older a step is the rarer are those
//! beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ReaderBuilder, Terminator, WriterBuilder};
use serde_json::json;

/// What the rank's directory tells of it.
pub(super) const TOLD_IN: &str = "thinned.json";
/// What a file is called until it takes the place of another.
const IN_THE_MAKING: &str = "thinning";
/// One step in a thousand is kept of the oldest files, and no fewer.
const MOST_HALVINGS: u32 = 10;
/// What was made room for is a tenth: the next file would have it done again.
const PART_KEPT: f64 = 0.9;

/// Paths by the first and the last step that the files may hold.
type Files = BTreeMap<(u64, u64), Vec<PathBuf>>;

/// The complete files of a rank, and how much of them is left.
#[derive(Debug)]
pub(super) struct Thinning {
    directory: PathBuf,
    /// Bytes that the files may have.
    limit: u64,
    /// Steps between two measured ones.
    interval: u64,
    /// How often the files of a range of steps were halved.
    halved: BTreeMap<(u64, u64), u32>,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Thinned {
    /// The steps of which fewer are kept now, from the first to the last.
    pub(super) steps: Option<(u64, u64)>,
    /// One step in so many is kept of the oldest.
    pub(super) one_in: u64,
    /// Whether the files are still more than they may be.
    pub(super) is_too_much: bool,
}

impl Thinning {
    pub(super) fn new(directory: PathBuf, limit: u64, interval: u64) -> Self {
        Self { directory, limit, interval: interval.max(1), halved: BTreeMap::new() }
    }

    /// Makes room, in files that end before `current`.
    ///
    /// # Errors
    /// A file cannot be read or written; it is as it was.
    pub(super) fn make_room(&mut self, current: u64) -> io::Result<Thinned> {
        let (mut size, files) = self.look()?;
        let mut thinned = Thinned::default();
        if size <= self.limit {
            return Ok(thinned);
        }
        let goal = (self.limit as f64 * PART_KEPT) as u64;
        let complete: Vec<(u64, u64)> = files.keys().copied().filter(|&(_, last)| last < current).collect();
        while size > goal {
            let times = |range: &(u64, u64)| self.halved.get(range).copied().unwrap_or(0);
            let next = complete.iter().copied().filter(|range| times(range) < MOST_HALVINGS);
            let Some(range) = next.min_by_key(|range| (times(range), range.0)) else { break };
            let halvings = times(&range) + 1;
            for path in &files[&range] {
                size = size.saturating_sub(thin(path, self.interval << halvings)?);
            }
            self.halved.insert(range, halvings);
            let (first, last) = thinned.steps.unwrap_or(range);
            thinned.steps = Some((first.min(range.0), last.max(range.1)));
            self.tell()?;
        }
        thinned.one_in = 1 << self.halved.values().max().copied().unwrap_or(0);
        thinned.is_too_much = size > self.limit;
        Ok(thinned)
    }

    /// The bytes of all CSV files, and those that hold steps, by their range.
    fn look(&self) -> io::Result<(u64, Files)> {
        let (mut size, mut files) = (0, Files::new());
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "csv") {
                continue;
            }
            size += entry.metadata()?.len();
            if let Some(range) = range_of(&path) {
                files.entry(range).or_default().push(path);
            }
        }
        Ok((size, files))
    }

    fn tell(&self) -> io::Result<()> {
        let of_range = |(&(first, last), halvings): (&(u64, u64), &u32)| json!({ "first_step": first, "last_step": last, "one_step_in": self.interval << halvings });
        let told: Vec<_> = self.halved.iter().map(of_range).collect();
        let (path, text) = (self.directory.join(TOLD_IN), format!("{:#}\n", json!({ "thinned": told })));
        let in_the_making = path.with_extension(IN_THE_MAKING);
        fs::write(&in_the_making, text).and_then(|()| fs::rename(&in_the_making, path))
    }
}

/// The steps that a table may hold, as its name says: `grad_reduced_0-9999.csv`.
fn range_of(path: &Path) -> Option<(u64, u64)> {
    let (_, steps) = path.file_stem()?.to_str()?.rsplit_once('_')?;
    let (first, last) = steps.strip_prefix("step").unwrap_or(steps).split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Keeps the rows of steps that `every` divides, in a file that takes the place of this one; gives the bytes that went.
fn thin(path: &Path, every: u64) -> io::Result<u64> {
    let thinned = keep(path, every);
    if thinned.is_err() {
        let _gone = fs::remove_file(path.with_extension(IN_THE_MAKING)).is_ok();
    }
    thinned
}

fn keep(path: &Path, every: u64) -> io::Result<u64> {
    let before = fs::metadata(path)?.len();
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_path(path).map_err(io::Error::other)?;
    let in_the_making = path.with_extension(IN_THE_MAKING);
    let mut kept = WriterBuilder::new()
        .flexible(true)
        .terminator(Terminator::Any(b'\n'))
        .from_path(&in_the_making)
        .map_err(io::Error::other)?;
    let mut row = ByteRecord::new();
    let mut place = None;
    while reader.read_byte_record(&mut row).map_err(io::Error::other)? {
        let is_kept = match place {
            None => {
                place = row.iter().position(|cell| cell == b"step");
                if place.is_none() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("`{}` has no column `step`", path.display()),
                    ));
                }
                true
            }
            Some(place) => {
                let step = row.get(place).and_then(|cell| std::str::from_utf8(cell).ok()?.parse::<u64>().ok());
                step.is_none_or(|step| step.is_multiple_of(every))
            }
        };
        if is_kept {
            kept.write_byte_record(&row).map_err(io::Error::other)?;
        }
    }
    kept.flush()?;
    drop(kept);
    let after = fs::metadata(&in_the_making)?.len();
    fs::rename(&in_the_making, path)?;
    Ok(before.saturating_sub(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(steps: impl Iterator<Item = u64>) -> String {
        let row = |step| format!("0,\"a, b\",{step},0.5\n0,c,{step},nan\n");
        ["vpp_stage,name,step,norm\n".to_owned()].into_iter().chain(steps.map(row)).collect()
    }

    #[test]
    fn of_the_oldest_file_with_most_steps_every_second_goes_until_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        for first in [0, 100, 200] {
            let steps = first..first + 100;
            fs::write(place(&format!("grad_{first}-{}.csv", first + 99)), rows(steps.clone())).unwrap();
            fs::write(place(&format!("param_{first}-{}.csv", first + 99)), rows(steps)).unwrap();
        }
        fs::write(place("steps.csv"), rows(0..300)).unwrap();
        let all: u64 =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        // Nothing is too much, and nothing goes.
        let mut thinning = Thinning::new(directory.path().to_owned(), all + 1000, 1);
        assert_eq!(thinning.make_room(200).unwrap(), Thinned::default());
        assert!(!place(TOLD_IN).exists());
        let mut thinning = Thinning::new(directory.path().to_owned(), all * 3 / 4, 1);
        let thinned = thinning.make_room(200).unwrap();
        let read = |name: &str| fs::read_to_string(place(name)).unwrap();
        let told: serde_json::Value = serde_json::from_str(&read(TOLD_IN)).unwrap();
        let every = |file: usize| told["thinned"][file]["one_step_in"].as_u64().unwrap();
        assert_eq!(thinned, Thinned { steps: Some((0, 199)), one_in: every(0), is_too_much: false });
        assert!(every(0) == 4 && (2..=4).contains(&every(1)), "the oldest first: {told}");
        assert_eq!(told["thinned"][1], json!({ "first_step": 100, "last_step": 199, "one_step_in": every(1) }));
        assert_eq!(read("grad_0-99.csv"), rows((0..100).step_by(4)));
        assert_eq!(read("param_100-199.csv"), rows((100..200).step_by(every(1) as usize)));
        assert_eq!(read("grad_200-299.csv"), rows(200..300), "it is being written");
        assert_eq!(read("steps.csv"), rows(0..300));
        assert!(fs::read_dir(directory.path()).unwrap().count() == 8, "nothing is left behind");
    }

    #[test]
    fn what_cannot_become_less_is_told() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("grad_0-99.csv"), rows(0..100)).unwrap();
        let mut thinning = Thinning::new(directory.path().to_owned(), 10, 1);
        assert_eq!(thinning.make_room(50).unwrap(), Thinned { steps: None, one_in: 1, is_too_much: true });
        let thinned = thinning.make_room(100).unwrap();
        assert_eq!(thinned, Thinned { steps: Some((0, 99)), one_in: 1024, is_too_much: true });
        assert_eq!(fs::read_to_string(directory.path().join("grad_0-99.csv")).unwrap(), rows(0..1));
    }
}
