//! One rank's operators in the order they ran, up to the first that is not explained by what came before.

use trainmon_dump::capture::{Leaf, Operator, Section};

use crate::deviation::{Deviation, What};
use crate::evaluation::Sides;
use crate::input::Capture;
use crate::item::Item;
use crate::judge::{Judge, coarse};
use crate::matching::Alignment;
use crate::name::{Direction, OperatorName};
use crate::rounding::coarsest;

use super::compared::{Comparer, lacks_a_digest};
use super::finding::{Compared, Finding, Kind, Suspect, Walked, suspect};
use super::fingerprint::{Fingerprint, Magnitude, cancels};
use super::noise::{Produced, Rounding};

/// What is made of a value that is all rounding counts as that up to this many times its difference.
const GROWTH_OF_ALL_ROUNDING: f64 = 4.0;

/// Looks at a rank's operators of a step in order. `rounding` is what earlier steps had, and is given back with this one's.
pub(crate) fn walk(sides: Sides<'_>, aligned: &Alignment, rounding: Rounding, judge: Judge<'_>) -> (Walked, Rounding) {
    let mut walker = Walker {
        target: sides.target,
        golden: sides.golden,
        comparer: Comparer { sides, aligned, judge },
        judge,
        rounding: rounding.next_step(),
        gradient: None,
        parted: Vec::new(),
        is_blind: false,
        walked: Walked::default(),
    };
    for (place, &pair) in aligned.operators.iter().enumerate() {
        match pair {
            (Some(one), Some(other)) => {
                if walker.walked.finding.is_some() {
                    walker.follow(one, other);
                } else {
                    walker.look(place, one, other);
                }
            }
            (Some(one), None) => walker.one_sided(place, Kind::TargetOnly, Some(one), None),
            (None, Some(other)) => walker.one_sided(place, Kind::GoldenOnly, None, Some(other)),
            (None, None) => {}
        }
    }
    walker.end()
}

struct Walker<'c> {
    target: &'c Capture,
    golden: &'c Capture,
    comparer: Comparer<'c>,
    judge: Judge<'c>,
    rounding: Rounding,
    /// The largest gradient that went into the last backward.
    gradient: Option<Magnitude>,
    /// Calls of one side alone, not yet known to matter.
    parted: Vec<Finding>,
    /// Whether a fused operator went by whose results have no checksum on one side: what follows from them may differ in every
    /// checksum by rounding.
    is_blind: bool,
    walked: Walked,
}

impl<'c> Walker<'c> {
    fn look(&mut self, place: usize, one: u32, other: u32) {
        let (operator, golden) = (self.operator(one), &self.golden.document.operators[other as usize]);
        let name = OperatorName::parse(&operator.name);
        if name.is_some_and(|name| self.judge.thresholds.ignores(name)) {
            return;
        }
        let compared = self.comparer.compare(one, other, true);
        self.walked.unread += compared.iter().filter(|compared| compared.is_unread).count();
        self.walked.compared += 1;
        let is_unseen = |compared: &Compared<'_>| compared.deviation.what == What::Unseen;
        let is_joined = self.is_joined(operator, golden);
        let is_blind = is_joined && compared.iter().any(lacks_a_digest);
        let is_all_unseen = !compared.is_empty() && compared.iter().all(is_unseen);
        if is_all_unseen || (is_blind && compared.iter().any(is_unseen)) {
            self.walked.unseen += 1;
        }
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            compared.into_iter().partition(|compared| compared.item.value.section.is_input());
        if let Some(finding) = self.fresh_input(operator, name, &inputs) {
            let fresh = inputs.iter().filter(|input| self.is_fresh(operator, input));
            let tensors = fresh.flat_map(|input| [input.item.tensor(), input.twin.and_then(|twin| twin.tensor())]);
            let fingerprints: Vec<Fingerprint> = tensors.flatten().map(Fingerprint::of).collect();
            self.found(place, one, other, finding, &fingerprints);
            return;
        }
        let input = inputs.iter().map(|input| input.deviation).fold(Deviation::NONE, Deviation::max);
        if let Some(finding) = self.parting(operator, name, input, &outputs) {
            self.found(place, one, other, finding, &[]);
            return;
        }
        self.is_blind |= is_blind;
        if is_joined {
            self.expect_rounding(operator);
        }
        let mut inherited = 0.0_f64;
        for input in &inputs {
            if self.producer(input).is_some_and(|producer| producer.is_all_rounding) {
                inherited = inherited.max(input.deviation.relative);
            } else {
                self.note_rounding(operator, input.deviation);
            }
        }
        if name.is_some_and(|name| name.direction == Direction::Backward) {
            let gradients = inputs.iter().filter_map(|input| Magnitude::of(input.item.tensor()?));
            self.gradient = gradients.max_by(Magnitude::order).or(self.gradient);
        }
        let is_another = is_another_node(&outputs);
        for output in &outputs {
            let deviation = output.deviation.relative;
            // What is made of rounding alone is no further apart than that was, times little.
            let is_made_of_it = inherited > 0.0 && deviation <= inherited * GROWTH_OF_ALL_ROUNDING;
            let is_all_rounding =
                deviation > 0.0 && (is_another || is_made_of_it || self.is_cancelled(operator, name, output));
            if is_all_rounding {
                self.walked.residues.entry(one).or_default().push(output.item.value.place.clone());
            } else {
                self.note_rounding(operator, output.deviation);
            }
            if let Some(tensor) = output.item.tensor() {
                let twin = output.twin.and_then(|twin| twin.tensor());
                self.rounding.keep(tensor, twin, Produced { deviation, is_all_rounding });
            }
        }
    }

    /// An input that differs without anything before it having differed, or by far more.
    fn fresh_input(
        &self,
        operator: &Operator,
        name: Option<OperatorName<'_>>,
        inputs: &[Compared<'_>],
    ) -> Option<(Kind, Vec<Suspect>, f64)> {
        let mut fresh: Vec<&Compared<'_>> = inputs.iter().filter(|input| self.is_fresh(operator, input)).collect();
        if fresh.is_empty() {
            return None;
        }
        fresh.sort_by(|one, other| other.deviation.relative.total_cmp(&one.deviation.relative));
        let kind = if let Some(argument) = fresh.iter().position(|input| is_argument(input)) {
            fresh.swap(0, argument);
            Kind::Argument
        } else if fresh.iter().all(|input| self.is_parameter(operator, name, input)) {
            Kind::Parameter
        } else if fresh.iter().any(|input| self.was_produced_before(input)) || self.walked.compared > 1 {
            Kind::Between
        } else {
            Kind::Data
        };
        let bound = self.fresh_bound(operator);
        let suspects = fresh.iter().map(|input| suspect(input, bound)).collect();
        Some((kind, suspects, 0.0))
    }

    fn is_fresh(&self, operator: &Operator, input: &Compared<'_>) -> bool {
        if !input.deviation.is_some() || input.deviation.relative <= self.fresh_bound(operator).max(input.spread) {
            return false;
        }
        // What an earlier operator gave out looks the same here, and is apart by what it was apart there.
        self.producer(input).is_none_or(|producer| input.deviation.relative > producer.deviation * 4.0)
    }

    /// The earlier output that an input is, also where that is all rounding and was scaled unseen.
    fn producer(&self, input: &Compared<'_>) -> Option<Produced> {
        let tensor = input.item.tensor()?;
        self.rounding.producer(tensor).or_else(|| {
            let twin = input.twin?.tensor().filter(|_| input.deviation.is_some())?;
            self.rounding.residue(tensor, twin, self.judge.thresholds.ceiling)
        })
    }

    fn fresh_bound(&self, operator: &Operator) -> f64 {
        let ceiling = self.judge.thresholds.ceiling.max(self.rounding.coarse).max(coarse(operator));
        // What statistics show of noise can be less than the last bit of a value.
        let noise = (self.rounding.largest * self.judge.thresholds.growth).max(coarse(operator));
        if self.rounding.is_seen { noise.min(ceiling) } else { 0.0 }
    }

    fn is_parameter(&self, operator: &Operator, name: Option<OperatorName<'_>>, input: &Compared<'_>) -> bool {
        if input.item.value.section == Section::Parameter {
            return true;
        }
        let (Some(tensor), Some(name)) = (input.item.tensor(), name) else { return false };
        if name.direction != Direction::Forward {
            return false;
        }
        let fingerprints = Fingerprint::of(tensor);
        let ancestors = self.target.construct.ancestors(&operator.name);
        let modules = self.target.document.operators.iter().filter(|module| ancestors.contains(&&*module.name));
        let mut parameters =
            modules.flat_map(|module| &module.values).filter(|value| value.section == Section::Parameter);
        let is_a_modules = parameters
            .any(|value| matches!(&value.leaf, Leaf::Tensor(other) if Fingerprint::of(other) == fingerprints));
        let takes_weights = matches!(
            name.function(),
            "linear"
                | "conv1d"
                | "conv2d"
                | "conv3d"
                | "layer_norm"
                | "batch_norm"
                | "group_norm"
                | "rms_norm"
                | "embedding"
        );
        is_a_modules || (takes_weights && &*input.item.value.place != ".input.0" && tensor.requires_grad == Some(true))
    }

    /// Whether the golden's counterpart is known as the output of an earlier operator: then it changed on the way here.
    fn was_produced_before(&self, input: &Compared<'_>) -> bool {
        let twin = input.twin.and_then(|twin| twin.tensor());
        twin.is_some_and(|tensor| self.rounding.is_of_this_step(tensor))
    }

    /// Outputs that differ by more than the inputs and rounding account for.
    fn parting(
        &self,
        operator: &Operator,
        name: Option<OperatorName<'_>>,
        input: Deviation,
        outputs: &[Compared<'_>],
    ) -> Option<(Kind, Vec<Suspect>, f64)> {
        let is_backward = name.is_some_and(|name| name.direction != Direction::Forward);
        // A backward also uses what its forward saw.
        let from = if is_backward { input.relative.max(self.rounding.largest) } else { input.relative };
        if from.is_infinite() {
            return None;
        }
        let bound = self.judge.bound(operator, from).bound;
        if is_backward && is_another_node(outputs) {
            return None;
        }
        let is_beyond = |output: &&Compared<'_>| {
            output.deviation.relative > bound.max(output.spread) && !self.is_cancelled(operator, name, output)
        };
        let mut parted: Vec<&Compared<'_>> = outputs.iter().filter(is_beyond).collect();
        parted.sort_by(|one, other| other.deviation.relative.total_cmp(&one.deviation.relative));
        let suspects: Vec<Suspect> = parted.iter().map(|output| suspect(output, bound)).collect();
        (!suspects.is_empty()).then_some((Kind::Operator, suspects, input.relative))
    }

    /// Whether an output is what is left of a sum that cancels: all of it is rounding, on both sides.
    fn is_cancelled(&self, operator: &Operator, name: Option<OperatorName<'_>>, output: &Compared<'_>) -> bool {
        let Some(name) = name.filter(|_| output.deviation.what == What::Numbers) else { return false };
        let (Some(tensor), Some(twin)) = (output.item.tensor(), output.twin.and_then(|twin| twin.tensor())) else {
            return false;
        };
        let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
        let largest =
            inputs.filter_map(|value| Magnitude::of(Item { operator, value }.tensor()?)).max_by(Magnitude::order);
        let source = if name.direction == Direction::ParameterGradient { self.gradient } else { largest };
        let left = |tensor| Magnitude::of(tensor).map_or(f64::INFINITY, |magnitude| magnitude.size);
        source.is_some_and(|source| {
            let terms = source.elements as f64 / tensor.elements().unwrap_or(1).max(1) as f64;
            let sums = terms > 1.0 || cancels(name);
            let rounding = coarsest(operator) * source.size * terms.max(1.0);
            sums && left(tensor).max(left(twin)) < self.judge.thresholds.rounding_factor * rounding
        })
    }

    fn found(
        &mut self,
        place: usize,
        one: u32,
        other: u32,
        (kind, suspects, input): (Kind, Vec<Suspect>, f64),
        fingerprints: &[Fingerprint],
    ) {
        if self.is_blind && suspects.iter().all(|suspect| suspect.deviation.what == What::Digest) {
            for suspect in &suspects {
                self.walked.is_untold |= suspect.deviation.relative.is_infinite();
                self.note_rounding(self.operator(one), suspect.deviation);
            }
            return;
        }
        // A call that only one side made accounts for an input that nobody produced.
        if kind == Kind::Between
            && let Some(parted) = self.missing_producer(fingerprints)
        {
            self.walked.finding = Some(Finding { suspects, ..parted });
            return;
        }
        let operator = self.operator(one).name.to_string();
        let (target, golden) = (Some(one), Some(other));
        self.walked.finding = Some(Finding { kind, operator, place, target, golden, suspects, input });
    }

    /// Among calls that one side alone made: the one that gave what is missed here, else the first of the last ones together.
    fn missing_producer(&mut self, missed: &[Fingerprint]) -> Option<Finding> {
        let gives = |parted: &Finding| {
            let operator = match (parted.target, parted.golden) {
                (Some(index), _) => &self.target.document.operators[index as usize],
                (None, Some(index)) => &self.golden.document.operators[index as usize],
                (None, None) => return false,
            };
            let outputs = operator.values.iter().filter(|value| value.section == Section::Output);
            let mut tensors = outputs.filter_map(|value| Item { operator, value }.tensor());
            tensors.any(|tensor| missed.contains(&Fingerprint::of(tensor)))
        };
        if let Some(found) = self.parted.iter().position(gives) {
            return Some(self.parted.swap_remove(found));
        }
        let mut parted = self.parted.pop()?;
        while let Some(before) = self.parted.pop_if(|before| before.place + 1 == parted.place) {
            parted = before;
        }
        Some(parted)
    }

    fn one_sided(&mut self, place: usize, kind: Kind, target: Option<u32>, golden: Option<u32>) {
        let operators = match (target, golden) {
            (Some(index), _) => &self.target.document.operators[index as usize],
            (_, Some(index)) => &self.golden.document.operators[index as usize],
            _ => return,
        };
        let operator = operators.name.to_string();
        self.walked.one_sided.push(operator.clone());
        if self.walked.finding.is_none() {
            self.parted.push(Finding { kind, operator, place, target, golden, suspects: Vec::new(), input: 0.0 });
        }
    }

    /// One large product rounds otherwise than several small ones, and statistics of a part's view otherwise than of the part
    /// alone: what follows differs by round-off whether it is seen here or not.
    fn expect_rounding(&mut self, operator: &Operator) {
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(coarsest(operator));
    }

    fn note_rounding(&mut self, operator: &Operator, deviation: Deviation) {
        if !deviation.is_some() || deviation.relative.is_infinite() {
            return;
        }
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(deviation.relative);
        self.walked.largest_rounding = self.walked.largest_rounding.max(deviation.relative);
        self.walked.first_rounding.get_or_insert_with(|| (operator.name.to_string(), deviation.relative));
    }

    /// After the finding: who differs too.
    fn follow(&mut self, one: u32, other: u32) {
        const ENOUGH: usize = 32;
        if self.walked.spread.len() >= ENOUGH {
            return;
        }
        let operator = self.operator(one);
        let bound = self.fresh_bound(operator).max(self.judge.bound(operator, 0.0).bound);
        // Only the spread is of interest now: statistics do.
        let compared = self.comparer.compare(one, other, false);
        let mut outputs = compared.iter().filter(|compared| compared.item.value.section >= Section::Output);
        if outputs.any(|output| output.deviation.relative > bound) {
            self.walked.spread.push(operator.name.to_string());
        }
    }

    fn is_joined(&self, operator: &Operator, golden: &Operator) -> bool {
        self.target.joined.operator(&operator.name).is_some() || self.golden.joined.operator(&golden.name).is_some()
    }

    fn operator(&self, index: u32) -> &'c Operator {
        &self.target.document.operators[index as usize]
    }

    fn end(mut self) -> (Walked, Rounding) {
        // Nothing differs in value, but the calls do: the first of them is all there is to say.
        if self.walked.finding.is_none() && !self.parted.is_empty() && !self.walked.is_untold {
            self.walked.finding = Some(self.parted.remove(0));
        }
        (self.walked, self.rounding)
    }
}

/// Whether an input is no tensor: another number or text, or one that a side leaves out.
fn is_argument(input: &Compared<'_>) -> bool {
    let is_plain = |item: Item<'_>| matches!(item.value.leaf, Leaf::Plain { .. } | Leaf::Nothing);
    let is_left_out = input.deviation.what == What::Presence && is_plain(input.item) && input.twin.is_none_or(is_plain);
    input.deviation.what == What::Argument || is_left_out
}

/// Whether a backward recorded another node of the graph than the golden's: in a finer dtype, with other outputs. An operator that
/// computes in double casts its result, and what is recorded is the backward of the cast. Nothing can be held against that.
fn is_another_node(outputs: &[Compared<'_>]) -> bool {
    let is_finer =
        |output: &Compared<'_>| output.deviation.what == What::Dtype && output.deviation.relative.is_finite();
    let is_missing = |output: &Compared<'_>| output.deviation.what == What::Presence;
    outputs.iter().any(is_finer) && outputs.iter().any(is_missing)
}
