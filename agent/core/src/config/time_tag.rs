//! The time in a run directory's name.

use std::fmt;

use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use serde::{Serialize, Serializer};

/// msprobe's form: no year.
const FORMAT: &str = "%b%d_%H-%M-%S";
/// A leap year, so that the 29th of February is a day.
const YEAR: i16 = 2000;

/// The time in a run directory's name, `Dec03_21-34-40`: month to second, without a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeTag(DateTime);

impl TimeTag {
    /// The tag that `text` is.
    ///
    /// # Errors
    /// It is of another form, or no such day or time exists.
    pub fn parse(text: &str) -> Result<Self, TimeTagError> {
        let read = || {
            let mut time = BrokenDownTime::parse(FORMAT, text)?;
            time.set_year(Some(YEAR))?;
            time.to_datetime()
        };
        read().map(Self).map_err(|source| TimeTagError { text: text.to_owned(), source })
    }
}

impl fmt::Display for TimeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime(FORMAT))
    }
}

impl Serialize for TimeTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not a [`TimeTag`].
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a time like Dec03_21-34-40")]
pub struct TimeTagError {
    /// The text.
    pub text: String,
    /// The cause.
    pub source: jiff::Error,
}

/// From one time of a year to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimeWindow {
    /// The first time.
    pub first: TimeTag,
    /// The last time, not before the first.
    pub last: TimeTag,
}

impl TimeWindow {
    /// Whether the time lies within.
    pub fn contains(&self, tag: TimeTag) -> bool {
        (self.first..=self.last).contains(&tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_reads_back_as_it_was_written_and_orders_by_time() {
        for text in ["Dec03_21-34-40", "Feb29_00-00-00", "Jan01_23-59-59"] {
            assert_eq!(TimeTag::parse(text).unwrap().to_string(), text);
        }
        assert!(TimeTag::parse("Feb01_00-00-00").unwrap() < TimeTag::parse("Dec01_00-00-00").unwrap());
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["Dec32_21-34-40", "Feb30_00-00-00", "Dec03 21:34:40", "Dec03_21-34", "Dec03_21-34-40x", "", "12"] {
            assert!(TimeTag::parse(text).is_err(), "{text}");
        }
    }
}
