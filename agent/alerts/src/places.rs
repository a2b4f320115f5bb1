//! The layer and group of each tensor, computed once per tensor.

use std::sync::Arc;

use indexmap::IndexSet;
use trainmon_core::{
    AlertScope, AlertSeries, AlertSignal, Group, MicroStep, Statistic, TensorId, TensorInfo, layer_of,
};

/// A layer of one model chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layer {
    pub(crate) name: Arc<str>,
    pub(crate) vpp_stage: u32,
}

/// The part of a layer in one group: the unit of sums, from which every wider series is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    /// The index of the layer.
    pub(crate) layer: u32,
    pub(crate) group: Group,
}

/// The places of all tensors.
#[derive(Debug, Default)]
pub(crate) struct Places {
    tensors: Vec<TensorInfo>,
    cell_of: Vec<u32>,
    cells: IndexSet<Cell>,
    layers: IndexSet<Layer>,
}

impl Places {
    /// Adds the places of new tensors. Cheap if there are none.
    pub(crate) fn learn(&mut self, names: &[TensorInfo]) {
        for tensor in names.get(self.tensors.len()..).unwrap_or_default() {
            let layer = self.layer_number(Layer { name: layer_of(&tensor.name).into(), vpp_stage: tensor.vpp_stage });
            let cell = Cell { layer, group: Group::of(&tensor.name) };
            self.cell_of.push(self.cells.insert_full(cell).0 as u32);
            self.tensors.push(tensor.clone());
        }
    }

    /// The number of a layer, assigned on first use.
    pub(crate) fn layer_number(&mut self, layer: Layer) -> u32 {
        self.layers.insert_full(layer).0 as u32
    }

    pub(crate) fn cell_of(&self, tensor: TensorId) -> Option<usize> {
        self.cell_of.get(tensor.index()).map(|&cell| cell as usize)
    }

    pub(crate) fn cells(&self) -> &IndexSet<Cell> {
        &self.cells
    }

    pub(crate) fn layers(&self) -> &IndexSet<Layer> {
        &self.layers
    }

    pub(crate) fn tensor(&self, tensor: TensorId) -> Option<&TensorInfo> {
        self.tensors.get(tensor.index())
    }

    /// The series of a group.
    pub(crate) fn group_series(group: Group, signal: AlertSignal, statistic: Option<Statistic>) -> AlertSeries {
        let name = group.name().to_owned();
        AlertSeries { scope: AlertScope::Group, name, ..AlertSeries::global(signal, statistic) }
    }

    /// The series of a layer.
    pub(crate) fn layer_series(&self, layer: u32, signal: AlertSignal, statistic: Option<Statistic>) -> AlertSeries {
        let (name, vpp_stage) = self
            .layers
            .get_index(layer as usize)
            .map_or_else(|| (String::new(), 0), |l| (l.name.to_string(), l.vpp_stage));
        let global = AlertSeries::global(signal, statistic);
        AlertSeries { scope: AlertScope::Layer, layer: Some(name.clone()), name, vpp_stage, ..global }
    }

    /// The series of a tensor.
    pub(crate) fn tensor_series(
        &self,
        tensor: TensorId,
        micro_step: MicroStep,
        signal: AlertSignal,
        statistic: Option<Statistic>,
    ) -> AlertSeries {
        let global = AlertSeries::global(signal, statistic);
        let Some(info) = self.tensor(tensor) else { return global };
        AlertSeries {
            scope: AlertScope::Tensor,
            name: info.name.to_string(),
            layer: Some(layer_of(&info.name).to_owned()),
            micro_step,
            vpp_stage: info.vpp_stage,
            ..global
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_one_layer_share_it_and_chunks_do_not() {
        let tensor = |name: &str, vpp_stage| TensorInfo { name: name.into(), vpp_stage };
        let mut places = Places::default();
        let mut names = vec![tensor("h.0.attn.w", 0), tensor("h.0.mlp.w", 0), tensor("h.0.attn.b", 0)];
        places.learn(&names);
        names.push(tensor("h.0.attn.w", 1));
        places.learn(&names);
        let cells: Vec<_> = (0..4).map(|id| places.cell_of(TensorId(id)).unwrap()).collect();
        assert_eq!(cells, [0, 1, 0, 2]);
        let layers: Vec<_> = places.cells().iter().map(|cell| cell.layer).collect();
        assert_eq!(layers, [0, 0, 1]);
        assert_eq!(places.layer_series(1, AlertSignal::Grad, None).vpp_stage, 1);
        assert_eq!(places.cell_of(TensorId(9)), None);
    }
}
