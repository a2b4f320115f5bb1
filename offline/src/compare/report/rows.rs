//! The tables' rows as they go into the page: every cell a number, the index of a text that is there once.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::json;
use trainmon_dump::capture::Plain;

use super::distribution::Distribution;
use super::json_in_html;
use crate::compare::compat::Cell;
use crate::compare::input::Capture;
use crate::compare::name::{Direction, OperatorName};
use crate::compare::table::Level;
use crate::compare::write::{Facts, Rows};

/// More rows than this a browser takes seconds to open: a row of statistics is up to 600 bytes of the page.
pub(super) const MOST_ROWS: usize = 200_000;
/// Cells before those of the table: level, operator, module around it, direction, ULP histogram.
const OWN: usize = 5;

/// A row's level in the page: a value of one side alone is a level of its own there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shade {
    Pass,
    Warning,
    Error,
    Unmatched,
}

/// Rows of all tables so far.
pub(super) struct CollectedRows {
    texts: Texts,
    parts: Vec<Part>,
    most: usize,
    kept: usize,
    has_passes: bool,
    /// All rows by [`Shade`], the left out included.
    counts: [usize; 4],
    /// How far values are apart, the left out included.
    pub(super) distribution: Distribution,
}

/// Rows of one table.
struct Part {
    step: u64,
    graph: String,
    rank: u64,
    headers: Vec<&'static str>,
    cells: Vec<u32>,
}

impl Part {
    fn width(&self) -> usize {
        OWN + self.headers.len()
    }
}

impl CollectedRows {
    /// Of more than `most` rows those that are a pass are left out, and should the others be more, what is beyond.
    pub(super) fn new(most: usize) -> Self {
        Self {
            texts: Texts::new(),
            parts: Vec::new(),
            most,
            kept: 0,
            has_passes: true,
            counts: [0; 4],
            distribution: Distribution::default(),
        }
    }

    /// Takes in a table; `target` is the capture its operators are of.
    pub(super) fn add(&mut self, table: &dyn Rows, (step, graph, rank): (u64, &str, u64), target: &Capture) {
        let mut part =
            Part { step, graph: graph.to_owned(), rank, headers: table.headers().to_vec(), cells: Vec::new() };
        let mut last: Option<(u32, [u32; 3])> = None;
        for index in 0..table.count() {
            let facts = table.facts(index);
            let shade = shade(&facts);
            self.counts[shade as usize] += 1;
            if let Some(deviation) = facts.deviation {
                self.distribution.add(facts.level, shade == Shade::Unmatched, deviation);
            }
            if self.kept == self.most && self.has_passes {
                self.drop_passes(&mut part);
            }
            if (shade == Shade::Pass && !self.has_passes) || self.kept == self.most {
                continue;
            }
            self.kept += 1;
            // Values follow each other operator by operator; what the golden alone has is looked at one by one.
            let is_of_target = !facts.shared.basic[0].is_none();
            let known = last.filter(|(operator, _)| is_of_target && *operator == facts.shared.operator);
            let operator = known.map_or_else(|| self.operator(&facts, is_of_target, target), |(_, operator)| operator);
            last = is_of_target.then_some((facts.shared.operator, operator));
            let ulps = facts.shared.distance.as_deref().map_or(0, |distance| self.texts.of(&ulps_text(&distance.ulps)));
            part.cells.extend([shade as u32, operator[0], operator[1], operator[2], ulps]);
            table.visit(index, &mut |cell| part.cells.push(self.texts.of_cell(cell)));
        }
        self.parts.push(part);
    }

    /// The texts of an operator's name and of the module around it, and which way it went.
    fn operator(&mut self, facts: &Facts<'_>, is_of_target: bool, target: &Capture) -> [u32; 3] {
        let whole = facts.shared.basic[1].text();
        let name = match target.document.operators.get(facts.shared.operator as usize) {
            Some(operator) if is_of_target => &*operator.name,
            _ => operator_of(&whole),
        };
        let parsed = OperatorName::parse(name);
        let module = match target.construct.parent(name).and_then(|parent| parent.name.as_deref()) {
            Some(module) => module,
            None if parsed.is_some_and(|parsed| parsed.family() == "Module") => name,
            None => "",
        };
        let direction = parsed.map_or(3, |parsed| match parsed.direction {
            Direction::Forward => 0,
            Direction::Backward => 1,
            Direction::ParameterGradient => 2,
        });
        [self.texts.of(name), self.texts.of(module), direction]
    }

    fn drop_passes(&mut self, newest: &mut Part) {
        self.has_passes = false;
        self.kept = 0;
        for part in self.parts.iter_mut().chain([newest]) {
            let width = part.width();
            let rows = part.cells.chunks_exact(width).filter(|row| row[0] != Shade::Pass as u32);
            part.cells = rows.flatten().copied().collect();
            self.kept += part.cells.len() / width;
        }
    }

    /// Why rows are missing in the page, if some are.
    pub(super) fn left_out(&self) -> Option<String> {
        let all: usize = self.counts.iter().sum();
        let remarkable = all - self.counts[Shade::Pass as usize];
        if self.kept == all {
            None
        } else if self.kept == remarkable {
            Some(format!("{all} values were compared: the table has the {remarkable} that are no pass."))
        } else {
            Some(format!(
                "{all} values were compared, {remarkable} of them are no pass: the table has the first {} of these.",
                self.kept
            ))
        }
    }

    /// How many rows the table has.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// The data of the page's script, as JSON that may stand inside HTML. Texts that no row has any more are left out.
    pub(super) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        // Text 0 is the empty one; the level and the direction are no texts.
        let mut places = vec![u32::MAX; self.texts.len()];
        places[0] = 0;
        let (mut next, mut order) = (1, vec![0_u32]);
        write!(to, "{{\"own\":{OWN},\"counts\":{},\"tables\":[", json!(self.counts))?;
        for (index, part) in self.parts.iter().enumerate() {
            let head = json!({"step": part.step, "graph": part.graph, "rank": part.rank, "headers": part.headers});
            let head = json_in_html(&head.to_string());
            let head = head.strip_suffix('}').unwrap_or(&head);
            write!(to, "{}\n{head},\"rows\":[", if index == 0 { "" } else { "," })?;
            let mut line = String::new();
            for (row, cells) in part.cells.chunks_exact(part.width()).enumerate() {
                line.clear();
                for (column, &cell) in cells.iter().enumerate() {
                    let is_text = !matches!(column, 0 | 3);
                    if is_text && places[cell as usize] == u32::MAX {
                        places[cell as usize] = next;
                        next += 1;
                        order.push(cell);
                    }
                    if row + column > 0 {
                        line.push(',');
                    }
                    line += &(if is_text { places[cell as usize] } else { cell }).to_string();
                }
                to.write_all(line.as_bytes())?;
            }
            to.write_all(b"]}")?;
        }
        to.write_all(b"],\n\"texts\":[")?;
        for (index, &text) in order.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(to, "{comma}{}", json_in_html(&json!(self.texts.text(text)).to_string()))?;
        }
        to.write_all(b"]}")
    }
}

fn shade(facts: &Facts<'_>) -> Shade {
    match facts.level {
        _ if facts.shared.basic[..2].iter().any(Cell::is_none) => Shade::Unmatched,
        Level::Pass => Shade::Pass,
        Level::Warning => Shade::Warning,
        Level::Error => Shade::Error,
    }
}

/// The operator's part of a value's name.
fn operator_of(value: &str) -> &str {
    let places = [".input", ".output", ".parameters.", ".kwargs", ".parameters_grad."];
    let end = places.iter().filter_map(|place| value.find(place)).min();
    end.map_or(value, |end| &value[..end])
}

/// Counts up to the last that is not 0.
fn ulps_text(bins: &[u64]) -> String {
    let used = bins.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    bins[..used].iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Texts, each once, in one piece of memory.
struct Texts {
    whole: String,
    ends: Vec<usize>,
    of: HashMap<Box<str>, u32>,
    /// Numbers are most of a table and need not be printed to be known again.
    numbers: HashMap<u64, u32>,
}

impl Texts {
    fn new() -> Self {
        let of = HashMap::from([("".into(), 0)]);
        Self { whole: String::new(), ends: vec![0], of, numbers: HashMap::new() }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn text(&self, index: u32) -> &str {
        let index = index as usize;
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.whole[from..self.ends[index]]
    }

    fn push(&mut self, text: &str) -> u32 {
        self.whole += text;
        self.ends.push(self.whole.len());
        (self.ends.len() - 1) as u32
    }

    fn of(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.of.get(text) {
            return known;
        }
        let index = self.push(text);
        self.of.insert(text.into(), index);
        index
    }

    fn of_cell(&mut self, cell: &Cell) -> u32 {
        match cell {
            Cell::Number(Plain::Float(number)) => {
                if let Some(&known) = self.numbers.get(&number.to_bits()) {
                    return known;
                }
                let index = self.push(&cell.text());
                self.numbers.insert(number.to_bits(), index);
                index
            }
            Cell::Texts(texts) => self.of(&texts.texts().join("\n")),
            other => self.of(&other.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::compat;
    use crate::compare::deviation::{Deviation, What};
    use trainmon_dump::capture::{Document, Framework, Section, Task};

    /// Rows named after their place, every third an error.
    struct Made {
        headers: [&'static str; 2],
        rows: Vec<compat::Row>,
    }

    impl Made {
        fn of(rows: usize) -> Self {
            let row = |index: usize| {
                let name = Cell::Text(format!("value{index}").into());
                let [dtype, shape, grad] = [0; 3].map(|_| [Cell::Word("same"), Cell::Word("same")]);
                let basic = [[name.clone(), name], dtype, shape, grad].concat();
                compat::Row {
                    operator: 0,
                    section: Section::Input,
                    basic: basic.try_into().unwrap(),
                    measured: Vec::new(),
                    statistics: Vec::new(),
                    is_requires_grad_consistent: true,
                    messages: Vec::new(),
                    stack: None,
                    data_names: None,
                    peers: None,
                    distance: None,
                    trouble: None,
                }
            };
            Self { headers: ["NPU Name", "Bench Name"], rows: (0..rows).map(row).collect() }
        }
    }

    impl Rows for Made {
        fn headers(&self) -> &[&'static str] {
            &self.headers
        }

        fn count(&self) -> usize {
            self.rows.len()
        }

        fn visit(&self, index: usize, see: &mut dyn FnMut(&Cell)) {
            self.rows[index].basic[..2].iter().for_each(see);
        }

        fn is_remarkable(&self, index: usize) -> bool {
            index.is_multiple_of(3)
        }

        fn facts(&self, index: usize) -> Facts<'_> {
            let level = if self.is_remarkable(index) { Level::Error } else { Level::Pass };
            let deviation = Some(Deviation { what: What::Numbers, relative: 0.1 });
            Facts { shared: &self.rows[index], level, deviation }
        }
    }

    fn nothing() -> Capture {
        Capture {
            path: std::path::PathBuf::new(),
            document: Document {
                task: Task::Statistics,
                level: None,
                framework: Framework::PyTorch,
                operators: Vec::new(),
            },
            stacks: trainmon_dump::capture::Stacks::default(),
            construct: trainmon_dump::capture::Construct::default(),
            has_stacks: false,
            tensors: None,
            tensor_bytes: std::sync::atomic::AtomicU64::new(0),
            fused: std::collections::HashSet::new(),
        }
    }

    /// The names in the page's data, table after table, and why some are missing.
    fn kept(most: usize, tables: &[usize]) -> (Vec<String>, usize, Option<String>) {
        let mut collected = CollectedRows::new(most);
        for &rows in tables {
            collected.add(&Made::of(rows), (0, "", 0), &nothing());
        }
        let mut json = Vec::new();
        collected.write(&mut json).unwrap();
        let data: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let texts = data["texts"].as_array().unwrap();
        let name = |cell: &serde_json::Value| texts[cell.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
        let rows = data["tables"].as_array().unwrap().iter().map(|table| table["rows"].as_array().unwrap());
        let names = rows.flat_map(|rows| rows.chunks(OWN + 2).map(|row| name(&row[OWN]))).collect();
        (names, texts.len(), collected.left_out())
    }

    #[test]
    fn of_too_many_rows_those_that_pass_are_left_out_and_the_page_says_so() {
        assert_eq!(kept(4, &[4]).0, ["value0", "value1", "value2", "value3"]);
        assert_eq!(kept(4, &[4]).2, None);
        let (names, texts, left_out) = kept(4, &[3, 7]);
        assert_eq!(names, ["value0", "value0", "value3", "value6"]);
        // The empty text and three names: those of the rows left out are gone too.
        assert_eq!(texts, 4);
        assert_eq!(left_out.unwrap(), "10 values were compared: the table has the 4 that are no pass.");
        let (names, _, left_out) = kept(2, &[9]);
        assert_eq!(names, ["value0", "value3"]);
        assert!(left_out.unwrap().ends_with("3 of them are no pass: the table has the first 2 of these."));
    }
}
