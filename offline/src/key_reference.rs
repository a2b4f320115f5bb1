//! The reference page of the config keys, generated from the config's types through their schema.

use serde_json::Value;

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the config's types (agent/core/src/config/file). Regenerate:
     TRAINMON_REGENERATE=1 cargo test -p trainmon-offline --test generated_files -->

One JSON file; `//` and `/* */` comments and trailing commas are allowed. A file with a `monitors` or `framework` key is
read as msprobe's `TrainerMonitorV2` config, any other as its `TrainerMon` config; both take the keys of this project
as well. Without a file, weight gradients, moments and parameters of everything are measured on every step.

- `trainmon check-config FILE` shows what a file means, or everything that is wrong with it.
- A wrong type, range, name or value is an error with line, column and key. A key that resembles a real one is an error
  (\"did you mean\"); any other unknown key is a warning and has no effect, nor has a key that begins with `_` or `//`.
- What is not implemented yet is refused by name when switched on; switched off it is accepted.
- `configs/` has samples, and `configs/trainmon.schema.json` lets an editor complete and explain keys: begin the file
  with `\"$schema\": \"trainmon.schema.json\"`.
- Environment: `MONITOR_OUTPUT_DIR` is the output directory of a `TrainerMon` config without `output_dir`
  (default `./monitor_output`). `DYNAMIC_MONITOR=True` is refused: its mode is not implemented yet.
";

const OPS_NOTE: &str = "\
## Statistics

What `ops` may name, each a column in the order given. `shape` and `dtype` are accepted and always written.
";

/// The page, in Markdown.
pub fn markdown() -> String {
    let schema = trainmon_core::config::json_schema();
    let mut page = Page { schema: &schema, text: INTRODUCTION.to_owned(), pending: Vec::new(), done: Vec::new() };
    page.text.push_str("\n## TrainerMon\n\nFlat keys; one CSV file per kind of tensor.\n\n");
    let (v1, v2) = (resolve(&schema, &schema["else"]), resolve(&schema, &schema["then"]));
    page.table(v1, |_| true);
    page.drain();
    page.text.push_str("\n## TrainerMonitorV2\n\nOne object per monitor, one CSV file per monitor. ");
    page.text.push_str("Every key of the flat form that is not about one signal holds here too");
    let shared: Vec<&str> =
        properties(v2).map(|(name, _)| name).filter(|name| !v1["properties"][*name].is_null()).collect();
    page.text.push_str(&format!(
        " ({}); in addition:\n\n",
        shared.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    ));
    page.table(v2, |name| !shared.contains(&name));
    page.drain();
    page.text.push('\n');
    page.text.push_str(OPS_NOTE);
    page.text.push_str("\n| name | meaning |\n|---|---|\n");
    for choice in schema["$defs"]["Statistic"]["oneOf"].as_array().into_iter().flatten() {
        page.text.push_str(&format!("| `{}` | {} |\n", text(&choice["const"]), cell(text(&choice["description"]))));
    }
    page.text
}

struct Page<'a> {
    schema: &'a Value,
    text: String,
    /// Objects that were mentioned and still need their table: heading and schema.
    pending: Vec<(String, &'a Value)>,
    done: Vec<String>,
}

impl<'a> Page<'a> {
    fn table(&mut self, object: &'a Value, is_shown: impl Fn(&str) -> bool) {
        self.text.push_str("| key | type | default | meaning | msprobe |\n|---|---|---|---|---|\n");
        for (name, property) in properties(object).filter(|(name, _)| is_shown(name)) {
            let (kind, nested) = self.describe(property);
            let default = property.get("default").filter(|default| !default.is_null()).map(default_text);
            let default = default.map(|default| format!("`{default}`")).unwrap_or_default();
            let row = [format!("`{name}`"), kind, default, meaning(property), cell(text(&property["x-msprobe"]))];
            self.text.push_str(&format!("| {} |\n", row.join(" | ")));
            for (title, schema) in nested {
                if !self.done.contains(&title) {
                    self.done.push(title.clone());
                    self.pending.push((format!("`{name}` ({title})"), schema));
                }
            }
        }
    }

    /// Writes the tables of the objects mentioned, and of those they mention.
    fn drain(&mut self) {
        while !self.pending.is_empty() {
            let (heading, schema) = self.pending.remove(0);
            self.text.push_str(&format!("\n### {heading}\n\n{}\n\n", cell(text(&schema["description"]))));
            self.table(schema, |_| true);
        }
    }

    /// A value's type in words, and the objects with keys of their own in it.
    fn describe(&self, node: &'a Value) -> (String, Vec<(String, &'a Value)>) {
        if let Some(reference) = node["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            let target = resolve(self.schema, node);
            if target["properties"].is_object() {
                let title = name.trim_end_matches("File").to_owned();
                return ("object".to_owned(), vec![(title, target)]);
            }
            if name == "Op" {
                return ("statistic".to_owned(), Vec::new());
            }
            return self.describe(target);
        }
        let choices = node.get("anyOf").or_else(|| node.get("oneOf")).and_then(Value::as_array);
        if let Some(choices) = choices {
            let (kinds, nested): (Vec<_>, Vec<_>) = choices.iter().map(|choice| self.describe(choice)).unzip();
            let kinds: Vec<String> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
            return (kinds.join(" or "), nested.into_iter().flatten().collect());
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
    let mut meaning = cell(text(&property["description"]));
    if property["x-not-implemented"] == true {
        meaning.push_str(" **Not implemented yet.**");
    }
    if let Some(why) = property["x-no-effect"].as_str() {
        meaning.push_str(&format!(" **No effect:** {}.", cell(why)));
    }
    meaning
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
