//! Plays a case's recorded tensors through a monitor, in the order in which a training loop's hooks would fire.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use trainmon_agent::core::config::{Config, Dialect, FileLayout, squash_name};
use trainmon_agent::core::{Kind, MicroStep, Record, TensorId, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

use crate::case::{Case, Recorded, Skipped};
use crate::table::Table;

/// What could not be played.
pub(crate) struct Played {
    /// Steps whose `mg_direction` the recorded tensors do not determine.
    pub(crate) directions_left_out: Vec<u64>,
}

/// Runs the case into `output`.
pub(crate) fn run(case: &Case, output: &Path) -> Result<Played, Skipped> {
    let config = case.config()?;
    let file = ConfigFile::write(case, output);
    let heard = Arc::clone(&file.heard);
    let options = Options {
        ranks: Some(Ranks::SINGLE),
        start_iteration: case.number("start_iteration", 0),
        output_dir: Some(output.to_path_buf()),
        config_file: Some(file.path.clone().into()),
        layout: FileLayout::Msprobe,
        notices: Notices::new(move |notice| {
            println!("{notice}");
            heard.fetch_add(usize::from(notice.message.starts_with("live control")), Ordering::SeqCst);
        }),
        ..Options::default()
    };
    let monitor = Monitor::start(config, options).unwrap();
    let mut player =
        Player { case, monitor, ids: HashMap::new(), steps: index_by_step(case), directions_left_out: Vec::new() };
    let first = case.number("start_iteration", 0);
    for step in first..first + case.number("steps", 1) {
        file.change(case, step);
        player.play(step);
        player.monitor.end_step(StepFacts::default());
    }
    let report = player.monitor.shutdown();
    assert!(report.balances() && report.lost() == 0, "{}: {report}", case.name);
    Ok(Played { directions_left_out: player.directions_left_out })
}

/// The config file of a case, which some cases change while the run goes on.
struct ConfigFile {
    path: PathBuf,
    /// How many changes the monitor took up.
    heard: Arc<AtomicUsize>,
}

impl ConfigFile {
    fn write(case: &Case, output: &Path) -> Self {
        let path = output.join("config.json");
        std::fs::write(&path, case.json["config"].to_string()).unwrap();
        Self { path, heard: Arc::default() }
    }

    /// Changes the file before `step` if the case did. The monitor notices beside the training; here the training waits
    /// for it, so that the switch comes with the next step, as msprobe's did.
    fn change(&self, case: &Case, step: u64) {
        let Some(keys) = case.changes_before(step) else { return };
        let mut json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&self.path).unwrap()).unwrap();
        json.as_object_mut().unwrap().extend(keys.clone());
        let before = self.heard.load(Ordering::SeqCst);
        std::fs::write(&self.path, json.to_string()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(90);
        while self.heard.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "{}: the change before step {step} was not noticed", case.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The recorded tensors of each step, in file order.
fn index_by_step(case: &Case) -> HashMap<u64, Vec<&Recorded>> {
    let mut steps: HashMap<u64, Vec<&Recorded>> = HashMap::new();
    for tensor in &case.tensors {
        let step = tensor.key.split('/').nth(1).unwrap().parse().unwrap();
        steps.entry(step).or_default().push(tensor);
    }
    steps
}

struct Player<'a> {
    case: &'a Case,
    monitor: Monitor,
    ids: HashMap<(Kind, String), TensorId>,
    steps: HashMap<u64, Vec<&'a Recorded>>,
    directions_left_out: Vec<u64>,
}

impl Player<'_> {
    fn config(&self) -> &Config {
        self.monitor.config()
    }

    fn play(&mut self, step: u64) {
        let tensors = self.steps.remove(&step).unwrap_or_default();
        match self.case.dialect() {
            Dialect::V1 => self.play_v1_activations(&tensors),
            Dialect::V2 => self.play_v2_modules(&tensors),
        }
        self.play_unreduced(step, &tensors);
        let moments: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_moment()).collect();
        self.play_parameters(Kind::GradReduced, &tensors);
        if self.case.dialect() == Dialect::V1 {
            for &kind in &moments {
                self.play_parameters(kind, &tensors);
            }
        }
        self.play_direction(step, &tensors);
        self.play_parameters(Kind::ParamOrigin, &tensors);
        self.play_parameters(Kind::ParamUpdated, &tensors);
        if self.case.dialect() == Dialect::V2 {
            for &kind in &moments {
                self.play_parameters(kind, &tensors);
            }
        }
    }

    fn id(&mut self, kind: Kind, name: &str) -> TensorId {
        let monitor = &self.monitor;
        *self.ids.entry((kind, name.to_owned())).or_insert_with(|| monitor.register(name, 0))
    }

    /// Forward, then backward, one micro-batch after the other.
    fn play_v1_activations(&mut self, tensors: &[&Recorded]) {
        for micro in 0..self.micro_batches() {
            let of = |prefix: &str| -> Vec<(String, &Recorded)> {
                tensors
                    .iter()
                    .filter_map(|tensor| {
                        let key = Key::of(&tensor.key);
                        (key.prefix == prefix && key.micro == Some(micro)).then(|| (key.name.to_owned(), *tensor))
                    })
                    .collect()
            };
            let (forward, backward) = (of("actv"), of("actv_grad"));
            for (name, tensor) in &forward {
                self.show_activation(Kind::Actv, name, micro, Some(tensor));
            }
            let missing = self.missing_gradients();
            for (name, tensor) in with_missing_gradients(&forward, &backward, &missing) {
                self.show_activation(Kind::ActvGrad, &name, micro, tensor);
            }
        }
    }

    /// V2's keys carry their own order: `module/<step>/<scope>/<name>/<call>`.
    fn play_v2_modules(&mut self, tensors: &[&Recorded]) {
        for tensor in tensors {
            let parts: Vec<&str> = tensor.key.split('/').collect();
            if let ["module", _, scope, name, call] = parts[..] {
                let kind = if scope == "forward" { Kind::Actv } else { Kind::ActvGrad };
                self.show_activation(kind, name, call.parse().unwrap(), Some(tensor));
            }
        }
    }

    /// The rows without a tensor among msprobe's gradients: how many inputs a module got by position is not recorded.
    fn missing_gradients(&self) -> Vec<String> {
        let tables = self.case.answer_directory().map_or_else(Vec::new, |directory| Table::read_all(&directory));
        let mut names = Vec::new();
        for table in tables.iter().filter(|table| table.prefix() == "actv_grad") {
            for row in (0..table.rows.len()).filter(|&row| table.cell(row, "dtype") == "nan") {
                if !names.iter().any(|name| name == table.cell(row, "name")) {
                    names.push(table.cell(row, "name").to_owned());
                }
            }
        }
        names
    }

    fn show_activation(&mut self, kind: Kind, name: &str, micro: u32, tensor: Option<&Recorded>) {
        let config = self.config();
        let module = module_of(name, config.dialect);
        let wanted = config.signals.activations.as_ref().is_some_and(|a| a.matches_module(&config.targets, module, 0));
        if !wanted || self.monitor.request(kind).is_none() {
            return;
        }
        let id = self.id(kind, name);
        match tensor {
            Some(tensor) => drop(self.monitor.observe(id, kind, MicroStep(micro), &tensor.view())),
            None => self.monitor.observe_missing(id, kind, MicroStep(micro)),
        }
    }

    /// The order in which backward reaches the parameters is not in the tensors. It is in msprobe's answer where that
    /// has the rows; else the reverse of the model's.
    fn play_unreduced(&mut self, step: u64, tensors: &[&Recorded]) {
        let mut gradients: Vec<&&Recorded> = tensors.iter().filter(|t| t.key.starts_with("grad_unreduced/")).collect();
        gradients.reverse();
        let arrival = self.arrival_order(step);
        gradients.sort_by_key(|tensor| {
            let key = Key::of(&tensor.key);
            (key.micro, arrival.iter().position(|name| name == key.name))
        });
        let one_based = u32::from(self.case.is_v2());
        let last = self.micro_batches() - 1;
        for tensor in gradients {
            let key = Key::of(&tensor.key);
            let micro = key.micro.map_or(last, |micro| micro - one_based);
            self.show_parameter(Kind::GradUnreduced, key.name, micro, tensor);
        }
    }

    fn arrival_order(&self, step: u64) -> Vec<String> {
        let Some(directory) = self.case.answer_directory() else { return Vec::new() };
        let mut names = Vec::new();
        for table in Table::read_all(&directory).into_iter().filter(|t| t.file.starts_with("grad_unreduced_")) {
            for row in 0..table.rows.len() {
                if table.cell(row, "step") == step.to_string() && !names.iter().any(|n| n == table.cell(row, "name")) {
                    names.push(table.cell(row, "name").to_owned());
                }
            }
        }
        names
    }

    fn play_parameters(&mut self, kind: Kind, tensors: &[&Recorded]) {
        let last = self.micro_batches() - 1;
        for tensor in tensors {
            let key = Key::of(&tensor.key);
            if key.prefix == kind.name() {
                self.show_parameter(kind, key.name, last, tensor);
            }
        }
    }

    fn show_parameter(&mut self, kind: Kind, name: &str, micro: u32, tensor: &Recorded) {
        if !self.config().targets.matches_parameter(name, squash_name(name), 0) {
            return;
        }
        let id = self.id(kind, name);
        self.monitor.observe(id, kind, MicroStep(micro), &tensor.view());
    }

    /// The agreement of gradient and first moment. Where the gradient was not recorded it follows from two moments
    /// (`AdamW`, beta1 0.9); where neither is there, the rows are left out and the comparison says so.
    fn play_direction(&mut self, step: u64, tensors: &[&Recorded]) {
        if self.monitor.request(Kind::MgDirection).is_none() {
            return;
        }
        let first = self.case.number("start_iteration", 0);
        let moment = |at: &[&'_ Recorded], name: &str| -> Option<Vec<f64>> {
            at.iter().find(|t| t.key.starts_with("exp_avg/") && Key::of(&t.key).name == name).map(|t| t.as_f64())
        };
        let next = self.steps.get(&(step + 1)).cloned().unwrap_or_default();
        for name in self.parameter_names() {
            let recorded = tensors.iter().find(|t| t.key == format!("grad_reduced/{step}/{name}")).map(|t| t.as_f64());
            let before = moment(tensors, &name);
            let derived = || -> Option<Vec<f64>> {
                let (after, before) = (moment(&next, &name)?, before.clone()?);
                Some(after.iter().zip(&before).map(|(after, before)| after - 0.9 * before).collect())
            };
            let value = match (step == first, &before, recorded.or_else(derived)) {
                (true, _, _) => 1.0,
                (false, Some(moment), Some(gradient)) => sign_agreement(&gradient, moment),
                (false, _, _) => {
                    self.directions_left_out.push(step);
                    return;
                }
            };
            let record = Record {
                tensor: self.id(Kind::MgDirection, &name),
                kind: Kind::MgDirection,
                micro_step: MicroStep(0),
                reading: Some(TensorStats::of_value(value).into()),
            };
            self.monitor.record(record, Duration::ZERO, 0);
        }
    }

    fn parameter_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for tensor in &self.case.tensors {
            let key = Key::of(&tensor.key);
            if key.prefix == "exp_avg" && !names.iter().any(|name| name == key.name) {
                names.push(key.name.to_owned());
            }
        }
        names
    }

    fn micro_batches(&self) -> u32 {
        self.case.number("grad_acc", 1) as u32
    }
}

/// The product's own function, over slices.
fn sign_agreement(gradient: &[f64], moment: &[f64]) -> f64 {
    let view = |data| trainmon_agent::core::TensorView::from_slice(data, &[gradient.len() as i64]).unwrap();
    trainmon_agent::stats::sign_agreement(&view(gradient), &view(moment)).unwrap()
}

/// The parts of `<prefix>/<step>/<name>[/<micro step>]`.
struct Key<'a> {
    prefix: &'a str,
    name: &'a str,
    micro: Option<u32>,
}

impl<'a> Key<'a> {
    fn of(key: &'a str) -> Self {
        let mut parts = key.split('/');
        let prefix = parts.next().unwrap();
        let name = parts.nth(1).unwrap();
        Self { prefix, name, micro: parts.next().and_then(|micro| micro.parse().ok()) }
    }
}

fn module_of(name: &str, dialect: Dialect) -> &str {
    let cut = |name: &'_ str| name.rfind('.').unwrap();
    let end = match dialect {
        Dialect::V1 => cut(name),
        Dialect::V2 => cut(&name[..cut(name)]),
    };
    &name[..end]
}

/// The backward hook shows every input and output of a module, and nothing where there is no gradient. Nothing was
/// recorded for the latter, so it is inferred: a module without any input gradient had those that msprobe names
/// (`missing`); an output that forward numbered and backward lacks was empty.
fn with_missing_gradients<'a>(
    forward: &[(String, &'a Recorded)],
    backward: &[(String, &'a Recorded)],
    missing: &[String],
) -> Vec<(String, Option<&'a Recorded>)> {
    let mut modules: Vec<&str> = Vec::new();
    for (name, _) in backward {
        let module = module_of(name, Dialect::V1);
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    let mut rows = Vec::new();
    for module in modules {
        for end in ["input", "output"] {
            let (bare, numbered) = (format!("{module}.{end}"), format!("{module}.{end}_"));
            let is_own = |name: &str| name == bare || name.starts_with(&numbered);
            let own = |list: &[(String, &'a Recorded)]| -> Vec<(String, Option<&'a Recorded>)> {
                list.iter()
                    .filter(|(name, _)| is_own(name))
                    .map(|(name, tensor)| (name.clone(), Some(*tensor)))
                    .collect()
            };
            let (shown, found) = (own(forward), own(backward));
            let is_numbered = found.iter().any(|(name, _)| name != &format!("{module}.{end}"));
            if found.is_empty() {
                rows.extend(missing.iter().filter(|name| is_own(name)).map(|name| (name.clone(), None)));
            } else if is_numbered {
                for (name, _) in shown {
                    let gradient = found.iter().find(|(known, _)| *known == name).and_then(|(_, tensor)| *tensor);
                    rows.push((name, gradient));
                }
            } else {
                rows.extend(found);
            }
        }
    }
    rows
}
