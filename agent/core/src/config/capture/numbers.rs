//! Lists of ranks and steps, in which `"3-5"` stands for 3, 4, 5.

use std::fmt;

use serde::ser::{Serialize, SerializeSeq as _, Serializer};

/// The largest rank or step that may be listed.
const LARGEST: u64 = 1_000_000;

/// A set of ranks or steps, kept as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberRanges(Vec<(u64, u64)>);

/// The reason why an entry of a list is neither a number nor a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberRangesError {
    /// A number above msprobe's limit.
    #[error("{found} is not between 0 and {LARGEST}")]
    OutOfRange {
        /// The number.
        found: String,
    },
    /// A range in the wrong order, such as `5-3`.
    #[error("the start {from} is greater than the end {to}")]
    Reversed {
        /// The range's start.
        from: u64,
        /// The range's end.
        to: u64,
    },
    /// A text that is neither `n` nor `a-b`.
    #[error("`{found}` is neither a number nor a range like \"3-5\"")]
    NotANumber {
        /// The text.
        found: String,
    },
}

impl NumberRanges {
    /// Adds one number.
    ///
    /// # Errors
    /// [`NumberRangesError::OutOfRange`].
    pub fn add(&mut self, number: i64) -> Result<(), NumberRangesError> {
        match u64::try_from(number) {
            Ok(number) if number <= LARGEST => {
                self.insert(number, number);
                Ok(())
            }
            _ => Err(NumberRangesError::OutOfRange { found: number.to_string() }),
        }
    }

    /// Adds the number or range of a text: `7`, or `3-5` including both ends.
    ///
    /// # Errors
    /// See [`NumberRangesError`].
    pub fn add_text(&mut self, text: &str) -> Result<(), NumberRangesError> {
        let number = |part: &str| {
            let part = part.trim();
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(NumberRangesError::NotANumber { found: text.to_owned() });
            }
            match part.parse() {
                Ok(number) if number <= LARGEST => Ok(number),
                _ => Err(NumberRangesError::OutOfRange { found: part.to_owned() }),
            }
        };
        let (from, to) = match text.split_once('-') {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(text)?, number(text)?),
        };
        if from > to {
            return Err(NumberRangesError::Reversed { from, to });
        }
        self.insert(from, to);
        Ok(())
    }

    fn insert(&mut self, from: u64, to: u64) {
        self.0.push((from, to));
        self.0.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
        for &(from, to) in &self.0 {
            match merged.last_mut() {
                Some((_, last)) if from <= last.saturating_add(1) => *last = (*last).max(to),
                _ => merged.push((from, to)),
            }
        }
        self.0 = merged;
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this number is listed.
    pub fn contains(&self, number: u64) -> bool {
        self.0.iter().any(|&(from, to)| (from..=to).contains(&number))
    }

    /// The largest number listed.
    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|&(_, to)| to)
    }

    /// All numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|&(from, to)| from..=to)
    }
}

/// As a config has it: `[0, "2-5"]`.
impl Serialize for NumberRanges {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.0.len()))?;
        for &(first, last) in &self.0 {
            if first == last {
                list.serialize_element(&first)?;
            } else {
                list.serialize_element(&format!("{first}-{last}"))?;
            }
        }
        list.end()
    }
}

impl fmt::Display for NumberRanges {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, &(first, last)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            if first == last { write!(to, "{comma}{first}")? } else { write!(to, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of msprobe's own tests.
    #[test]
    fn numbers_and_ranges_are_read_as_msprobe_reads_them() {
        let mut ranges = NumberRanges::default();
        assert!(ranges.is_empty());
        ranges.add_text("0").unwrap();
        ranges.add_text("2-3").unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0, 2, 3]);
        for number in [1, 10, 50] {
            ranges.add(number).unwrap();
        }
        assert_eq!(ranges.to_string(), "0-3, 10, 50");
        assert!(ranges.contains(2) && !ranges.contains(4) && ranges.last() == Some(50));
        for number in [-1, 10_000_000] {
            assert!(matches!(ranges.add(number), Err(NumberRangesError::OutOfRange { .. })));
        }
        for text in ["x", "1-4-5", "!-,", "", "-", "-1"] {
            assert!(matches!(ranges.add_text(text), Err(NumberRangesError::NotANumber { .. })), "{text}");
        }
        assert_eq!(ranges.add_text("5-3"), Err(NumberRangesError::Reversed { from: 5, to: 3 }));
        assert_eq!(ranges.iter().count(), 6, "what was refused is not in it");
    }
}
