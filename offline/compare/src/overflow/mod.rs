//! Where NaN and infinities were born: the first operator that gives some out without having been given any.

mod compat;
mod level;
mod non_finite;
mod report;
mod search;
mod step;

pub use compat::msprobe_answer;
pub use level::{Level, level};
pub use report::{as_json, in_words};
pub use step::{OverflowError, Step, steps};

use non_finite::is_bad;
use search::Search;

use crate::buffers::{Buffers, may_be_unwritten};
use crate::first::Communication;
use crate::input::Capture;

/// An operator with NaN or infinities.
#[derive(Clone, Debug, PartialEq)]
pub struct Anomaly {
    /// Its index in the capture.
    pub operator: u32,
    /// Its name.
    pub name: String,
    /// How bad.
    pub level: Level,
}

/// Where it began on a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstNonFinite {
    /// Its index in the capture.
    pub operator: u32,
    /// The operator's name.
    pub name: String,
    /// The value that is the first.
    pub value: String,
    /// What is in it: `NaN` or `infinity`.
    pub what: &'static str,
    /// Whether the operator was given it by nobody that was captured: a parameter or data that has it already.
    pub arrives: bool,
    /// What the operator was given that holds an infinity already, if it bore this one.
    pub given: Option<String>,
}

/// One rank's anomalies.
#[derive(Clone, Debug, Default)]
pub struct RankAnomalies {
    /// The rank.
    pub rank: u64,
    /// All of them, in the order of execution.
    pub anomalies: Vec<Anomaly>,
    /// Where they began here.
    pub birth: Option<FirstNonFinite>,
    /// Operators that were given an infinity that nobody computed, a mask's, or were told to fill one in, where nothing came
    /// of it. They do not count.
    pub on_purpose: Vec<String>,
}

/// Where NaN and infinities of a step began, over all its ranks.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Ranks where it began by itself.
    pub born: Vec<(u64, FirstNonFinite)>,
    /// Ranks that were handed it: rank, the operator they got it in, from which ranks.
    pub received: Vec<(u64, String, Vec<u64>)>,
}

/// Looks at one rank.
pub fn anomalies(rank: u64, capture: &Capture) -> RankAnomalies {
    let mut search = Search::of_rank(rank);
    let buffers = Buffers::of(capture);
    for (operator, index) in capture.document.operators.iter().zip(0..) {
        if !buffers.has(index) || operator.values.iter().any(|value| is_bad(value) && !may_be_unwritten(value)) {
            search.look_at(operator, index);
        }
    }
    search.result()
}

/// Tells ranks where it began from those that got it by communication.
pub fn origins(ranks: &[(RankAnomalies, &Capture)]) -> Origins {
    let communication = Communication::of(ranks.iter().map(|(rank, capture)| (rank.rank, *capture)));
    let mut origins = Origins::default();
    for (rank, _) in ranks {
        let Some(birth) = &rank.birth else { continue };
        let givers: Vec<u64> = communication
            .others(rank.rank, birth.operator)
            .into_iter()
            .filter(|(other, theirs)| {
                let found =
                    ranks.iter().find(|(rank, _)| rank.rank == *other).and_then(|(rank, _)| rank.birth.as_ref());
                found.is_some_and(|found| found.operator < *theirs || (found.operator == *theirs && found.arrives))
            })
            .map(|(other, _)| other)
            .collect();
        if givers.is_empty() || birth.arrives {
            origins.born.push((rank.rank, birth.clone()));
        } else {
            origins.received.push((rank.rank, birth.name.clone(), givers));
        }
    }
    origins.born.sort_by_key(|(rank, birth)| (communication.time(*rank, birth.operator), birth.operator, *rank));
    origins
}
