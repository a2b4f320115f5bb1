//! What a walk says of each value that differs, for tables: how far it may be apart, and why it is no place where the runs part.

use trainmon_dump::capture::Operator;

use super::finding::{Compared, Excuse, Judged};
use super::parting::{is_another_node, is_of_one_shape};
use super::walker::Walker;
use crate::judge::{Bound, Source};
use crate::name::OperatorName;

impl<'c> Walker<'c> {
    /// Notes how far values that differ may be apart, before anything is learnt of them.
    pub(super) fn note_bounds(
        &mut self,
        (operator, name): (&'c Operator, Option<OperatorName<'_>>),
        inputs: &[Compared<'c>],
        outputs: &[Compared<'c>],
    ) {
        let is_apart = |value: &&Compared<'c>| value.deviation.is_some();
        for input in inputs.iter().filter(is_apart) {
            let bound = self.allowed_input(operator, name, input);
            self.walked.judged.extend(input.at.map(|at| (at, Judged { bound, excuse: None })));
        }
        let mut differing = outputs.iter().filter(is_apart).peekable();
        if differing.peek().is_none() {
            return;
        }
        let usual = self.output_bound(operator, name, inputs, outputs);
        let is_another = is_another_node(outputs);
        for output in differing {
            let bound = usual.or_spread(output.spread);
            let is_of_another = is_another && !is_of_one_shape(output);
            let excuse = is_of_another.then_some(Excuse::Rewritten);
            self.walked.judged.extend(output.at.map(|at| (at, Judged { bound, excuse })));
        }
    }

    /// Notes of values that differ why they are no finding, whatever their bounds.
    pub(super) fn note_judged<'v>(&mut self, values: impl IntoIterator<Item = &'v Compared<'c>>, excuse: Excuse)
    where
        'c: 'v,
    {
        for value in values.into_iter().filter(|value| value.deviation.is_some()) {
            let Some(at) = value.at else { continue };
            let usual = || Bound { bound: 0.0, source: Source::Rounding };
            let bound = self.walked.judged.get(&at).map_or_else(usual, |judged| judged.bound);
            self.walked.judged.insert(at, Judged { bound, excuse: Some(excuse) });
        }
    }
}
