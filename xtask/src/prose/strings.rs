//! Messages and doc comments in sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};

use super::rules;

/// Strings of fewer words are names, keys and formats.
const FEWEST_WORDS: usize = 4;
/// Reads the strings of Python's sources: see there.
const PYTHON: &str = include_str!("strings.py");

/// A string literal or a doc comment.
#[derive(Debug, PartialEq)]
pub(super) struct Text {
    line: usize,
    text: String,
}

impl Text {
    /// What is wrong with it, with its place.
    pub(super) fn broken(&self, file: &str) -> Vec<String> {
        if self.text.split_whitespace().count() < FEWEST_WORDS {
            return Vec::new();
        }
        rules::broken(&self.text).into_iter().map(|fault| format!("{file}:{}: {fault}", self.line)).collect()
    }
}

/// The strings and doc comments of a Rust source, without those of its tests.
pub(super) fn of_rust(source: &str) -> Result<Vec<Text>> {
    let tokens: TokenStream = source.parse().map_err(|error| anyhow::anyhow!("no Rust: {error}"))?;
    let mut found = Vec::new();
    collect(tokens, &mut found);
    Ok(found)
}

fn collect(tokens: TokenStream, found: &mut Vec<Text>) {
    let mut comment: Option<Text> = None;
    let mut is_test = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if let Some((line, text)) = doc(group.stream()) {
                    match &mut comment {
                        Some(comment) => comment.text.push_str(&text),
                        None => comment = Some(Text { line, text }),
                    }
                    continue;
                }
                if group.delimiter() == Delimiter::Bracket && is_cfg_test(&group.stream()) {
                    is_test = true;
                } else if is_test && group.delimiter() == Delimiter::Brace {
                    is_test = false;
                } else {
                    collect(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => {
                found.extend(string(&literal).map(|text| if text.text.contains('\n') { prose(&text) } else { text }));
            }
            TokenTree::Punct(punct) if matches!(punct.as_char(), '#' | '!') => continue,
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_test = false,
            _ => {}
        }
        found.extend(comment.take().as_ref().map(prose));
    }
    found.extend(comment.as_ref().map(prose));
}

/// The line of a doc comment: `#[doc = "…"]`.
fn doc(attribute: TokenStream) -> Option<(usize, String)> {
    let mut tokens = attribute.into_iter();
    let (TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(literal)) =
        (tokens.next()?, tokens.next()?, tokens.next()?)
    else {
        return None;
    };
    let text = string(&literal).filter(|_| name == "doc")?;
    Some((text.line, format!("{}\n", text.text)))
}

fn is_cfg_test(attribute: &TokenStream) -> bool {
    let text = attribute.to_string();
    text.starts_with("cfg") && text.contains("test") && !text.contains("not")
}

fn string(literal: &Literal) -> Option<Text> {
    let line = literal.span().start().line;
    let text = literal.to_string();
    let inside = text.trim_start_matches(['r', '#']).trim_end_matches('#');
    let inside = inside.strip_prefix('"')?.strip_suffix('"')?;
    // A backslash at the end of a line joins it to the next.
    let unescaped = inside.replace("\\n", ". ").replace("\\\"", "\"").replace("\\\n", "");
    Some(Text { line, text: unescaped })
}

/// A doc comment or a text of several lines, without its code blocks, examples, tables and list marks; a heading and a
/// list item end a sentence.
fn prose(comment: &Text) -> Text {
    let (mut is_code, mut is_example) = (false, false);
    let mut text = String::new();
    for raw in comment.text.lines() {
        let line = raw.trim();
        is_example = line == "Examples:" || is_example && (line.is_empty() || raw.starts_with("  "));
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code || is_example || line.starts_with('|') {
        } else if line.is_empty() || line.starts_with('#') || line.starts_with("- ") || line.starts_with("* ") {
            text.push_str(if text.trim_end().ends_with(['.', '?', '!', ':']) || text.is_empty() { " " } else { ". " });
            text.push_str(line.trim_start_matches(['#', '-', '*']));
        } else {
            text.push(' ');
            text.push_str(line);
        }
    }
    Text { line: comment.line, text: code_as_words(&text) }
}

/// What stands in backticks is one word.
fn code_as_words(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 1 { rules::as_word(part) } else { part.to_owned() }).collect()
}

/// What is wrong with the strings and docstrings of Python's sources, as lines.
///
/// # Errors
/// There is no Python, or it does not parse a file.
pub(super) fn of_python(root: &Path) -> Result<Vec<String>> {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, "agent/python/python/trainmon", "dashboards/grafana"]).current_dir(root);
    let output = command.output().context("cannot start python3")?;
    if !output.status.success() {
        bail!("python3 does not read its sources: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (file, line, text): (String, usize, String) = serde_json::from_str(line).context("strings of Python")?;
        found.extend(Text { line, text: code_as_words(&text) }.broken(&file));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        of_rust(source).unwrap().iter().flat_map(|text| text.broken("a.rs")).collect()
    }

    #[test]
    fn messages_and_doc_comments_are_read_and_tests_are_not() {
        let source = "/// What a step\n/// led to.\nfn f() { g(\"the key is told at once\"); }\n\
                      #[cfg(test)]\nmod tests { const A: &str = \"the key is told at once\"; }\n";
        assert_eq!(
            found(source),
            [
                "a.rs:1: a clause is the subject: name the actor: What a step led to.",
                "a.rs:3: `is told`: write prints, reports, logs: the key is told at once",
            ]
        );
    }

    #[test]
    fn examples_and_tables_in_long_texts_are_left_out() {
        let source = "const HELP: &str = \"Examples:\n  the key is told at once\n  what is told is here and there, at last.\n\n\
                      The key is told.\n| a | what is told is here |\";\n";
        assert_eq!(found(source), ["a.rs:1: `is told`: write prints, reports, logs: The key is told."]);
    }

    #[test]
    fn code_blocks_tables_and_short_strings_are_left_out() {
        let source = "/// A key.\n///\n/// ```\n/// what is told is here\n/// ```\n/// | what is told | is here |\nconst A: &str = \"is told\";\n";
        assert_eq!(found(source), [""; 0]);
    }
}
