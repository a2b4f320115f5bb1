//! The `trainmon` command, for everything beside and after a training. Each verb reads its arguments, calls the crate
//! that does the work, and prints the result.
//!
//! This is a library because two programs use it: `src/main.rs`, and the Python package, whose extension module
//! contains the same commands. An installed wheel is therefore all that a user needs.

#![forbid(unsafe_code)]

mod command_line;
mod ctl;
mod excerpt;
mod validate_config;
mod verbs;

pub use command_line::run;
