//! What is captured, decided by names alone.

use trainmon_core::config::{CaptureConfig, CaptureLevel, CaptureTask, RiskLevel};

use crate::part::Part;
use crate::risk;
use crate::spare::SpareMemory;
use crate::speed::DiskSpeed;

/// Which way an entry's call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The call.
    Forward,
    /// Its gradients.
    Backward,
}

/// A capture's config with what follows from it.
#[derive(Clone, Debug)]
pub struct CapturePlan {
    config: CaptureConfig,
    /// Absent where scope or list choose.
    risk: Option<RiskLevel>,
    spare: SpareMemory,
    speed: DiskSpeed,
}

impl CapturePlan {
    /// The plan of a config.
    pub fn new(config: CaptureConfig) -> Self {
        Self::with_memory(config, SpareMemory::default())
    }

    /// The plan of a config, whose tensors take the memory of those that another plan has written.
    pub fn with_memory(mut config: CaptureConfig, spare: SpareMemory) -> Self {
        if config.task == CaptureTask::Structure && !config.level.has_modules() {
            config.level = CaptureLevel::Mix;
        }
        let chooses = config.scope.is_some() || !config.list.is_empty() || !config.level.has_functions();
        let risk = (!chooses).then_some(config.risk_level);
        Self { config, risk, spare, speed: DiskSpeed::default() }
    }

    /// The config it was made of; a capture of structure is of the level `mix`, whatever its config said.
    pub fn config(&self) -> &CaptureConfig {
        &self.config
    }

    pub(crate) fn spare_memory(&self) -> &SpareMemory {
        &self.spare
    }

    pub(crate) fn disk_speed(&self) -> &DiskSpeed {
        &self.speed
    }

    /// Whether this step is captured.
    pub fn wants_step(&self, step: u64) -> bool {
        self.config.steps.is_empty() || self.config.steps.contains(step)
    }

    /// Whether no step from this one on is captured.
    pub fn is_past(&self, step: u64) -> bool {
        self.config.steps.last().is_some_and(|last| step > last)
    }

    /// Whether this rank captures. Where ranks are listed, a process without one is none of them.
    pub fn wants_rank(&self, rank: Option<u64>) -> bool {
        self.config.ranks.is_empty() || rank.is_some_and(|rank| self.config.ranks.contains(rank))
    }

    /// Whether entries of this direction are kept at all: no hooks are needed for others.
    pub fn wants_direction(&self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.config.data_mode.forward,
            Direction::Backward => self.config.data_mode.backward,
        }
    }

    /// Whether the gradients of parameters are kept: unless only forward is.
    pub fn wants_parameter_gradients(&self) -> bool {
        self.config.data_mode.backward && self.config.level.has_modules()
    }

    /// Whether this part of an entry is kept.
    pub fn wants_part(&self, part: Part<'_>) -> bool {
        let keeps_values = self.config.task != CaptureTask::Structure;
        keeps_values
            && match part {
                Part::InputArgs | Part::InputKwargs | Part::Input => self.config.data_mode.input,
                Part::Output | Part::Parameters => self.config.data_mode.output,
                Part::Gradient(_) | Part::Saved | Part::Note => true,
            }
    }

    /// Whether a function may be captured at any time: what is refused here needs no count and no name.
    ///
    /// `prefix` and `api` as in its name: `Functional`, `relu`.
    pub fn wants_function(&self, prefix: &str, api: &str) -> bool {
        self.risk.is_none_or(|level| risk::passes(level, prefix, api))
    }

    /// Whether a name has one of the texts of `list`, or there is no list.
    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.config.list.is_empty() || self.config.list.iter().any(|text| name.contains(&**text))
    }

    /// Whether this entry's tensors are written to files.
    pub(crate) fn saves_tensors_of(&self, name: &str) -> bool {
        match self.config.task {
            CaptureTask::Tensor => true,
            CaptureTask::Statistics => {
                self.config.level != CaptureLevel::Debug
                    && self.config.tensor_list.iter().any(|text| name.contains(&**text))
            }
            CaptureTask::DiffCheck | CaptureTask::Structure | CaptureTask::NanCheck | CaptureTask::OverflowCheck => {
                false
            }
        }
    }
}
