//! Finds the origin of NaN and infinities: the first operator that returns some without having received any.

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
    /// The index in the capture.
    pub operator: u32,
    /// The name.
    pub name: String,
    /// The severity.
    pub level: Level,
}

/// The origin on a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstNonFinite {
    /// The index in the capture.
    pub operator: u32,
    /// The operator's name.
    pub name: String,
    /// The first value with it.
    pub value: String,
    /// The content: `NaN` or `infinity`.
    pub what: &'static str,
    /// Whether no captured operator produced it: a parameter or data contain it from the start.
    pub arrives: bool,
    /// The input that already contained an infinity, if the operator computed this one.
    pub given: Option<String>,
}

/// One rank's anomalies.
#[derive(Clone, Debug, Default)]
pub struct RankAnomalies {
    /// The rank number.
    pub rank: u64,
    /// All of them, in the order of execution.
    pub anomalies: Vec<Anomaly>,
    /// The origin on this rank.
    pub origin: Option<FirstNonFinite>,
    /// Operators with an infinity on purpose, from a mask or a fill, and without effect. They do not count.
    pub on_purpose: Vec<String>,
}

/// The origins of NaN and infinities in a step, over all ranks.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Ranks on which it started.
    pub starts: Vec<(u64, FirstNonFinite)>,
    /// Ranks that received it: rank, receiving operator, senders.
    pub received: Vec<(u64, String, Vec<u64>)>,
}

/// Searches one rank.
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

/// Separates ranks on which it started from those that received it by communication.
pub fn origins(ranks: &[(RankAnomalies, &Capture)]) -> Origins {
    let communication = Communication::of(ranks.iter().map(|(rank, capture)| (rank.rank, *capture)));
    let mut origins = Origins::default();
    for (rank, _) in ranks {
        let Some(origin) = &rank.origin else { continue };
        let givers: Vec<u64> = communication
            .others(rank.rank, origin.operator)
            .into_iter()
            .filter(|(other, theirs)| {
                let found =
                    ranks.iter().find(|(rank, _)| rank.rank == *other).and_then(|(rank, _)| rank.origin.as_ref());
                found.is_some_and(|found| found.operator < *theirs || (found.operator == *theirs && found.arrives))
            })
            .map(|(other, _)| other)
            .collect();
        if givers.is_empty() || origin.arrives {
            origins.starts.push((rank.rank, origin.clone()));
        } else {
            origins.received.push((rank.rank, origin.name.clone(), givers));
        }
    }
    origins.starts.sort_by_key(|(rank, origin)| (communication.time(*rank, origin.operator), origin.operator, *rank));
    origins
}
