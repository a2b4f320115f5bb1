//! The rows of msprobe's table.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use trainmon_capture_files::{Leaf, Peer, Plain};

use super::cell::{Cell, Texts};
use super::columns::{Mode, headers};
use super::distances::distances;
use super::row::Row;
use super::statistics::{difference, graph_difference};
use super::verdict;
use crate::evaluation::{Elements, Sides};
use crate::input::Capture;
use crate::item::{Address, Item};
use crate::matching::Pair;
use crate::python;

/// A rank's table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The mode of the comparison.
    pub mode: Mode,
    /// The columns.
    pub headers: Vec<&'static str>,
    /// The rows: the target's values in order.
    pub rows: Vec<Row>,
}

impl Row {
    /// The row of a value that only the baseline has, its half of the cells filled. msprobe omits such values.
    pub fn of_golden(golden: &Capture, address: Address, mode: Mode, has_stacks: bool) -> Self {
        let mut row = Self { operator: address.operator, ..row(golden.at(address), None, mode, None) };
        for pair in row.basic.chunks_exact_mut(2) {
            pair.swap(0, 1);
        }
        let half = row.statistics.len() / 2;
        row.statistics.rotate_left(half);
        match mode {
            Mode::Digest => row.measured.swap(0, 1),
            Mode::Statistics | Mode::Tensor => {}
        }
        if let Some(Cell::Texts(names)) = &row.data_names {
            row.data_names = Some(Cell::Texts(Texts::new(names.texts().iter().rev().cloned())));
        }
        row.stack = has_stacks.then_some(Cell::NONE);
        row
    }
}

/// Builds the table from matched values. Values that only the baseline has are omitted, as in msprobe's.
pub fn table(sides: Sides<'_>, pairs: &[Pair], mode: Mode, gate: bool) -> Table {
    let target = sides.target;
    let mut rows = rows(sides, pairs, mode, gate);
    if target.has_stacks {
        add_stacks(&mut rows, target);
    }
    verdict::judge(&mut rows, target, mode);
    Table { mode, headers: headers(mode, target.has_stacks), rows }
}

/// The rows of msprobe's graph: as in [`table`], but its differences of statistics have another formula and other texts, so that
/// a baseline of 0 has no relative difference. The rules and their order are the same. `pairs`: by operator, the target's values
/// in order; a pair without a target has no row.
pub fn graph_rows(sides: Sides<'_>, pairs: &[Pair], mode: Mode) -> Vec<Row> {
    let mut rows = rows(sides, pairs, mode, false);
    if mode == Mode::Statistics {
        for row in &mut rows {
            let cells = [0, 1, 2, 3].map(|at| graph_difference(&row.statistics[at], &row.statistics[at + 4]));
            let [[max, of_max], [min, of_min], [mean, of_mean], [norm, of_norm]] = cells;
            row.measured = vec![max, min, mean, norm, of_max, of_min, of_mean, of_norm];
        }
    }
    verdict::judge(&mut rows, sides.target, mode);
    rows
}

/// The rows before the rules.
fn rows(sides: Sides<'_>, pairs: &[Pair], mode: Mode, gate: bool) -> Vec<Row> {
    let (target, golden) = (sides.target, sides.golden);
    let make = |pair: &Pair| -> Option<Row> {
        let address = pair.target?;
        let item = target.at(address);
        let other = pair.golden.filter(|other| !gate || passes(item, golden.at(*other)));
        let row = |elements: Option<&Elements>| row(item, other.map(|other| golden.at(other)), mode, elements);
        let row = match other.filter(|_| mode == Mode::Tensor) {
            Some(other) => sides.elements(address, other, row),
            None => row(None),
        };
        Some(Row { operator: address.operator, ..row })
    };
    pairs.par_iter().filter_map(make).collect()
}

/// Adds the stack to the first value of each operator; operators called from one place share it.
fn add_stacks(rows: &mut [Row], target: &Capture) {
    let mut shared: HashMap<*const Box<str>, Arc<Texts>> = HashMap::new();
    for rows in rows.chunk_by_mut(|one, next| one.operator == next.operator) {
        for (index, row) in rows.iter_mut().enumerate() {
            let name = &target.document.operators[row.operator as usize].name;
            let stack = (index == 0).then(|| target.stacks.of(name)).flatten();
            row.stack = Some(stack.map_or(Cell::NONE, |frames| {
                let texts = shared.entry(frames.as_ptr()).or_insert_with(|| Texts::new(frames.iter().cloned()));
                Cell::Texts(texts.clone())
            }));
        }
    }
}

/// Whether two values are comparable: dtypes of different families are not, except for any two half and single floats.
fn passes(target: Item<'_>, golden: Item<'_>) -> bool {
    let (target, golden) = (dtype(target), dtype(golden));
    let (target, golden) = (target.text(), golden.text());
    let is_float = |name: &str| matches!(name, "torch.float16" | "torch.float32" | "torch.bfloat16");
    let is_mindspore = |name: &str| matches!(name, "Float16" | "Float32" | "BFloat16");
    target == golden || (is_float(&target) && is_float(&golden)) || (is_mindspore(&target) && is_mindspore(&golden))
}

fn row(item: Item<'_>, other: Option<Item<'_>>, mode: Mode, elements: Option<&Elements>) -> Row {
    let cell = |of: fn(Item<'_>) -> Cell| [of(item), other.map_or(Cell::NONE, of)];
    let name = |item: Item<'_>| Cell::Text(name(item, mode));
    let [name, golden_name] = [name(item), other.map_or(Cell::NONE, name)];
    let ([dtype, golden_dtype], [shape, golden_shape]) = (cell(dtype), cell(shape));
    let [grad, golden_grad] = cell(requires_grad);
    let is_requires_grad_consistent = grad == golden_grad;
    let statistics: Vec<Cell> = if mode == Mode::Digest {
        Vec::new()
    } else {
        let golden = other.map_or([Cell::NONE, Cell::NONE, Cell::NONE, Cell::NONE], statistics);
        statistics(item).into_iter().chain(golden).collect()
    };
    let distances = distances(elements);
    let (distance, trouble) = match elements {
        Some(Elements::Comparable { measured: Some(measured), .. }) => {
            (Some(Box::new(measured.distance.clone())), None)
        }
        Some(Elements::Unreadable(why)) => (None, Some(why.clone())),
        _ => (None, None),
    };
    let measured = match mode {
        Mode::Statistics => {
            let [max, min, mean, norm] = [0, 1, 2, 3].map(|at| difference(&statistics[at], &statistics[at + 4]));
            let [[max, of_max], [min, of_min], [mean, of_mean], [norm, of_norm]] = [max, min, mean, norm];
            vec![max, min, mean, norm, of_max, of_min, of_mean, of_norm]
        }
        Mode::Tensor => distances.to_vec(),
        Mode::Digest => cell(digest).to_vec(),
    };
    Row {
        operator: 0,
        section: item.value.section,
        basic: [name, golden_name, dtype, golden_dtype, shape, golden_shape, grad, golden_grad],
        measured,
        statistics,
        is_requires_grad_consistent,
        messages: Vec::new(),
        stack: None,
        data_names: (mode == Mode::Tensor).then(|| {
            let file = |item: Option<Item<'_>>| -> Box<str> {
                item.and_then(|item| item.tensor()?.data_name.clone()).unwrap_or_else(|| "-1".into())
            };
            Cell::Texts(Texts::new([file(Some(item)), file(other)]))
        }),
        peers: peers(item, other),
        distance,
        trouble,
    }
}

fn peers(item: Item<'_>, other: Option<Item<'_>>) -> Option<Box<[Cell; 4]>> {
    // Few values have one, and a table has many rows.
    item.tensor()?.peer.as_ref()?;
    let of = |item: Option<Item<'_>>| -> [Cell; 2] {
        let Some(peer) = item.and_then(|item| item.tensor()?.peer.as_deref()) else {
            return [Cell::Word("None"), Cell::Word("None")];
        };
        let Peer { operation, rank, .. } = peer;
        [operation, rank].map(|part| Cell::Text(python::text(part).into()))
    };
    let ([operation, rank], [golden_operation, golden_rank]) = (of(Some(item)), of(other));
    Some(Box::new([operation, golden_operation, rank, golden_rank]))
}

/// The name of a value; with tensors, that of its file, if it has one.
fn name(item: Item<'_>, mode: Mode) -> Box<str> {
    let file = item.tensor().and_then(|tensor| tensor.data_name.as_deref()).filter(|_| mode == Mode::Tensor);
    match file.and_then(|file| file.rsplit_once('.')) {
        Some((stem, _)) => stem.into(),
        None => item.name().into(),
    }
}

/// Whether an argument is a rank, which is shown by its type, unlike other integers.
fn is_rank(item: Item<'_>) -> bool {
    let place = item.value.place.rsplit('.').next().unwrap_or("");
    matches!(place, "src" | "dst" | "group_src" | "group_dst")
}

fn dtype(item: Item<'_>) -> Cell {
    match &item.value.leaf {
        Leaf::Nothing => Cell::NONE,
        Leaf::Tensor(tensor) => Cell::Text(python::text(&tensor.dtype).into()),
        Leaf::Group { .. } => Cell::Word("torch.ProcessGroup"),
        Leaf::Plain { kind, value } => match (&**kind, value) {
            ("slice" | "ellipsis" | "torch.Size", _) => Cell::Text(kind.clone()),
            _ if is_rank(item) => Cell::Text(kind.clone()),
            (_, Plain::Null) => Cell::Word("<class 'NoneType'>"),
            (_, Plain::Bool(_)) => Cell::Word("<class 'bool'>"),
            (_, Plain::Int(_) | Plain::Big(_)) => Cell::Word("<class 'int'>"),
            (_, Plain::Float(_)) => Cell::Word("<class 'float'>"),
            (_, Plain::Text(_)) => Cell::Word("<class 'str'>"),
            (_, Plain::List(_)) => Cell::Word("<class 'list'>"),
        },
    }
}

fn shape(item: Item<'_>) -> Cell {
    match &item.value.leaf {
        Leaf::Nothing => Cell::NONE,
        Leaf::Tensor(tensor) => Cell::Text(python::text(&tensor.shape).into()),
        Leaf::Group { .. } => Cell::Word("[]"),
        Leaf::Plain { kind, value } => match (&**kind, value) {
            ("torch.Size", value) => Cell::Text(python::text(value).into()),
            ("slice", Plain::List(parts)) => Cell::Text(format!("({},)", parts.len()).into()),
            _ => Cell::Word("[]"),
        },
    }
}

fn requires_grad(item: Item<'_>) -> Cell {
    match item.tensor().and_then(|tensor| tensor.requires_grad) {
        None => Cell::NONE,
        Some(true) => Cell::Word("True"),
        Some(false) => Cell::Word("False"),
    }
}

fn statistics(item: Item<'_>) -> [Cell; 4] {
    let four = |cell: Cell| [cell.clone(), cell.clone(), cell.clone(), cell];
    let number = |value: &Plain| match value {
        Plain::Null => Cell::Word("None"),
        Plain::Bool(value) => Cell::Word(if *value { "True" } else { "False" }),
        Plain::Text(text) => Cell::Text(text.clone()),
        other => Cell::Number(other.clone()),
    };
    match &item.value.leaf {
        Leaf::Nothing => four(Cell::Word("None")),
        Leaf::Tensor(tensor) => [0, 1, 2, 3].map(|at| number(&tensor.statistics[at])),
        Leaf::Group { ranks, .. } => four(Cell::Text(python::text(ranks).into())),
        Leaf::Plain { kind, value } => match &**kind {
            "slice" | "ellipsis" | "torch.Size" => four(Cell::Word("None")),
            _ if is_rank(item) => four(Cell::Text(python::text(value).into())),
            _ => four(match value {
                Plain::Bool(value) => Cell::Bool(*value),
                other => number(other),
            }),
        },
    }
}

fn digest(item: Item<'_>) -> Cell {
    let of = |value: &Plain| Cell::Text(crc32(&python::text(value)));
    match &item.value.leaf {
        Leaf::Nothing => Cell::NONE,
        Leaf::Tensor(tensor) => match &tensor.digest {
            None | Some(Plain::Null) => Cell::Word("00000000"),
            Some(digest) => Cell::Text(python::text(digest).into()),
        },
        Leaf::Group { ranks, .. } => Cell::Text(python::text(ranks).into()),
        Leaf::Plain { value, .. } if is_rank(item) => Cell::Text(python::text(value).into()),
        Leaf::Plain { value: Plain::Null, .. } => Cell::Word("00000000"),
        Leaf::Plain { value, .. } => of(value),
    }
}

/// The checksum that msprobe calls MD5.
fn crc32(text: &str) -> Box<str> {
    format!("{:08x}", crc32fast::hash(text.as_bytes())).into()
}
