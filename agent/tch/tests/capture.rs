//! Captures of a tch training: every operator forward and backward, and not a bit of the training changed.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "what fails here fails the test")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use common::{bits, fill, monitor, parameter_bits};
use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};
use trainmon_agent::{Monitor, Notices, Options};
use trainmon_capture_files::{
    Construct, Document, Leaf, Operator, Plain, Section, Stacks, TensorFacts, parse_document,
};
use trainmon_tch::trainmon_capture::{CaptureConfig, CaptureDialect, CapturePlace, CapturePlan};
use trainmon_tch::{
    Capture, CaptureOptions, DevicePlan, DeviceRow, DeviceStatistics, InFlight, LibtorchStatistics, Optimizer, Watch,
};

/// Observers are the process's: one capture at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn plan(keys: &str, directory: &Path) -> Arc<CapturePlan> {
    let text = format!("{{\"dump_path\": {:?}, \"risk_level\": \"ALL\", {keys}}}", directory.to_str().unwrap());
    let parsed = CaptureConfig::parse(&text, "test", CaptureDialect::default()).map_err(|errors| errors.to_string());
    Arc::new(CapturePlan::new(parsed.unwrap().config))
}

fn begin(keys: &str, directory: &Path, has_stacks: bool) -> Capture {
    begin_with(keys, directory, &CaptureOptions::default().stacks(has_stacks))
}

fn begin_with(keys: &str, directory: &Path, options: &CaptureOptions) -> Capture {
    let notices = Notices::new(|notice| println!("{}", notice.message));
    Capture::begin(&plan(keys, directory), CapturePlace { step: 7, rank: Some(0) }, options, notices).unwrap()
}

fn document(directory: &Path) -> Document {
    let path = directory.join("step7/rank0/dump.json");
    parse_document(&std::fs::read(&path).unwrap(), &path).unwrap()
}

fn names(document: &Document) -> Vec<&str> {
    document.operators.iter().map(|operator| &*operator.name).collect()
}

fn operator<'d>(document: &'d Document, name: &str) -> &'d Operator {
    let found = document.operators.iter().find(|operator| &*operator.name == name);
    found.unwrap_or_else(|| panic!("{name} is not among {:?}", names(document)))
}

fn tensors(operator: &Operator, section: Section) -> Vec<&TensorFacts> {
    let of_section = operator.values.iter().filter(|value| value.section == section);
    of_section.filter_map(|value| if let Leaf::Tensor(facts) = &value.leaf { Some(&**facts) } else { None }).collect()
}

fn digest(tensor: &Tensor) -> String {
    let numbers: Vec<f32> = Vec::try_from(tensor.contiguous().view([-1])).unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    format!("{:08x}", crc32fast::hash(&bytes))
}

fn digests(facts: &[&TensorFacts]) -> Vec<String> {
    facts.iter().map(|facts| facts.digest.as_ref().and_then(|digest| digest.text()).unwrap().to_owned()).collect()
}

const MD5: &str = r#""task": "statistics", "level": "L2", "statistics": {"summary_mode": "md5"}"#;

#[test]
fn an_operator_and_its_backward_are_tied_and_show_what_they_took_and_gave() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = [(3, 4), (4, 2)].map(|(rows, columns)| {
        let numbers = Tensor::arange(rows * columns, (Kind::Float, Device::Cpu)).sin().view([rows, columns]);
        numbers.set_requires_grad(true)
    });
    let capture = begin(MD5, directory.path(), false);
    let product = a.mm(&b);
    let loss = (&product * &product).sum(Kind::Float);
    loss.backward();
    assert!(capture.progress().entries > 0);
    let made = capture.finish().unwrap().unwrap();
    let document = document(directory.path());
    assert_eq!(made.entries, document.operators.len());
    let mm = operator(&document, "Aten.mm.default.0.forward");
    assert_eq!(digests(&tensors(mm, Section::Input)), [digest(&a.detach()), digest(&b.detach())]);
    assert_eq!(digests(&tensors(mm, Section::Output)), [digest(&product.detach())]);
    assert_eq!(tensors(mm, Section::Input)[0].requires_grad, Some(true));
    let backward = operator(&document, "Aten.mm.default.0.backward");
    let upstream = product.detach() * 2.0;
    assert_eq!(digests(&tensors(backward, Section::Input)), [digest(&upstream)], "the gradient of what came out");
    let expected = [upstream.mm(&b.detach().tr()), a.detach().tr().mm(&upstream)];
    assert_eq!(digests(&tensors(backward, Section::Output)), expected.map(|gradient| digest(&gradient)));
    // Backwards come in the order of the chain rule, after all that went forward.
    let order: Vec<&str> = names(&document).into_iter().filter(|name| name.ends_with("backward")).collect();
    assert_eq!(order, ["Aten.sum.default.0.backward", "Aten.mul.Tensor.0.backward", "Aten.mm.default.0.backward"]);
}

#[test]
fn what_runs_inside_another_operator_or_a_backward_is_not_captured() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let vs = VarStore::new(Device::Cpu);
    let linear = nn::linear(vs.root() / "l", 4, 3, nn::LinearConfig::default());
    let input = Tensor::ones([2, 4], (Kind::Float, Device::Cpu));
    let capture = begin(MD5, directory.path(), false);
    linear.forward(&input).sum(Kind::Float).backward();
    capture.finish().unwrap();
    let forward: Vec<String> = names(&document(directory.path()))
        .into_iter()
        .filter(|name| name.ends_with("forward"))
        .map(str::to_owned)
        .collect();
    assert!(
        forward.iter().any(|name| name == "Aten.addmm.default.0.forward"),
        "torch writes linear as others: {forward:?}"
    );
    assert!(!forward.iter().any(|name| name.contains(".linear.") || name.contains(".mm.")), "{forward:?}");
}

#[test]
fn after_it_ends_nothing_is_left_of_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let weight = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let capture = begin(MD5, directory.path(), false);
    let loss = (&weight * 2.0).sum(Kind::Float);
    capture.finish().unwrap();
    let before = std::fs::read(directory.path().join("step7/rank0/dump.json")).unwrap();
    // Hooks of the graph outlive the capture, and do nothing.
    loss.backward();
    let _more = &weight + 1.0;
    assert_eq!(std::fs::read(directory.path().join("step7/rank0/dump.json")).unwrap(), before);
    assert_eq!(std::fs::read_dir(directory.path().join("step7")).unwrap().count(), 1);
    // The next one begins anew, beside the first.
    begin(MD5, directory.path(), false).finish().unwrap();
    assert_eq!(std::fs::read_dir(directory.path().join("step7")).unwrap().count(), 2, "the first is set aside");
}

/// A graph that was made in one captured step and runs backward in the next is not the next one's.
#[test]
fn a_backward_belongs_to_the_capture_of_its_forward() {
    let _alone = alone();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let weight = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let first = begin(MD5, directories[0].path(), false);
    let early = weight.mm(&weight).sum(Kind::Float);
    first.finish().unwrap();
    let second = begin(MD5, directories[1].path(), false);
    early.backward();
    let late = (&weight * 3.0).sum(Kind::Float);
    late.backward();
    second.finish().unwrap();
    let document = document(directories[1].path());
    let backwards: Vec<&str> = names(&document).into_iter().filter(|name| name.ends_with("backward")).collect();
    assert_eq!(backwards, ["Aten.sum.default.0.backward", "Aten.mul.Scalar.0.backward"]);
}

#[test]
fn a_scope_and_halves_choose_operators_too() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let keys =
        r#""task": "statistics", "level": "L2", "statistics": {"data_mode": ["backward", "output"], "list": ["mm"]}"#;
    let weight = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let capture = begin(keys, directory.path(), false);
    weight.mm(&weight).square().sum(Kind::Float).backward();
    capture.finish().unwrap();
    let document = document(directory.path());
    assert_eq!(names(&document), ["Aten.mm.default.0.backward"]);
    let found = operator(&document, "Aten.mm.default.0.backward");
    assert_eq!((tensors(found, Section::Input).len(), tensors(found, Section::Output).len()), (0, 2));
}

#[test]
fn two_captures_at_a_time_are_refused_and_the_first_goes_on() {
    let _alone = alone();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = begin(MD5, directories[0].path(), false);
    let place = CapturePlace { step: 7, rank: Some(0) };
    let options = CaptureOptions::default();
    let refused = Capture::begin(&plan(MD5, directories[1].path()), place, &options, Notices::new(|_| ())).unwrap_err();
    assert!(refused.to_string().contains("another capture is running"), "{refused}");
    assert_eq!(std::fs::read_dir(directories[1].path()).unwrap().count(), 0, "nothing was begun");
    let _sum = Tensor::ones([2], (Kind::Float, Device::Cpu)) + 1.0;
    first.finish().unwrap();
    assert!(names(&document(directories[0].path())).iter().any(|name| name.starts_with("Aten.add.")));
}

/// Loss and gradients of a few steps, with modules watched; captured or not.
fn train(keys: Option<&str>, directory: &Path) -> (Vec<u32>, Vec<Vec<u32>>, Vec<Vec<u32>>) {
    train_with(keys, directory, &CaptureOptions::default().stacks(true))
}

fn train_with(
    keys: Option<&str>,
    directory: &Path,
    options: &CaptureOptions,
) -> (Vec<u32>, Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let vs = VarStore::new(Device::Cpu);
    let linears = ["a", "b"].map(|name| nn::linear(vs.root() / name, 24, 24, nn::LinearConfig::default()));
    fill(&vs, 42);
    let (monitor, _collected) = monitor(r#"{"xy_distribution": false}"#);
    let watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let [first, second] = linears;
    let (first, second) = (watch.module("block.first", first), watch.module("block.second", second));
    let mut losses = Vec::new();
    for step in 0..3 {
        let input = (Tensor::arange(16 * 24, (Kind::Float, Device::Cpu)) * 0.7 + f64::from(step)).sin().view([16, 24]);
        let capture = keys.filter(|_| step == 1).map(|keys| begin_with(keys, directory, options));
        let hidden = first.forward(&input).gelu("none");
        // Used twice: its gradient is a sum, whose order shows in the last bits.
        let loss = (second.forward(&hidden) + &hidden).square().mean(Kind::Float);
        loss.backward();
        losses.push((loss.double_value(&[]) as f32).to_bits());
        if let Some(capture) = capture {
            capture.finish().unwrap();
        }
    }
    let gradients = vs.trainable_variables().iter().map(|variable| bits(&variable.grad())).collect();
    (losses, gradients, parameter_bits(&vs))
}

#[test]
fn two_captures_of_one_training_are_the_same() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let entries = ["one", "other"].map(|run| {
        let directory = directory.path().join(run);
        train(Some(r#""task": "statistics", "level": "mix", "statistics": {"summary_mode": "md5"}"#), &directory);
        let document = document(&directory);
        assert!(document.operators.len() > 20 && document.has_digests());
        format!("{:?}", document.operators)
    });
    assert_eq!(entries[0], entries[1]);
}

#[test]
fn a_capture_changes_no_bit_of_loss_and_gradients() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let plain = train(None, directory.path());
    for (number, keys) in [
        r#""task": "statistics", "level": "mix", "statistics": {"summary_mode": "md5"}"#,
        r#""task": "tensor", "level": "L2""#,
        r#""task": "structure""#,
        r#""task": "statistics", "level": "L0""#,
    ]
    .into_iter()
    .enumerate()
    {
        let directory = directory.path().join(number.to_string());
        assert_eq!(train(Some(keys), &directory), plain, "{keys}");
    }
    let mix = directory.path().join("0");
    let document = document(&mix);
    let found = names(&document);
    for name in [
        "Module.block.first.Linear.forward.0",
        "Module.block.second.Linear.forward.0",
        "Aten.addmm.default.1.forward",
        "Aten.addmm.default.1.backward",
        "Aten.gelu.default.0.backward",
    ] {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
    let rank = mix.join("step7/rank0");
    let read = |name: &str| std::fs::read(rank.join(name)).unwrap();
    let construct = Construct::parse(&read("construct.json"), &rank).unwrap();
    let parent = |name: &str| construct.parent(name).and_then(|parent| parent.name.as_deref());
    assert_eq!(parent("Aten.addmm.default.1.forward"), Some("Module.block.second.Linear.forward.0"));
    assert_eq!(parent("Module.block.second.Linear.forward.0"), None);
    let stacks = Stacks::parse(&read("stack.json"), &rank).unwrap();
    let lines = stacks.of("Aten.gelu.default.0.forward").unwrap();
    assert!(lines.iter().any(|line| line.contains("capture.rs") && line.contains("in train")), "{lines:?}");
    // The tensors are in files that read back.
    let tensors_of = directory.path().join("1/step7/rank0/dump_tensor_data");
    let file = trainmon_tensor_files::open(&tensors_of.join("Aten.gelu.default.0.forward.output.0.pt")).unwrap();
    assert_eq!(file.entries()[0].shape.dims(), [16, 24]);
}

/// Libtorch's statistics on a device that is slow to deliver, and has no numbers of integers.
#[derive(Clone, Default)]
struct OtherDevice {
    /// Tensors of each batch.
    batches: Arc<Mutex<Vec<usize>>>,
    asked_while_waiting: Arc<AtomicUsize>,
}

struct SlowFlight(Box<dyn InFlight>, AtomicUsize, Arc<AtomicUsize>);

impl DeviceStatistics for OtherDevice {
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        if tensors.iter().any(|tensor| tensor.kind() == Kind::Int64) {
            return Err("no numbers of int64 here".to_owned());
        }
        self.batches.lock().unwrap().push(tensors.len());
        let waiting = Arc::clone(&self.asked_while_waiting);
        Ok(Box::new(SlowFlight(LibtorchStatistics.launch(tensors, plan)?, AtomicUsize::new(0), waiting)))
    }
}

impl InFlight for SlowFlight {
    fn is_ready(&self) -> Result<bool, String> {
        let is_ready = self.1.fetch_add(1, Ordering::Relaxed) >= 3;
        self.2.fetch_add(usize::from(!is_ready), Ordering::Relaxed);
        Ok(is_ready)
    }

    fn rows(&self) -> Vec<DeviceRow> {
        self.0.rows()
    }
}

/// Max, min, mean and norm, as far as there are some.
fn numbers(facts: &TensorFacts) -> [Option<f64>; 4] {
    facts.statistics.each_ref().map(|number| match number {
        Plain::Int(number) => Some(*number as f64),
        Plain::Float(number) => Some(*number),
        _ => None,
    })
}

/// Every tensor of an entry, in order.
fn all_tensors(operator: &Operator) -> Vec<&TensorFacts> {
    let leaves = operator.values.iter().map(|value| &value.leaf);
    leaves.filter_map(|leaf| if let Leaf::Tensor(facts) = leaf { Some(&**facts) } else { None }).collect()
}

#[test]
fn tensors_on_a_device_have_the_hosts_numbers_found_in_batches_that_nothing_waits_for() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let keys = r#""task": "statistics", "level": "mix""#;
    let device = OtherDevice::default();
    let options = CaptureOptions::default().device_statistics(device.clone()).everything_through_the_device_path();
    let plain = train(None, directory.path());
    assert_eq!(train_with(Some(keys), &directory.path().join("device"), &options), plain, "not a bit is changed");
    train(Some(keys), &directory.path().join("host"));
    let [host, found] = ["host", "device"].map(|way| document(&directory.path().join(way)));
    assert_eq!(names(&found), names(&host), "what measures is not captured itself");
    let mut count = 0;
    for (expected, found) in host.operators.iter().zip(&found.operators) {
        for (expected, found) in all_tensors(expected).into_iter().zip(all_tensors(found)) {
            for (expected, found) in numbers(expected).into_iter().zip(numbers(found)) {
                let (expected, found) = (expected.unwrap(), found.unwrap());
                assert!((expected - found).abs() <= 1e-6 * expected.abs().max(1e-9), "{expected} {found}");
            }
            count += 1;
        }
    }
    let batches = device.batches.lock().unwrap().clone();
    assert_eq!(batches.iter().sum::<usize>(), count);
    assert!(batches.iter().any(|&tensors| tensors > 2), "those of a call in one batch: {batches:?}");
    assert!(device.asked_while_waiting.load(Ordering::Relaxed) > 0, "it was slower than the training");
}

#[test]
fn checksums_of_tensors_on_a_device_are_the_hosts() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let options = CaptureOptions::default().everything_through_the_device_path();
    let entries = [("host", CaptureOptions::default()), ("device", options)].map(|(way, options)| {
        let directory = directory.path().join(way);
        train_with(Some(MD5), &directory, &options);
        format!("{:?}", document(&directory).operators)
    });
    assert_eq!(entries[0], entries[1]);
}

#[test]
fn a_tensor_that_a_device_cannot_measure_costs_its_own_numbers_alone() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let options =
        CaptureOptions::default().device_statistics(OtherDevice::default()).everything_through_the_device_path();
    let capture = begin_with(r#""task": "statistics", "level": "L2""#, directory.path(), &options);
    let rows = Tensor::arange(8, (Kind::Float, Device::Cpu)).view([4, 2]);
    let _chosen = rows.index_select(0, &Tensor::from_slice(&[2_i64, 0]));
    let _none = Tensor::ones([0, 3], (Kind::Float, Device::Cpu)) * 2.0;
    capture.finish().unwrap();
    let document = document(directory.path());
    let chosen = all_tensors(operator(&document, "Aten.index_select.default.0.forward"));
    let largest: Vec<Option<f64>> = chosen.iter().map(|facts| numbers(facts)[0]).collect();
    assert_eq!(largest, [Some(7.0), None, Some(5.0)]);
    let empty = all_tensors(operator(&document, "Aten.mul.Scalar.0.forward"));
    assert!(empty.iter().all(|facts| numbers(facts)[0].is_none()));
    let log = std::fs::read_to_string(directory.path().join("step7/rank0/dump_error_info.log")).unwrap();
    assert!(log.contains("device: no numbers of int64 here"), "{log}");
}

/// A watched training whose monitor is given this config, one step after the other.
fn train_until(watch: &mut Watch, vs: &VarStore, net: &impl Module, is_over: impl Fn(&Monitor) -> bool) {
    let mut optimizer = Optimizer::new(&nn::adam(0.9, 0.99, 0.0), vs, 1e-2).unwrap();
    let deadline = Instant::now() + Duration::from_mins(2);
    let mut step = 0;
    while !is_over(watch.monitor()) {
        assert!(Instant::now() < deadline, "trained in vain");
        step += 1;
        optimizer.zero_grad().unwrap();
        common::loss(net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
}

fn stages(monitor: &Monitor) -> Vec<String> {
    let states = serde_json::to_value(monitor.captures()).unwrap();
    let states = states.as_array().unwrap();
    states.iter().map(|state| state["stage"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn steps_that_the_config_and_the_control_socket_ask_for_are_captured_whole() {
    let _alone = alone();
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("monitor.json");
    let text = |capture: &str| {
        let out = base.path().join("out");
        format!(
            r#"{{"wg_distribution": true, "ops": ["norm"], "queue_steps": 4096, "output_dir": {out:?}, "control": {{}},
                "capture": {{"level": "L2", {capture}}}}}"#
        )
    };
    std::fs::write(&file, text(r#""request": {"at": 3, "steps": 2}"#)).unwrap();
    let monitor = Monitor::open(&file, Options { notices: Notices::new(|_| {}), ..Options::default() });
    let run = monitor.run_directory().unwrap().to_path_buf();
    let (vs, net) = common::two_layers(3);
    let mut watch = Watch::builder(monitor).model(&vs).build().unwrap();
    let count =
        |monitor: &Monitor, wanted: usize| stages(monitor).iter().filter(|stage| *stage == "done").count() == wanted;
    train_until(&mut watch, &vs, &net, |monitor| count(monitor, 1));
    for step in [3, 4] {
        let path = run.join(format!("captures/step{step}/rank0/dump.json"));
        let document = parse_document(&std::fs::read(&path).unwrap(), &path).unwrap();
        for name in ["Aten.addmm.default.0.forward", "Aten.mse_loss.default.0.forward"] {
            operator(&document, name);
        }
        assert!(names(&document).iter().any(|name| name.ends_with("backward")), "{:?}", names(&document));
    }
    // Another request in the file.
    std::fs::write(&file, text(r#""request": {"list": ["mse_loss"]}, "max_captures": 9"#)).unwrap();
    train_until(&mut watch, &vs, &net, |monitor| count(monitor, 2));
    // And one at the socket.
    let socket = run.join("rank_0/control.sock");
    let asked = common::socket::ask(&socket, "POST", "/dump", r#"{"level": "mix"}"#);
    assert!(asked.contains("\"id\":"), "{asked}");
    train_until(&mut watch, &vs, &net, |monitor| count(monitor, 3));
    let refused = common::socket::ask(&socket, "POST", "/dump", r#"{"level": "L7"}"#);
    assert!(refused.contains("expected one of `L0`, `L1`, `L2`, `mix`"), "{refused}");
    assert!(watch.finish().balances());
    let captures = std::fs::read_dir(run.join("captures")).unwrap().count();
    assert_eq!(captures, 4);
    let request = std::fs::read_to_string(run.join("captures/step3/rank0/request.json")).unwrap();
    assert!(request.contains(r#""by": "config""#) && request.contains(r#""is_whole": true"#), "{request}");
}
