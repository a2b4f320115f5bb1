//! What end-to-end tests need: a real training to start, watch and kill; its CSV files read strictly; a small disk that
//! can be filled; a real Prometheus, and what a large job costs it; a soak.
//!
//! The training is the program `trainer` of this crate. Everything is told by [`anyhow::Error`], whose words end a test.

mod csv_files;
mod http;
mod load;
mod prometheus;
mod ram_disk;
mod skip;
mod soak;
mod training;
mod wait;

pub use csv_files::{CsvFile, CsvTree};
pub use http::get;
pub use load::{Borne, Load};
pub use prometheus::{Prometheus, check_metrics};
pub use ram_disk::RamDisk;
pub use skip::skip;
pub use soak::{Flaps, Sample, Served, Soak, Soaked, Tenth, Tenths};
pub use training::{Ended, Trainer, Training};
pub use wait::{PATIENCE, wait_for};
