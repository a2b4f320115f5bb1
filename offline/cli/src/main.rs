//! The `trainmon` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A comparison allocates millions of short texts: the C library's allocator took a quarter of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(trainmon_cli::run(std::env::args_os()))
}
