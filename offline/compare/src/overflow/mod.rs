//! Where NaN and infinities were born: the first operator that gives some out without having been given any.

mod compat;
mod level;
mod report;
mod step;

pub use compat::msprobe_answer;
pub use level::{Level, level};
pub use report::{as_json, in_words};
pub use step::{OverflowError, Step, steps};

use trainmon_dump::capture::{Leaf, Operator, Plain, Section, TensorFacts, Value};

use crate::first::Communication;
use crate::{Capture, OperatorName};

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
pub struct Birth {
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
}

/// One rank's anomalies.
#[derive(Clone, Debug, Default)]
pub struct RankAnomalies {
    /// The rank.
    pub rank: u64,
    /// All of them, in the order of execution.
    pub anomalies: Vec<Anomaly>,
    /// Where they began here.
    pub birth: Option<Birth>,
    /// Operators that were given an infinity as an argument and pass it on: a mask, say. They do not count.
    pub on_purpose: Vec<String>,
}

/// Where NaN and infinities of a step began, over all its ranks.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Ranks where it began by itself.
    pub born: Vec<(u64, Birth)>,
    /// Ranks that were handed it: rank, the operator they got it in, from which ranks.
    pub received: Vec<(u64, String, Vec<u64>)>,
}

/// Looks at one rank.
pub fn anomalies(rank: u64, capture: &Capture) -> RankAnomalies {
    let mut found = RankAnomalies { rank, ..RankAnomalies::default() };
    for (operator, index) in capture.document.operators.iter().zip(0..) {
        let Some(level) = level(operator) else { continue };
        if is_on_purpose(operator) {
            found.on_purpose.push(operator.name.to_string());
            continue;
        }
        if found.birth.is_none() {
            // Of an infinity that was put in on purpose only NaN is news.
            let is_news = if found.on_purpose.is_empty() { is_bad } else { is_nan };
            found.birth = birth(operator, index, is_news);
        }
        found.anomalies.push(Anomaly { operator: index, name: operator.name.to_string(), level });
    }
    found
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

fn birth(operator: &Operator, index: u32, is_news: fn(&Value) -> bool) -> Option<Birth> {
    let bad = |inputs: bool| {
        let is_input = |value: &&Value| value.section.is_input() == inputs;
        operator.values.iter().filter(is_input).find(|value| is_news(value))
    };
    let (value, arrives) = bad(true).map(|value| (value, true)).or_else(|| bad(false).map(|value| (value, false)))?;
    let what = if is_nan(value) { "NaN" } else { "infinity" };
    Some(Birth { operator: index, name: operator.name.to_string(), value: operator.name_of(value), what, arrives })
}

/// Whether max, min or mean of a tensor are NaN or infinite.
fn is_bad(value: &Value) -> bool {
    numbers(value).is_some_and(|mut numbers| numbers.any(|number| !number.is_finite()))
}

/// A mean is NaN also where infinities of both signs meet: that is no NaN among the elements.
fn is_nan(value: &Value) -> bool {
    let Leaf::Tensor(tensor) = &value.leaf else { return false };
    let [max, min, mean] = [0, 1, 2].map(|at: usize| tensor.statistics[at].number());
    let is = |number: Option<f64>| number.is_some_and(f64::is_nan);
    let has_both_infinities = max == Some(f64::INFINITY) && min == Some(f64::NEG_INFINITY);
    is(max) || is(min) || (is(mean) && !has_both_infinities)
}

fn numbers(value: &Value) -> Option<impl Iterator<Item = f64> + '_> {
    let Leaf::Tensor(tensor) = &value.leaf else { return None };
    let TensorFacts { statistics, .. } = &**tensor;
    Some(statistics[..3].iter().filter_map(Plain::number))
}

/// An argument is infinite, what comes out is infinite, and none of it is NaN.
fn is_on_purpose(operator: &Operator) -> bool {
    let is_infinite = |value: &Value| matches!(&value.leaf, Leaf::Plain { value, .. } if value.number().is_some_and(f64::is_infinite));
    let inputs = || operator.values.iter().filter(|value| value.section == Section::Input);
    inputs().any(is_infinite) && !inputs().any(is_bad) && !operator.values.iter().any(is_nan)
}

/// Whether a communication only writes into an input.
fn is_receive_buffer(name: OperatorName<'_>, place: &str) -> bool {
    let first = [
        "recv",
        "irecv",
        "all_gather",
        "scatter",
        "reduce_scatter",
        "_reduce_scatter_base",
        "_all_gather_base",
        "all_to_all_single",
        "all_to_all",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
    ];
    let is_first = place == ".input.0" || place.starts_with(".input.0.") || place == ".input.tensor";
    (first.contains(&name.function()) && is_first) || (name.function() == "gather" && place.starts_with(".input.1"))
}
