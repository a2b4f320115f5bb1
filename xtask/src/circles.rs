//! Circles of modules: rooms of a crate none of which can be read without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

use crate::workspace::tracked;

/// Circles that stay, by crate and parent module.
const ALLOWED: &[(&str, &str)] = &[
    // An arithmetic names its code for each instruction set, which is generic over the arithmetic: it is compiled into the
    // loop that calls it, and a layer of traits between the two would stand in the hottest code there is.
    ("agent/stats", "kernel"),
];

/// Modules below one parent that lead back to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    place: String,
    parent: String,
    modules: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, parent, modules } = self;
        let below = if parent.is_empty() { String::new() } else { format!(" below `{parent}`") };
        let modules: Vec<String> = modules.iter().map(|module| format!("`{module}`")).collect();
        write!(
            f,
            "{place}: the modules {}{below} name each other in a circle: move what they share into one of its own",
            modules.join(", ")
        )
    }
}

/// A module's path from the root of the crate or package.
pub(crate) type Module = Vec<String>;

/// Every circle in the sources that git tracks, tests left out.
///
/// # Errors
/// git does not list the files, or one cannot be read or is not Rust.
pub(crate) fn violations(root: &Path) -> Result<Vec<Circle>> {
    let files = tracked(root, &["*.rs"])?;
    let mut crates: BTreeMap<&str, BTreeMap<Module, TokenStream>> = BTreeMap::new();
    for (file, text) in &files {
        let Some((place, module)) = module_of(file) else { continue };
        let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("{file} is not Rust: {error}"))?;
        crates.entry(place).or_default().insert(module, tokens);
    }
    Ok(crates.into_iter().flat_map(|(place, modules)| circles(place, modules)).collect())
}

/// The crate and the module a file is; `None` for what is a test or a program of its own.
fn module_of(file: &str) -> Option<(&str, Module)> {
    let (place, rest) = file.strip_suffix(".rs")?.split_once("/src/")?;
    let mut module: Module = rest.split('/').map(str::to_owned).collect();
    let is_test = |part: &String| part == "tests" || part.ends_with("_tests");
    if module.iter().any(is_test) || module.first()? == "bin" {
        return None;
    }
    if matches!(module.last()?.as_str(), "mod" | "lib" | "main") {
        module.pop();
    }
    Some((place, module))
}

fn circles(place: &str, modules: BTreeMap<Module, TokenStream>) -> Vec<Circle> {
    let mut names = Names { modules: modules.keys().cloned().collect(), ..Names::default() };
    for (module, tokens) in modules {
        names.read(&module, tokens);
    }
    among(place, &names.modules, &names.edges())
}

/// The circles among modules, by which one names which.
pub(crate) fn among(place: &str, modules: &BTreeSet<Module>, edges: &[(Module, Module)]) -> Vec<Circle> {
    let parents: BTreeSet<&[String]> =
        modules.iter().filter_map(|module| module.split_last()).map(|(_, up)| up).collect();
    let is_allowed = |parent: &[String]| ALLOWED.contains(&(place, parent.join("::").as_str()));
    let of_parent = |parent: &&[String]| {
        rounds(&between_children(edges, parent))
            .into_iter()
            .map(|modules| Circle { place: place.to_owned(), parent: parent.join("::"), modules })
            .collect::<Vec<_>>()
    };
    parents.iter().filter(|parent| !is_allowed(parent)).flat_map(of_parent).collect()
}

/// Which child of `parent` names which other, whatever lies below them.
fn between_children<'a>(edges: &'a [(Module, Module)], parent: &[String]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let child = |module: &'a Module| module.strip_prefix(parent)?.first().map(String::as_str);
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges {
        if let (Some(from), Some(to)) = (child(from), child(to))
            && from != to
        {
            found.entry(from).or_default().insert(to);
        }
    }
    found
}

/// The groups of nodes that reach each other.
fn rounds<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<String>> {
    let all: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|node| (*node, reached(edges, node))).collect();
    let round = |(node, there): (&&str, &BTreeSet<&'a str>)| -> Vec<String> {
        let leads_back = |other: &&&str| all.get(**other).is_some_and(|from_there| from_there.contains(node));
        there.iter().filter(leads_back).map(|&other| other.to_owned()).collect()
    };
    let found: BTreeSet<Vec<String>> = all.iter().map(round).filter(|round| round.len() > 1).collect();
    found.into_iter().collect()
}

fn reached<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, start: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![start];
    while let Some(node) = open.pop() {
        open.extend(edges.get(node).into_iter().flatten().copied().filter(|next| seen.insert(*next)));
    }
    seen
}

/// What a crate's modules name.
#[derive(Default)]
struct Names {
    modules: BTreeSet<Module>,
    /// From a module to a path from the crate's root.
    paths: Vec<(Module, Vec<String>)>,
    /// What `use` brings into a module under a name, as a path from the root.
    brought: BTreeMap<(Module, String), Vec<String>>,
}

impl Names {
    fn edges(&self) -> Vec<(Module, Module)> {
        let resolved = |(from, path): &(Module, Vec<String>)| (from.clone(), self.module_of(path, 0));
        self.paths.iter().map(resolved).filter(|(from, to)| !to.is_empty() && from != to).collect()
    }

    /// The module a path leads into, re-exports followed; six deep, for `use` may name itself.
    fn module_of(&self, path: &[String], depth: usize) -> Module {
        let mut module = Module::new();
        for part in path {
            let mut below = module.clone();
            below.push(part.clone());
            if self.modules.contains(&below) {
                module = below;
                continue;
            }
            return match self.brought.get(&(module.clone(), part.clone())) {
                Some(source) if depth < 6 && source != path => self.module_of(source, depth + 1),
                _ => module,
            };
        }
        module
    }

    fn read(&mut self, module: &Module, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(attribute)) = tokens.get(at)
                        && is_of_tests(attribute)
                    {
                        at += 1 + item_length(&tokens[at + 1..]);
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                        (tokens.get(at), tokens.get(at + 1))
                    {
                        let mut inner = module.clone();
                        inner.push(name.to_string());
                        self.read(&inner, body.stream());
                        at += 2;
                    }
                }
                TokenTree::Ident(word) if word == "use" => {
                    let length = tokens[at..].iter().take_while(|token| !is_punct(token, ';')).count();
                    self.take_use(module, None, &tokens[at..at + length]);
                    at += length;
                }
                TokenTree::Ident(word) => {
                    let length = path_length(&tokens[at..]);
                    if let Some(path) = self.path(module, word, &tokens[at..at + length]).filter(|_| length > 0) {
                        self.paths.push((module.clone(), path));
                    }
                    at += length;
                }
                TokenTree::Group(group) => self.read(module, group.stream()),
                _ => {}
            }
        }
    }

    /// A path that begins with `crate`, `self`, `super` or a child module, from the crate's root.
    fn path(&self, module: &Module, first: &Ident, rest: &[TokenTree]) -> Option<Vec<String>> {
        let mut path = match first.to_string().as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module.split_last()?.1.to_vec(),
            name => {
                let child = [module.as_slice(), &[name.to_owned()]].concat();
                Some(child).filter(|child| self.modules.contains(child))?
            }
        };
        for token in rest {
            match token {
                TokenTree::Ident(name) if name == "super" => drop(path.pop()),
                TokenTree::Ident(name) => path.push(name.to_string()),
                _ => {}
            }
        }
        Some(path)
    }

    /// One tree of a `use`; `above` is the path that it continues.
    fn take_use(&mut self, module: &Module, above: Option<&[String]>, tokens: &[TokenTree]) {
        for tree in tokens.split(|token| is_punct(token, ',')) {
            let Some(TokenTree::Ident(first)) = tree.first() else { continue };
            let length = 1 + path_length(&tree[1..]);
            let path = if let Some(above) = above {
                let names = tree[..length]
                    .iter()
                    .filter_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None });
                Some(above.iter().cloned().chain(names.filter(|name| name != "self")).collect())
            } else {
                self.path(module, first, &tree[1..length])
            };
            let Some(path) = path else { continue };
            let group = tree[length..]
                .iter()
                .find_map(|token| if let TokenTree::Group(group) = token { Some(group) } else { None });
            if let Some(group) = group {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                self.take_use(module, Some(&path), &inner);
                continue;
            }
            let alias = tree[length..]
                .iter()
                .rev()
                .find_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None });
            self.bring(module, path, alias);
        }
    }

    fn bring(&mut self, module: &Module, path: Vec<String>, alias: Option<String>) {
        if let Some(name) = alias.or_else(|| path.last().cloned()) {
            self.brought.insert((module.clone(), name), path.clone());
        }
        self.paths.push((module.clone(), path));
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Tokens of `::a::b` that follow a path's first word.
fn path_length(tokens: &[TokenTree]) -> usize {
    let is_step = |step: &&[TokenTree]| {
        is_punct(&step[0], ':') && is_punct(&step[1], ':') && matches!(step[2], TokenTree::Ident(_))
    };
    3 * tokens.chunks_exact(3).take_while(is_step).count()
}

/// `#[cfg(test)]`, alone or with more.
fn is_of_tests(attribute: &Group) -> bool {
    let mut words = attribute.stream().into_iter();
    let is_word =
        |token: Option<TokenTree>, word: &str| matches!(token, Some(TokenTree::Ident(found)) if found == word);
    if !is_word(words.next(), "cfg") {
        return false;
    }
    let Some(TokenTree::Group(condition)) = words.next() else { return false };
    let mut inside: Vec<TokenTree> = condition.stream().into_iter().collect();
    if matches!(inside.as_slice(), [TokenTree::Ident(all), TokenTree::Group(_)] if all == "all")
        && let Some(TokenTree::Group(all)) = inside.pop()
    {
        inside = all.stream().into_iter().collect();
    }
    inside.split(|token| is_punct(token, ',')).any(|one| matches!(one, [TokenTree::Ident(word)] if word == "test"))
}

/// Tokens up to the end of the item that begins here: its body or its semicolon.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| {
        is_punct(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let modules =
            files.iter().map(|(file, text)| (module_of(file).unwrap().1, TokenStream::from_str(text).unwrap()));
        circles("agent", modules.collect()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn modules_that_name_each_other_are_found_however_they_do_it() {
        for (name, back) in [
            ("use", "use super::a::A;"),
            ("a branch of use", "use crate::{a::A, c};"),
            ("a path", "fn f() -> crate::a::A { todo!() }"),
            ("in a macro", "fn f() { assert!(crate::a::is()) }"),
            ("below", "mod inner { use super::super::a::A; }"),
            ("a re-export of the root", "use crate::A;"),
        ] {
            let files = [
                ("agent/src/lib.rs", "mod a; mod b; pub use a::A;"),
                ("agent/src/a.rs", "use crate::b::B; pub struct A;"),
                ("agent/src/b/mod.rs", back),
            ];
            let expected =
                "agent: the modules `a`, `b` name each other in a circle: move what they share into one of its own";
            assert_eq!(found(&files), [expected], "{name}");
        }
    }

    #[test]
    fn a_circle_of_three_below_a_module_is_one() {
        let files = [
            ("agent/src/lib.rs", "mod m;"),
            ("agent/src/m/mod.rs", "mod a; mod b; mod c;"),
            ("agent/src/m/a.rs", "use super::b::B;"),
            ("agent/src/m/b.rs", "use crate::m::{c::C, d};"),
            ("agent/src/m/c/mod.rs", "mod d;"),
            ("agent/src/m/c/d.rs", "use super::super::a::A;"),
        ];
        let circles = found(&files);
        assert!(circles.len() == 1 && circles[0].contains("`a`, `b`, `c` below `m`"), "{circles:?}");
    }

    #[test]
    fn tests_parents_and_comments_make_none() {
        let files = [
            ("agent/src/lib.rs", "mod a; mod b; pub fn root() {}"),
            ("agent/src/a.rs", "use crate::b::B; use crate::root; fn f() { super::root() }"),
            (
                "agent/src/b.rs",
                "//! See [`a`](crate::a).\n#[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(test)]\nuse crate::a::A;",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
