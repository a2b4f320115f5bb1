//! Pages: their purpose, their length, their sentences and their links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::rules;

/// Words of a page, at most.
const MOST_WORDS: usize = 2_650;
/// Generated from the code: as long as the code has keys, functions or releases.
const LONG: [&str; 4] =
    ["docs/configuration.md", "docs/api.md", "docs/metrics.md", "integration-tests/faults/CASES.md"];

/// Quotes what it forbids.
const STYLE_GUIDE: &str = "docs/style.md";

/// The parts of a page that are checked.
#[derive(Debug, Default)]
struct Page {
    /// Paragraphs, list items, table cells and headings, each with its line.
    blocks: Vec<(usize, String)>,
    /// Where links lead, each with its line.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
    /// Whether a paragraph follows the title at once.
    has_purpose: bool,
}

pub(super) fn violations(root: &Path, pages: &[(String, String)]) -> Vec<String> {
    let read: BTreeMap<&str, Page> = pages.iter().map(|(file, text)| (file.as_str(), Page::read(text))).collect();
    let mut found = Vec::new();
    for (file, text) in pages {
        let page = &read[file.as_str()];
        let words = words(text);
        if words > MOST_WORDS && super::is_documentation(file) && !LONG.contains(&file.as_str()) {
            found.push(format!("{file}: {words} words, at most {MOST_WORDS}: split the page or shorten it"));
        }
        if !page.has_purpose {
            found.push(format!("{file}: no sentence under the title says what the page is for"));
        }
        let blocks = if file == STYLE_GUIDE { &[][..] } else { &page.blocks };
        let sentences =
            blocks.iter().flat_map(|(line, text)| rules::broken(text).into_iter().map(move |fault| (line, fault)));
        found.extend(sentences.map(|(line, fault)| format!("{file}:{line}: {fault}")));
        found.extend(page.links.iter().filter_map(|(line, link)| {
            let fault = dead(root, file, link, &read)?;
            Some(format!("{file}:{line}: {fault}"))
        }));
    }
    found
}

/// How many words a page has, those in code and tables among them.
pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Why a link leads nowhere. Links to other sites are not followed.
fn dead(root: &Path, file: &str, link: &str, pages: &BTreeMap<&str, Page>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { PathBuf::from(file) } else { joined(file, path) };
    if !root.join(&target).exists() {
        return Some(format!("dead link: there is no {}", target.display()));
    }
    let page = pages.get(target.to_str()?)?;
    let anchor = anchor.filter(|anchor| !page.anchors.contains(*anchor))?;
    Some(format!("dead link: {} has no heading `#{anchor}`", target.display()))
}

/// A path that is relative to a file's folder, from the root.
fn joined(file: &str, path: &str) -> PathBuf {
    let mut target = Path::new(file).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    target
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut open: Option<(usize, String)> = None;
        let (mut is_code, mut is_heading) = (false, false);
        let mut titles = 0;
        let parser = Parser::new_ext(
            text,
            Options::ENABLE_TABLES | Options::ENABLE_GFM | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS,
        );
        for (event, range) in parser.into_offset_iter() {
            let line = text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::CodeBlock(_) | Tag::MetadataBlock(_)) => is_code = true,
                Event::End(TagEnd::CodeBlock | TagEnd::MetadataBlock(_)) => is_code = false,
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Start(Tag::Paragraph | Tag::TableCell | Tag::Heading { .. } | Tag::Item) => {
                    page.has_purpose |=
                        titles == 1 && page.blocks.len() == 1 && text[range.clone()].split_whitespace().count() > 3;
                    page.close(&mut open);
                    is_heading = text[range.start..].starts_with('#');
                    open = Some((line, String::new()));
                }
                Event::End(TagEnd::Heading(level)) => {
                    titles += usize::from(level == HeadingLevel::H1);
                    page.anchor(open.as_ref().map_or("", |(_, text)| text));
                    page.close(&mut open);
                }
                Event::End(TagEnd::Paragraph | TagEnd::TableCell | TagEnd::Item) => page.close(&mut open),
                Event::Text(text) if !is_code => push(&mut open, &text),
                Event::Code(code) if is_heading => push(&mut open, &code),
                Event::Code(code) => push(&mut open, &rules::as_word(&code)),
                Event::SoftBreak | Event::HardBreak => push(&mut open, " "),
                _ => {}
            }
        }
        page
    }

    fn close(&mut self, open: &mut Option<(usize, String)>) {
        self.blocks.extend(open.take().filter(|(_, text)| !text.trim().is_empty()));
    }

    /// The anchor of a heading as forges make it.
    fn anchor(&mut self, heading: &str) {
        let kept = heading.trim().to_lowercase().replace(' ', "-");
        let slug: String =
            kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect();
        let mut anchor = slug.clone();
        let mut number = 0;
        while !self.anchors.insert(anchor) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
    }
}

fn push(open: &mut Option<(usize, String)>, text: &str) {
    if let Some((_, block)) = open {
        block.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let pages: Vec<(String, String)> =
            pages.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        for (file, text) in &pages {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        violations(folder.path(), &pages)
    }

    #[test]
    fn a_page_without_purpose_a_dead_link_and_a_bad_sentence_are_refused_with_their_lines() {
        let page = "# A\n\n- [one](b.md#here)\n- [two](c.md)\n\nThe error is told at once.\n";
        let other = "# B\n\nThis page has a purpose.\n\n## Here: `x.y`\n\n[up](#nowhere)\n";
        assert_eq!(
            found(&[("a.md", page), ("b.md", other)]),
            [
                "a.md: no sentence under the title says what the page is for",
                "a.md:6: `is told`: write prints, reports, logs: The error is told at once.",
                "a.md:3: dead link: b.md has no heading `#here`",
                "a.md:4: dead link: there is no c.md",
                "b.md:7: dead link: b.md has no heading `#nowhere`",
            ]
        );
    }

    #[test]
    fn code_metadata_and_good_links_are_no_findings() {
        let page = "---\nname: is told\n---\n\n# A\n\nSee [the key](#the-key-xy) of this page.\n\n## The key `x.y`\n\n```sh\nis told\n```\n";
        assert_eq!(found(&[("a.md", page)]), [""; 0]);
    }
}
