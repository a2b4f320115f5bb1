//! Thins out old steps if the files exceed their limit: every second step of a complete file is removed, starting with
//! the file with most steps, the oldest of several. The newest steps are complete; the older a step, the sparser are
//! its neighbours. Each series keeps the first row in every group of steps, so a series that is measured rarely keeps
//! its share.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::json;
use trainmon_run_files::{TEMPORARY, TableName, file_name, interval_of, read_left_out, thin};

/// The record of thinned steps in the rank's directory.
pub(super) const TOLD_IN: &str = "thinned.json";
/// The limit for the oldest files: one step in a thousand is kept.
const MOST_HALVINGS: u32 = 10;
/// Thinning frees a tenth, because the next file would trigger it again.
const PART_KEPT: f64 = 0.9;

/// Paths by the first and the last step of the files.
type Files = BTreeMap<(u64, u64), Vec<PathBuf>>;

/// The complete files of a rank, and their thinning.
#[derive(Debug)]
pub(super) struct Thinning {
    directory: PathBuf,
    /// The maximum size of the files in bytes.
    limit: u64,
    /// The thinning of the files, by range of steps.
    done: BTreeMap<(u64, u64), Done>,
}

#[derive(Clone, Copy, Debug)]
struct Done {
    /// The interval of the measured steps.
    interval: u64,
    halvings: u32,
}

impl Done {
    /// Each series keeps one row in this many steps.
    fn every(self) -> u64 {
        self.interval << self.halvings
    }
}

/// The result of a thinning.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Thinned {
    /// The range of the thinned steps.
    pub(super) steps: Option<(u64, u64)>,
    /// Of the oldest, one measured step in this many is kept.
    pub(super) one_in: u64,
    /// Whether the files still exceed the limit.
    pub(super) is_too_much: bool,
}

impl Thinning {
    pub(super) fn new(directory: PathBuf, limit: u64) -> Self {
        Self { directory, limit, done: BTreeMap::new() }
    }

    /// Frees space in files that end before `current`.
    ///
    /// # Errors
    /// A file cannot be read or written; it is unchanged.
    pub(super) fn free_space(&mut self, current: u64) -> io::Result<Thinned> {
        let (mut size, files) = self.look()?;
        let mut thinned = Thinned::default();
        if size <= self.limit {
            return Ok(thinned);
        }
        let goal = (self.limit as f64 * PART_KEPT) as u64;
        let complete: Vec<(u64, u64)> = files.keys().copied().filter(|&(_, last)| last < current).collect();
        while size > goal {
            let halvings = |range: &(u64, u64)| self.done.get(range).map_or(0, |done| done.halvings);
            let next = complete.iter().copied().filter(|range| halvings(range) < MOST_HALVINGS);
            let Some(range) = next.min_by_key(|range| (halvings(range), range.0)) else { break };
            let before = self.done.get(&range).copied();
            let interval = before.map_or_else(|| interval_of_largest(&files[&range]), |done| Ok(done.interval))?;
            let done = Done { interval, halvings: halvings(&range) + 1 };
            // Recorded first, so that the record never promises more rows than exist.
            self.done.insert(range, done);
            self.tell()?;
            for path in &files[&range] {
                size = size.saturating_sub(thin(path, done.every())?);
            }
            let (first, last) = thinned.steps.unwrap_or(range);
            thinned.steps = Some((first.min(range.0), last.max(range.1)));
        }
        thinned.one_in = 1 << self.done.values().map(|done| done.halvings).max().unwrap_or(0);
        thinned.is_too_much = size > self.limit;
        Ok(thinned)
    }

    /// The size of all CSV files, and those that contain steps, by their range. Rows of kinds that omit repetitions
    /// stay, because a reader would take differing rows for equal ones.
    fn look(&self) -> io::Result<(u64, Files)> {
        let (mut size, mut files) = (0, Files::new());
        let left_out = read_left_out(&self.directory)?;
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let path = entry.path();
            if !file_name(&path).contains(".csv") {
                continue;
            }
            size += entry.metadata()?.len();
            let is_whole = |table: &TableName<'_>| !left_out.kinds().any(|kind| kind.name() == table.prefix);
            if let Some(TableName { first, last, .. }) = TableName::of(&path).filter(is_whole) {
                files.entry((first, last)).or_default().push(path);
            }
        }
        Ok((size, files))
    }

    fn tell(&self) -> io::Result<()> {
        let of_range = |(&(first, last), done): (&(u64, u64), &Done)| json!({ "first_step": first, "last_step": last, "one_step_in": done.every() });
        let told: Vec<_> = self.done.iter().map(of_range).collect();
        let (path, text) = (self.directory.join(TOLD_IN), format!("{:#}\n", json!({ "thinned": told })));
        let temporary = path.with_extension(TEMPORARY);
        fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path))
    }
}

/// The interval of the steps in the largest file.
fn interval_of_largest(paths: &[PathBuf]) -> io::Result<u64> {
    let largest = paths.iter().max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()));
    largest.map_or(Ok(1), |path| interval_of(path))
}

#[cfg(test)]
mod tests {
    use trainmon_run_files::LEFT_OUT_FILE;

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
        let mut thinning = Thinning::new(directory.path().to_owned(), all + 1000);
        assert_eq!(thinning.free_space(200).unwrap(), Thinned::default());
        assert!(!place(TOLD_IN).exists());
        let mut thinning = Thinning::new(directory.path().to_owned(), all * 3 / 4);
        let thinned = thinning.free_space(200).unwrap();
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
        let mut thinning = Thinning::new(directory.path().to_owned(), 10);
        assert_eq!(thinning.free_space(50).unwrap(), Thinned { steps: None, one_in: 1, is_too_much: true });
        let thinned = thinning.free_space(100).unwrap();
        assert_eq!(thinned, Thinned { steps: Some((0, 99)), one_in: 1024, is_too_much: true });
        assert_eq!(fs::read_to_string(directory.path().join("grad_0-99.csv")).unwrap(), rows(0..1));
    }

    #[test]
    fn a_series_that_is_measured_now_and_then_keeps_its_share() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("grad_0-99.csv");
        let row = |step: u64| {
            let name = if step % 10 == 5 { "often" } else { "between" };
            format!("0,{name},{step},1.5\n")
        };
        let all: String = (5..100).step_by(5).map(row).collect();
        fs::write(&path, format!("vpp_stage,name,step,norm\n{all}0,once,99,2.5\n")).unwrap();
        let thinned = Thinning::new(directory.path().to_owned(), 250).free_space(100).unwrap();
        assert!(!thinned.is_too_much && thinned.one_in > 1, "{thinned:?}");
        let left = fs::read_to_string(&path).unwrap();
        for row in ["0,often,5,", "0,between,10,", "0,once,99,"] {
            assert!(left.contains(row), "{left}");
        }
    }

    #[test]
    fn rows_that_differ_from_what_is_left_out_stay() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        fs::write(place(LEFT_OUT_FILE), r#"{"grad_unreduced": "some"}"#).unwrap();
        fs::write(place("grad_reduced_0-99.csv"), rows(0..100)).unwrap();
        fs::write(place("grad_unreduced_0-99.csv"), rows([7, 8].into_iter())).unwrap();
        let thinned = Thinning::new(directory.path().to_owned(), 2_000).free_space(100).unwrap();
        assert!(!thinned.is_too_much);
        assert_eq!(fs::read_to_string(place("grad_unreduced_0-99.csv")).unwrap(), rows([7, 8].into_iter()));
        assert!(fs::read_to_string(place("grad_reduced_0-99.csv")).unwrap().len() < 2_000);
    }
}
