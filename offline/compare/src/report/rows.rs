//! Collects the rows of the tables for the page. They are stored in a file: a page of many rows is larger than the data behind
//! it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use trainmon_capture_files::{Construct, Operator};

use super::distribution::Distribution;
use super::line::{self, Head, Line};
use crate::compat::Cell;
use crate::input::Capture;
use crate::location::parameters_of;
use crate::name::{Direction, OperatorName};
use crate::table::Level;
use crate::write::{Facts, Render, Rows, Sink, WriteError};

/// The largest number of rows that a browser opens quickly: a row of statistics takes up to 600 bytes of the page.
pub(super) const MOST_ROWS: usize = 200_000;

/// The size in bytes from which lines are compressed.
const MOST_PLAIN: u64 = 2 << 20;

/// The compression level (0 to 9): 4 saves a third compared with 1, in a few hundredths of a second.
const PACKING: u32 = 4;

/// A piece's lines are written at once.
const BUFFER: usize = 1 << 18;

/// JSON that is safe inside HTML: no `<` can end the script.
fn json_in_html(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A row's level on the page, where values of one side are a level of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowLevel {
    Pass,
    Warning,
    Error,
    Unmatched,
}

/// The rows of all tables so far.
pub(super) struct CollectedRows {
    texts: Texts,
    tables: Vec<Part>,
    /// A line for each kept row, table after table.
    lines: BufWriter<File>,
    most: usize,
    kept: usize,
    /// The number of kept rows that do not pass.
    remarkable: usize,
    has_passes: bool,
    /// The number of all rows by [`RowLevel`], including omitted ones.
    counts: [usize; 4],
    /// The distribution of differences, including omitted rows.
    pub(super) distribution: Distribution,
}

/// A table and its lines.
struct Part {
    /// The beginning of its JSON object.
    head: String,
    /// The size of its lines in bytes.
    bytes: u64,
}

impl CollectedRows {
    /// Creates a collection of at most `most` rows: beyond that, rows that pass are omitted, and then the last ones. Lines are
    /// stored in an unnamed file in `directory`.
    pub(super) fn new(most: usize, directory: &Path) -> io::Result<Self> {
        Ok(Self {
            texts: Texts::default(),
            tables: Vec::new(),
            lines: BufWriter::with_capacity(BUFFER, tempfile::tempfile_in(directory)?),
            most,
            kept: 0,
            remarkable: 0,
            has_passes: true,
            counts: [0; 4],
            distribution: Distribution::default(),
        })
    }

    /// Starts a table: renders its rows on any thread and collects them. The baseline is needed for values that only it has.
    pub(super) fn table<'c>(
        &'c mut self,
        headers: &[&'static str],
        (step, graph, rank): (u64, &str, u64),
        (target, golden): (&'c Capture, Option<&'c Capture>),
    ) -> (Render<'c>, Box<dyn Sink + 'c>) {
        // The operators of the target, then those of the baseline: rows refer to them by number.
        let operators = std::iter::once(target)
            .chain(golden)
            .flat_map(|side| side.document.operators.iter().map(|one| (one, &side.construct)));
        let (mut names, mut modules, mut parameters, mut directions) =
            (Vec::new(), Vec::new(), Vec::new(), String::new());
        for (operator, construct) in operators {
            let (module, direction) = around(operator, construct);
            names.push(&*operator.name);
            modules.push(self.texts.of(module));
            parameters.push(self.texts.of(OperatorName::parse(&operator.name).map_or("", parameters_of)));
            directions.push(direction);
        }
        let head = json!({"step": step, "graph": graph, "rank": rank, "headers": headers, "operators": names,
            "modules": modules, "parameters": parameters, "directions": directions});
        let head = json_in_html(&head.to_string());
        let head = head.strip_suffix('}').unwrap_or(&head).to_owned();
        self.tables.push(Part { head, bytes: 0 });
        let stacks: Vec<u32> = target.stacks.groups().map(|frames| self.texts.of(&frames.join("\n"))).collect();
        let first_of_golden = target.document.operators.len() as u32;
        let stack_of = move |operator: u32| -> Option<u32> {
            let operator: &Operator = target.document.operators.get(operator as usize)?;
            stacks.get(target.stacks.group_of(&operator.name)?).copied()
        };
        let render = move |rows: &dyn Rows, _: usize, to: &mut Vec<u8>| {
            let mut lines = Line::new(to);
            for index in 0..rows.count() {
                let facts = rows.facts(index);
                let is_of_target = !facts.shared.basic[0].is_none();
                let operator = facts.shared.operator;
                let head = Head {
                    level: shade(&facts) as u8,
                    operator: if is_of_target { operator } else { first_of_golden + operator },
                    stack: Some(operator).filter(|_| is_of_target).and_then(&stack_of),
                };
                line::write(&head, &facts, rows, index, &mut lines);
            }
        };
        (Box::new(render), Box::new(Lines { to: self }))
    }

    /// Adds the lines of rows.
    fn take(&mut self, rows: &dyn Rows, rendered: &[u8]) -> io::Result<()> {
        let shades: Vec<RowLevel> = (0..rows.count()).map(|index| self.count(&rows.facts(index))).collect();
        if self.has_passes && self.kept + shades.len() <= self.most {
            self.remarkable += shades.iter().filter(|shade| **shade != RowLevel::Pass).count();
            return self.keep(rendered, shades.len());
        }
        for (line, shade) in rendered.split_inclusive(|&byte| byte == b'\n').zip(shades) {
            if self.has_passes && self.kept == self.most {
                // Those that are written already are omitted at the end.
                self.has_passes = false;
                self.kept = self.remarkable;
            }
            if (self.has_passes || shade != RowLevel::Pass) && self.kept < self.most {
                self.remarkable += usize::from(shade != RowLevel::Pass);
                self.keep(line, 1)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, facts: &Facts<'_>) -> RowLevel {
        let shade = shade(facts);
        self.counts[shade as usize] += 1;
        if let Some(deviation) = facts.deviation {
            self.distribution.add(facts.level, shade == RowLevel::Unmatched, deviation);
        }
        shade
    }

    fn keep(&mut self, lines: &[u8], rows: usize) -> io::Result<()> {
        self.kept += rows;
        if let Some(part) = self.tables.last_mut() {
            part.bytes += lines.len() as u64;
        }
        self.lines.write_all(lines)
    }

    /// The reason for missing rows, if there are any.
    pub(super) fn left_out(&self) -> Option<String> {
        let all: usize = self.counts.iter().sum();
        let remarkable = all - self.counts[RowLevel::Pass as usize];
        if self.kept == all {
            None
        } else if self.kept == remarkable {
            Some(format!("The table has the {remarkable} of {all} values that do not pass."))
        } else {
            Some(format!(
                "The table has the first {} of the {remarkable} values that do not pass, of {all} in total.",
                self.kept
            ))
        }
    }

    /// The number of rows in the table.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether the page stores the data compressed because of its size.
    pub(super) fn is_packed(&self) -> bool {
        self.tables.iter().map(|part| part.bytes).sum::<u64>() > MOST_PLAIN
    }

    /// Writes the data of the page's script: JSON that is safe inside HTML or, if it [is packed](Self::is_packed), that JSON as
    /// gzip and base64, which the script decodes. Rows are similar: they shrink to between a tenth and a thirtieth.
    pub(super) fn write(&mut self, to: &mut BufWriter<File>) -> io::Result<()> {
        if !self.is_packed() {
            return self.write_json(to);
        }
        let text = EncoderWriter::new(to, &STANDARD);
        let mut packed = BufWriter::with_capacity(BUFFER, GzEncoder::new(text, Compression::new(PACKING)));
        self.write_json(&mut packed)?;
        packed.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?.finish().map(drop)
    }

    fn write_json(&mut self, to: &mut impl Write) -> io::Result<()> {
        self.lines.flush()?;
        let mut lines = self.lines.get_ref();
        lines.rewind()?;
        write!(to, "{{\"counts\":{},\"texts\":{},\"tables\":[", json!(self.counts), self.texts.json())?;
        for (index, part) in self.tables.iter().enumerate() {
            write!(to, "{}\n{},\"rows\":[\n", if index == 0 { "" } else { "," }, part.head)?;
            let (all_but_the_comma, comma) = (part.bytes.saturating_sub(2), part.bytes.min(2));
            if self.has_passes {
                io::copy(&mut lines.take(all_but_the_comma), to)?;
                lines.seek_relative(comma as i64)?;
            } else {
                remarkable(&mut BufReader::with_capacity(BUFFER, lines.take(part.bytes)), to)?;
            }
            to.write_all(b"\n]}")?;
        }
        to.write_all(b"]}")
    }
}

/// Copies the lines that do not pass, the last one without its comma.
fn remarkable(lines: &mut impl BufRead, to: &mut dyn Write) -> io::Result<()> {
    let (mut line, mut is_first) = (Vec::new(), true);
    while lines.read_until(b'\n', &mut line)? > 0 {
        // A quote, then the level.
        if line.get(1) != Some(&b'0') {
            to.write_all(if is_first { b"" } else { b",\n" })?;
            to.write_all(&line[..line.len() - 2])?;
            is_first = false;
        }
        line.clear();
    }
    Ok(())
}

/// Collects the lines of a table.
struct Lines<'c> {
    to: &'c mut CollectedRows,
}

impl Sink for Lines<'_> {
    fn take(&mut self, rows: &dyn Rows, _: usize, rendered: &[u8]) -> Result<(), WriteError> {
        let failed = |source| WriteError::Io { path: "(the rows of the report)".into(), source };
        self.to.take(rows, rendered).map_err(failed)
    }
}

/// The module around an operator, and its direction.
fn around<'c>(operator: &'c Operator, construct: &'c Construct) -> (&'c str, char) {
    let parsed = OperatorName::parse(&operator.name);
    let module = match construct.parent(&operator.name).and_then(|parent| parent.name.as_deref()) {
        Some(module) => module,
        None if parsed.is_some_and(|parsed| parsed.family() == "Module") => &operator.name,
        None => "",
    };
    let direction = parsed.map_or('3', |parsed| match parsed.direction {
        Direction::Forward => '0',
        Direction::Backward => '1',
        Direction::ParameterGradient => '2',
    });
    (module, direction)
}

fn shade(facts: &Facts<'_>) -> RowLevel {
    match facts.level {
        _ if facts.shared.basic[..2].iter().any(Cell::is_none) => RowLevel::Unmatched,
        Level::Pass => RowLevel::Pass,
        Level::Warning => RowLevel::Warning,
        Level::Error => RowLevel::Error,
    }
}

/// Texts that rows share, once each.
#[derive(Default)]
struct Texts {
    texts: Vec<Box<str>>,
    of: HashMap<Box<str>, u32>,
}

impl Texts {
    fn of(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.of.get(text) {
            return known;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.of.insert(text.into(), number);
        number
    }

    fn json(&self) -> String {
        json_in_html(&json!(self.texts).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat;
    use crate::deviation::{Deviation, What};
    use trainmon_capture_files::{Document, Framework, Section, Task};

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
            stacks: trainmon_capture_files::Stacks::default(),
            construct: Construct::default(),
            has_stacks: false,
            tensors: None,
            meter: std::sync::Arc::default(),
            joined: crate::joined::Joined::default(),
        }
    }

    /// The names in the page's data, table after table, and why some are missing.
    fn kept(most: usize, tables: &[usize]) -> (Vec<String>, Option<String>) {
        let room = tempfile::tempdir().unwrap();
        let mut collected = CollectedRows::new(most, room.path()).unwrap();
        let nothing = nothing();
        for &rows in tables {
            let made = Made::of(rows);
            let (render, mut sink) = collected.table(&made.headers, (0, "", 0), (&nothing, None));
            let mut rendered = Vec::new();
            render(&made, 0, &mut rendered);
            sink.take(&made, 0, &rendered).unwrap();
        }
        let path = room.path().join("data");
        let mut json = BufWriter::new(File::create(&path).unwrap());
        collected.write(&mut json).unwrap();
        json.flush().unwrap();
        let data: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let rows = data["tables"].as_array().unwrap().iter().map(|table| table["rows"].as_array().unwrap());
        // Level and operator, counts, both names: the second is the same.
        let name = |row: &serde_json::Value| match row.as_str().unwrap().split('\x7f').collect::<Vec<_>>()[..] {
            ["00" | "20", "", name, "="] => name.to_owned(),
            _ => panic!("{row}"),
        };
        (rows.flat_map(|rows| rows.iter().map(name)).collect(), collected.left_out())
    }

    #[test]
    fn of_too_many_rows_those_that_pass_are_left_out_and_the_page_says_so() {
        assert_eq!(kept(4, &[4]).0, ["value0", "value1", "value2", "value3"]);
        assert_eq!(kept(4, &[4]).1, None);
        let (names, left_out) = kept(4, &[3, 7]);
        assert_eq!(names, ["value0", "value0", "value3", "value6"]);
        assert_eq!(left_out.unwrap(), "The table has the 4 of 10 values that do not pass.");
        let (names, left_out) = kept(2, &[9]);
        assert_eq!(names, ["value0", "value3"]);
        assert!(left_out.unwrap().starts_with("The table has the first 2 of the 3 values that do not pass, of "));
    }
}
