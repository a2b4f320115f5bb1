//! What is done beside and after a training, as a library and as the `trainmon` command.
//!
//! Each verb is a module whose functions return what there is to say; [`run()`] is the command: it reads the arguments,
//! says it through the printer and gives the exit code.

pub mod anomaly;
pub mod check_config;
pub mod checkpoint;
mod cli;
pub mod compare;
pub mod compare_runs;
pub mod convert;
pub mod ctl;
mod excerpt;
mod failure;
mod few;
mod fresh_directory;
mod html;
pub mod key_reference;
pub mod merge;
pub mod overflow;
mod printer;
mod progress;
pub mod recover;
pub mod run;
pub mod tensors;

pub use cli::run;
pub use progress::Progress;
