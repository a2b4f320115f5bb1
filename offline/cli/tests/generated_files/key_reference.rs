//! The reference page of the config keys, generated from the config's types through their schema.

use std::collections::BTreeMap;

use serde_json::Value;

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the config's types (agent/core/src/config). Regenerate:
     TRAINMON_REGENERATE=1 cargo test -p trainmon-cli --test generated_files -->

One JSON file; `//` and `/* */` comments and trailing commas are allowed. A file with a `task` key configures a
[capture](#captures). A file with a `monitors` or `framework` key is msprobe's `TrainerMonitorV2` config, any other its
`TrainerMon` config; both accept trainmon's own keys. Without a file, trainmon measures weight gradients, moments and
parameters of everything on every step.

- To check a file, run `trainmon check-config FILE`. It prints the file's meaning or all of its faults.
- A wrong type, range, name or value is an error. An unknown key is an error if it resembles a real one, else a warning.
  Keys that begin with `_` or `//` have no effect.
- Values marked \"not yet\" are errors; in a training they are warnings without effect.
- `stop_step` must be greater than `start_step`; with msprobe's imports, a smaller value is a warning.
- To complete and explain keys in an editor, begin the file with `\"$schema\": \"trainmon.schema.json\"`. The schema and sample
  configs are in `configs/`.
- An object such as `prometheus` enables its output, as does its name in `format`. `\"enabled\": false` disables it.
  `wandb` and `mlflow` also accept a bool.
- *msprobe:* describes how msprobe's key differs; † marks keys that msprobe does not have;
  the keys of a marked object have no mark of their own.

| environment variable | effect |
|---|---|
| `MONITOR_OUTPUT_DIR` | The output directory if `output_dir` is missing; `./monitor_output` by default. |
| `TRAINMON_RUN_NAME` | The run's name: see [runs](runs.md). |
| `DYNAMIC_MONITOR` | `True` enables `dynamic_on`. |
| `TRAINMON_PAGE` | `1` enables the live page: see `page`. |
| `TRAINMON_QUIET` | `1` prints only warnings. |
| `TRAINMON_DEVICE_KERNELS` | `0` uses torch's operators for tensors on a GPU: see [GPUs](device.md). |
";

const STATISTICS: &str = "
## Statistics

The values of `ops`; each is a column, in the given order. `shape` and `dtype` are accepted and always written.

| name | meaning |
|---|---|";

/// How the note of a key begins that msprobe does not have; after `; `, it may say what msprobe does instead.
const NOT_IN_MSPROBE: &str = "not in msprobe";

/// The page, in Markdown.
pub(crate) fn markdown() -> String {
    let schema = trainmon_core::config::json_schema();
    let (v1, v2) = (resolve(schema, &schema["else"]["else"]), resolve(schema, &schema["else"]["then"]));
    let capture = resolve(schema, &schema["then"]);
    let mut page =
        Page { schema, lines: vec![INTRODUCTION.to_owned()], pending: Vec::new(), done: Vec::new(), rows: Vec::new() };

    page.line("## TrainerMon\n\nFlat keys; one CSV file per kind of tensor.\n");
    page.table("", v1, |_| true);
    page.drain();

    let is_shared = |name: &str| !v1["properties"][name].is_null();
    let shared = properties(v2).map(|(name, _)| name).filter(|name| is_shared(name));
    let shared: Vec<&str> = shared.collect();
    let (first, last) = (shared.first().copied().unwrap_or(""), shared.last().copied().unwrap_or(""));
    page.line("\n## TrainerMonitorV2\n\nOne object and one CSV file per monitor. The keys of [the flat form](#trainermon) from");
    page.line(format!("`{first}` to `{last}` apply, too. The others:\n"));
    page.table("", v2, |name| !is_shared(name));
    page.drain();

    page.line("\n## Captures\n\nA file with a `task` key, for `PrecisionDebugger` and `trainmon.capture`.\n");
    page.table("", capture, |_| true);
    page.drain();

    page.line(STATISTICS);
    for choice in schema["$defs"]["Statistic"]["oneOf"].as_array().into_iter().flatten() {
        page.line(format!("| `{}` | {} |", text(&choice["const"]), cell(text(&choice["description"]))));
    }
    page.lines.join("\n") + "\n"
}

struct Page<'a> {
    schema: &'a Value,
    lines: Vec<String>,
    /// Objects that were mentioned and still need their table.
    pending: Vec<Mentioned<'a>>,
    /// The type names of those that have it.
    done: Vec<String>,
    /// The rows written so far, each with the path of its table.
    rows: Vec<(String, Row)>,
}

/// The row of a key.
struct Row {
    name: String,
    kind: String,
    default: String,
    meaning: String,
}

impl Row {
    /// Whether an earlier row says the same; the same key of a request has no default.
    fn repeats(&self, earlier: &Self) -> bool {
        self.name.trim_end_matches('†') == earlier.name.trim_end_matches('†')
            && self.kind == earlier.kind
            && self.meaning == earlier.meaning
            && (self.default == earlier.default || self.default.is_empty())
    }
}

/// An object with keys of its own.
struct Mentioned<'a> {
    type_name: &'a str,
    schema: &'a Value,
    /// The keys that hold such an object.
    paths: Vec<String>,
}

impl<'a> Page<'a> {
    fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Writes the table of the object at `path` (with a dot at its end).
    fn table(&mut self, path: &str, object: &'a Value, is_shown: impl Fn(&str) -> bool) {
        let mut rows = Vec::new();
        let mut repeated: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, property) in properties(object).filter(|(name, _)| is_shown(name)) {
            let (kind, mentioned) = self.describe(property);
            let each = if kind.starts_with("list") { "[]" } else { "" };
            for (type_name, schema) in mentioned {
                self.mention(type_name, schema, format!("{path}{name}{each}"));
            }
            let default = property.get("default").filter(|default| !default.is_null()).map(default_text);
            let default = default.map(|default| format!(" (`{default}`)")).unwrap_or_default();
            let row = Row { name: key_name(name, property), kind, default, meaning: meaning(property) };
            match self.rows.iter().find(|(_, written)| row.repeats(written)) {
                Some((table, _)) => repeated.entry(table.clone()).or_default().push(row.name),
                None => rows.push(row),
            }
        }
        let blank = if rows.is_empty() { "" } else { "\n" };
        if !rows.is_empty() {
            self.line("| key | type (default) | meaning |\n|---|---|---|");
        }
        for row in rows {
            self.line(format!("| {} | {}{} | {} |", row.name, row.kind, row.default, row.meaning));
            self.rows.push((path.to_owned(), row));
        }
        if !repeated.is_empty() {
            let of = |(table, names): (&String, &Vec<String>)| format!("as in {}: {}", link(table), names.join(", "));
            self.line(format!("{blank}The same keys {}.", repeated.iter().map(of).collect::<Vec<_>>().join("; ")));
        }
    }

    fn mention(&mut self, type_name: &'a str, schema: &'a Value, path: String) {
        if let Some(known) = self.pending.iter_mut().find(|known| known.type_name == type_name) {
            known.paths.push(path);
        } else if !self.done.iter().any(|done| done == type_name) {
            self.pending.push(Mentioned { type_name, schema, paths: vec![path] });
        }
    }

    /// Writes the tables of the objects mentioned, and of those they mention.
    fn drain(&mut self) {
        while !self.pending.is_empty() {
            let Mentioned { type_name, schema, paths } = self.pending.remove(0);
            self.done.push(type_name.to_owned());
            let heading: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
            self.line(format!("\n### {}\n", heading.join(", ")));
            let description = cell(text(&schema["description"]));
            if !self.rows.iter().any(|(_, row)| row.meaning.starts_with(description.trim_end_matches('.'))) {
                self.line(format!("{description}\n"));
            }
            let path = format!("{}.", paths.first().map_or("", String::as_str));
            self.table(&path, schema, |_| true);
        }
    }

    /// A value's type in words, and the objects with keys of their own in it.
    fn describe(&self, node: &'a Value) -> (String, Vec<(&'a str, &'a Value)>) {
        if let Some(reference) = node["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            let target = resolve(self.schema, node);
            if target["properties"].is_object() {
                return ("object".to_owned(), vec![(name, target)]);
            }
            if name == "Op" || name == "Statistic" {
                return ("statistics".to_owned(), Vec::new());
            }
            return self.describe(target);
        }
        let choices = node.get("anyOf").or_else(|| node.get("oneOf")).and_then(Value::as_array);
        if let Some(choices) = choices {
            let (kinds, nested): (Vec<_>, Vec<_>) = choices.iter().map(|choice| self.describe(choice)).unzip();
            let kinds: Vec<String> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
            let nested = nested.into_iter().flatten().collect();
            return match kinds.as_slice() {
                [one, several] if *several == list_of(one) => (format!("{one}; or a list"), nested),
                kinds if kinds.iter().all(|kind| kind.starts_with('`')) => (kinds.join(", "), nested),
                kinds => (kinds.join(" or "), nested),
            };
        }
        if let Some(word) = node["const"].as_str() {
            let mark = if node["x-not-implemented"] == true { " (not yet)" } else { "" };
            return (format!("`{word}`{mark}"), Vec::new());
        }
        let name = match &node["type"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or(""),
            name => text(name),
        };
        match name {
            "array" => {
                let (entry, nested) = self.describe(&node["items"]);
                (list_of(&entry), nested)
            }
            "integer" | "number" => (format!("{name}{}", range(node)), Vec::new()),
            "null" => (String::new(), Vec::new()),
            "boolean" => ("bool".to_owned(), Vec::new()),
            "" => ("any".to_owned(), Vec::new()),
            other => (other.to_owned(), Vec::new()),
        }
    }
}

/// The type of a list.
fn list_of(entry: &str) -> String {
    if entry == "string" { "strings".to_owned() } else { format!("list of {entry}") }
}

fn meaning(property: &Value) -> String {
    let pending = if property["x-not-implemented"] == true { " **Not implemented yet.**" } else { "" };
    let without_effect = property["x-no-effect"].as_str().map(|why| format!(" **No effect:** {}.", cell(why)));
    let note = property["x-msprobe"].as_str().map(|note| note.strip_prefix(NOT_IN_MSPROBE).unwrap_or(note));
    let note = note.map(|rest| rest.trim_start_matches("; ")).filter(|rest| !rest.is_empty());
    let msprobe = note.map(|note| format!(" *msprobe:* {}.", cell(note))).unwrap_or_default();
    cell(text(&property["description"])) + pending + &without_effect.unwrap_or_default() + &msprobe
}

/// A key's name, marked if msprobe does not have the key.
fn key_name(name: &str, property: &Value) -> String {
    let is_new = property["x-msprobe"].as_str().is_some_and(|note| note.starts_with(NOT_IN_MSPROBE));
    format!("`{name}`{}", if is_new { "†" } else { "" })
}

/// A link to the table of the object at `path`.
fn link(path: &str) -> String {
    let Some(path) = path.strip_suffix('.') else { return "[`TrainerMon`](#trainermon)".to_owned() };
    let anchor: String = path.chars().filter(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    format!("[`{path}`](#{anchor})")
}

fn range(node: &Value) -> String {
    let bound = |name: &str| node[name].as_f64();
    match (bound("minimum"), bound("maximum")) {
        (Some(minimum), Some(maximum)) => format!(" {minimum}–{maximum}"),
        (Some(minimum), None) => format!(" ≥ {minimum}"),
        _ => String::new(),
    }
}

/// A default as it would stand in a file; an object's is in its own table.
fn default_text(default: &Value) -> String {
    match default {
        Value::Object(_) => "{}".to_owned(),
        other => other.to_string(),
    }
}

fn properties(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object["properties"].as_object().into_iter().flatten().map(|(name, property)| (name.as_str(), property))
}

fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    let reference = node["$ref"].as_str().and_then(|reference| schema.pointer(reference.trim_start_matches('#')));
    reference.unwrap_or(node)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Text that fits a table cell.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
