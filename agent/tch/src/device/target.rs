//! One tensor to be measured on a device, and the record it becomes.

use tch::{Device, Tensor};
use trainmon_agent::Monitor;
use trainmon_agent::core::{Dtype, Reading, Record, Scalar, Shape, Statistic, StatisticSet, ViewError};
use trainmon_agent::stats::Request;

use super::Found;
use crate::ffi::{Description, TensorRef, Unreadable};
use crate::watch::Label;

/// A tensor to be measured, until the measurement is launched.
pub(crate) struct Target {
    pub(super) tensor: Tensor,
    pub(super) place: Place,
}

/// Where the reading of a launched measurement belongs.
pub(super) struct Place {
    label: Label,
    dtype: Dtype,
    shape: Shape,
    /// The tensor is a single number that the monitor computed itself.
    is_value: bool,
}

/// What targets must share to be measured in one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchKey {
    device: Device,
    /// `None` if the kind is not configured.
    pub(super) request: Option<Request>,
}

impl Target {
    /// A tensor whose statistics are wanted.
    pub(crate) fn measured(
        label: Label,
        tensor: TensorRef<'_>,
        description: &Description<'_>,
    ) -> Result<Self, Unreadable> {
        let shape = Shape::new(description.dims()).map_err(ViewError::from)?;
        let dtype = description.dtype()?;
        let place = Place { label, dtype, shape, is_value: false };
        Ok(Self { tensor: tensor.as_tensor().shallow_clone(), place })
    }

    /// A number, computed on the device as a tensor without dimensions.
    pub(crate) fn value(label: Label, tensor: Tensor) -> Self {
        Self { tensor, place: Place { label, dtype: Dtype::F32, shape: Shape::default(), is_value: true } }
    }

    pub(super) fn batch_key(&self, monitor: &Monitor) -> BatchKey {
        let configured = monitor.request(self.place.label.kind);
        let minimum = StatisticSet::EMPTY.with(Statistic::Min);
        let request = configured
            .map(|request| if self.place.is_value { Request { statistics: minimum, eps: 0.0 } } else { request });
        BatchKey { device: self.tensor.device(), request }
    }
}

impl Place {
    pub(super) fn is_empty(&self) -> bool {
        self.shape.elements() == 0
    }

    pub(super) fn refuse(&self, monitor: &Monitor, why: &str) {
        monitor.observe_unsupported(self.label.tensor, self.label.kind, why);
    }

    pub(super) fn empty_record(&self) -> Record {
        self.label.with(Reading::empty(self.dtype, self.shape))
    }

    pub(super) fn record(&self, found: &Found) -> Record {
        if self.is_value {
            return self.label.with(Reading::of_value(found.min));
        }
        let count = self.shape.elements() as u64;
        self.label.with(Reading {
            min: scalar(self.dtype, found.min),
            max: scalar(self.dtype, found.max),
            mean: found.sum / count as f64,
            norm: found.norm,
            abs_max: found.abs_max,
            std: found.variance.sqrt(),
            nans: found.nans as u64,
            infs: found.infs as u64,
            zeros: found.zeros as u64,
            count,
            ..Reading::empty(self.dtype, self.shape)
        })
    }
}

/// The extreme in the dtype's own arithmetic.
fn scalar(dtype: Dtype, value: f64) -> Scalar {
    match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Scalar::Int(value as i64),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Scalar::UInt(value as u64),
        Dtype::Bool => Scalar::Bool(value != 0.0),
        _ => Scalar::Float(value),
    }
}
