//! The `trainmon` command: what is done beside and after a training. Each of its verbs reads arguments, calls the crate that
//! does the work, and prints what came of it.

#![forbid(unsafe_code)]

mod cli;
mod ctl;
mod excerpt;
mod validate_config;
mod verbs;

use std::process::ExitCode;

/// A comparison makes millions of short texts: a quarter of its time went into the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
