//! Judges one rank step by step: which series diverge, and by how much.

use std::collections::HashSet;

use trainmon_noise::SINGLE;

use super::blow_up::is_proof;
use super::found::{Divergence, Judged, leader_of};
use super::judge::{Judge, Pair, TensorState, Upstream};
use super::magnitude::{Magnitude, quantile};
use super::micro_batches::{division, is_per_call};
use super::names::Names;
use super::noise::{
    KindClass, LEAST_SHARE, MOST_UPSTREAM_GROWTH, RowFacts, StatisticClass, class_of, is_nothing, of_long_sums,
    place_of,
};
use super::steps::{RUN_KIND, RowHead, StepRows};
use super::suspects::{Suspect, Suspects};
use super::writers::{CALLED_AGAIN, is_called_again, is_other_measure, is_scaled};

/// The bearer of the row, for any kind.
fn pair_bearer(names: &Names, pair: &Pair<'_>) -> u32 {
    names.tensors[pair.target.0.tensor as usize].bearer
}

/// All numbers of a row in the target and the first golden run, as bits.
fn numbers_of(names: &Names, pair: &Pair<'_>) -> Vec<u64> {
    let of = |(row, rows): (&RowHead, &StepRows)| {
        let numbers = rows.values.iter().skip(row.first).take(names.columns_of(row.columns).len());
        numbers.map(|number| number.to_bits()).collect::<Vec<u64>>()
    };
    [of(pair.target), of(pair.golden[0])].concat()
}

/// With fewer series, a median says nothing about the step.
const ENOUGH_SERIES: usize = 8;

impl Judge {
    /// Judges a step that the target and the first golden run have. The other golden runs may lack it.
    pub(super) fn step(&mut self, names: &mut Names, target: &StepRows, golden: &[Option<&StepRows>]) {
        self.step_after(1, names, target, golden);
    }

    /// Like [`Self::step`], this many steps after the last one. If that is more than usual, steps were lost, and noise
    /// may have grown in each of them.
    pub(super) fn step_after(&mut self, gap: u64, names: &mut Names, target: &StepRows, golden: &[Option<&StepRows>]) {
        self.usual_gap = self.usual_gap.min(gap.max(1));
        let lost = (gap as f64 / self.usual_gap as f64).clamp(1.0, MOST_UPSTREAM_GROWTH);
        self.prepare(names, target, golden);
        let rows = golden.first().copied().flatten();
        self.division = rows.and_then(|golden| division(names, target, golden));
        self.found.micro_batches = self.found.micro_batches.or(self.division);
        let mut order: Vec<(u8, usize)> = target
            .rows
            .iter()
            .enumerate()
            .map(|(row, head)| {
                let tensor = &names.tensors[head.tensor as usize];
                (place_of(names.kind_name(tensor.kind), names.bearer_name(tensor.bearer)), row)
            })
            .collect();
        order.sort_unstable();
        // A step starts from the result of the previous one.
        let mut upstream = Upstream { level: self.last_level, growth: lost };
        let mut medians = Vec::new();
        for rows in order.chunk_by(|one, other| one.0 == other.0) {
            self.judge_kind(names, rows, target, golden, upstream);
            self.close_kind(&mut upstream, &mut medians);
        }
        let is_blown_up = self.blow_up.close(target.step, self.equal_steps < self.steps);
        self.settle(is_blown_up);
        self.last_level = self.last_level.max(upstream.level);
        let median = quantile(&mut medians, 0.5);
        self.found.noise.push((target.step, median));
        let is_coarse = self.coarsest <= SINGLE && median > of_long_sums(SINGLE);
        self.found.coarse_start = self.found.coarse_start.or((self.steps == 0 && is_coarse).then_some(median));
        self.equal_steps += u64::from(self.is_equal_so_far);
        self.steps += 1;
    }

    /// Removes and returns the divergences since the last call, for a training in progress, which does not keep all
    /// steps.
    pub(super) fn take_found(&mut self) -> Vec<Divergence> {
        self.last_noise = self.found.noise.last().map_or(self.last_noise, |(_, noise)| *noise);
        self.found.noise.clear();
        std::mem::take(&mut self.found.divergences)
    }

    /// The median difference of the last step taken.
    pub(super) fn noise(&self) -> f64 {
        self.last_noise
    }

    /// For each tensor, whether the target has it, and whether the golden run has it.
    pub(super) fn sides(&self) -> impl Iterator<Item = (u32, [bool; 2])> {
        let sides = |(tensor, state): (usize, &TensorState)| (tensor as u32, [state.is_in.target, state.is_in.golden]);
        self.tensors.iter().enumerate().map(sides)
    }

    /// Ends a step: its suspects diverge, or were noise. If both runs blow up, only proofs count.
    fn settle(&mut self, is_blown_up: bool) {
        let suspects = std::mem::take(&mut self.suspects);
        let mut is_fault = suspects.is_fault();
        if let Some(held) = self.held.take() {
            is_fault &= !suspects.follow_a_jump();
            self.settle_suspects(held, is_fault, is_blown_up);
        }
        if is_fault && !is_blown_up && suspects.may_be_jump() {
            self.held = Some(suspects);
        } else {
            self.settle_suspects(suspects, is_fault, is_blown_up);
        }
    }

    fn settle_suspects(&mut self, suspects: Suspects, is_fault: bool, is_blown_up: bool) {
        if !is_fault && suspects.is_fault() && !suspects.follow_a_jump() {
            let found: Vec<Divergence> = suspects.found.iter().map(|suspect| suspect.divergence.clone()).collect();
            self.found.jumps.extend(found.get(leader_of(&found)).cloned());
        }
        for Suspect { tensor, series, divergence } in suspects.found {
            let parts = is_fault && (!is_blown_up || is_proof(&divergence));
            if is_fault && !parts {
                self.blow_up.excuse(divergence.step);
            }
            // A shape is not a series.
            let series = self.tensors[tensor as usize].series.get_mut(series);
            match series {
                Some(series) if parts => series.has_parted = true,
                Some(series) => {
                    // Without a tolerance there is no relation to it.
                    if divergence.difference.is_finite() {
                        series.farthest = series.farthest.max(divergence.difference);
                    }
                    series.closest = series.closest.max(1.0);
                }
                None => {}
            }
            if parts {
                self.found.divergences.push(divergence);
            }
        }
    }

    /// Returns the findings.
    pub(super) fn finish(mut self, names: &Names) -> Judged {
        // No step after the last one can decide.
        if let Some(held) = self.held.take() {
            self.settle_suspects(held, false, false);
        }
        self.blow_up.excuse_onset(&mut self.found);
        for (number, state) in self.tensors.iter().enumerate() {
            let key = || names.key(u32::try_from(number).unwrap_or(u32::MAX));
            match (state.is_in.target, state.is_in.golden) {
                (true, false) => self.found.only_target.push(key()),
                (false, true) => self.found.only_golden.push(key()),
                _ => {
                    for (gap, of_kind) in state.gaps.iter().zip(&mut self.found.gaps) {
                        of_kind.entry(key().kind).or_default().add(gap, key().name);
                    }
                }
            }
            self.found.other_types += u64::from(state.has_other_type);
            for series in state.series.iter().filter(|series| !series.has_parted && series.closest > 0.0) {
                let statistic = names.statistic_name(series.statistic).to_owned();
                self.found.closest.push((series.closest, key(), statistic));
            }
        }
        self.found.closest.sort_by(|one, other| other.0.total_cmp(&one.0));
        self.found.closest.truncate(32);
        for (bearer, _) in self.nothing.iter().enumerate().filter(|(_, is_nothing)| **is_nothing) {
            self.found.nothing.push(names.bearer_name(u32::try_from(bearer).unwrap_or(u32::MAX)).to_owned());
        }
        self.found
    }

    fn prepare(&mut self, names: &Names, target: &StepRows, golden: &[Option<&StepRows>]) {
        self.tensors.resize_with(names.tensors.len(), TensorState::default);
        for row in &target.rows {
            let state = &mut self.tensors[row.tensor as usize];
            (state.is_in.target, state.last_in_target) = (true, self.steps + 1);
            self.coarsest = self.coarsest.max(row.unit.unwrap_or(0.0));
            self.plan(names, row.columns);
        }
        for (places, rows) in self.golden_rows.iter_mut().zip(golden) {
            places.clear();
            places.resize(names.tensors.len(), None);
            for (place, row) in rows.iter().flat_map(|rows| rows.rows.iter().enumerate()) {
                places[row.tensor as usize] = u32::try_from(place).ok();
            }
        }
        for row in golden.first().copied().flatten().into_iter().flat_map(|rows| &rows.rows) {
            let state = &mut self.tensors[row.tensor as usize];
            state.is_in.golden = true;
            if state.last_in_target != self.steps + 1 {
                state.gaps[0].widen(target.step);
            }
        }
        for row in &target.rows {
            let tensor = row.tensor as usize;
            if self.golden_rows.first().is_some_and(|places| places[tensor].is_none()) {
                self.tensors[tensor].gaps[1].widen(target.step);
            }
        }
        for row in golden.iter().copied().flatten().flat_map(|rows| &rows.rows) {
            self.plan(names, row.columns);
        }
    }

    /// Judges the rows of one position in the step.
    fn judge_kind(
        &mut self,
        names: &mut Names,
        rows: &[(u8, usize)],
        target: &StepRows,
        golden: &[Option<&StepRows>],
        upstream: Upstream,
    ) {
        let mut pairs: Vec<Pair<'_>> =
            rows.iter().filter_map(|&place| self.pair(names, place, target, golden)).collect();
        let mut typical: Vec<f64> = pairs.iter().filter_map(|pair| pair.magnitude.typical()).collect();
        let median = quantile(&mut typical, 0.5);
        let place = rows.first().map_or(0, |row| row.0);
        let is_gradient = matches!(place, 5 | 6 | 8);
        if matches!(place, 6 | 8) {
            for pair in &pairs {
                let is_rounded = pair.target.1.digits.rounded_to().or(pair.golden[0].1.digits.rounded_to()).is_some();
                if pair.magnitude.typical().is_some_and(|own| is_nothing(own, median, self.coarsest, is_rounded)) {
                    self.mark_nothing(names, names.tensors[pair.target.0.tensor as usize].bearer);
                }
            }
        }
        if self.are_two_writers && is_gradient && is_scaled(names, &pairs) {
            self.found.other_measures.insert("gradients that are clipped or scaled in one run");
            return;
        }
        for pair in &pairs {
            let bearer = pair_bearer(names, pair);
            let rows = [pair.target, pair.golden[0]];
            let [Some(one), Some(other)] = rows.map(|(row, _)| self.plans[usize::from(row.columns)].clone()) else {
                continue;
            };
            self.drift.note(names, (bearer, place), rows, [&*one, &*other]);
        }
        for own in pairs.iter().filter_map(|pair| pair.own) {
            self.blow_up.saw(place, own);
        }
        // A module's output is the next module's input.
        let is_nothing = |pair: &&Pair<'_>| self.nothing.get(pair_bearer(names, pair) as usize) == Some(&true);
        let nothing: HashSet<Vec<u64>> = pairs.iter().filter(is_nothing).map(|pair| numbers_of(names, pair)).collect();
        for pair in &mut pairs {
            pair.facts.has_noisy_inputs = upstream.level > 0.0;
            pair.least = if is_gradient { LEAST_SHARE * median } else { 0.0 };
            let is_nothing = self.nothing.get(pair_bearer(names, pair) as usize).copied().unwrap_or(false);
            if self.are_two_writers
                && let Some(measure) =
                    is_other_measure(names.kind_name(pair.kind), names.bearer_name(pair_bearer(names, pair)))
            {
                self.found.other_measures.insert(measure);
                continue;
            }
            if self.are_two_writers && is_per_call(place) && is_called_again(names, pair_bearer(names, pair)) {
                self.found.other_measures.insert(CALLED_AGAIN);
                continue;
            }
            let is_same_memory = place == place_of("actv", "") && nothing.contains(&numbers_of(names, pair));
            if is_nothing || is_same_memory || (self.division.is_some() && is_per_call(place)) {
                continue;
            }
            self.suspects.judged += 1;
            if self.steps == 0 {
                *self.found.tensors_at_start.entry(place).or_default() += 1;
                self.found.rows_at_start.entry(place).or_insert(pair.place.1);
            }
            self.judge_row(names, pair, upstream);
        }
    }

    fn pair<'a>(
        &mut self,
        names: &Names,
        place: (u8, usize),
        target: &'a StepRows,
        golden: &[Option<&'a StepRows>],
    ) -> Option<Pair<'a>> {
        let row = &target.rows[place.1];
        let tensor = row.tensor as usize;
        let like = |(places, rows): (&Vec<Option<u32>>, Option<&'a StepRows>)| {
            let rows = rows?;
            Some((rows.rows.get(places.get(tensor).copied().flatten()? as usize)?, rows))
        };
        let likes: Vec<_> = self.golden_rows.iter().zip(golden.iter().copied()).map(like).collect();
        let first = likes.first().copied().flatten()?;
        let state = &mut self.tensors[tensor];
        state.has_other_type |= row.unit.zip(first.0.unit).is_some_and(|(one, other)| one != other);
        let elements = names.size(row.shape).map(|(elements, _)| elements);
        let unit = [row.unit, first.0.unit].into_iter().flatten().reduce(f64::max).unwrap_or(2f64.powi(-24));
        let key = &names.tensors[tensor];
        let class = class_of(names.kind_name(key.kind), names.bearer_name(key.bearer));
        let facts = RowFacts {
            kind: class,
            size: names.size(row.shape),
            unit,
            coarsest: self.coarsest,
            has_noisy_inputs: false,
        };
        let of = |(row, rows): (&RowHead, &StepRows)| {
            let plan = self.plans.get(usize::from(row.columns)).and_then(Option::as_ref);
            plan.map_or_else(Magnitude::default, |plan| Magnitude::of(row, rows, plan, elements))
        };
        let magnitudes = [of((row, target)), of(first)];
        // A row with one number and no statistic is that number.
        let plain = |(row, rows): (&RowHead, &StepRows)| rows.values.get(row.first).map(|value| value.abs());
        let own = match magnitudes.map(Magnitude::typical) {
            [None, None] if place.0 == place_of(RUN_KIND, "loss") => [plain((row, target)), plain(first)],
            own => own,
        };
        let own = own[0].zip(own[1]).map(|(target, golden)| [target, golden]);
        let magnitude = magnitudes[0].or(magnitudes[1]);
        let golden = likes.into_iter().flatten().collect();
        Some(Pair { target: (row, target), golden, kind: key.kind, elements, facts, magnitude, own, least: 0.0, place })
    }

    /// Marks a parameter whose gradient is only rounding, and the output of its module: an optimizer like Adam turns
    /// such a gradient into full-size updates.
    fn mark_nothing(&mut self, names: &mut Names, bearer: u32) {
        let stage = names.bearer_stage(bearer);
        let output = names.bearer_name(bearer).strip_suffix(".bias").map(|module| format!("{module}.output"));
        let output = output.map(|output| names.bearer(stage, &output));
        for marked in [Some(bearer), output].into_iter().flatten() {
            let marked = marked as usize;
            if self.nothing.len() <= marked {
                self.nothing.resize(marked + 1, false);
            }
            self.nothing[marked] = true;
        }
    }

    /// Updates the medians from which the tolerances of later kinds and steps are computed.
    fn close_kind(&mut self, upstream: &mut Upstream, medians: &mut Vec<f64>) {
        for group in self.groups.values_mut().filter(|group| !group.now.is_empty()) {
            // Golden runs may differ more from each other than the target from the nearest of them.
            let apart: Vec<f64> =
                group.now.iter().zip(&group.spreads_now).map(|(now, spread)| now.max(*spread)).collect();
            let median = quantile(&mut group.now, 0.5);
            if let Some((kind, StatisticClass::Norm | StatisticClass::Plain)) = group.class {
                upstream.level = upstream.level.max(quantile(&mut group.now, 0.9));
                if group.level > 0.0 && group.now.len() >= ENOUGH_SERIES {
                    upstream.growth = upstream.growth.max((median / group.level).min(MOST_UPSTREAM_GROWTH));
                }
                if kind == KindClass::Reduction {
                    medians.extend(apart);
                }
            }
            group.level = group.level.max(median);
            group.spread = group.spread.max(quantile(&mut group.spreads_now, 0.5));
            group.now.clear();
            group.spreads_now.clear();
        }
    }
}
