//! The `trainmon` command: what is done beside and after a training. Each of its verbs reads arguments, calls the crate that
//! does the work, and prints what came of it.
//!
//! A library, because two programs have it: `src/main.rs`, and the Python package, whose extension module carries the same
//! commands. So an installed wheel is all a user needs.

#![forbid(unsafe_code)]

mod command_line;
mod ctl;
mod excerpt;
mod validate_config;
mod verbs;

pub use command_line::run;
