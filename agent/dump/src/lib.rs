//! What a run leaves for afterwards: the [`journal`] of its last steps, readable whatever ended the process, and [`capture`]s of
//! what single steps' operators took in and gave out.

pub mod capture;
pub mod journal;
