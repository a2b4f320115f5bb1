//! Statistics by kernels compiled beforehand: one read of every tensor, and two launches for all of them.

use std::collections::HashMap;

use tch::{Device, Kind, Tensor};
use trainmon_agent::core::Statistic;
use trainmon_agent::front::{DeviceColumn, DevicePlan, DeviceRow};
use trainmon_agent::stats::Request;
use trainmon_agent::{Notice, Severity};
use trainmon_device::{FOUND_COLUMNS, Factor, Kernels, LaunchError, Row, Shows, Spread, Statistics, Tables};

use super::{DeviceStatistics, InFlight, LibtorchStatistics};
use crate::ffi::{Buffer, Pending, TensorRef, Where};

/// `0` leaves all to libtorch's operators.
const SWITCH: &str = "TRAINMON_DEVICE_KERNELS";

/// What launches the kernels of one device.
#[doc(hidden)]
pub trait Launch: Send {
    /// As [`Kernels::measure`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "addresses on a device")]
    unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError>;
}

impl Launch for Kernels {
    #[expect(unsafe_code, reason = "addresses on a device")]
    unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { Self::measure(self, of, stream) }
    }
}

type Load = Box<dyn Fn(u32) -> Result<Box<dyn Launch>, String> + Send>;

/// Statistics by the kernels of [`trainmon_device`] on CUDA devices of compute capability 8.0 or newer, from the moment on
/// that they have measured known tensors right there; by [`LibtorchStatistics`] until then, on every other device, and of
/// tensors that the kernels cannot walk through. With `TRAINMON_DEVICE_KERNELS=0` in the environment, of all.
///
/// Costs one read of the memory, and two launches for a batch. The driver compiles the kernels in the first step with a
/// tensor on a device, for a second or two, and keeps the result on disk. Checksums are not taken.
pub struct KernelStatistics {
    operators: LibtorchStatistics,
    devices: HashMap<Where, State>,
    load: Load,
    takes_host: bool,
    /// What is to be told.
    remark: Option<Notice>,
}

enum State {
    /// Known tensors are being measured; with what, and what it should find.
    Trying(Launcher, Pending, Vec<DeviceRow>),
    Ready(Launcher),
    /// There are none, or they measure wrong.
    None,
}

impl State {
    /// What comes of it, if the device has delivered.
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

/// What is never to be seen.
const WRONG: &str = "they measure known tensors wrong";

/// Below which magnitude an element of the known tensors is zero.
const KNOWN_EPS: f64 = 1e-3;

/// Tensors of several kinds, the same every time: more than a chunk, NaN and an infinity, a mean beside which the deviation is
/// small.
fn known() -> Vec<Tensor> {
    let base = Tensor::arange(33_000, (Kind::Float, Device::Cpu)).multiply_scalar(0.37).sin();
    let spoilt = Tensor::from_slice(&[1.0, f32::NAN, f32::INFINITY, -2.0, 0.0]);
    let some = base.narrow(0, 1, 5000);
    let mut known = vec![base.shallow_clone(), some.to_kind(Kind::BFloat16), some.to_kind(Kind::Half), spoilt];
    known.extend([some.to_kind(Kind::Double), some.g_add_scalar(1e4), (some * 100.0).to_kind(Kind::Int)]);
    known
}

/// As good as sums in float32 with what rounding drops must be.
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
    /// With other kernels.
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

    /// Host tensors go the same way, for tests.
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

    /// The launcher of a device, if it has been found right.
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

    /// A device that has none.
    fn without(&mut self, why: &str) -> State {
        let message = format!("tensors on the device are measured by libtorch's operators, not by our kernels: {why}");
        let (severity, hint) = if why == WRONG {
            (Severity::Warning, Some("the numbers are the same; measuring takes some ten times as long".to_owned()))
        } else {
            (Severity::Info, None)
        };
        self.remark.get_or_insert(Notice { severity, message, hint });
        State::None
    }

    /// Has known tensors measured.
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

/// The kernels of one device, and the memory they work in. All of its launches go to libtorch's current stream.
struct Launcher {
    kernels: Box<dyn Launch>,
    place: Where,
    tables: Tables,
    words: HashMap<usize, Buffer>,
    /// Room for the findings of as many chunks.
    found: Option<(Buffer, u64)>,
    /// The stream they were last used on: another one finds them made anew.
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
            return Err("a table without words".to_owned());
        };
        let (words, found) = (words.address(), found.address());
        let of = Statistics { table, words, found, out: out.address(), factor: Factor::Number(1.0) };
        // SAFETY: the buffers are as large as said and used on this stream alone; their memory, and that of the tensors, is
        // given to others by libtorch in the order of the stream.
        #[expect(unsafe_code, reason = "addresses on a device")]
        unsafe { self.kernels.measure(&of, stream) }.map_err(|error| error.to_string())?;
        out.deliver(rows.len())
    }
}

/// The rows of tensors that kernels can walk through, and the places of the others.
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

/// A batch, part of which the operators may measure.
struct Mixed {
    launched: Option<Pending>,
    others: Option<Box<dyn InFlight>>,
    /// Which tensor each row is of: those of the kernels, then the others.
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
