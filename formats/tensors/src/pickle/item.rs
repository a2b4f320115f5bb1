//! Read access to the values of a pickle.

use super::value::{Id, Object, Pickled, Value};

/// A value in a pickle. Cheap to copy. Values may contain themselves: callers must limit the depth.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pickled: &'a Pickled,
    id: Id,
}

/// The content of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// `None`.
    None,
    /// A bool.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A larger integer: two's complement, little-endian.
    Long(&'a [u8]),
    /// A float.
    Float(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A string.
    Text(&'a str),
    /// A tuple; see [`Item::items`].
    Tuple,
    /// A list; see [`Item::items`].
    List,
    /// A set; see [`Item::items`].
    Set,
    /// A dict; see [`Item::pairs`].
    Dict,
    /// A class or function, not called.
    Global {
        /// The module.
        module: &'a str,
        /// The name in the module.
        name: &'a str,
    },
    /// The result of a call that was not executed; see [`Item::class`].
    Object,
    /// A reference that the file resolves; see [`Item::persistent`].
    Persistent,
}

impl Pickled {
    /// The outermost value.
    pub fn root(&self) -> Item<'_> {
        Item::new(self, self.root)
    }

    /// Every value, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.values.len()).map(|place| Item::new(self, Id(place as u32)))
    }

    /// The value with this id.
    pub(crate) fn item(&self, id: Id) -> Item<'_> {
        Item::new(self, id)
    }
}

impl<'a> Item<'a> {
    pub(super) fn new(pickled: &'a Pickled, id: Id) -> Self {
        Self { pickled, id }
    }

    /// The id of the value; see [`Pickled::item`].
    pub(crate) fn id(self) -> Id {
        self.id
    }

    /// The content of the value.
    pub fn kind(self) -> Kind<'a> {
        match self.value() {
            Value::None => Kind::None,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Int(value) => Kind::Int(*value),
            Value::Long(bytes) => Kind::Long(bytes),
            Value::Float(value) => Kind::Float(*value),
            Value::Bytes(bytes) => Kind::Bytes(bytes),
            Value::Text(text) => Kind::Text(text),
            Value::Tuple(_) => Kind::Tuple,
            Value::List(_) => Kind::List,
            Value::Set(_) => Kind::Set,
            Value::Dict(_) => Kind::Dict,
            Value::Global(global) => Kind::Global { module: &global.module, name: &global.name },
            Value::Object(_) => Kind::Object,
            Value::Persistent(_) => Kind::Persistent,
        }
    }

    /// The string, if it is one.
    pub fn as_text(self) -> Option<&'a str> {
        if let Kind::Text(text) = self.kind() { Some(text) } else { None }
    }

    /// The integer, if it is one.
    pub fn as_int(self) -> Option<i64> {
        if let Kind::Int(value) = self.kind() { Some(value) } else { None }
    }

    /// The bool, if it is one.
    pub fn as_bool(self) -> Option<bool> {
        if let Kind::Bool(value) = self.kind() { Some(value) } else { None }
    }

    /// The members of a tuple, list or set, or the values appended to an object.
    pub fn items(self) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        let ids: &[Id] = match self.value() {
            Value::Tuple(ids) => ids,
            Value::List(ids) | Value::Set(ids) => ids,
            Value::Object(object) => &object.items,
            _ => &[],
        };
        ids.iter().map(move |&id| Self { id, ..self })
    }

    /// The entries of a dict, or of an object that is one (`OrderedDict`, `defaultdict`), in insertion order.
    pub fn pairs(self) -> impl DoubleEndedIterator<Item = (Self, Self)> + ExactSizeIterator + use<'a> {
        let pairs: &[(Id, Id)] = match self.value() {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => &object.pairs,
            _ => &[],
        };
        pairs.iter().map(move |&(key, value)| (Self { id: key, ..self }, Self { id: value, ..self }))
    }

    /// The dict entry with a string key. Cost: linear search.
    pub fn get(self, key: &str) -> Option<Self> {
        // If a key occurs twice, Python keeps the later entry.
        self.pairs().rev().find(|(found, _)| found.as_text() == Some(key)).map(|(_, value)| value)
    }

    /// An attribute from an object's state: a dict, or a pair of dicts (for an object with slots).
    pub fn attribute(self, name: &str) -> Option<Self> {
        let state = self.state()?;
        state.get(name).or_else(|| state.items().find_map(|part| part.get(name)))
    }

    /// The module and name of the callable that creates this object.
    pub fn class(self) -> Option<(&'a str, &'a str)> {
        let callable = Self { id: self.object()?.callable, ..self };
        if let Kind::Global { module, name } = callable.kind() { Some((module, name)) } else { None }
    }

    /// The arguments of that call: a tuple.
    pub fn args(self) -> Option<Self> {
        Some(Self { id: self.object()?.args, ..self })
    }

    /// The state of the object.
    pub fn state(self) -> Option<Self> {
        Some(Self { id: self.object()?.state?, ..self })
    }

    /// The id of a persistent reference.
    pub fn persistent(self) -> Option<Self> {
        if let Value::Persistent(id) = self.value() { Some(Self { id: *id, ..self }) } else { None }
    }

    fn object(self) -> Option<&'a Object> {
        if let Value::Object(object) = self.value() { Some(object) } else { None }
    }

    fn value(self) -> &'a Value {
        &self.pickled.values[self.id.0 as usize]
    }
}
