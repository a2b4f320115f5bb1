//! The `trainmon` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A comparison makes millions of short texts: a quarter of its time went into the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(trainmon_cli::run(std::env::args_os()))
}
