//! The commands of this repository, as a library: `main.rs` only reads the command line.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

pub mod arrows;
mod circles;
pub mod command_line;
pub mod dependencies;
pub mod device_kernels;
pub mod device_kit;
pub mod dist;
pub mod fuzz;
pub mod graph;
pub mod hint;
pub mod load;
mod packages;
pub mod process;
pub mod prose;
pub mod provision;
mod python_circles;
pub mod run;
pub mod running;
pub mod soak;
pub mod sources;
pub mod torture;
pub mod verify;
pub mod workspace;
