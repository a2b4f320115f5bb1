//! Writes a table piece by piece: made, rendered, written. Two sets of pieces are in memory: all threads make one while the
//! other is written.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::rows::{Rows, WriteError};
use crate::matching::Pair;

/// Rows per piece, plus the rest of its last operator.
const PIECE: usize = 512;

/// Makes the rows of paired values. Rules look at an operator's values together, so a piece has all of them.
pub(crate) type Make<'t> = Box<dyn Fn(&[Pair]) -> Box<dyn Rows> + Sync + 't>;

/// Renders rows on any thread; the number is the place of the first one in the table.
pub(crate) type Render<'t> = Box<dyn Fn(&dyn Rows, usize, &mut Vec<u8>) + Sync + 't>;

/// A renderer that does nothing.
pub(super) fn unrendered<'t>() -> Render<'t> {
    Box::new(|_, _, _| {})
}

/// A table that is made piece by piece.
pub(crate) struct TableSource<'t> {
    /// The columns.
    pub headers: Vec<&'static str>,
    /// The pairs behind the rows: the target's values in order, those of the baseline only where they ran.
    pairs: Vec<Pair>,
    make: Make<'t>,
}

impl<'t> TableSource<'t> {
    /// Creates a table with these columns and a row per pair.
    pub(crate) fn new(headers: Vec<&'static str>, pairs: Vec<Pair>, make: Make<'t>) -> Self {
        Self { headers, pairs: where_they_ran(pairs), make }
    }

    /// The number of rows.
    pub(crate) fn count(&self) -> usize {
        self.pairs.len()
    }

    /// Whether some values are only in the baseline.
    pub(crate) fn has_golden_only(&self) -> bool {
        self.pairs.iter().any(|pair| pair.target.is_none())
    }

    fn pieces(&self) -> Vec<Range<usize>> {
        let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
        for rows in self.pairs.chunk_by(|one, next| operator(one).is_some() && operator(one) == operator(next)) {
            at += rows.len();
            if at - from >= PIECE {
                pieces.push(from..at);
                from = at;
            }
        }
        pieces.extend((from < at).then_some(from..at));
        pieces
    }
}

/// The target's values in order; those of the baseline only after the operator that ran with or before them there.
fn where_they_ran(pairs: Vec<Pair>) -> Vec<Pair> {
    let (of_target, mut of_golden): (Vec<Pair>, Vec<Pair>) = pairs.into_iter().partition(|pair| pair.target.is_some());
    let mut twins: BTreeMap<u32, u32> = BTreeMap::new();
    for (one, other) in of_target.iter().filter_map(|pair| pair.target.zip(pair.golden)) {
        twins.entry(other.operator).or_insert(one.operator);
    }
    let place = |pair: &Pair| pair.golden.map(|at| (at.operator, at.value));
    of_golden.sort_by_key(place);
    let mut behind: BTreeMap<Option<u32>, Vec<Pair>> = BTreeMap::new();
    for pair in of_golden {
        let before = pair.golden.and_then(|at| twins.range(..=at.operator).next_back());
        behind.entry(before.map(|(_, one)| *one)).or_default().push(pair);
    }
    let mut pairs = behind.remove(&None).unwrap_or_default();
    for rows in of_target.chunk_by(|one, next| operator(one) == operator(next)) {
        pairs.extend_from_slice(rows);
        pairs.extend(rows.first().and_then(|row| behind.remove(&operator(row))).unwrap_or_default());
    }
    pairs
}

fn operator(pair: &Pair) -> Option<u32> {
    pair.target.map(|at| at.operator)
}

/// A receiver of rows, piece by piece.
pub(crate) trait Sink: Send {
    /// Receives rows, the place of the first one in the table, and the output of [`Render`].
    ///
    /// # Errors
    /// See [`WriteError`].
    fn take(&mut self, rows: &dyn Rows, first: usize, rendered: &[u8]) -> Result<(), WriteError>;

    /// Completes the file.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        Ok(())
    }
}

/// A renderer of rows and the receiver of its output.
pub(crate) type Channel<'t> = (Render<'t>, Box<dyn Sink + 't>);

/// A piece of the table and its rendered rows for each channel.
#[derive(Default)]
struct Made {
    rows: Option<(usize, Box<dyn Rows>)>,
    rendered: Vec<Vec<u8>>,
}

/// Makes the table and passes it to every channel.
///
/// # Errors
/// See [`WriteError`].
pub(super) fn run(source: &TableSource<'_>, channels: Vec<Channel<'_>>) -> Result<(), WriteError> {
    let (renders, mut sinks): (Vec<Render<'_>>, Vec<Box<dyn Sink + '_>>) = channels.into_iter().unzip();
    let pieces = source.pieces();
    let at_once = 2 * rayon::current_num_threads().max(1);
    let sets = || (0..at_once).map(|_| Made { rows: None, rendered: vec![Vec::new(); renders.len()] });
    // Their memory is reused for the whole table.
    let (mut full, mut free): (Vec<Made>, Vec<Made>) = (sets().collect(), sets().collect());
    for pieces in pieces.chunks(at_once) {
        let (taken, ()) = rayon::join(
            || take(&mut full, &mut sinks),
            || {
                free.par_iter_mut().zip(pieces).with_max_len(1).for_each(|(made, piece)| {
                    let rows = (source.make)(&source.pairs[piece.clone()]);
                    for (render, rendered) in renders.iter().zip(&mut made.rendered) {
                        rendered.clear();
                        render(&*rows, piece.start, rendered);
                    }
                    made.rows = Some((piece.start, rows));
                });
            },
        );
        taken?;
        std::mem::swap(&mut full, &mut free);
    }
    take(&mut full, &mut sinks)?;
    sinks.into_iter().try_for_each(Sink::finish)
}

fn take(made: &mut [Made], sinks: &mut [Box<dyn Sink + '_>]) -> Result<(), WriteError> {
    for Made { rows, rendered } in made {
        let Some((first, rows)) = rows.take() else { continue };
        for (sink, rendered) in sinks.iter_mut().zip(rendered) {
            sink.take(&*rows, first, rendered)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Address;
    use crate::matching::How;

    fn pair(operator: Option<u32>) -> Pair {
        let address = Address { operator: operator.unwrap_or(7), value: 0 };
        let (target, golden) = if operator.is_some() { (Some(address), None) } else { (None, Some(address)) };
        Pair { target, golden, how: How::Name }
    }

    #[test]
    fn what_the_golden_alone_has_stands_where_it_ran() {
        let at = |operator: u32, value: u32| Some(Address { operator, value });
        let both = |one, other| Pair { target: one, golden: other, how: How::Name };
        let pairs = vec![
            both(at(0, 0), at(1, 0)),
            both(at(0, 1), at(1, 1)),
            both(at(1, 0), None),
            both(at(2, 0), at(3, 0)),
            both(None, at(2, 0)),
            both(None, at(1, 2)),
            both(None, at(0, 0)),
            both(None, at(4, 0)),
        ];
        let ordered: Vec<_> = where_they_ran(pairs).iter().map(|pair| (pair.target, pair.golden)).collect();
        assert_eq!(
            ordered,
            [
                (None, at(0, 0)),
                (at(0, 0), at(1, 0)),
                (at(0, 1), at(1, 1)),
                (None, at(1, 2)),
                (None, at(2, 0)),
                (at(1, 0), None),
                (at(2, 0), at(3, 0)),
                (None, at(4, 0)),
            ]
        );
    }

    #[test]
    fn an_operators_values_are_in_one_piece() {
        let mut pairs: Vec<Pair> = std::iter::repeat_n(None, 600).map(pair).collect();
        for (operator, values) in [(0, 300), (1, 300), (2, 2000), (3, 1)] {
            pairs.extend(std::iter::repeat_n(Some(operator), values).map(pair));
        }
        let source = TableSource::new(Vec::new(), pairs, Box::new(|_| unreachable!()));
        assert_eq!(source.pieces(), [0..512, 512..1200, 1200..3200, 3200..3201]);
        assert!(source.has_golden_only());
    }
}
