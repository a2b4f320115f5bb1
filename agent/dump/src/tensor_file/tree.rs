//! The structure of a `.pt` file as a list of names.

use super::error::FormatError;
use super::pickle::{Item, Kind};
use super::rebuild::{View, tensor_of};

/// Real structures are some ten deep.
const MAX_DEPTH: usize = 64;
/// Values may be shared, so that a small pickle can unfold into any number of places.
const MAX_PLACES: u64 = 16 << 20;
const MAX_NAME: usize = 4096;

/// What is found under a name.
pub(super) enum TreeEntry<'a> {
    /// A tensor.
    Tensor(View<'a>),
    /// A tensor of a kind that is not read.
    Unreadable(FormatError),
    /// Anything else that holds nothing.
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
        match tensor_of(item) {
            Some(Ok(view)) => {
                (self.visit)(&self.name, TreeEntry::Tensor(view));
                return Ok(());
            }
            Some(Err(trouble)) => {
                (self.visit)(&self.name, TreeEntry::Unreadable(trouble));
                return Ok(());
            }
            None => {}
        }
        match item.kind() {
            Kind::Tuple | Kind::List | Kind::Set => self.items(item, depth),
            Kind::Dict => self.pairs(item, depth),
            Kind::Object => self.object(item, depth),
            _ => {
                (self.visit)(&self.name, TreeEntry::Leaf(item));
                Ok(())
            }
        }
    }

    /// An object of any class: what it holds, in whichever of the ways a pickle fills one.
    fn object(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        self.pairs(item, depth)?;
        self.items(item, depth)?;
        if item.class() == Some(("collections", "OrderedDict")) {
            // Its arguments are none; its state is torch's note of module versions.
            return Ok(());
        }
        if let Some(args) = item.args() {
            self.items(args, depth)?;
        }
        match item.state() {
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

    fn pairs(&mut self, item: Item<'a>, depth: usize) -> Result<(), FormatError> {
        for (key, value) in item.pairs() {
            match key.kind() {
                Kind::Text(text) => self.below(text, value, depth)?,
                Kind::Int(number) => self.below(&number.to_string(), value, depth)?,
                Kind::Bool(value_of_key) => self.below(&value_of_key.to_string(), value, depth)?,
                Kind::Tuple => {
                    let parts: Vec<String> = key.items().take(8).map(shown).collect();
                    self.below(&format!("({})", parts.join(",")), value, depth)?;
                }
                _ => self.below(&shown(key), value, depth)?,
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

/// A key that is no string.
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
