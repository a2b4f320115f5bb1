//! trainmon for training loops in Rust: one crate with everything that a loop requires.
//!
//! A loop written with tch uses a [`Watch`], which measures gradients, moments, parameters and activations in every
//! step.
//!
//! ```no_run
//! use tch::{Device, Kind, Tensor, nn, nn::Module as _};
//! use trainmon::{Config, Monitor, Optimizer, Options, Watch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::parse(r#"{"wg_distribution": true, "format": ["csv"]}"#, "config", &|_| None)?.config;
//! let vs = nn::VarStore::new(Device::Cpu);
//! let net = nn::linear(vs.root() / "head", 8, 1, nn::LinearConfig::default());
//! let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-3)?;
//! let mut watch = Watch::builder(Monitor::start(config, Options::default())?).model(&vs).build()?;
//! for _ in 0..100 {
//!     let loss = net.forward(&Tensor::randn([16, 8], (Kind::Float, Device::Cpu))).square().mean(Kind::Float);
//!     optimizer.zero_grad()?;
//!     loss.backward();
//!     watch.loss(loss.double_value(&[]));
//!     watch.step(&mut optimizer)?;
//! }
//! watch.finish();
//! # Ok(()) }
//! ```
//!
//! A loop without tch passes views of its tensors to a [`Meter`](front::Meter) and does not link libtorch.
//!
//! # Features
//!
//! | feature | on by default | adds |
//! |---|---|---|
//! | `csv` | yes | CSV files |
//! | `tch` | yes | `Watch`, `Optimizer`, `Capture`; links libtorch |
//! | `prometheus` | no | the scrape page and the live page |
//! | `otlp` | no | OpenTelemetry, with gRPC and TLS |
//! | `tensorboard` | no | TensorBoard's event files |
//! | `webhook` | no | alerts by HTTP POST, with TLS |
//!
//! If a config requests an output whose feature is off, trainmon logs a warning that names the feature.

#![forbid(unsafe_code)]

pub use trainmon_agent::core::config::{Config, ConfigErrors, FileLayout};
pub use trainmon_agent::{
    CollectiveCall, CollectiveGroup, CollectiveGuard, ConfigFile, Monitor, Notice, Notices, Options, PendingStep,
    RankStore, Ranks, Report, Severity, SharedRankStore, StartError, StepFacts,
};
/// The crates with which a loop of another framework measures its tensors.
pub use trainmon_agent::{core, front, stats};
/// Plans, places and sessions of captures.
#[cfg(feature = "tch")]
pub use trainmon_capture as capture;
#[cfg(feature = "tch")]
pub use trainmon_capture::{CaptureConfig, CaptureDialect, CapturePlace, CapturePlan};
#[cfg(feature = "tch")]
pub use trainmon_tch::{
    Capture, CaptureBeginError, CaptureOptions, DeviceStatistics, LibtorchStatistics, MomentSource, Observer,
    Optimizer, OptimizerError, Watch, WatchBuilder, WatchError, Watched, WatchedT,
};

/// Compiles the README's example.
#[cfg(all(doctest, feature = "tch"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples of the guide, which uses every type.
#[cfg(all(doctest, feature = "tch"))]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
