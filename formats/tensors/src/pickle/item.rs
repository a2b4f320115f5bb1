//! Looking at what a pickle says.

use super::value::{Id, Object, Pickled, Value};

/// A value in a pickle. Cheap to copy. Values may contain themselves: whoever follows them bounds the depth.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pickled: &'a Pickled,
    id: Id,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A larger one: two's complement, little-endian.
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
        /// Its module.
        module: &'a str,
        /// Its name in there.
        name: &'a str,
    },
    /// What a call would have made; see [`Item::class`].
    Object,
    /// A reference the file resolves; see [`Item::persistent`].
    Persistent,
}

impl Pickled {
    /// The outermost value.
    pub fn root(&self) -> Item<'_> {
        Item::new(self, self.root)
    }

    /// Every value of it, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.values.len()).map(|place| Item::new(self, Id(place as u32)))
    }

    /// A value found before.
    pub(crate) fn item(&self, id: Id) -> Item<'_> {
        Item::new(self, id)
    }
}

impl<'a> Item<'a> {
    pub(super) fn new(pickled: &'a Pickled, id: Id) -> Self {
        Self { pickled, id }
    }

    /// What finds it again; see [`Pickled::item`].
    pub(crate) fn id(self) -> Id {
        self.id
    }

    /// What it is.
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

    /// A string.
    pub fn as_text(self) -> Option<&'a str> {
        if let Kind::Text(text) = self.kind() { Some(text) } else { None }
    }

    /// An integer.
    pub fn as_int(self) -> Option<i64> {
        if let Kind::Int(value) = self.kind() { Some(value) } else { None }
    }

    /// A bool.
    pub fn as_bool(self) -> Option<bool> {
        if let Kind::Bool(value) = self.kind() { Some(value) } else { None }
    }

    /// What a tuple, list or set holds, or what was appended to an object.
    pub fn items(self) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        let ids: &[Id] = match self.value() {
            Value::Tuple(ids) => ids,
            Value::List(ids) | Value::Set(ids) => ids,
            Value::Object(object) => &object.items,
            _ => &[],
        };
        ids.iter().map(move |&id| Self { id, ..self })
    }

    /// The entries of a dict, or of an object that is one (`OrderedDict`, `defaultdict`), in the order they were put in.
    pub fn pairs(self) -> impl DoubleEndedIterator<Item = (Self, Self)> + ExactSizeIterator + use<'a> {
        let pairs: &[(Id, Id)] = match self.value() {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => &object.pairs,
            _ => &[],
        };
        pairs.iter().map(move |&(key, value)| (Self { id: key, ..self }, Self { id: value, ..self }))
    }

    /// The entry of a dict under a string. Cost: looks through all.
    pub fn get(self, key: &str) -> Option<Self> {
        // Of two entries under one key Python keeps the later.
        self.pairs().rev().find(|(found, _)| found.as_text() == Some(key)).map(|(_, value)| value)
    }

    /// An attribute of an object, out of its state: a dict, or a pair of two (an object with slots has both).
    pub fn attribute(self, name: &str) -> Option<Self> {
        let state = self.state()?;
        state.get(name).or_else(|| state.items().find_map(|part| part.get(name)))
    }

    /// The module and name of what a call to would have made this object.
    pub fn class(self) -> Option<(&'a str, &'a str)> {
        let callable = Self { id: self.object()?.callable, ..self };
        if let Kind::Global { module, name } = callable.kind() { Some((module, name)) } else { None }
    }

    /// The arguments of that call: a tuple.
    pub fn args(self) -> Option<Self> {
        Some(Self { id: self.object()?.args, ..self })
    }

    /// What the object was to be filled with.
    pub fn state(self) -> Option<Self> {
        Some(Self { id: self.object()?.state?, ..self })
    }

    /// What identifies what the file is to look up.
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
