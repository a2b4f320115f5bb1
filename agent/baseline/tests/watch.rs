//! A run held against a golden one step by step: both are written as CSV files, and read as they are while a training goes on.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests panic like tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use trainmon_baseline::{BaselineWatch, Looked};

const STEPS: u64 = 400;
/// Where faults are planted.
const PLANTED: u64 = 300;
const TENSORS: u64 = 4;
/// Which of them has the fault.
const FAULTY: u64 = 2;

/// A run of four gradients and a loss.
#[derive(Clone, Copy)]
struct Made {
    seed: u64,
    /// What is measured of the tensors.
    kind: &'static str,
    /// Of every step: which tensors are measured in it.
    measured: fn(u64) -> bool,
    /// Whether the step is in the files at all.
    kept: fn(u64) -> bool,
    /// What the faulty tensor's norm is multiplied by.
    fault: fn(u64) -> f64,
    shape: fn(u64) -> &'static str,
    loss: fn(u64, f64) -> f64,
    /// Steps that the optimizer left out before this one.
    skipped: fn(u64) -> u64,
}

const CLEAN: Made = Made {
    seed: 1,
    kind: "grad_reduced",
    measured: |_| true,
    kept: |_| true,
    fault: |_| 1.0,
    shape: |_| "[4, 4]",
    loss: |_, noise| 2.0 + 0.1 * noise,
    skipped: |_| 0,
};

/// Between -1 and 1.
fn random(seed: u64, step: u64, index: u64) -> f64 {
    let mut state = seed ^ (step << 20) ^ (index << 50);
    for _ in 0..3 {
        state = (state ^ (state >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

impl Made {
    fn write(self, directory: &Path) -> PathBuf {
        let rank = directory.join("rank_0");
        fs::create_dir_all(&rank).unwrap();
        let mut rows = "vpp_stage,name,step,norm,shape,dtype\n".to_owned();
        let mut steps = "step,unix_seconds,loss,learning_rate,grad_norm,skipped_steps\n".to_owned();
        for step in (0..STEPS).filter(|&step| (self.kept)(step)) {
            let loss = (self.loss)(step, random(self.seed, step, 99));
            writeln!(steps, "{step},{step}.0,{loss:?},0.001,,{}", (self.skipped)(step)).unwrap();
            for index in (0..TENSORS).filter(|_| (self.measured)(step)) {
                let fault = if index == FAULTY { (self.fault)(step) } else { 1.0 };
                let norm = (0.1 * random(self.seed, step, index)).exp() * fault;
                let norm = if norm.is_nan() { "nan".to_owned() } else { format!("{norm:?}") };
                writeln!(rows, "0,h.{index}.weight,{step},{norm},\"{}\",torch.float32", (self.shape)(step)).unwrap();
            }
        }
        fs::write(rank.join(format!("{}_0-9999.csv", self.kind)), rows).unwrap();
        fs::write(rank.join("steps.csv"), steps).unwrap();
        rank
    }

    /// What came of it, held against a golden run.
    fn held_against(self, golden: &Path) -> Vec<(u64, Looked)> {
        let directory = tempfile::tempdir().unwrap();
        let target = self.write(directory.path());
        BaselineWatch::replay(&target, &[golden.to_path_buf()]).unwrap()
    }
}

/// Steps and words of the departures.
fn departures(found: &[(u64, Looked)]) -> Vec<(u64, String)> {
    let of = |(step, looked): &(u64, Looked)| Some((*step, looked.departure.as_ref()?.to_string()));
    found.iter().filter_map(of).collect()
}

fn told(found: &[(u64, Looked)], words: &str) -> usize {
    found.iter().flat_map(|(_, looked)| &looked.messages).filter(|messages| messages.message.contains(words)).count()
}

fn from_planted(step: u64) -> f64 {
    if step < PLANTED { 1.0 } else { 4.0 }
}

#[test]
fn a_run_that_measures_seldom_is_held_against_the_steps_it_has() {
    let golden = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(golden.path());
    let seldom = Made { seed: 2, measured: |step| step.is_multiple_of(4), ..CLEAN };
    assert_eq!(departures(&seldom.held_against(&golden)), []);
    // From a step on that it does not measure.
    let found = departures(&Made { fault: |step| from_planted(step + 2), ..seldom }.held_against(&golden));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == PLANTED && found[0].1.contains("norm of `h.2.weight` at step 300"), "{found:?}");
}

#[test]
fn steps_that_the_golden_run_lost_are_passed_over() {
    let golden = tempfile::tempdir().unwrap();
    let golden = Made { kept: |step| !(290..=310).contains(&step), ..CLEAN }.write(golden.path());
    assert_eq!(departures(&Made { seed: 2, ..CLEAN }.held_against(&golden)), []);
    let found = departures(&Made { seed: 2, fault: from_planted, ..CLEAN }.held_against(&golden));
    assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [311], "{found:?}");
}

#[test]
fn a_number_that_is_none_and_another_shape_are_told_once_each() {
    let golden = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(golden.path());
    for seed in [1, 2] {
        let broken = |step| if step < PLANTED { 1.0 } else { f64::NAN };
        let found = departures(&Made { seed, fault: broken, ..CLEAN }.held_against(&golden));
        let [(PLANTED, words)] = &found[..] else { panic!("{found:?}") };
        assert!(words.contains("norm of `h.2.weight` at step 300"), "{words}");
        let shape = |step| if step < PLANTED { "[4, 4]" } else { "[8, 4]" };
        let found = departures(&Made { seed, shape, ..CLEAN }.held_against(&golden));
        let [(PLANTED, words)] = &found[..] else { panic!("{found:?}") };
        assert!(
            words.contains("shape of `h.0.weight` at step 300 differs from the golden run's: [8, 4] against [4, 4]"),
            "{words}"
        );
        assert!(words.contains("3 other series diverge"), "{words}");
    }
}

#[test]
fn a_loss_that_is_nan_from_its_first_step_on_is_told() {
    let golden = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(golden.path());
    let broken = Made { loss: |_, _| f64::NAN, ..CLEAN };
    let found = departures(&broken.held_against(&golden));
    let [(0, words)] = &found[..] else { panic!("{found:?}") };
    assert!(words.starts_with("loss at step 0"), "{words}");
    // In a file of an older version it is a loss that nobody told.
    let old = tempfile::tempdir().unwrap();
    let target = broken.write(old.path());
    let steps = fs::read_to_string(target.join("steps.csv")).unwrap().replace("NaN", "nan").replace(",,", ",nan,");
    fs::write(target.join("steps.csv"), steps).unwrap();
    assert_eq!(departures(&BaselineWatch::replay(&target, &[golden]).unwrap()), []);
}

#[test]
fn a_loss_around_zero_is_no_finding_until_it_leaps() {
    let golden = tempfile::tempdir().unwrap();
    let crossing = |step: u64, noise: f64| 1.0 - step as f64 / 150.0 + 0.02 * noise;
    let golden = Made { loss: crossing, ..CLEAN }.write(golden.path());
    assert_eq!(departures(&Made { seed: 2, loss: crossing, ..CLEAN }.held_against(&golden)), []);
    let leaps = |step: u64, noise: f64| 1.0 - step as f64 / 150.0 + 0.02 * noise + if step == 150 { 2.0 } else { 0.0 };
    let found = departures(&Made { seed: 2, loss: leaps, ..CLEAN }.held_against(&golden));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.starts_with("loss at step 150") && found[0].1.contains("; allowed -"), "{found:?}");
}

#[test]
fn a_step_that_a_loss_scaler_left_out_in_one_run_is_no_departure() {
    let golden = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(golden.path());
    // Equal to the last digit up to there, then alike only.
    let apart = |step: u64| if step < PLANTED { 1.0 } else { 1.0 + 0.01 * random(7, step, 5) };
    let skipping = Made { fault: apart, skipped: |step| u64::from(step == PLANTED), ..CLEAN };
    let found = skipping.held_against(&golden);
    assert_eq!(departures(&found), []);
    assert_eq!(told(&found, "skipped steps in only one of the two runs"), 1, "{found:?}");
    // Without such a step it is one.
    let found = departures(&Made { fault: apart, ..CLEAN }.held_against(&golden));
    assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [PLANTED], "{found:?}");
}

#[test]
fn a_step_left_out_does_not_excuse_what_it_cannot_have_led_to() {
    let part = |kind, fault| {
        let golden = tempfile::tempdir().unwrap();
        let golden = Made { kind, ..CLEAN }.write(golden.path());
        Made { kind, fault, skipped: |step| u64::from(step == 20), ..CLEAN }.held_against(&golden)
    };
    let at_once = |step| if step < 20 { 1.0 } else { 4.0 };
    // The parameters were updated as often in both.
    let found = departures(&part("param_origin", at_once));
    let [(20, words)] = &found[..] else { panic!("{found:?}") };
    assert!(words.contains("norm of `h.2.weight` at step 20"), "{words}");
    // The data may be others, and later the parameters: what parts is told, whatever has led to it.
    let later = |step| if step < 21 { 1.0 } else { 4.0 };
    for (found, step) in [(part("grad_reduced", at_once), 20), (part("param_origin", later), 21)] {
        assert_eq!(departures(&found), []);
        let words = format!("norm of `h.2.weight` at step {step}");
        let messages =
            found.iter().flat_map(|(_, looked)| &looked.messages).find(|messages| messages.message.contains(&words));
        assert!(
            messages.is_some_and(|messages| messages.is_warning
                && messages.message.contains("skipped steps in only one of the two runs")),
            "{found:?}"
        );
    }
}

#[test]
fn what_is_met_in_the_golden_runs_files_on_the_way_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(directory.path());
    // It was resumed at step 100, and wrote a second table for what came then.
    let first = golden.join("grad_reduced_0-9999.csv");
    let text = fs::read_to_string(&first).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let step = |row: &&str| row.split(',').nth(2).unwrap().parse::<u64>().unwrap();
    let part = |steps: std::ops::Range<u64>| rows.lines().filter(|row| steps.contains(&step(row))).collect::<Vec<_>>();
    let again = [part(0..150), part(100..150)].concat().join("\n");
    fs::write(golden.join("grad_reduced_0-149.csv"), format!("{header}\n{again}\n")).unwrap();
    fs::write(golden.join("grad_reduced_150-9999.csv"), format!("{header}\n{}\n", part(150..STEPS).join("\n")))
        .unwrap();
    fs::remove_file(first).unwrap();
    let found = Made { seed: 2, ..CLEAN }.held_against(&golden);
    assert_eq!(departures(&found), []);
    assert_eq!(told(&found, "steps 100 to 149 occur again"), 1, "{found:?}");
}

#[test]
fn a_run_that_resumes_late_does_not_read_what_the_golden_one_did_before() {
    let directory = tempfile::tempdir().unwrap();
    let golden = CLEAN.write(directory.path());
    let whole = golden.join("grad_reduced_0-9999.csv");
    let text = fs::read_to_string(&whole).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let is_late = |row: &&str| row.split(',').nth(2).unwrap().parse::<u64>().unwrap() >= 200;
    let (late, early): (Vec<&str>, Vec<&str>) = rows.lines().partition(is_late);
    // A damaged row where nobody looks: whoever read it would have to give up.
    let early = early.join("\n").replacen("0,h.3.weight,7,", "0,h.3.weight,seven,", 1);
    fs::write(golden.join("grad_reduced_0-199.csv"), format!("{header}\n{early}\n")).unwrap();
    fs::write(golden.join("grad_reduced_200-399.csv"), format!("{header}\n{}\n", late.join("\n"))).unwrap();
    fs::remove_file(whole).unwrap();
    let resumed = Made { seed: 2, kept: |step| step >= 210, fault: from_planted, ..CLEAN };
    assert_eq!(departures(&resumed.held_against(&golden))[0].0, PLANTED);
}

#[test]
fn the_files_of_msprobe_serve_as_a_golden_run() {
    let golden = Path::new(
        &std::env::var_os("TRAINMON_GOLDEN")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden"), PathBuf::from),
    )
    .join("01_monitor");
    let Some(run) = msprobe_run(&golden) else {
        let reason = format!("no monitored run in {}", golden.display());
        return skip("the_files_of_msprobe_serve_as_a_golden_run", &reason);
    };
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("rank_0");
    fs::create_dir_all(&target).unwrap();
    for table in fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path()) {
        let name = table.file_name().unwrap().to_str().unwrap().to_owned();
        let Ok(text) = fs::read_to_string(&table) else { continue };
        fs::write(target.join(&name), text).unwrap();
    }
    let hold = || BaselineWatch::replay(&target, std::slice::from_ref(&run)).unwrap();
    assert_eq!(departures(&hold()), [], "against itself");
    // One norm of the last step, a tenth larger.
    let table = target.join(LAST_TABLE);
    let text = fs::read_to_string(&table).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let place = |column: &str| lines[0].split(',').position(|name| name == column).unwrap();
    let [norm, name, step] = ["norm", "name", "step"].map(place);
    let mut cells: Vec<String> = lines.last().unwrap().split(',').map(str::to_owned).collect();
    cells[norm] = (1.1 * cells[norm].parse::<f64>().unwrap()).to_string();
    let (name, step) = (cells[name].clone(), cells[step].clone());
    *lines.last_mut().unwrap() = cells.join(",");
    fs::write(&table, lines.join("\n") + "\n").unwrap();
    let found = departures(&hold());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains(&format!("norm of `{name}` at step {step}")), "{found:?}");
}

/// Says that a test could not run: on standard output, and in the file that `TRAINMON_SKIP_LOG` names.
fn skip(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
    if let Some(log) = std::env::var_os("TRAINMON_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Of a run of three steps, each with a table of its own.
const LAST_TABLE: &str = "grad_reduced_2-2.csv";

/// The first directory below with such a table.
fn msprobe_run(below: &Path) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(below).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    if entries.iter().any(|path| path.ends_with(LAST_TABLE)) {
        return Some(below.to_path_buf());
    }
    entries.iter().filter(|entry| entry.is_dir()).find_map(|entry| msprobe_run(entry))
}
