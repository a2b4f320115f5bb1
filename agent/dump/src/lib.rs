//! What a run leaves for afterwards. So far the [`journal`]: the last steps, readable whatever ended the process.

pub mod journal;
