//! The description of a tensor in a document: numbers, checksum, file.

use half::{bf16, f16};
use trainmon_capture_files::{DigestText, Hole, JsonText, NumberText, TensorText};
use trainmon_core::config::{CaptureTask, Precision, Summary};
use trainmon_core::{Dtype, Scalar, Shape, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Request, contiguous_bytes, measure, measure_and_copy};

use super::Session;
use crate::bench::Sum;
use crate::files::{Elements, TensorFile};
use crate::slice::sliced;
use crate::tensor::{Content, Later, Tensor};

/// A measured tensor.
pub(crate) struct Measured {
    numbers: Option<[NumberText; 4]>,
    digest: Option<DigestText>,
    file: Option<Hole>,
    /// The shape of the captured part, if it is not the whole tensor.
    shape: Option<Shape>,
    /// Whether an element is NaN or infinite; `None` if that was not checked.
    pub(crate) is_nonfinite: Option<bool>,
    pub(crate) later: Option<Later>,
}

impl Measured {
    /// Measures, sums and copies a tensor in the host's memory at once, before the training changes it.
    pub(crate) fn of(session: &Session, tensor: &Tensor<'_>, path: &str, saves: bool) -> Self {
        let config = session.plan().config();
        let mut measured = Self::nothing(config.task, config.summary);
        match tensor.content {
            Content::Unreadable => {}
            Content::Host(view) => measured.read(session, tensor, &view, path, saves),
            Content::Later => {
                session.count_tensor(bytes_of(tensor));
                if measured.numbers.is_some() {
                    let numbers = [(); 4].map(|()| session.new_hole());
                    measured.numbers = Some(numbers.map(NumberText::Hole));
                    measured.later = Some(Later { numbers });
                }
            }
        }
        measured
    }

    /// The keys of the task, without values.
    fn nothing(task: CaptureTask, summary: Summary) -> Self {
        let says_numbers = !matches!(task, CaptureTask::NanCheck | CaptureTask::OverflowCheck);
        Self {
            numbers: (says_numbers && summary != Summary::Xor).then_some([NumberText::Null; 4]),
            digest: (says_numbers && summary != Summary::Statistics).then_some(DigestText::Null),
            file: None,
            shape: None,
            is_nonfinite: None,
            later: None,
        }
    }

    fn read(&mut self, session: &Session, tensor: &Tensor<'_>, view: &TensorView<'_>, path: &str, saves: bool) {
        let config = session.plan().config();
        let part = sliced(view, &config.slice);
        session.count_tensor(part.size_in_bytes() as u64);
        if part.shape() != view.shape() {
            self.shape = Some(part.shape());
        }
        let mut wanted = StatisticSet::EMPTY;
        if self.numbers.is_some() {
            wanted = [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm]
                .into_iter()
                .fold(wanted, StatisticSet::with);
        }
        if session.checks_for_nan() {
            wanted = wanted.with(Statistic::Nans).with(Statistic::Infs);
        }
        if self.digest.is_some() {
            wanted = wanted.with(if config.summary == Summary::Xor { Statistic::Xor64 } else { Statistic::Crc32 });
        }
        let saved = if saves && part.elements() > 0 { self.save(session, tensor, &part, path, wanted) } else { None };
        let stats = saved.unwrap_or_else(|| measure(&part, Request { statistics: wanted, eps: 0.0 }));
        let is_scalar = tensor.shape.is_empty() && self.shape.is_none() && part.elements() == 1;
        if self.numbers.is_some() {
            self.numbers = Some(numbers_of(&stats, is_scalar, config.precision));
        }
        if session.checks_for_nan() {
            self.is_nonfinite = Some(stats.nonfinite() > 0);
        }
        self.digest = self.digest.map(|_| match config.summary {
            Summary::Xor => DigestText::Xor64(stats.xor64),
            _ => DigestText::Crc32(stats.crc32),
        });
    }

    /// Passes the tensor to the file writers and measures it during the copy. Returns `None` if it was not copied.
    fn save(
        &mut self,
        session: &Session,
        tensor: &Tensor<'_>,
        part: &TensorView<'_>,
        path: &str,
        wanted: StatisticSet,
    ) -> Option<TensorStats> {
        // The front's sizes are those of the whole tensor; a shard or a nested tensor has others.
        let told = Shape::new(tensor.shape).ok().filter(|shape| shape.elements() == part.elements());
        let shape = self.shape.or(told).unwrap_or(part.shape());
        let hole = session.new_hole();
        self.file = Some(hole);
        // The CRC-32 distinguishes contents and is part of a `.pt`; it is computed while the bytes are in the cache.
        let statistics = wanted.with(Statistic::Crc32);
        let mut saved = Saved { part, request: Request { statistics, eps: 0.0 }, stats: None };
        session.save(&TensorFile { hole, path, dtype: part.dtype(), shape }, part.size_in_bytes(), &mut saved);
        saved.stats
    }

    /// The sizes and checksum that are compared with a baseline.
    pub(crate) fn sum(&self, tensor: &Tensor<'_>) -> Sum {
        let sizes = self.shape.as_ref().map_or(tensor.shape, Shape::dims);
        let crc = if let Some(DigestText::Crc32(crc)) = self.digest { Some(crc) } else { None };
        Sum { sizes: sizes.iter().map(|&size| size.unsigned_abs()).collect(), crc }
    }

    pub(crate) fn write(&self, json: &mut JsonText, tensor: &Tensor<'_>) {
        let shape = self.shape.as_ref().map_or(tensor.shape, Shape::dims);
        json.tensor(&TensorText {
            kind: if tensor.kind.is_empty() { "torch.Tensor" } else { tensor.kind },
            dtype: tensor.dtype,
            shape,
            numbers: self.numbers,
            requires_grad: tensor.requires_grad,
            spread: tensor.spread,
            is_from_empty: tensor.is_from_empty,
            file: self.file,
            digest: self.digest,
        });
    }
}

/// A tensor that is measured while it is saved.
struct Saved<'p, 't> {
    part: &'p TensorView<'t>,
    request: Request,
    stats: Option<TensorStats>,
}

impl Elements for Saved<'_, '_> {
    fn in_place(&self) -> Option<&[u8]> {
        contiguous_bytes(self.part)
    }

    fn sum(&mut self) -> u32 {
        self.stats.insert(measure(self.part, self.request)).crc32
    }

    fn copy(&mut self, target: &mut [u8]) -> u32 {
        self.stats.insert(measure_and_copy(self.part, self.request, target)).crc32
    }

    fn measured(&self) -> Option<TensorStats> {
        self.stats
    }

    fn are_same_as(&mut self, measured: &TensorStats) {
        self.stats = Some(*measured);
    }
}

/// Returns the size in bytes from a tensor's dtype and shape, or 0 if the dtype is unknown.
fn bytes_of(tensor: &Tensor<'_>) -> u64 {
    let size = Dtype::from_torch_name(tensor.dtype).map_or(0, |dtype| dtype.size() as u64);
    tensor.shape.iter().try_fold(size, |bytes, &size| bytes.checked_mul(u64::try_from(size).ok()?)).unwrap_or(0)
}

fn scalar(value: Scalar) -> NumberText {
    match value {
        Scalar::Float(value) => NumberText::Float(value),
        Scalar::Int(value) => NumberText::Int(value),
        Scalar::UInt(value) => NumberText::UInt(value),
        Scalar::Bool(value) => NumberText::Bool(value),
    }
}

/// Returns max, min, mean and norm in the form of a document.
pub(super) fn numbers_of(stats: &TensorStats, is_scalar: bool, precision: Precision) -> [NumberText; 4] {
    if stats.count == 0 {
        return [NumberText::Null; 4];
    }
    let (max, min) = (scalar(stats.max), scalar(stats.min));
    match precision {
        // msprobe has no mean or norm of booleans.
        Precision::Low if stats.dtype == Dtype::Bool => [max, min, NumberText::Null, NumberText::Null],
        Precision::High => [max, min, NumberText::Float(stats.mean), NumberText::Float(stats.norm)],
        Precision::Low => low_numbers(stats, is_scalar, max, min),
    }
}

/// Computes the numbers like msprobe: in the tensor's dtype, and not for every dtype.
fn low_numbers(stats: &TensorStats, is_scalar: bool, max: NumberText, min: NumberText) -> [NumberText; 4] {
    match stats.dtype {
        Dtype::F8E4M3Fn | Dtype::F8E4M3Fnuz | Dtype::F8E5M2 | Dtype::F8E5M2Fnuz => [NumberText::Null; 4],
        Dtype::Complex64 | Dtype::Complex128 => {
            let mean = if stats.dtype == Dtype::Complex64 { f64::from(stats.mean as f32) } else { stats.mean };
            [max, min, NumberText::Float(mean), NumberText::Null]
        }
        _ if is_scalar => [max; 4],
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
            let mean = mean_in_single(stats);
            let norm = if stats.norm * stats.norm > f64::from(f32::MAX) { f64::INFINITY } else { stats.norm };
            [max, min, NumberText::Float(rounded(mean, stats.dtype)), NumberText::Float(rounded(norm, stats.dtype))]
        }
        _ => [max, min, NumberText::Null, NumberText::Null],
    }
}

/// The mean from a sum in float32, as torch computes it for narrow floats: infinite if the sum overflows.
fn mean_in_single(stats: &TensorStats) -> f64 {
    let sum = stats.mean * stats.count as f64;
    if sum.abs() > f64::from(f32::MAX) { f64::INFINITY.copysign(sum) } else { stats.mean }
}

fn rounded(value: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => f16::from_f64(value).to_f64(),
        Dtype::Bf16 => bf16::from_f64(value).to_f64(),
        _ => f64::from(value as f32),
    }
}
