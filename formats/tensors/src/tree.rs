//! The structure of a `.pt` file as a list of names.

use super::error::FormatError;
use super::numpy::{Array, array_of};
use super::pickle::{Id, Item, Kind};
use super::rebuild::{Storage, View, tensor_of};

/// The largest depth: real structures have about ten levels.
const MAX_DEPTH: usize = 64;
/// The largest number of places: values may be shared, so a small pickle can unfold into any number of places.
const MAX_PLACES: u64 = 16 << 20;
const MAX_NAME: usize = 4096;
/// Examining this many pickle bytes again counts as one place.
const SCANNED_PER_PLACE: u64 = 64;

/// The value under a name.
pub(super) enum TreeEntry<'a> {
    /// A tensor.
    Tensor(View<'a>),
    /// A numpy array, or bytes, and the id to find it again.
    Array(Array<'a>, Id),
    /// An unsupported tensor, or another value with unsupported content.
    Unreadable(FormatError),
    /// Any other value without content.
    Leaf(Item<'a>),
}

/// Visits every tensor and leaf in order, each with the keys and indices that lead to it, joined by dots.
pub(super) fn walk<'a>(root: Item<'a>, visit: &mut dyn FnMut(&str, TreeEntry<'a>)) -> Result<(), FormatError> {
    Walk { visit, name: String::new(), places: 0 }.item(root, 0)
}

struct Walk<'v, 'a> {
    visit: &'v mut dyn FnMut(&str, TreeEntry<'a>),
    name: String,
    places: u64,
}

impl<'a> Walk<'_, 'a> {
    fn item(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        let too_much = |what, found, limit| Err(FormatError::TooMuch { what, found, limit });
        self.places += 1;
        if self.places > MAX_PLACES {
            return too_much("places in the structure of a file", self.places, MAX_PLACES);
        }
        if depth > MAX_DEPTH {
            return too_much("the depth of a structure", depth as u64, MAX_DEPTH as u64);
        }
        if self.name.len() > MAX_NAME {
            return too_much("bytes in the name of a tensor", self.name.len() as u64, MAX_NAME as u64);
        }
        if let Some(found) = found(item) {
            if let Ok(TreeEntry::Array(array, _)) = &found {
                self.places += array.scanned / SCANNED_PER_PLACE;
            }
            (self.visit)(&self.name, found.unwrap_or_else(TreeEntry::Unreadable));
            return Ok(());
        }
        match item.kind() {
            Kind::Tuple | Kind::List => self.items(item, depth),
            Kind::Set => self.members(item, depth),
            Kind::Dict => self.pairs(item, depth),
            Kind::Object => self.object(item, depth),
            _ => {
                (self.visit)(&self.name, TreeEntry::Leaf(item));
                Ok(())
            }
        }
    }

    /// Visits the content of an object of any class, in each way that a pickle can fill one.
    fn object(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        self.pairs(item, depth)?;
        self.items(item, depth)?;
        match (item.class(), item.args()) {
            (Some(class), Some(args)) if is_mapping(class) => self.given_pairs(args, depth)?,
            (Some(class), Some(args)) if is_sequence(class) => {
                // Other classes than plain lists and tuples store their content in other ways.
                let is_set = class.1.ends_with("set");
                args.items().take(1).try_for_each(|given| match given.kind() {
                    Kind::Tuple | Kind::List | Kind::Set if is_set => self.members(given, depth),
                    Kind::Tuple | Kind::List | Kind::Set => self.items(given, depth),
                    _ => self.item(given, depth + 1),
                })?;
            }
            (_, Some(args)) => self.items(args, depth)?,
            _ => {}
        }
        let is_ordered = item.class() == Some(("collections", "OrderedDict"));
        match item.state() {
            // Its attributes, except torch's module versions.
            Some(state) if is_ordered => state
                .pairs()
                .filter(|(key, _)| key.as_text() != Some("_metadata"))
                .try_for_each(|(key, value)| self.pair(key, value, depth)),
            Some(state) => self.item(state, depth + 1),
            None => Ok(()),
        }
    }

    fn items(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        for (index, inner) in item.items().enumerate() {
            self.below(&index.to_string(), inner, depth)?;
        }
        Ok(())
    }

    /// Visits the members of a set. Their order depends on the process that created it, and on how often it was saved
    /// and loaded.
    fn members(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        let mut members: Vec<Item<'a>> = item.items().collect();
        members.sort_by_cached_key(|&member| shown(member));
        members.into_iter().enumerate().try_for_each(|(index, inner)| self.below(&index.to_string(), inner, depth))
    }

    fn pairs(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        item.pairs().try_for_each(|(key, value)| self.pair(key, value, depth))
    }

    fn pair(&mut self, key: Item<'a>, value: Item<'a>, depth: usize) -> Result<(), FormatError> {
        match key.kind() {
            Kind::Text(text) => self.below(text, value, depth),
            Kind::Int(number) => self.below(&number.to_string(), value, depth),
            Kind::Bool(value_of_key) => self.below(&value_of_key.to_string(), value, depth),
            Kind::Tuple => {
                let parts: Vec<String> = key.items().take(8).map(shown).collect();
                self.below(&format!("({})", parts.join(",")), value, depth)
            }
            _ => self.below(&shown(key), value, depth),
        }
    }

    /// Visits the initial content of a mapping: another mapping, or pairs. `defaultdict` has its factory before it.
    fn given_pairs(&mut self, args: Item<'a>, depth: usize) -> Result<(), FormatError> {
        for given in args.items() {
            match given.kind() {
                Kind::Dict | Kind::Object => self.item(given, depth + 1)?,
                _ => {
                    for pair in given.items() {
                        let mut parts = pair.items();
                        match (parts.next(), parts.next()) {
                            (Some(key), Some(value)) => self.pair(key, value, depth)?,
                            _ => self.item(pair, depth + 1)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn below(&mut self, key: &str, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        let length = self.name.len();
        if !self.name.is_empty() {
            self.name.push('.');
        }
        self.name.push_str(key);
        let outcome = self.item(item, depth + 1);
        self.name.truncate(length);
        outcome
    }
}

/// The entry of a value that is not a container, unless it is a plain value.
fn found(item: Item<'_>) -> Option<Result<TreeEntry<'_>, FormatError>> {
    if let Some(tensor) = tensor_of(item) {
        return Some(tensor.map(TreeEntry::Tensor));
    }
    if let Some(array) = array_of(item) {
        return Some(array.map(|array| TreeEntry::Array(array, item.id())));
    }
    if item.kind() != Kind::Persistent {
        return None;
    }
    // A storage that belongs to no tensor.
    let outside = || {
        Some(Err(FormatError::unsupported("a reference to something other than a storage", "outside of the pickle")))
    };
    Storage::of(item).or_else(outside).map(|storage| storage?.into_view().map(TreeEntry::Tensor))
}

const MAPPINGS: [&str; 4] = ["dict", "OrderedDict", "Counter", "defaultdict"];
const SEQUENCES: [&str; 5] = ["list", "tuple", "set", "frozenset", "deque"];

/// Whether a Python class builds a dict from its arguments.
fn is_mapping((module, name): (&str, &str)) -> bool {
    is_pythons(module) && MAPPINGS.contains(&name)
}

/// Whether a Python class builds a list from its first argument.
fn is_sequence((module, name): (&str, &str)) -> bool {
    is_pythons(module) && SEQUENCES.contains(&name)
}

fn is_pythons(module: &str) -> bool {
    matches!(module, "builtins" | "__builtin__" | "collections")
}

/// A description of a key that is not a string.
fn shown(item: Item<'_>) -> String {
    match item.kind() {
        Kind::Text(text) => text.chars().take(MAX_NAME).collect(),
        Kind::Int(number) => number.to_string(),
        Kind::Float(number) => number.to_string(),
        Kind::Global { module, name } => format!("{module}.{name}"),
        Kind::Object => item.class().map_or_else(|| "object".to_owned(), |(module, name)| format!("{module}.{name}")),
        Kind::None => "None".to_owned(),
        Kind::Bool(value) => value.to_string(),
        _ => "key".to_owned(),
    }
}
