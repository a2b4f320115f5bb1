//! msprobe's search for the first difference (`-da`), and its files. It treats an operator as different if a statistic of an
//! output differs by more than half; [`first`](crate::first) is right where this is wrong.

use trainmon_capture_files::{Json, Plain, Section};

use super::cell::Cell;
use super::columns::Mode;
use super::json::text;
use super::row::Row;
use super::table::Table;
use crate::input::Capture;
use crate::name::OperatorName;

/// Relative differences of max, min, mean and norm among [`Row::measured`].
const RELATIVE: std::ops::Range<usize> = 4..8;
const ALLOWED: f64 = 0.5;
const IGNORED: [&str; 3] = ["Torch.empty", "Torch.fill", "Tensor.__setitem__"];

/// A rank's operators, and which of them differ.
#[derive(Debug)]
pub struct RankDifferences {
    /// The rank.
    pub rank: u64,
    operators: Vec<Judged>,
}

#[derive(Debug)]
struct Judged {
    name: Box<str>,
    is_same: bool,
    rows: Vec<Row>,
    stack: Option<Vec<Box<str>>>,
}

/// Judges a rank's table: by statistics, even if tensors were captured, or by checksums.
pub fn differences(rank: u64, table: Table, target: &Capture) -> (RankDifferences, Json) {
    let mode = table.mode;
    let headers = table.headers;
    let mut operators: Vec<Judged> = Vec::new();
    let mut current = None;
    for row in table.rows {
        if current != Some(row.operator) {
            current = Some(row.operator);
            let name = target.document.operators[row.operator as usize].name.clone();
            let stack = target.stacks.of(&name).map(<[Box<str>]>::to_vec);
            operators.push(Judged { name, is_same: true, rows: Vec::new(), stack });
        }
        if let Some(operator) = operators.last_mut() {
            operator.is_same &= !is_different(&row, mode);
            operator.rows.push(row);
        }
    }
    operators.retain(|operator| operator.name.split('.').count() >= 4);
    let node =
        Json::Object(operators.iter().map(|operator| (operator.name.clone(), judged(operator, &headers))).collect());
    (RankDifferences { rank, operators }, node)
}

fn is_different(row: &Row, mode: Mode) -> bool {
    if row.section != Section::Output || is_seed(row) {
        return false;
    }
    match mode {
        Mode::Digest => row.measured.first().map(Cell::text) != row.measured.get(1).map(Cell::text),
        _ => row.measured[RELATIVE]
            .iter()
            .any(|cell| matches!(cell, Cell::Percent(percent) if percent / 100.0 > ALLOWED)),
    }
}

/// Whether a row is the state of a random generator, which a fused attention returns.
fn is_seed(row: &Row) -> bool {
    let name = row.basic[0].text();
    name.contains("npu_fusion_attention") && (name.ends_with(".output.4") || name.ends_with(".output.5"))
}

fn judged(operator: &Judged, headers: &[&'static str]) -> Json {
    let items = operator.rows.iter().map(|row| {
        let mut fields: Vec<(Box<str>, Json)> = headers
            .iter()
            .zip(row.cells())
            .map(|(header, cell)| {
                let is_verdict = matches!(*header, "Result" | "Err_message");
                ((*header).into(), if is_verdict { text("") } else { Json::from(&cell) })
            })
            .collect();
        fields.push(("state".into(), text(state(row.section))));
        fields.push(("api_origin_name".into(), text(operator.name.clone())));
        let peers = ["NPU P2POp op", "Bench P2POp op", "NPU P2POp peer", "Bench P2POp peer"];
        fields.extend(peers.iter().enumerate().map(|(at, name)| ((*name).into(), peer(row, at))));
        Json::Object(fields)
    });
    let items = items.collect();
    let is_same = Json::Plain(Plain::Bool(operator.is_same));
    Json::Object(vec![("is_same".into(), is_same), ("op_items".into(), Json::List(items))])
}

fn state(section: Section) -> &'static str {
    match section {
        Section::Input => "input",
        Section::Parameter => "parameters",
        Section::Output => "output",
        Section::ParameterGradient => "parameters_grad",
        Section::Saved => "debug",
    }
}

/// msprobe's answer for all ranks; `None` if it finds nothing and writes no file.
///
/// Before the first communication, the first differing operator of every rank counts. If there is none, it is the first
/// communication (by its number on its rank) that differs itself or after the preceding one; else the first difference after
/// the last communication.
pub fn analyze(ranks: &[RankDifferences]) -> Option<Json> {
    let operators = ranks.iter().map(|rank| (rank.rank, &rank.operators[..]));
    let mut found =
        search(operators, |operator| &operator.name, |operator| !operator.is_same && !is_ignored(&operator.name));
    found.sort_by_key(|(rank, _)| *rank);
    let ranks = found
        .into_iter()
        .map(|(rank, operator)| (format!("rank_{rank}").into(), Json::List(vec![found_node(operator)])));
    let ranks: Vec<_> = ranks.collect();
    (!ranks.is_empty()).then_some(Json::Object(ranks))
}

/// The operators at which msprobe's search stops, by rank: the first of each rank, in the first section between communications
/// in which any rank has one.
pub(crate) fn search<'a, R: Copy, T>(
    ranks: impl Iterator<Item = (R, &'a [T])>,
    name: impl Fn(&T) -> &str,
    is_one: impl Fn(&T) -> bool,
) -> Vec<(R, &'a T)> {
    let parts: Vec<(R, Vec<&[T]>)> =
        ranks.map(|(rank, operators)| (rank, between_communications(operators, &name))).collect();
    let longest = parts.iter().map(|(_, parts)| parts.len()).max().unwrap_or(0);
    let in_part = |part: usize| {
        let of_rank = |(rank, parts): &(R, Vec<&'a [T]>)| {
            Some((*rank, parts.get(part)?.iter().find(|operator| is_one(operator))?))
        };
        parts.iter().filter_map(of_rank).collect::<Vec<_>>()
    };
    (0..longest).map(in_part).find(|found| !found.is_empty()).unwrap_or_default()
}

fn is_ignored(name: &str) -> bool {
    OperatorName::parse(name).is_some_and(|name| IGNORED.contains(&name.callee))
}

/// The operators before the first communication; then each communication with the operators up to the next.
fn between_communications<T>(operators: &[T], name: impl Fn(&T) -> &str) -> Vec<&[T]> {
    let is_communication =
        |operator: &T| OperatorName::parse(name(operator)).is_some_and(|name| name.is_communication());
    let mut parts = Vec::new();
    let mut from = 0;
    for (index, operator) in operators.iter().enumerate() {
        if is_communication(operator) {
            parts.push(&operators[from..index]);
            from = index;
        }
    }
    parts.push(&operators[from..]);
    parts
}

fn found_node(operator: &Judged) -> Json {
    let of = |is_output: bool| {
        let rows = operator.rows.iter().filter(move |row| (row.section == Section::Output) == is_output);
        Json::Object(rows.map(|row| (row.basic[0].text().into(), value(row))).collect())
    };
    let info = Json::Object(vec![("input".into(), of(false)), ("output".into(), of(true))]);
    let stack = operator.stack.as_ref().map_or(Json::Plain(Plain::Null), |frames| {
        Json::List(frames.iter().map(|frame| text(frame.clone())).collect())
    });
    Json::Object(vec![
        ("op_name".into(), text(operator.name.clone())),
        ("data_info".into(), info),
        ("stack_info".into(), stack),
    ])
}

fn value(row: &Row) -> Json {
    const STATISTICS: [&str; 4] = ["NPU max", "NPU min", "NPU mean", "NPU l2norm"];
    let mut fields: Vec<(Box<str>, Json)> = if row.statistics.is_empty() {
        row.measured.first().map(|digest| ("NPU MD5".into(), Json::from(digest))).into_iter().collect()
    } else {
        STATISTICS.iter().zip(&row.statistics).map(|(name, cell)| ((*name).into(), Json::from(cell))).collect()
    };
    fields.push(("NPU P2POp peer".into(), peer(row, 2)));
    Json::Object(fields)
}

fn peer(row: &Row, at: usize) -> Json {
    row.peers.as_deref().map_or_else(|| text("None"), |peers| Json::from(&peers[at]))
}
