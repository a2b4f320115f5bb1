//! A rank's rounding, kept across steps.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::TensorFacts;

use super::memory::Parameters;
use crate::fingerprint::Fingerprint;
use crate::name::Hashes;
use crate::rounding::unit_roundoff;

/// The rounding so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounding {
    /// The largest difference attributed to rounding, of values that are not only rounding.
    pub(super) largest: f64,
    /// A few units of round-off of the coarsest dtype that differed: values derived from it keep that error in a finer dtype.
    pub(super) coarse: f64,
    /// Whether anything differed.
    pub(super) is_seen: bool,
    /// The largest difference of a one-element result of this step.
    pub(super) scalars: f64,
    /// The outputs of this step.
    produced: HashMap<Fingerprint, Produced, Hashes>,
    /// The baseline's outputs.
    golden: HashSet<Fingerprint, Hashes>,
    /// The outputs of the previous step: parameters and moments keep their values.
    before: HashMap<Fingerprint, Produced, Hashes>,
    /// Values that are only rounding, in this step and the previous one.
    residues: [Vec<Residue>; 2],
    /// The parameter gradients of this step, which may be scaled without being captured: unscaling of the loss, clipping of the
    /// norm.
    gradients: Vec<Residue>,
    /// The state of parameters.
    pub(super) parameters: Parameters,
    /// Whether gradients were summed in another order in any step: only their sums are compared.
    pub(super) is_accumulated: bool,
}

/// The size ratio between ranks up to which sums that cancel count as alike.
const GROWTH_OF_AVERAGES: f64 = 4.0;

/// The rest of a sum that cancels, on both sides: max, min and norm. It is recognizable after scaling by a clipped norm or an
/// average that was not captured.
#[derive(Clone, Debug)]
struct Residue {
    elements: u64,
    sizes: [[f64; 3]; 2],
    produced: Produced,
}

impl Residue {
    fn of(tensor: &TensorFacts, twin: &TensorFacts, produced: Produced) -> Option<Self> {
        Some(Self { elements: tensor.elements()?, sizes: [sizes(tensor)?, sizes(twin)?], produced })
    }

    /// Whether another pair is no larger than this one, on both sides: such rests were averaged over ranks without being
    /// captured.
    fn is_averaged(&self, other: &Self) -> bool {
        let largest =
            |sizes: &[[f64; 3]; 2]| sizes.iter().flat_map(|side| &side[..2]).fold(0.0_f64, |one, it| one.max(it.abs()));
        self.elements == other.elements
            && self.elements > 1
            && largest(&other.sizes) <= GROWTH_OF_AVERAGES * largest(&self.sizes)
    }

    /// Whether all numbers of another pair are this one's times one factor, within `tolerance`.
    fn is_scaled(&self, other: &Self, tolerance: f64) -> bool {
        let pairs = self.sizes.iter().flatten().zip(other.sizes.iter().flatten());
        let mut factors = pairs.filter(|(one, other)| **one != 0.0 || **other != 0.0).map(|(one, other)| other / one);
        let Some(first) = factors.next().filter(|first| first.is_finite() && *first != 0.0) else { return false };
        self.elements == other.elements && factors.all(|factor| (factor / first - 1.0).abs() <= tolerance)
    }
}

fn sizes(tensor: &TensorFacts) -> Option<[f64; 3]> {
    let [max, min, norm] = [0, 1, 3].map(|at: usize| tensor.statistics[at].number());
    Some([max?, min?, norm?])
}

/// An output that was compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Produced {
    /// Its difference.
    pub(super) deviation: f64,
    /// Whether it is only rounding: a sum that cancels, or derived from one. The size of its difference has no meaning.
    pub(super) is_all_rounding: bool,
    /// The unit round-off of its dtype: its statistics show no less, those after a cast do.
    pub(super) unit: f64,
    /// Whether it is a gradient.
    pub(super) is_gradient: bool,
    /// Whether it comes directly from an activation whose derivative jumps.
    pub(super) is_kinked: bool,
}

impl Rounding {
    /// Starts the next step.
    #[must_use]
    pub(super) fn next_step(self) -> Self {
        let [now, _] = self.residues;
        Self {
            before: self.produced,
            produced: HashMap::default(),
            golden: HashSet::default(),
            residues: [Vec::new(), now],
            scalars: 0.0,
            gradients: Vec::new(),
            ..self
        }
    }

    /// Expects rounding from the start, because the other machine rounds differently.
    pub(super) fn expect(&mut self) {
        let unit = unit_roundoff("float32").unwrap_or_default();
        self.is_seen = true;
        self.largest = self.largest.max(unit);
        self.coarse = self.coarse.max(8.0 * unit);
    }

    /// Keeps an output. `is_parameters`: it is a parameter gradient.
    pub(super) fn keep(
        &mut self,
        tensor: &TensorFacts,
        twin: Option<&TensorFacts>,
        produced: Produced,
        is_parameters: bool,
    ) {
        // The difference of pure rounding shows nothing about a number derived from a value.
        if tensor.elements() == Some(1) && produced.deviation.is_finite() && !produced.is_all_rounding {
            self.scalars = self.scalars.max(produced.deviation);
        }
        if is_parameters {
            self.gradients.extend(twin.and_then(|twin| Residue::of(tensor, twin, produced)));
        }
        if produced.is_all_rounding {
            self.residues[0].extend(twin.and_then(|twin| Residue::of(tensor, twin, produced)));
        }
        self.produced.insert(Fingerprint::of(tensor), produced);
        self.golden.extend(twin.map(Fingerprint::of));
    }

    /// A value that is only rounding, or a parameter gradient, and equals this pair after scaling both sides by the same
    /// factor, within `tolerance`.
    pub(super) fn residue(&self, tensor: &TensorFacts, twin: &TensorFacts, tolerance: f64) -> Option<Produced> {
        let count = tensor.elements();
        let of_this_size = |residue: &&Residue| Some(residue.elements) == count;
        let residues = self.residues.iter().flatten().filter(of_this_size);
        let mut known = residues.clone().chain(self.gradients.iter().filter(of_this_size)).peekable();
        known.peek()?;
        let nothing =
            Produced { deviation: 0.0, is_all_rounding: true, unit: 0.0, is_gradient: false, is_kinked: false };
        let pair = Residue::of(tensor, twin, nothing)?;
        if let Some(scaled) = known.find(|residue| residue.is_scaled(&pair, tolerance)) {
            return Some(scaled.produced);
        }
        let averaged = residues.filter(|residue| residue.produced.is_gradient && residue.is_averaged(&pair));
        averaged.map(|residue| residue.produced).max_by(|one, other| one.deviation.total_cmp(&other.deviation))
    }

    /// The operator output that a value looks like.
    pub(super) fn producer(&self, tensor: &TensorFacts) -> Option<Produced> {
        let looks = Fingerprint::of(tensor);
        self.produced.get(&looks).or_else(|| self.before.get(&looks)).copied()
    }

    /// The output of this step that a value looks like.
    pub(super) fn of_this_step(&self, tensor: &TensorFacts) -> Option<Produced> {
        self.produced.get(&Fingerprint::of(tensor)).copied()
    }

    /// Whether the values of both sides are compared results of this step: if they differ, the sides read different ones.
    pub(super) fn have_both(&self, tensor: &TensorFacts, twin: &TensorFacts) -> bool {
        self.of_this_step(tensor).is_some() && self.golden.contains(&Fingerprint::of(twin))
    }

    /// The largest difference attributed to rounding.
    pub(crate) fn largest(&self) -> f64 {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use trainmon_capture_files::Plain;

    use super::*;

    fn tensor(numbers: [f64; 3]) -> TensorFacts {
        let [max, min, norm] = numbers.map(Plain::Float);
        TensorFacts {
            kind: "torch.Tensor".into(),
            dtype: std::sync::Arc::new(Plain::Text("torch.float32".into())),
            shape: std::sync::Arc::new(Plain::List(Box::new([Plain::Int(5)]))),
            statistics: [max, min, Plain::Float(0.0), norm],
            is_shard: false,
            is_from_empty: false,
            is_unwritten: false,
            requires_grad: Some(false),
            data_name: None,
            digest: None,
            peer: None,
        }
    }

    fn found(rounding: &Rounding, one: &TensorFacts, other: &TensorFacts) -> Option<f64> {
        rounding.residue(one, other, 3e-4).map(|found| found.deviation)
    }

    #[test]
    fn a_residue_is_known_again_if_both_sides_were_scaled_alike() {
        let mut rounding = Rounding::default();
        let produced =
            Produced { deviation: 3.0, is_all_rounding: true, unit: 0.0, is_gradient: false, is_kinked: false };
        let (one, other) = (tensor([4e-9, -2e-9, 5e-9]), tensor([1e-9, -3e-9, 4e-9]));
        rounding.keep(&one, Some(&other), produced, false);
        let (clipped, twin) = (tensor([4e-10, -2e-10, 5e-10]), tensor([1e-10, -3e-10, 4e-10]));
        assert_eq!(found(&rounding, &clipped, &twin), Some(3.0));
        assert_eq!(found(&rounding, &one, &twin), None, "one side alone was scaled");
        assert_eq!(found(&rounding, &clipped, &tensor([1e-10, -3e-10, 5e-10])), None, "one number is another");
        assert_eq!(found(&rounding, &tensor([0.0; 3]), &twin), None, "one side is nothing");
        let next = rounding.next_step();
        assert_eq!(found(&next, &clipped, &twin), Some(3.0), "the next step begins with it");
        assert_eq!(found(&next.next_step(), &clipped, &twin), None, "the one after does not");
    }

    #[test]
    fn what_is_more_than_rounding_is_not_known_again_when_scaled() {
        let mut rounding = Rounding::default();
        let (one, other) = (tensor([4.0, -2.0, 5.0]), tensor([1.0, -3.0, 4.0]));
        rounding.keep(
            &one,
            Some(&other),
            Produced { deviation: 3.0, is_all_rounding: false, unit: 0.0, is_gradient: false, is_kinked: false },
            false,
        );
        assert!(rounding.residue(&one, &other, 3e-4).is_none());
    }

    #[test]
    fn a_gradients_residue_is_known_again_in_an_average_of_its_size_and_in_nothing_larger() {
        let mut rounding = Rounding::default();
        let produced =
            Produced { deviation: 3.0, is_all_rounding: true, unit: 0.0, is_gradient: true, is_kinked: false };
        rounding.keep(&tensor([4e-9, -2e-9, 5e-9]), Some(&tensor([1e-9, -3e-9, 4e-9])), produced, false);
        let (average, twin) = (tensor([3e-9, -1e-9, 4e-9]), tensor([2e-9, -2e-9, 3e-9]));
        assert_eq!(found(&rounding, &average, &twin), Some(3.0));
        assert_eq!(found(&rounding, &tensor([3e-7, -1e-9, 4e-7]), &twin), None);
    }
}
