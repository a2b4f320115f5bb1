//! Prints what the rule `Baseline` would have reported for recorded runs: `held_against GOLDEN RUN...`, one line per
//! run. For the figures of docs/measurements.md.

use std::path::{Path, PathBuf};

use trainmon_baseline::BaselineWatch;

#[expect(clippy::print_stdout, reason = "a command-line program")]
fn main() {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let Some((golden, runs)) = paths.split_first() else { return println!("held_against GOLDEN RUN...") };
    for run in runs {
        println!("{}: {}", run.display(), told(run, golden));
    }
}

fn told(run: &Path, golden: &Path) -> String {
    match BaselineWatch::replay(run, &[golden.to_path_buf()]) {
        Err(error) => error.to_string(),
        Ok(looked) => {
            let departures: Vec<String> =
                looked.iter().filter_map(|(_, looked)| looked.departure.as_ref()).map(ToString::to_string).collect();
            if departures.is_empty() { "silent".to_owned() } else { departures.join(" | ") }
        }
    }
}
