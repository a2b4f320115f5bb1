//! A tensor to measure on a device, and its record.

use tch::{Device, Tensor};
use trainmon_agent::Monitor;
use trainmon_agent::core::{Dtype, Reading, Record, Shape, Statistic, StatisticSet, TensorStats, ViewError};
use trainmon_agent::front::{DeviceColumn, DeviceRow, Label};
use trainmon_agent::stats::Request;

use crate::ffi::{Description, TensorRef, Unreadable};

/// A tensor to be measured, until the measurement is launched.
pub(crate) struct Target {
    pub(super) tensor: Tensor,
    pub(super) place: Place,
}

/// The record to which the reading of a launched measurement belongs.
pub(super) struct Place {
    label: Label,
    dtype: Dtype,
    shape: Shape,
    /// Whether the tensor is a single number that trainmon computed itself.
    is_value: bool,
}

/// The properties that all targets of a batch share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchKey {
    device: Device,
    /// `None` if the kind is not configured.
    pub(super) request: Option<Request>,
}

impl Target {
    /// A target whose statistics are requested.
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

    /// A target that is a single number, computed on the device as a tensor without dimensions.
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
        self.label.with(TensorStats::empty(self.dtype, self.shape))
    }

    pub(super) fn record(&self, row: &DeviceRow) -> Record {
        if self.is_value {
            let value = TensorStats::of_value(row.get(DeviceColumn::Min));
            return self.label.with(Reading::of_kind(self.label.kind, value));
        }
        self.label.with(row.stats(self.dtype, self.shape))
    }
}
