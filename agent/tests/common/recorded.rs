//! Norms recorded from real trainings: `tests/data/norms/*.csv`, a row `step,loss,grad_norm,update_norm,event` per step.

use std::path::Path;

use trainmon_agent::core::{AlertSignal, Kind};

/// One training.
pub(crate) struct Recording {
    pub(crate) name: String,
    /// The rows in which something was done to it on purpose.
    pub(crate) events: Vec<usize>,
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
        let values = |index: usize| rows.iter().map(|row| row[index].parse().unwrap()).collect();
        Self {
            name: file.file_stem().unwrap().to_string_lossy().into_owned(),
            events: rows.iter().enumerate().filter(|(_, row)| !row[event].is_empty()).map(|(place, _)| place).collect(),
            series: columns.map(|(signal, index)| (signal, values(index))),
        }
    }
}
