//! JSON on one line, with the separators and escapes of msprobe's files: `, `, `: ` and ASCII only.

use trainmon_capture_files::JsonText;

/// A text in quotes.
pub(crate) fn push_text(to: &mut String, text: &str) {
    let mut json = JsonText::new();
    json.text(text);
    to.push_str(&String::from_utf8_lossy(json.as_bytes()));
}

/// A list of texts.
pub(crate) fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut json = String::from("[");
    for text in texts {
        if json.len() > 1 {
            json.push_str(", ");
        }
        push_text(&mut json, text);
    }
    json.push(']');
    json
}

/// A list of numbers.
pub(crate) fn numbers<'n>(numbers: impl IntoIterator<Item = &'n u64>) -> String {
    let texts: Vec<String> = numbers.into_iter().map(u64::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// An object whose values are texts, or objects that are JSON already.
pub(crate) struct Object(String);

impl Object {
    /// Starts an object.
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push_str(", ");
        }
        push_text(&mut self.0, key);
        self.0.push_str(": ");
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        push_text(&mut self.0, text);
    }

    /// Adds JSON.
    pub(crate) fn json(&mut self, key: &str, json: &str) {
        self.key(key);
        self.0.push_str(json);
    }

    /// The object's JSON.
    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_escapes_are_those_of_msprobe() {
        let mut object = Object::new();
        object.text("a", "-inf\t");
        object.json("b", &list(["x \"y\"", "\u{e9}"]));
        assert_eq!(object.finish(), r#"{"a": "-inf\t", "b": ["x \"y\"", "\u00e9"]}"#);
        assert_eq!((Object::new().finish(), list([]), numbers(&[0, 12])), ("{}".into(), "[]".into(), "[0, 12]".into()));
    }
}
