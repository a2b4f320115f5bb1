//! The selection of steps, ranks, calls and parts to capture, which depends on names and numbers alone.

use trainmon_core::config::{CaptureConfig, CaptureLevel, CaptureTask, RiskLevel};

use crate::part::Part;
use crate::risk;
use crate::spare::SpareMemory;
use crate::speed::DiskSpeed;

/// The direction of an entry's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The call itself.
    Forward,
    /// The backward of the call.
    Backward,
}

/// A capture's config with the values derived from it.
#[derive(Clone, Debug)]
pub struct CapturePlan {
    config: CaptureConfig,
    /// `None` if `scope`, `list` or the level selects the calls.
    risk: Option<RiskLevel>,
    spare: SpareMemory,
    speed: DiskSpeed,
}

impl CapturePlan {
    /// Makes the plan of a config.
    pub fn new(config: CaptureConfig) -> Self {
        Self::with_memory(config, SpareMemory::default())
    }

    /// Makes the plan of a config, which reuses the tensor memory of another plan.
    pub fn with_memory(mut config: CaptureConfig, spare: SpareMemory) -> Self {
        if config.task == CaptureTask::Structure && !config.level.has_modules() {
            config.level = CaptureLevel::Mix;
        }
        let chooses = config.scope.is_some() || !config.list.is_empty() || !config.level.has_functions();
        let risk = (!chooses).then_some(config.risk_level);
        Self { config, risk, spare, speed: DiskSpeed::default() }
    }

    /// The config. For the task `structure` without modules, its level is changed to `mix`.
    pub fn config(&self) -> &CaptureConfig {
        &self.config
    }

    pub(crate) fn spare_memory(&self) -> &SpareMemory {
        &self.spare
    }

    pub(crate) fn disk_speed(&self) -> &DiskSpeed {
        &self.speed
    }

    /// Whether the step is captured.
    pub fn wants_step(&self, step: u64) -> bool {
        self.config.steps.is_empty() || self.config.steps.contains(step)
    }

    /// Whether neither this step nor a later one is captured.
    pub fn is_past(&self, step: u64) -> bool {
        self.config.steps.last().is_some_and(|last| step > last)
    }

    /// Whether the rank is captured. If ranks are listed, a process without a rank is not.
    pub fn wants_rank(&self, rank: Option<u64>) -> bool {
        self.config.ranks.is_empty() || rank.is_some_and(|rank| self.config.ranks.contains(rank))
    }

    /// Whether entries of this direction are captured. The other direction needs no hooks.
    pub fn wants_direction(&self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.config.data_mode.forward,
            Direction::Backward => self.config.data_mode.backward,
        }
    }

    /// Whether the gradients of parameters are captured: those of modules, unless only the forward is captured.
    pub fn wants_parameter_gradients(&self) -> bool {
        self.config.data_mode.backward && self.config.level.has_modules()
    }

    /// Whether this part of an entry is captured.
    pub fn wants_part(&self, part: Part<'_>) -> bool {
        let keeps_values = self.config.task != CaptureTask::Structure;
        keeps_values
            && match part {
                Part::InputArgs | Part::InputKwargs | Part::Input => self.config.data_mode.input,
                Part::Output | Part::Parameters => self.config.data_mode.output,
                Part::Gradient(_) | Part::Saved | Part::Note => true,
            }
    }

    /// Whether a function may be captured at all. If not, its calls need neither counts nor names.
    ///
    /// `prefix` and `api` are the parts of its name: `Functional`, `relu`.
    pub fn wants_function(&self, prefix: &str, api: &str) -> bool {
        self.risk.is_none_or(|level| risk::passes(level, prefix, api))
    }

    /// Whether a name contains one of the texts of `list`, or the list is empty.
    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.config.list.is_empty() || self.config.list.iter().any(|text| name.contains(&**text))
    }

    /// Whether the entry's tensors are written to files.
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
