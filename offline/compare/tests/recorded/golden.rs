//! Every answer of the real msprobe in `$TRAINMON_GOLDEN/04_compare`, cell for cell.
//!
//! `TRAINMON_GOLDEN` names the data (default: `shared/golden` beside the checkout).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trainmon_capture_files::find;
use trainmon_compare::matching::{self, Mapping, Pair};
use trainmon_compare::{Capture, Evaluation, Sides, compat};

use crate::recorded::{golden, root};

/// Cases whose answers are not reproduced, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("shifted_golden_fm", "msprobe puts rows of 18 columns under 20 headers: no golden value is in its own column"),
    ("extra_call_fm", "msprobe stops with an error and writes nothing"),
    ("shifted_target_fm", "msprobe stops with an error and writes nothing"),
    ("mixed_modes", "msprobe stops with an error and writes nothing; so do we, with another text"),
    ("structure", "msprobe writes nothing; we compare structures"),
];

struct Case {
    name: String,
    directory: PathBuf,
    target: PathBuf,
    golden: PathBuf,
    command: String,
}

fn cases(root: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(root.join("04_compare")).unwrap() {
        let directory = entry.unwrap().path();
        let readme = std::fs::read_to_string(directory.join("README.md")).unwrap();
        let line = |start: &str| {
            let found = readme.lines().find_map(|line| line.strip_prefix(start));
            found.unwrap_or_else(|| panic!("{}: no line {start}", directory.display())).to_owned()
        };
        let path = |start: &str| root.join(line(start).split('`').nth(1).unwrap());
        cases.push(Case {
            name: directory.file_name().unwrap().to_string_lossy().into_owned(),
            target: path("- target = "),
            golden: path("- golden = "),
            command: line("- Command: "),
            directory,
        });
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

fn pairs(case: &Case, target: &Capture, golden: &Capture) -> (Vec<Pair>, bool) {
    let mapping = |name: &str| Mapping::read(&case.directory.join(name)).unwrap();
    if case.command.contains("-dm ") {
        (matching::by_data(target, golden, &mapping("data_mapping.yaml"), false), false)
    } else if case.command.contains("-cm ") {
        (matching::by_cell(target, golden, &mapping("cell_mapping.yaml"), false), true)
    } else {
        (matching::exact(target, golden), true)
    }
}

fn mode(target: &Capture) -> compat::Mode {
    match target.document.task {
        trainmon_capture_files::Task::Tensor => compat::Mode::Tensor,
        _ if target.document.has_digests() => compat::Mode::Digest,
        _ => compat::Mode::Statistics,
    }
}

#[test]
fn every_cell_is_msprobes() {
    let Some(root) = golden("", "msprobe's comparisons") else { return };
    let (mut files, mut cells, mut wrong) = (0, 0, Vec::new());
    for case in cases(&root) {
        if EXCEPTIONS.iter().any(|(name, _)| *name == case.name) {
            continue;
        }
        let (targets, goldens) = (find(&case.target).unwrap(), find(&case.golden).unwrap());
        for (target, golden) in targets.steps[0].ranks.iter().zip(&goldens.steps[0].ranks) {
            let (rank, is_debug) = (target.rank, target.is_debug());
            let (target, golden) = (Capture::read(target).unwrap(), Capture::read(golden).unwrap());
            let name = match (is_debug, case.target.is_dir()) {
                (true, _) => "debug_compare_result.csv".to_owned(),
                (_, true) => format!("compare_result_rank{rank}.csv"),
                _ => "compare_result.csv".to_owned(),
            };
            let file = case.directory.join(name);
            if !file.exists() {
                continue;
            }
            files += 1;
            let (pairs, gate) = pairs(&case, &target, &golden);
            let table = compat::table(
                Sides { target: &target, golden: &golden, evaluation: &Evaluation::new(&target, &golden, true) },
                &pairs,
                mode(&target),
                gate,
            );
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(&file).unwrap();
            let theirs: Vec<Vec<String>> =
                reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
            let mut ours = vec![table.headers.iter().map(ToString::to_string).collect::<Vec<_>>()];
            ours.extend(
                table.rows.iter().map(|row| row.cells().iter().map(|cell| cell.csv().into_owned()).collect::<Vec<_>>()),
            );
            if ours.len() != theirs.len() {
                wrong.push(format!("{}: {} rows, msprobe has {}", file.display(), ours.len(), theirs.len()));
            }
            for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                for column in 0..ours.len().max(theirs.len()) {
                    cells += 1;
                    if ours.get(column) != theirs.get(column) {
                        wrong.push(format!(
                            "{} row {row} `{}` column `{}`: {:?}, msprobe has {:?}",
                            file.strip_prefix(&root).unwrap().display(),
                            theirs[0],
                            table.headers.get(column).unwrap_or(&"?"),
                            ours.get(column),
                            theirs.get(column)
                        ));
                    }
                }
            }
        }
    }
    println!("{files} files, {cells} cells, {} differ", wrong.len());
    let mut by_kind: BTreeMap<String, (usize, &String)> = BTreeMap::new();
    for line in &wrong {
        let kind = line.split("column").nth(1).unwrap_or("rows").split(':').next().unwrap().to_owned()
            + line.split(' ').next().unwrap();
        by_kind.entry(kind).or_insert((0, line)).0 += 1;
    }
    for (count, line) in by_kind.values() {
        println!("{count} like {}", line.chars().take(400).collect::<String>());
    }
    assert!(wrong.is_empty() && cells > 10_000, "{} of {cells} cells", wrong.len());
}

/// The JSON files of `-da`, letter for letter.
#[test]
fn every_first_difference_is_msprobes() {
    let root = root();
    if !root.exists() {
        return;
    }
    let mut compared = 0;
    for case in cases(&root).iter().filter(|case| case.command.contains("-da`") && case.target.is_dir()) {
        let (targets, goldens) = (find(&case.target).unwrap(), find(&case.golden).unwrap());
        let mut ranks = Vec::new();
        for (target, golden) in targets.steps[0].ranks.iter().zip(&goldens.steps[0].ranks) {
            let rank = target.rank;
            let (target, golden) = (Capture::read(target).unwrap(), Capture::read(golden).unwrap());
            let mode = if mode(&target) == compat::Mode::Tensor { compat::Mode::Statistics } else { mode(&target) };
            let table = compat::table(
                Sides { target: &target, golden: &golden, evaluation: &Evaluation::new(&target, &golden, true) },
                &matching::exact(&target, &golden),
                mode,
                true,
            );
            let (differences, node) = compat::differences(rank, table, &target);
            if let Ok(theirs) = std::fs::read_to_string(case.directory.join(format!("compare_result_rank{rank}.json")))
            {
                assert_eq!(compat::dumps(&node, 4), theirs.trim_end(), "{} rank {rank}", case.name);
                compared += 1;
            }
            ranks.push(differences);
        }
        let ours = compat::analyze(&ranks).map(|node| compat::dumps(&node, 2));
        let theirs = std::fs::read_to_string(case.directory.join("diff_analyze.json")).ok();
        assert_eq!(ours.as_deref(), theirs.as_deref().map(str::trim_end), "{}", case.name);
        compared += 1;
    }
    println!("{compared} files");
    assert!(compared > 8);
}
