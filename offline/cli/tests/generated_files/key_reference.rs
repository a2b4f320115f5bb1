//! The reference page of the config keys, generated from the config's types through their schema.

use serde_json::Value;

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the config's types (agent/core/src/config). Regenerate:
     TRAINMON_REGENERATE=1 cargo test -p trainmon-cli --test generated_files -->

One JSON file; `//` and `/* */` comments and trailing commas are allowed. A file with a `task` key is the config of a
[capture](#captures). One with a `monitors` or `framework` key is read as msprobe's `TrainerMonitorV2` config, any other as
its `TrainerMon` config; both take the keys of this project as well. Without a file, weight gradients, moments and parameters of everything are measured on every step.

- `trainmon check-config FILE` shows what a file means, or everything that is wrong with it.
- A wrong type, range, name or value is an error with line, column and key. A key that resembles a real one is an error
  (\"did you mean\"); any other unknown key is a warning and has no effect, nor has a key that begins with `_` or `//`.
- What is not implemented yet is named when switched on: an error of `trainmon check-config`; in a training a warning,
  and it has no effect.
- `configs/` has samples, and `configs/trainmon.schema.json` lets an editor complete and explain keys: begin the file
  with `\"$schema\": \"trainmon.schema.json\"`.
- Environment: `MONITOR_OUTPUT_DIR` is the output directory where the config has no `output_dir` (default
  `./monitor_output`), `TRAINMON_RUN_NAME` the run's name: see [runs.md](runs.md). `DYNAMIC_MONITOR=True` has the file
  watched while the training runs: see `dynamic_on`. `TRAINMON_QUIET=1` leaves warnings only of what is said.
  `TRAINMON_DEVICE_KERNELS=0` leaves tensors on a GPU to torch's operators: see [device.md](device.md).
- `stop_step` that is not after `start_step` is an error; in a training that uses msprobe's imports a warning.
";

const STATISTICS: &str = "
## Statistics

What `ops` may name, each a column in the order given. `shape` and `dtype` are accepted and always written.

| name | meaning |
|---|---|";

/// The page, in Markdown.
pub(crate) fn markdown() -> String {
    let schema = trainmon_core::config::json_schema();
    let (v1, v2) = (resolve(schema, &schema["else"]["else"]), resolve(schema, &schema["else"]["then"]));
    let capture = resolve(schema, &schema["then"]);
    let mut page = Page { schema, lines: vec![INTRODUCTION.to_owned()], pending: Vec::new(), done: Vec::new() };

    page.line("## TrainerMon\n\nFlat keys; one CSV file per kind of tensor.\n");
    page.table("", v1, |_| true);
    page.drain();

    let is_shared = |name: &str| !v1["properties"][name].is_null();
    let shared = properties(v2).map(|(name, _)| name).filter(|name| is_shared(name));
    let shared: Vec<String> = shared.map(|name| format!("`{name}`")).collect();
    page.line("\n## TrainerMonitorV2\n\nOne object per monitor, one CSV file per monitor. From the flat form it takes");
    page.line(format!("{}; in addition:\n", shared.join(", ")));
    page.table("", v2, |name| !is_shared(name));
    page.drain();

    page.line("\n## Captures\n\nA file with a `task` key is the config of a capture: what `PrecisionDebugger` and `trainmon.capture` are given.\n");
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
        self.line("| key | type | default | meaning | msprobe |\n|---|---|---|---|---|");
        for (name, property) in properties(object).filter(|(name, _)| is_shown(name)) {
            let (kind, mentioned) = self.describe(property);
            let default = property.get("default").filter(|default| !default.is_null()).map(default_text);
            let default = default.map(|default| format!("`{default}`")).unwrap_or_default();
            let row =
                [format!("`{name}`"), kind.clone(), default, meaning(property), cell(text(&property["x-msprobe"]))];
            self.line(format!("| {} |", row.join(" | ")));
            let each = if kind.starts_with("list") { "[]" } else { "" };
            for (type_name, schema) in mentioned {
                self.mention(type_name, schema, format!("{path}{name}{each}"));
            }
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
            self.line(format!("\n### {}\n\n{}\n", heading.join(", "), cell(text(&schema["description"]))));
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
            if name == "Op" {
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
                [one, several] if *several == format!("list of {one}") => (format!("{one}; or a list of them"), nested),
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
                (format!("list of {entry}"), nested)
            }
            "integer" | "number" => (format!("{name}{}", range(node)), Vec::new()),
            "null" => (String::new(), Vec::new()),
            "boolean" => ("bool".to_owned(), Vec::new()),
            "" => ("any".to_owned(), Vec::new()),
            other => (other.to_owned(), Vec::new()),
        }
    }
}

fn meaning(property: &Value) -> String {
    let pending = if property["x-not-implemented"] == true { " **Not implemented yet.**" } else { "" };
    let without_effect = property["x-no-effect"].as_str().map(|why| format!(" **No effect:** {}.", cell(why)));
    cell(text(&property["description"])) + pending + &without_effect.unwrap_or_default()
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
