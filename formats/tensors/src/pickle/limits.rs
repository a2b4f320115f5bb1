//! Bounds that no training's checkpoint comes near to, and that keep a hostile pickle from using up the machine.

/// The metadata of a distributed checkpoint has about ten values per piece of a tensor; this is enough for half a million
/// pieces, and takes a gigabyte at worst.
pub(super) const MAX_OBJECTS: usize = 8 << 20;
/// Names on the stack or in the memo: as many as there can be values.
pub(super) const MAX_NAMES: usize = MAX_OBJECTS;
/// A Python long of a checkpoint is a seed or a count; this one has 2,000 bits.
pub(super) const MAX_LONG_BYTES: u64 = 256;
/// A class's module and name, each.
pub(super) const MAX_CLASS_NAME: usize = 4096;
