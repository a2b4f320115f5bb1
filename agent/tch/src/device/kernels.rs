//! Statistics with precompiled kernels: one read of every tensor, and two launches per batch.

use std::collections::HashMap;

use tch::{Device, Kind, Tensor};
use trainmon_agent::core::Statistic;
use trainmon_agent::front::{DeviceColumn, DevicePlan, DeviceRow};
use trainmon_agent::stats::Request;
use trainmon_agent::{Notice, Severity};
use trainmon_device::{FOUND_COLUMNS, Factor, Kernels, LaunchError, Row, Shows, Spread, Statistics, Tables};

use super::{DeviceStatistics, InFlight, LibtorchStatistics};
use crate::ffi::{Buffer, Pending, TensorRef, Where};

/// The environment variable that turns the kernels off with the value `0`.
const SWITCH: &str = "TRAINMON_DEVICE_KERNELS";

/// Launches the kernels of one device.
#[doc(hidden)]
pub trait Launch: Send {
    /// Measures like [`Kernels::measure`].
    ///
    /// # Errors
    /// Those of [`Kernels::measure`].
    ///
    /// # Safety
    /// The requirements of [`Kernels::measure`].
    #[expect(unsafe_code, reason = "addresses on a device")]
    unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError>;
}

impl Launch for Kernels {
    #[expect(unsafe_code, reason = "addresses on a device")]
    unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError> {
        // SAFETY: the caller meets the requirements.
        unsafe { Self::measure(self, of, stream) }
    }
}

type Load = Box<dyn Fn(u32) -> Result<Box<dyn Launch>, String> + Send>;

/// Statistics with the kernels of [`trainmon_device`], on CUDA devices of compute capability 8.0 or newer.
///
/// On each device, the kernels first measure known tensors. Until their results are correct, [`LibtorchStatistics`]
/// measures all tensors. It also measures tensors that the kernels cannot traverse, and all tensors on other devices.
/// To turn the kernels off, set `TRAINMON_DEVICE_KERNELS=0` in the environment.
///
/// The cost is one read of the memory and two launches per batch. In the first step with a tensor on a device, the
/// driver compiles the kernels within a second or two and caches the result on disk. Checksums are not computed.
pub struct KernelStatistics {
    operators: LibtorchStatistics,
    devices: HashMap<Where, State>,
    load: Load,
    takes_host: bool,
    /// The notice that the user has not received yet.
    remark: Option<Notice>,
}

enum State {
    /// The kernels are measuring known tensors: the launcher, its measurement and the expected rows.
    Trying(Launcher, Pending, Vec<DeviceRow>),
    Ready(Launcher),
    /// The kernels are not available or return wrong values.
    None,
}

impl State {
    /// Checks the measurement of the known tensors, if the device has delivered it.
    fn next(self) -> Result<Self, String> {
        let Self::Trying(launcher, pending, expected) = self else { return Ok(self) };
        if !pending.is_ready()? {
            return Ok(Self::Trying(launcher, pending, expected));
        }
        let found = pending.rows().map(|row| DeviceRow(*row));
        let is_right =
            pending.rows().len() == expected.len() && found.zip(&expected).all(|(one, other)| are_alike(&one, other));
        if is_right { Ok(Self::Ready(launcher)) } else { Err(WRONG.to_owned()) }
    }
}

/// The reason for wrong kernels, which should never occur.
const WRONG: &str = "they measure known tensors incorrectly";

/// The magnitude below which an element of the known tensors counts as zero.
const KNOWN_EPS: f64 = 1e-3;

/// Returns the known tensors, which have several dtypes and are always the same. One has more than a chunk, one has NaN
/// and infinity, and one has a small deviation from a large mean.
fn known() -> Vec<Tensor> {
    let base = Tensor::arange(33_000, (Kind::Float, Device::Cpu)).multiply_scalar(0.37).sin();
    let spoilt = Tensor::from_slice(&[1.0, f32::NAN, f32::INFINITY, -2.0, 0.0]);
    let some = base.narrow(0, 1, 5000);
    let mut known = vec![base.shallow_clone(), some.to_kind(Kind::BFloat16), some.to_kind(Kind::Half), spoilt];
    known.extend([some.to_kind(Kind::Double), some.g_add_scalar(1e4), (some * 100.0).to_kind(Kind::Int)]);
    known
}

/// Whether two rows agree within the accuracy of compensated sums in float32.
fn are_alike(DeviceRow(found): &DeviceRow, DeviceRow(expected): &DeviceRow) -> bool {
    let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * b.abs() + 1e-9;
    found.iter().zip(expected).all(near)
}

impl Default for KernelStatistics {
    fn default() -> Self {
        Self::with(|device| {
            if std::env::var(SWITCH).is_ok_and(|value| value == "0") {
                return Err(format!("{SWITCH} is 0"));
            }
            let kernels = Kernels::load(device).map_err(|error| error.to_string())?;
            Ok(Box::new(kernels) as Box<dyn Launch>)
        })
    }
}

impl KernelStatistics {
    /// Uses other kernels, for tests.
    #[doc(hidden)]
    pub fn with(load: impl Fn(u32) -> Result<Box<dyn Launch>, String> + Send + 'static) -> Self {
        Self {
            operators: LibtorchStatistics,
            devices: HashMap::new(),
            load: Box::new(load),
            takes_host: false,
            remark: None,
        }
    }

    /// Measures host tensors with the kernels too, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn and_on_the_host(mut self) -> Self {
        self.takes_host = true;
        self
    }

    fn place_of(&self, device: Device) -> Option<Where> {
        match device {
            Device::Cuda(number) => u32::try_from(number).ok().map(Where::Cuda),
            Device::Cpu if self.takes_host => Some(Where::Host),
            _ => None,
        }
    }

    /// Returns the launcher of a device if its kernels measured the known tensors correctly.
    fn launcher(&mut self, place: Where) -> Option<&mut Launcher> {
        let state = match self.devices.remove(&place) {
            None => self.begin(place),
            Some(state) => Ok(state),
        };
        let state = state.and_then(State::next).unwrap_or_else(|why| self.without(&why));
        match self.devices.entry(place).insert_entry(state).into_mut() {
            State::Ready(launcher) => Some(launcher),
            _ => None,
        }
    }

    /// Prepares the notice that a device has no kernels, and returns its state.
    fn without(&mut self, why: &str) -> State {
        let message = format!("libtorch's operators measure tensors on the device, not trainmon's kernels: {why}");
        let (severity, hint) = if why == WRONG {
            (Severity::Warning, Some("the numbers are the same, but measuring takes about 10 times as long".to_owned()))
        } else {
            (Severity::Info, None)
        };
        self.remark.get_or_insert(Notice { severity, message, hint });
        State::None
    }

    /// Launches the measurement of the known tensors.
    fn begin(&mut self, place: Where) -> Result<State, String> {
        let number = if let Where::Cuda(number) = place { number } else { 0 };
        let mut launcher = Launcher::new((self.load)(number)?, place);
        let on_host = known();
        let device = if place == Where::Host { Device::Cpu } else { Device::Cuda(number as usize) };
        let there: Vec<Tensor> =
            on_host.iter().map(|tensor| tensor.to_device_(device, tensor.kind(), true, false)).collect();
        let plan = DevicePlan::of(Request { statistics: Statistic::ALL.into_iter().collect(), eps: KNOWN_EPS });
        let (rows, _) = rows_of(&there.iter().collect::<Vec<_>>(), plan);
        let launched = launcher.launch(&rows)?;
        let expected = self.operators.launch(&on_host.iter().collect::<Vec<_>>(), plan)?.rows();
        Ok(State::Trying(launcher, launched, expected))
    }
}

impl DeviceStatistics for KernelStatistics {
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        let place = tensors.first().and_then(|tensor| self.place_of(tensor.device()));
        let Some(place) = place else { return self.operators.launch(tensors, plan) };
        let mut operators = self.operators;
        let Some(launcher) = self.launcher(place) else { return operators.launch(tensors, plan) };
        let (rows, left) = rows_of(tensors, plan);
        let launched = if rows.is_empty() { None } else { Some(launcher.launch(&rows)) };
        let launched = match launched.transpose() {
            Ok(launched) => launched,
            Err(why) => {
                let state = self.without(&why);
                self.devices.insert(place, state);
                return operators.launch(tensors, plan);
            }
        };
        let others: Vec<&Tensor> = left.iter().filter_map(|&place| tensors.get(place).copied()).collect();
        let others = if others.is_empty() { None } else { Some(operators.launch(&others, plan)?) };
        let fitting = (0..tensors.len()).filter(|place| !left.contains(place));
        Ok(Box::new(Mixed { launched, others, order: fitting.chain(left.iter().copied()).collect() }))
    }

    fn remark(&mut self) -> Option<Notice> {
        self.remark.take()
    }
}

/// The kernels of one device and their working memory. All launches go to libtorch's current stream.
struct Launcher {
    kernels: Box<dyn Launch>,
    place: Where,
    tables: Tables,
    words: HashMap<usize, Buffer>,
    /// The buffer for partial results, and the number of chunks that fit into it.
    found: Option<(Buffer, u64)>,
    /// The stream of the last launch. For another stream, tables and buffers are created again.
    stream: u64,
}

impl Launcher {
    fn new(kernels: Box<dyn Launch>, place: Where) -> Self {
        Self { kernels, place, tables: Tables::default(), words: HashMap::new(), found: None, stream: 0 }
    }

    fn launch(&mut self, rows: &[Row]) -> Result<Pending, String> {
        let stream = self.place.stream()?;
        if stream != self.stream {
            (self.tables, self.found, self.stream) = (Tables::default(), None, stream);
            self.words.clear();
        }
        let table = self.tables.of(rows);
        if table.is_new {
            self.words.insert(table.number, Buffer::fill(self.place, self.tables.words(table))?);
        }
        let chunks = table.chunks().max(1);
        if self.found.as_ref().is_none_or(|(_, room)| *room < chunks) {
            self.found = Some((Buffer::make(self.place, FOUND_COLUMNS * chunks as usize)?, chunks));
        }
        let out = Buffer::make(self.place, rows.len() * DeviceColumn::ALL.len())?;
        let (Some(words), Some((found, _))) = (self.words.get(&table.number), &self.found) else {
            return Err("a kernel table has no buffer".to_owned());
        };
        let (words, found) = (words.address(), found.address());
        let of = Statistics { table, words, found, out: out.address(), factor: Factor::Number(1.0) };
        // SAFETY: the buffers have the stated sizes and are used only on this stream. libtorch reuses their memory, and
        // that of the tensors, in the order of the stream.
        #[expect(unsafe_code, reason = "addresses on a device")]
        unsafe { self.kernels.measure(&of, stream) }.map_err(|error| error.to_string())?;
        out.deliver(rows.len())
    }
}

/// Returns the rows of the tensors that the kernels can traverse, and the indices of the others.
fn rows_of(tensors: &[&Tensor], plan: DevicePlan) -> (Vec<Row>, Vec<usize>) {
    let (mut rows, mut left) = (Vec::with_capacity(tensors.len()), Vec::new());
    for (place, tensor) in tensors.iter().enumerate() {
        match row_of(tensor, plan) {
            Some(row) => rows.push(row),
            None => left.push(place),
        }
    }
    (rows, left)
}

fn row_of(tensor: &Tensor, plan: DevicePlan) -> Option<Row> {
    let found = TensorRef::new(tensor)?.describe().ok()??;
    let dtype = found.dtype().ok()?;
    let spread = Spread::of(found.dims(), found.strides())?;
    let is_there = found.is_strided() && found.is_resolved() && found.address() != 0;
    (is_there && found.address().is_multiple_of(dtype.align())).then_some(())?;
    let eps = plan.contains(DeviceColumn::Zeros).then_some(plan.eps);
    let std = plan.contains(DeviceColumn::Std);
    Some(Row { address: found.address() as u64, spread, dtype, other: None, shows: Shows::Values, eps, std })
}

/// A batch of which the operators may measure a part.
struct Mixed {
    launched: Option<Pending>,
    others: Option<Box<dyn InFlight>>,
    /// The index of each row's tensor: first those of the kernels, then the others.
    order: Vec<usize>,
}

impl InFlight for Mixed {
    fn is_ready(&self) -> Result<bool, String> {
        let launched = self.launched.as_ref().map_or(Ok(true), Pending::is_ready)?;
        Ok(launched && self.others.as_ref().map_or(Ok(true), |others| others.is_ready())?)
    }

    fn rows(&self) -> Vec<DeviceRow> {
        let launched = self.launched.iter().flat_map(|pending| pending.rows().map(|row| DeviceRow(*row)));
        let others = self.others.iter().flat_map(|others| others.rows());
        let mut placed: Vec<_> = self.order.iter().copied().zip(launched.chain(others)).collect();
        placed.sort_unstable_by_key(|&(place, _)| place);
        placed.into_iter().map(|(_, row)| row).collect()
    }
}
