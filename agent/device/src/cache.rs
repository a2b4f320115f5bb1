//! A cache of tables, which stay valid while the tensors keep their addresses.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::fast::FixedState;

use crate::table::{ROW_WORDS, Row};

/// The number of cached tables. A training needs a few per step, twice as many where two sets of buffers alternate.
const MOST_TABLES: usize = 64;

/// The table that was made of a set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The table's number, below [`Tables::MOST`]. Another table reuses it after this one is evicted.
    pub number: usize,
    /// Whether the words are new and must be copied to the device before use.
    pub is_new: bool,
    /// The number of rows.
    pub rows: usize,
    /// The number of chunks of rows with one tensor; they come first.
    pub single_chunks: u64,
    /// The number of chunks of rows with two tensors.
    pub pair_chunks: u64,
}

impl Table {
    /// The number of all chunks.
    pub const fn chunks(&self) -> u64 {
        self.single_chunks + self.pair_chunks
    }

    /// The size of the rows' words in bytes; the chunks' words follow them.
    pub const fn bytes_of_rows(&self) -> u64 {
        (self.rows * ROW_WORDS * size_of::<i64>()) as u64
    }

    /// The size in bytes of all words before those of the chunks of pairs.
    pub(crate) const fn bytes_before_pairs(&self) -> u64 {
        self.bytes_of_rows() + self.single_chunks * size_of::<i64>() as u64
    }
}

struct Known {
    hash: u64,
    rows: Vec<Row>,
    words: Vec<i64>,
    made: Table,
    used: u64,
}

/// The tables of one device and stream. Allocates nothing once the tables of a step are cached.
#[derive(Default)]
pub struct Tables {
    known: Vec<Known>,
    clock: u64,
    hasher: FixedState,
}

impl Tables {
    /// The exclusive upper limit of table numbers.
    pub const MOST: usize = MOST_TABLES;

    /// Returns the cached table of these rows. If there is none, makes a new one and evicts the least recently used.
    /// Cost: about 10 ns per cached row.
    pub fn of(&mut self, rows: &[Row]) -> Table {
        self.clock += 1;
        let hash = self.hash(rows);
        if let Some(known) = self.known.iter_mut().find(|one| one.hash == hash && one.rows == rows) {
            known.used = self.clock;
            return Table { is_new: false, ..known.made };
        }
        let number = self.place();
        let one = &mut self.known[number];
        one.rows.clear();
        one.rows.extend_from_slice(rows);
        one.made = fill(&mut one.words, rows, number);
        (one.hash, one.used) = (hash, self.clock);
        one.made
    }

    /// Returns the words of a table: those of its rows, then those of its chunks.
    pub fn words(&self, table: Table) -> &[i64] {
        self.known.get(table.number).map_or(&[], |one| &one.words)
    }

    fn place(&mut self) -> usize {
        if self.known.len() < MOST_TABLES {
            let made = Table { number: 0, is_new: true, rows: 0, single_chunks: 0, pair_chunks: 0 };
            self.known.push(Known { hash: 0, rows: Vec::new(), words: Vec::new(), made, used: 0 });
            return self.known.len() - 1;
        }
        let oldest = self.known.iter().enumerate().min_by_key(|(_, one)| one.used);
        oldest.map_or(0, |(number, _)| number)
    }

    fn hash(&self, rows: &[Row]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for row in rows {
            (row.address, row.spread.elements, row.dtype).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Writes the rows in order, then a word per chunk, those of rows with one tensor first. A chunk's word has the row in its
/// upper half and the chunk's index within the row in its lower half.
fn fill(words: &mut Vec<i64>, rows: &[Row], number: usize) -> Table {
    words.clear();
    let count = |pairs: bool| rows.iter().filter(|row| row.has_two() == pairs).map(Row::chunks).sum();
    let (single_chunks, pair_chunks): (u64, u64) = (count(false), count(true));
    words.reserve(rows.len() * ROW_WORDS + (single_chunks + pair_chunks) as usize);
    let mut next = [0, single_chunks];
    for row in rows {
        let first = &mut next[usize::from(row.has_two())];
        words.extend(row.words(*first));
        *first += row.chunks();
    }
    for pairs in [false, true] {
        for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.has_two() == pairs) {
            words.extend((0..row.chunks()).map(|chunk| (place as i64) << 32 | chunk.cast_signed()));
        }
    }
    Table { number, is_new: true, rows: rows.len(), single_chunks, pair_chunks }
}

#[cfg(test)]
mod tests {
    use trainmon_core::Dtype;

    use super::*;
    use crate::table::{CHUNK, Shows, Spread};

    fn row(address: u64, elements: u64) -> Row {
        let (dtype, shows) = (Dtype::Bf16, Shows::Values);
        Row { address, spread: Spread::dense(elements), dtype, other: None, shows, eps: Some(1e-8), std: false }
    }

    fn pair(address: u64, elements: u64) -> Row {
        Row { other: Some((0x9000, Dtype::F32)), shows: Shows::Difference, ..row(address, elements) }
    }

    #[test]
    fn rows_are_cut_into_chunks_and_pairs_come_last() {
        let mut tables = Tables::default();
        let table = tables.of(&[row(0x1000, CHUNK + 1), pair(0x2000, 3), row(0x3000, 0), row(0x4000, CHUNK)]);
        assert_eq!((table.rows, table.single_chunks, table.pair_chunks), (4, 3, 1));
        let words = tables.words(table);
        let firsts: Vec<_> = words[..4 * ROW_WORDS].chunks(ROW_WORDS).map(|row| row[4]).collect();
        assert_eq!(firsts, [0, 3, 2, 2]);
        assert_eq!(words[4 * ROW_WORDS..], [0, 1, 3 << 32, 1 << 32]);
        assert_eq!(table.bytes_of_rows(), 4 * 9 * 8);
    }

    #[test]
    fn a_row_says_what_the_kernels_read() {
        assert_eq!(
            pair(0x2000, 3).words(7),
            [0x2000, 0x9000, 3, 1 | 1 << 16 | 1 << 24, 7, f64::from(1e-8_f32).to_bits() as i64, 3, 0, 1]
        );
        let exact = Row { dtype: Dtype::I64, eps: None, std: true, ..row(8, 1) };
        assert_eq!(exact.words(0), [8, 0, 1, 15 | 15 << 8 | 2 << 24, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn a_table_is_made_anew_when_a_tensor_moved_grew_or_is_asked_otherwise() {
        let mut tables = Tables::default();
        let rows = [row(0x1000, 10), row(0x2000, 20)];
        let made = tables.of(&rows);
        assert!(made.is_new);
        assert_eq!(tables.of(&rows), Table { is_new: false, ..made });
        for other in [row(0x2008, 20), row(0x2000, 21), Row { std: true, ..rows[1] }, Row { eps: Some(1.0), ..rows[1] }]
        {
            assert!(tables.of(&[rows[0], other]).is_new);
        }
        assert!(!tables.of(&rows).is_new, "two sets may take turns");
    }

    #[test]
    fn the_table_that_was_not_used_for_longest_is_forgotten() {
        let mut tables = Tables::default();
        let first = tables.of(&[row(1 << 40, 1)]);
        let numbers: Vec<_> = (0..MOST_TABLES as u64).map(|at| tables.of(&[row(at * 8, 1)]).number).collect();
        assert!(numbers.iter().all(|&number| number < Tables::MOST));
        assert_eq!(numbers[MOST_TABLES - 1], first.number);
        assert!(tables.of(&[row(1 << 40, 1)]).is_new);
    }
}
