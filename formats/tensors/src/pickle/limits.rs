//! Limits that no training's checkpoint approaches and that keep a malicious pickle from exhausting the machine.

/// The metadata of a distributed checkpoint have about ten values per piece of a tensor; this is enough for half a
/// million pieces, and takes at most a gigabyte.
pub(super) const MAX_OBJECTS: usize = 8 << 20;
/// The largest number of stack and memo entries: as many as values.
pub(super) const MAX_NAMES: usize = MAX_OBJECTS;
/// The largest Python long: in a checkpoint it is a seed or a count; this one has 2,000 bits.
pub(super) const MAX_LONG_BYTES: u64 = 256;
/// The longest module name and class name.
pub(super) const MAX_CLASS_NAME: usize = 4096;
