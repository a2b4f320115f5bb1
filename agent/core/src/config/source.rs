//! The text of a config file as a syntax tree with positions.

use std::cell::Cell;

use jsonc_parser::{
    CollectOptions, CommentCollectionStrategy, ParseOptions,
    ast::Value,
    errors::{ParseError, ParseErrorKind},
};

/// Where each line of a text starts.
pub(super) struct LineIndex<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    /// The last place looked up: its line's start, its offset and its column. Most lookups are in order, and a config may be one
    /// long line.
    last: Cell<(usize, usize, usize)>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let line_starts =
            std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        Self { text, line_starts: line_starts.collect(), last: Cell::new((0, 0, 1)) }
    }

    /// Line and column, both from 1, the column in characters.
    pub(super) fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts[line - 1];
        let (last_start, last_offset, last_column) = self.last.get();
        let (from, before) =
            if last_start == start && last_offset <= offset { (last_offset, last_column) } else { (start, 1) };
        let column = self.text.get(from..offset).map_or(1, |passed| passed.chars().count() + before);
        self.last.set((start, offset, column));
        (line, column)
    }
}

/// A syntax error, in plain words.
pub(super) struct SyntaxFault {
    pub(super) offset: usize,
    pub(super) found: String,
    pub(super) hint: Option<&'static str>,
}

/// Parses JSON with `//` and `/* */` comments and trailing commas.
///
/// `NaN` and `Infinity` are accepted here, so that they can be reported with their key.
pub(super) fn parse(text: &str) -> Result<Value<'_>, SyntaxFault> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_non_finite_numbers: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_extended_string_escapes: false,
    };
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    match jsonc_parser::parse_to_ast(text, &collect, &options) {
        Ok(parsed) => parsed.value.ok_or_else(|| SyntaxFault {
            offset: 0,
            found: "the file is empty".to_owned(),
            hint: Some("the smallest valid file is {}"),
        }),
        Err(error) => Err(explain(text, &error)),
    }
}

fn explain(text: &str, error: &ParseError) -> SyntaxFault {
    let offset = error.range().start.min(text.len());
    let word: String =
        text.get(offset..).unwrap_or("").chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let (found, hint) = describe(error.kind(), &word);
    SyntaxFault { offset, found, hint }
}

fn describe(kind: &ParseErrorKind, word: &str) -> (String, Option<&'static str>) {
    use ParseErrorKind as Kind;
    let fixed = |message: &str, hint: &'static str| (message.to_owned(), Some(hint));
    match kind {
        Kind::UnexpectedWord | Kind::UnexpectedToken if !word.is_empty() => {
            let hint = match word {
                "True" | "TRUE" => Some("write true"),
                "False" | "FALSE" => Some("write false"),
                "None" | "nil" | "undefined" | "NULL" | "Null" => Some("write null, or remove the key"),
                _ => Some("put text in double quotes"),
            };
            (format!("`{word}` is not a JSON value"), hint)
        }
        Kind::ExpectedComma => fixed("missing comma", "put a comma between entries"),
        Kind::ExpectedColonAfterObjectKey => fixed("missing colon after the key", "write \"key\": value"),
        Kind::ExpectedObjectValue => fixed("missing value after the colon", "write \"key\": value"),
        Kind::ExpectedStringObjectProperty => fixed("key without double quotes", "write \"key\": value"),
        Kind::SingleQuotedStringsNotAllowed => fixed("text in single quotes", "write \"text\""),
        Kind::UnterminatedObject => fixed("this `{` is never closed", "add `}`"),
        Kind::UnterminatedArray => fixed("this `[` is never closed", "add `]`"),
        Kind::UnterminatedCommentBlock => fixed("this `/*` comment is never closed", "add `*/`"),
        Kind::MultipleRootJsonValues => fixed("text after the end of the config", "remove it"),
        Kind::NestingDepthExceeded => ("nested too deeply".to_owned(), None),
        Kind::UnaryPlusNumbersNotAllowed => fixed("number with a plus sign", "remove the `+`"),
        Kind::BareDecimalPointNumbersNotAllowed => {
            fixed("number without digits on both sides of its point", "write 0.5 for .5, and 1.0 for 1.")
        }
        Kind::HexadecimalNumbersNotAllowed => fixed("hexadecimal number", "write it in decimal"),
        other => {
            let text = other.to_string();
            let mut chars = text.chars();
            let lowered = chars.next().map(|first| first.to_lowercase().collect::<String>()).unwrap_or_default();
            (lowered + chars.as_str(), None)
        }
    }
}
