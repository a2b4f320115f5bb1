//! Interns values that many values of a document share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::document::Plain;

/// The interned values.
#[derive(Default)]
pub(super) struct Shared {
    texts: HashSet<Arc<str>, Hashes>,
    plain_texts: HashMap<Box<str>, Arc<Plain>, Hashes>,
    lists: HashMap<Box<[i64]>, Arc<Plain>, Hashes>,
}

/// A randomly seeded hasher, so that a file cannot force collisions; several times faster on short keys than the
/// standard library's.
pub(super) type Hashes = foldhash::fast::RandomState;

impl Shared {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// Interns a text or a list of integers; other values are rare and not shared.
    pub(super) fn plain(&mut self, value: Plain) -> Arc<Plain> {
        match value {
            Plain::Text(text) => match self.plain_texts.get(&text) {
                Some(known) => known.clone(),
                None => self.plain_texts.entry(text.clone()).or_insert_with(|| Arc::new(Plain::Text(text))).clone(),
            },
            Plain::List(items) => {
                let whole = |item: &Plain| if let Plain::Int(value) = item { Some(*value) } else { None };
                let Some(numbers) = items.iter().map(whole).collect::<Option<Box<[i64]>>>() else {
                    return Arc::new(Plain::List(items));
                };
                self.lists.entry(numbers).or_insert_with(|| Arc::new(Plain::List(items))).clone()
            }
            other => Arc::new(other),
        }
    }
}
