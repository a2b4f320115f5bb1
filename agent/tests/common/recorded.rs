//! Norms recorded from real trainings: `tests/data/norms/*.csv`, a row `step,loss,grad_norm,update_norm,event` per step.

use std::path::Path;

use trainmon_agent::core::{AlertSignal, Kind};

/// How long a training is disturbed behind what was marked.
const WAKE_STEPS: usize = 10;

/// One training.
pub(crate) struct Recording {
    pub(crate) name: String,
    /// The rows marked as spikes.
    pub(crate) spikes: Vec<usize>,
    /// The rows into which a NaN was put.
    pub(crate) nans: Vec<usize>,
    pub(crate) series: [(AlertSignal, Vec<f64>); 3],
}

impl Recording {
    /// Every training there is, by name.
    pub(crate) fn all() -> Vec<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/norms");
        let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// The first row of each spike: those right behind another belong to it.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let is_start = |row: &&usize| !self.spikes.contains(&row.wrapping_sub(1));
        self.spikes.iter().filter(is_start).copied().collect()
    }

    /// Whether a row lies in the wake of something that was done to the training or befell it: the training is disturbed
    /// for a while, and to say so is no false alarm.
    pub(crate) fn is_in_wake(&self, row: usize) -> bool {
        let mut marked = self.spikes.iter().chain(&self.nans);
        marked.any(|&marked| (marked..=marked + WAKE_STEPS).contains(&row))
    }

    fn read(file: &Path) -> Self {
        let mut reader = csv::Reader::from_path(file).unwrap();
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let columns = [
            (AlertSignal::Grad, column("grad_norm")),
            (AlertSignal::Kind(Kind::Update), column("update_norm")),
            (AlertSignal::Loss, column("loss")),
        ];
        let event = column("event");
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let marked =
            |mark: &str| rows.iter().enumerate().filter(|(_, row)| &row[event] == mark).map(|(row, _)| row).collect();
        let values = |index: usize| rows.iter().map(|row| row[index].parse().unwrap()).collect();
        Self {
            name: file.file_stem().unwrap().to_string_lossy().into_owned(),
            spikes: marked("spike"),
            nans: marked("nan"),
            series: columns.map(|(signal, index)| (signal, values(index))),
        }
    }
}
