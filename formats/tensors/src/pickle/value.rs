//! The table of a pickle's values.

/// A value's index in the table. Values reference each other, also in cycles, so no code here follows references
/// recursively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

#[derive(Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: two's complement, little-endian.
    Long(Box<[u8]>),
    Float(f64),
    Bytes(Box<[u8]>),
    Text(Box<str>),
    Tuple(Box<[Id]>),
    List(Vec<Id>),
    Set(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Box<Global>),
    Object(Box<Object>),
    /// A reference that the reader resolves: for torch a storage.
    Persistent(Id),
}

/// A class or function, by name.
#[derive(Debug)]
pub(super) struct Global {
    pub(super) module: Box<str>,
    pub(super) name: Box<str>,
}

/// The result of a call that was not executed.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) callable: Id,
    pub(super) args: Id,
    pub(super) state: Option<Id>,
    pub(super) items: Vec<Id>,
    pub(super) pairs: Vec<(Id, Id)>,
}

/// The content of a pickle, as data.
#[derive(Debug)]
pub struct Pickled {
    pub(super) values: Vec<Value>,
    pub(super) root: Id,
}

impl Pickled {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Always false: there is a root.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
