//! Golden files of the real msprobe.

use std::fs;
use std::path::{Path, PathBuf};

use crate::recorded::golden;
use crate::workspace::Workspace;

#[test]
fn msprobes_own_files_are_read_and_a_changed_cell_in_them_is_found() {
    let Some(golden) = golden("", "golden monitor runs compared") else { return };
    let (mut compared, mut changed) = (0, 0);
    for part in ["01_monitor", "02_monitor_dist"] {
        for case in fs::read_dir(golden.join(part)).expect("readable") {
            let run = case.expect("readable").path().join("msprobe_out");
            if !trainmon_runs::compare::is_run(&run) {
                continue;
            }
            let path = run.to_str().expect("UTF-8");
            let said = Workspace::new().compare(&[path, path]);
            assert!(
                said.out.contains("all ") || said.out.contains("neither run has a comparable row"),
                "{path}: {}",
                said.out
            );
            compared += 1;
            changed += usize::from(a_changed_cell_is_found(&run));
        }
    }
    assert!(compared >= 35 && changed >= 20, "{compared} {changed}");
}

/// Copies a run with the last norm of one gradient file a tenth larger. `false` if it has no such file.
fn a_changed_cell_is_found(run: &Path) -> bool {
    let workspace = Workspace::new();
    let mut change = None;
    let mut ranks: Vec<PathBuf> =
        fs::read_dir(run).expect("readable").map(|entry| entry.expect("readable").path()).collect();
    ranks.sort();
    for rank in ranks.iter().filter(|rank| rank.is_dir() && rank.to_string_lossy().contains("rank")) {
        for file in fs::read_dir(rank).into_iter().flatten().map(|entry| entry.expect("readable").path()) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            let is_gradient = name.starts_with("grad_reduced_") || name.starts_with("weight_grad_");
            let found = (change.is_none() && is_gradient).then(|| larger_norm(&text)).flatten();
            let text = found.as_ref().map_or(text, |(text, ..)| text.clone());
            change = change.or(found.map(|(_, step, name)| (step, name)));
            let rank = rank.file_name().expect("a name").to_string_lossy().into_owned();
            workspace.write(&format!("copy/{rank}/{name}"), &text);
        }
    }
    let Some((step, name)) = change else { return false };
    let (found, code) = workspace.json(&["copy", run.to_str().expect("UTF-8")]);
    let first = (found["first"]["step"].as_u64(), found["first"]["name"].as_str());
    assert_eq!((first, code), ((Some(step), Some(name.as_str())), Some(1)), "{}: {}", run.display(), found["verdict"]);
    true
}

fn larger_norm(text: &str) -> Option<(String, u64, String)> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().ok()?.clone();
    let place = |column: &str| header.iter().position(|name| name == column);
    let (norm, step, name) = (place("norm")?, place("step")?, place("name").or_else(|| place("module_name"))?);
    let mut rows: Vec<Vec<String>> =
        reader.records().map(|row| row.expect("a row").iter().map(str::to_owned).collect()).collect();
    let last = rows.last_mut()?;
    let value: f64 = last[norm].parse().ok()?;
    let is_usable = value.is_finite() && value > 1e-3;
    last[norm] = format!("{}", value * 1.1);
    let changed = (last[step].parse().ok()?, last[name].clone());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).ok()?;
    rows.iter().try_for_each(|row| writer.write_record(row)).ok()?;
    let text = String::from_utf8(writer.into_inner().ok()?).ok()?;
    is_usable.then_some((text, changed.0, changed.1))
}
