//! The table of current values: a series' text is created once, and a scrape appends the number.
//!
//! This does not use the `prometheus` crate, which copies every label into a tree before it writes. That takes 14 ms
//! for 10 k series against 0.43 ms here, and 120 ms against 3.8 ms for 100 k (`benches/scrape.rs` measures both in one
//! run; two cores, 150 bytes per line). The few counters do use the crate (`counters`).

use std::fmt::Write as _;
use std::sync::Arc;

use trainmon_core::catalog::Metric;

/// The text of one family's series. Append-only.
#[derive(Clone, Debug)]
struct Family {
    metric: Metric,
    /// `name{labels} ` of every series, concatenated.
    text: String,
    /// The end of each series' text.
    ends: Vec<usize>,
}

/// The position of a series in a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesId {
    family: u16,
    row: u32,
}

/// Series and their current values, by family.
///
/// Copies share the texts: copying a table costs 8 bytes per series and one count per family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    families: Vec<Arc<Family>>,
    values: Vec<Vec<f64>>,
}

impl Table {
    /// An empty table of these families, in page order.
    pub(crate) fn new(metrics: &[Metric]) -> Self {
        let family = |&metric: &Metric| Arc::new(Family { metric, text: String::new(), ends: Vec::new() });
        Self { families: metrics.iter().map(family).collect(), values: vec![Vec::new(); metrics.len()] }
    }

    /// Adds a series. `labels` is the result of [`label_text`], and must be new in its family.
    pub(crate) fn add(&mut self, family: usize, labels: &str, value: f64) -> SeriesId {
        let texts = Arc::make_mut(&mut self.families[family]);
        push_key(&mut texts.text, texts.metric.name, labels);
        texts.ends.push(texts.text.len());
        self.values[family].push(value);
        SeriesId { family: family as u16, row: (texts.ends.len() - 1) as u32 }
    }

    /// Sets a value.
    pub(crate) fn set(&mut self, series: SeriesId, value: f64) {
        self.values[usize::from(series.family)][series.row as usize] = value;
    }

    /// The number of series.
    pub(crate) fn len(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }

    /// Copies `other` into this table, reusing memory.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.families.clone_from(&other.families);
        self.values.resize_with(other.values.len(), Vec::new);
        for (mine, theirs) in self.values.iter_mut().zip(&other.values) {
            mine.clone_from(theirs);
        }
    }

    /// Writes every family that has series.
    pub(crate) fn render(&self, page: &mut String) {
        for (family, values) in self.families.iter().zip(&self.values).filter(|(_, values)| !values.is_empty()) {
            push_header(page, &family.metric);
            let mut start = 0;
            for (&end, &value) in family.ends.iter().zip(values) {
                page.push_str(&family.text[start..end]);
                push_value(page, value);
                page.push('\n');
                start = end;
            }
        }
    }
}

/// Writes `# HELP` and `# TYPE`.
pub(crate) fn push_header(page: &mut String, metric: &Metric) {
    let Metric { name, help, metric_type, .. } = metric;
    // Writing to a String cannot fail. Help texts are the catalogue's: one line, no backslash.
    writeln!(page, "# HELP {name} {help}\n# TYPE {name} {}", metric_type.name()).unwrap_or_default();
}

/// Writes one sample of a family whose header was already written.
pub(crate) fn push_sample(page: &mut String, name: &str, labels: &str, value: f64) {
    push_key(page, name, labels);
    push_value(page, value);
    page.push('\n');
}

/// Writes a family without labels.
pub(crate) fn push_single(page: &mut String, metric: &Metric, value: f64) {
    push_family(page, metric, [("", value)]);
}

/// Writes a whole family.
pub(crate) fn push_family(
    page: &mut String,
    metric: &Metric,
    samples: impl IntoIterator<Item = (impl AsRef<str>, f64)>,
) {
    push_header(page, metric);
    for (labels, value) in samples {
        push_sample(page, metric.name, labels.as_ref(), value);
    }
}

fn push_key(text: &mut String, name: &str, labels: &str) {
    text.push_str(name);
    if !labels.is_empty() {
        text.push('{');
        text.push_str(labels);
        text.push('}');
    }
    text.push(' ');
}

/// Writes a number in the text format's notation: the shortest digits that read back as the same float64.
fn push_value(page: &mut String, value: f64) {
    /// Whole numbers below this (steps, counts) are written without exponent or point.
    const WHOLE: f64 = 1e15;
    if value.is_nan() {
        page.push_str("NaN");
    } else if value.is_infinite() {
        page.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value.abs() < WHOLE && value.trunc() == value {
        page.push_str(itoa::Buffer::new().format(value as i64));
    } else {
        page.push_str(zmij::Buffer::new().format_finite(value));
    }
}

/// Formats `a="1",b="2"` with escaped values. Empty values are omitted: Prometheus treats them as missing labels.
pub(crate) fn label_text(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use trainmon_core::catalog::{LAYER_NORM, LOSS, STEP};

    use super::*;

    fn value(number: f64) -> String {
        let mut text = String::new();
        push_value(&mut text, number);
        text
    }

    #[test]
    fn values_are_spelt_as_the_format_asks_and_read_back() {
        assert_eq!(value(f64::NAN), "NaN");
        assert_eq!(value(f64::INFINITY), "+Inf");
        assert_eq!(value(f64::NEG_INFINITY), "-Inf");
        assert_eq!(value(1200.0), "1200");
        assert_eq!(value(-0.25), "-0.25");
        for number in [1e-300, 1e300, 0.1 + 0.2, f64::MIN_POSITIVE, 1e15, -123_456_789.125] {
            assert_eq!(value(number).parse::<f64>().unwrap(), number);
        }
    }

    #[test]
    fn label_values_are_escaped_and_empty_ones_left_out() {
        assert_eq!(label_text(&[("a", "x\\y\"z\nü"), ("b", ""), ("c", "1")]), "a=\"x\\\\y\\\"z\\nü\",c=\"1\"");
        assert_eq!(label_text(&[]), "");
    }

    #[test]
    fn a_copy_keeps_its_values_and_texts_while_the_original_grows() {
        let mut table = Table::new(&[STEP, LOSS, LAYER_NORM]);
        let step = table.add(0, "", 1.0);
        table.add(2, "layer=\"a\"", 0.5);
        let mut copy = Table::default();
        copy.copy_from(&table);
        table.set(step, 2.0);
        table.add(2, "layer=\"b\"", 0.25);
        let mut page = String::new();
        copy.render(&mut page);
        assert!(page.contains("\ntrainmon_step 1\n") && page.ends_with("trainmon_layer_norm{layer=\"a\"} 0.5\n"));
        assert!(!page.contains("trainmon_loss"), "a family without series has no header");
        assert_eq!((copy.len(), table.len()), (2, 3));
        copy.copy_from(&table);
        page.clear();
        copy.render(&mut page);
        assert!(page.contains("\ntrainmon_step 2\n") && page.ends_with("trainmon_layer_norm{layer=\"b\"} 0.25\n"));
    }
}
