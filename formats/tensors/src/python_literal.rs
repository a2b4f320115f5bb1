//! Parses the Python literals of a `.npy` header: a dict of strings, booleans, numbers and tuples, with little nesting.

/// A literal value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Bool(bool),
    Int(i64),
    Tuple(Vec<Literal>),
    Dict(Vec<(String, Literal)>),
}

/// The largest nesting: a list of record fields has three levels.
const MAX_DEPTH: usize = 16;

/// Parses the whole text; returns a description of an error.
pub(super) fn parse(text: &str) -> Result<Literal, String> {
    let mut reader = Reader { rest: text.trim() };
    let value = reader.value(0)?;
    reader.skip();
    if reader.rest.is_empty() { Ok(value) } else { Err(format!("unexpected text after the end: {:?}", reader.near())) }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Literal, String> {
        if depth > MAX_DEPTH {
            return Err("too deep".to_owned());
        }
        self.skip();
        for (word, value) in [("True", true), ("False", false)] {
            if self.take(word) {
                return Ok(Literal::Bool(value));
            }
        }
        if self.take("{") {
            return self.dict(depth);
        }
        if self.take("(") {
            return self.list(")", depth);
        }
        if self.take("[") {
            return self.list("]", depth);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.text().map(Literal::Text);
        }
        self.number()
    }

    fn dict(&mut self, depth: usize) -> Result<Literal, String> {
        let mut pairs = Vec::new();
        loop {
            self.skip();
            if self.take("}") {
                return Ok(Literal::Dict(pairs));
            }
            let key = self.text()?;
            self.skip();
            self.expect(":")?;
            pairs.push((key, self.value(depth + 1)?));
            self.comma("}")?;
        }
    }

    fn list(&mut self, close: &str, depth: usize) -> Result<Literal, String> {
        let mut values = Vec::new();
        loop {
            self.skip();
            if self.take(close) {
                return Ok(Literal::Tuple(values));
            }
            values.push(self.value(depth + 1)?);
            self.comma(close)?;
        }
    }

    /// Reads a comma, unless the end follows.
    fn comma(&mut self, close: &str) -> Result<(), String> {
        self.skip();
        if self.rest.starts_with(close) { Ok(()) } else { self.expect(",") }
    }

    fn text(&mut self) -> Result<String, String> {
        let quote = self.rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let quote = quote.ok_or_else(|| format!("expected a string, found {:?}", self.near()))?;
        let (text, rest) = self.rest[1..].split_once(quote).ok_or("unterminated string")?;
        if text.contains('\\') {
            return Err(format!("a string with escapes: {text:?}"));
        }
        self.rest = rest;
        Ok(text.to_owned())
    }

    fn number(&mut self) -> Result<Literal, String> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        let value = number
            .parse()
            .map_err(|error: std::num::ParseIntError| format!("expected a value, found {:?}: {error}", self.near()));
        // Python 2 wrote long numbers as `4L`.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        value.map(Literal::Int)
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.take(word) { Ok(()) } else { Err(format!("expected `{word}`, found {:?}", self.near())) }
    }

    fn take(&mut self, word: &str) -> bool {
        self.rest.strip_prefix(word).map(|rest| self.rest = rest).is_some()
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn near(&self) -> String {
        self.rest.chars().take(12).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_numpy_writes() {
        let Literal::Dict(pairs) = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4L), }  \n").unwrap()
        else {
            panic!("no dict")
        };
        assert_eq!(pairs[0], ("descr".to_owned(), Literal::Text("<f4".to_owned())));
        assert_eq!(pairs[2].1, Literal::Tuple(vec![Literal::Int(3), Literal::Int(4)]));
        assert_eq!(parse("()").unwrap(), Literal::Tuple(vec![]));
    }

    #[test]
    fn refuses_what_is_no_literal_and_never_goes_deep() {
        for text in ["", "{", "{'a'", "{'a': }", "(1", "__import__('os')", "'a\\x00'", "(1) 2", "99999999999999999999"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"(".repeat(100_000)).is_err());
    }
}
