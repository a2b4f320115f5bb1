//! Alerts, as rules report them and exporters, notifiers and files receive them.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::figures::{quoted_name, short, shown_name};
use crate::{Kind, MicroStep, Rank, Statistic, Step, number};

/// The file of a rank's alerts in the rank's directory: one JSON object ([`Alert`]) per line.
pub const ALERTS_FILE: &str = "alerts.jsonl";

/// The last line of [`ALERTS_FILE`]; present if the run ended cleanly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertEnd {
    /// The number of findings by rule, including ongoing and unreported ones. Rules without findings are absent.
    pub findings: std::collections::BTreeMap<AlertRule, u64>,
    /// Always `true`. Older versions, which do not write it, wrote the line only if a rule had found something.
    #[serde(default)]
    pub ended: bool,
}

/// The number of significant digits of a number in an alert message.
pub const DIGITS: usize = 3;

crate::named_enum! {
    /// The rules. `AnomalyTurbulence` and `AnomalyNan` are msprobe's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    pub enum AlertRule: name {
        /// The magnitude exceeds its running average by more than the threshold allows.
        AnomalyTurbulence = "AnomalyTurbulence",
        /// NaN, infinity, or a magnitude above the threshold.
        AnomalyNan = "AnomalyNan",
        /// A rise far outside the recent variation.
        Spike = "Spike",
        /// NaN or infinite elements.
        NonFinite = "NonFinite",
        /// Zero for many steps.
        Dead = "Dead",
        /// Gradients that shrink towards zero.
        Vanishing = "Vanishing",
        /// The change of a parameter relative to its size leaves its range.
        UpdateRatio = "UpdateRatio",
        /// A slow deviation from the baseline.
        Drift = "Drift",
        /// A loss and a gradient norm that no longer change.
        Collapse = "Collapse",
        /// No step for too long.
        Stall = "Stall",
        /// The gradient norm that trainmon measures differs from the framework's.
        NormMismatch = "NormMismatch",
        /// A deviation from the golden run beyond run-to-run variation.
        Baseline = "Baseline",
        /// Replicas of a parameter or of its optimizer state that should be bitwise equal on several ranks and are not.
        ReplicaMismatch = "ReplicaMismatch",
        /// A rank that the others of its group wait for.
        Straggler = "Straggler",
    }
}

crate::named_enum! {
    /// How severe an alert is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum AlertSeverity: name {
        /// Worth knowing.
        Info = "info",
        /// Someone should look at it.
        Warning = "warning",
        /// The run is at risk or lost.
        Critical = "critical",
    }
}

crate::named_enum! {
    /// Whether an alert begins or ends. Findings in between are counted, not reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum AlertPhase: name {
        /// The first finding.
        Begins = "begins",
        /// The series is back to normal. [`Alert::findings`] is the number of steps in which it was not.
        Ends = "ends",
    }
}

crate::named_enum! {
    /// The part of the model that a series covers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum AlertScope: name {
        /// The whole run.
        Global = "global",
        /// One [`Group`](crate::Group).
        Group = "group",
        /// One layer, as [`layer_of`](crate::layer_of) names it.
        Layer = "layer",
        /// One tensor.
        Tensor = "tensor",
    }
}

/// The quantity of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertSignal {
    /// The loss, as the training reports it.
    Loss,
    /// The learning rate, as the training reports it.
    LearningRate,
    /// Gradients before clipping if these are measured, else after reduction. One value per tensor and step.
    Grad,
    /// The gradient norm that trainmon measured, divided by the framework's.
    GradNormRatio,
    /// The duration of a step, in seconds.
    StepTime,
    /// How long the ranks of a group wait for the last one, in seconds per step.
    StragglerLag,
    /// A kind of tensor.
    Kind(Kind),
}

impl AlertSignal {
    /// The name in configs and files. A kind has its own name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::LearningRate => "learning_rate",
            Self::Grad => "grad",
            Self::GradNormRatio => "grad_norm_ratio",
            Self::StepTime => "step_time",
            Self::StragglerLag => "straggler_lag",
            Self::Kind(kind) => kind.name(),
        }
    }

    /// The name in messages. A kind keeps its own name, because its columns and metrics use it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::LearningRate => "learning rate",
            Self::Grad => "gradient",
            Self::GradNormRatio => "ratio of the gradient norms",
            Self::StepTime => "step time",
            Self::StragglerLag => "wait for the last rank",
            Self::Kind(kind) => kind.name(),
        }
    }

    /// The position in the order of a training step, causes before effects: settings and data, forward, loss, backward,
    /// reduction and clipping, optimizer. Moments read before the optimizer's step show the effect of earlier steps.
    /// Quantities measured outside the step come last.
    pub const fn place_in_step(self) -> usize {
        match self {
            Self::LearningRate => 0,
            Self::Kind(Kind::Scalar) => 1,
            Self::Kind(Kind::ParamOrigin) => 2,
            Self::Kind(
                Kind::Actv
                | Kind::AttentionHook
                | Kind::LinearHook
                | Kind::MoeRouterWeightHook
                | Kind::MoeRouterLogitHook
                | Kind::Adhoc,
            ) => 3,
            Self::Loss => 4,
            Self::Kind(Kind::ActvGrad) => 5,
            Self::Kind(Kind::GradUnreduced) => 6,
            // Before the reduction, if that is measured.
            Self::Grad => 7,
            // A change that appears only here comes from the reduction, another rank or clipping.
            Self::Kind(Kind::GradReduced) => 8,
            Self::Kind(Kind::ExpAvg) => 9,
            Self::Kind(Kind::ExpAvgSq) => 10,
            Self::Kind(Kind::MaxExpAvgSq) => 11,
            Self::Kind(Kind::MomentumBuffer) => 12,
            Self::Kind(Kind::SquareAvg) => 13,
            Self::Kind(Kind::GradAvg) => 14,
            Self::Kind(Kind::Sum) => 15,
            Self::Kind(Kind::OptimizerState) => 16,
            Self::Kind(Kind::Update | Kind::UpdateRatio | Kind::MgDirection) => 17,
            Self::Kind(Kind::ParamUpdated) => 18,
            Self::Kind(Kind::Comm | Kind::CommTime) | Self::GradNormRatio | Self::StepTime | Self::StragglerLag => 19,
        }
    }

    /// Iterates over all signals.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [Self::Loss, Self::LearningRate, Self::Grad, Self::GradNormRatio, Self::StepTime, Self::StragglerLag];
        own.into_iter().chain(Kind::ALL.into_iter().map(Self::Kind))
    }

    /// Returns the signal with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|signal| signal.name() == name)
    }
}

impl fmt::Display for AlertSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for AlertSignal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for AlertSignal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("`{name}` is not a signal")))
    }
}

impl schemars::JsonSchema for AlertSignal {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AlertSignal".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> = Self::all().map(Self::name).collect();
        schemars::json_schema!({ "type": "string", "enum": names })
    }
}

/// The identity of a series, which has one number per step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AlertSeries {
    /// The part of the model.
    pub scope: AlertScope,
    /// The group, the layer or the tensor; empty for the whole run.
    pub name: String,
    /// The quantity.
    pub signal: AlertSignal,
    /// The statistic of the quantity; `None` if the quantity is a single number.
    pub statistic: Option<Statistic>,
    /// The layer of a tensor; for a layer, its own name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub layer: Option<String>,
    /// The micro-batch; 0 if there is only one.
    pub micro_step: MicroStep,
    /// The virtual-pipeline stage.
    pub vpp_stage: u32,
}

impl AlertSeries {
    /// A series over the whole run.
    pub fn global(signal: AlertSignal, statistic: Option<Statistic>) -> Self {
        Self {
            scope: AlertScope::Global,
            name: String::new(),
            signal,
            statistic,
            layer: None,
            micro_step: MicroStep(0),
            vpp_stage: 0,
        }
    }
}

/// The short form: `gradient norm`, `exp_avg norm of layer model.layers.3`. The alternate form (`{:#}`), for alert
/// messages, has the name in backticks.
impl fmt::Display for AlertSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, name, signal, statistic, layer: _, micro_step, vpp_stage } = self;
        f.write_str(signal.words())?;
        if let Some(statistic) = statistic {
            write!(f, " {statistic}")?;
        }
        match scope {
            AlertScope::Global => {}
            AlertScope::Layer if f.alternate() => write!(f, " of layer `{name}`")?,
            AlertScope::Group | AlertScope::Layer => write!(f, " of {} {name}", scope.name())?,
            AlertScope::Tensor if f.alternate() => write!(f, " of {}", quoted_name(name))?,
            AlertScope::Tensor => write!(f, " of {}", shown_name(name))?,
        }
        if vpp_stage.gt(&0) {
            write!(f, " in model chunk {vpp_stage}")?;
        }
        if micro_step.0 > 0 {
            write!(f, " in micro-batch {micro_step}")?;
        }
        Ok(())
    }
}

/// The value that a rule expected. A missing bound is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectation {
    /// The recent level: a mean, a running average, a baseline.
    #[serde(with = "number::optional", skip_serializing_if = "Option::is_none")]
    pub typical: Option<f64>,
    /// The lowest value that does not raise an alert.
    #[serde(with = "number::optional", skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// The highest value that does not raise an alert.
    #[serde(with = "number::optional", skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// The signal that left its own usual range first in the steps before an alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstMove {
    /// The step.
    pub step: Step,
    /// The quantity: learning rate, a number that the script logs, activation, loss, gradient, moment, update or
    /// parameter.
    pub signal: AlertSignal,
    /// The layer; empty for a number of the whole run.
    pub layer: String,
    /// The tensor in the layer, if one stands out. For a number that the script logs, its name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tensor: Option<String>,
    /// The norm in that step, or the number itself.
    #[serde(with = "number")]
    pub value: f64,
    /// The usual value: the mean of about 64 earlier steps.
    #[serde(with = "number")]
    pub expected: f64,
    /// Whether the gradient is the rank's own, before reduction. Also `false` if only one side of the reduction is
    /// measured.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub before_reduction: bool,
}

impl FirstMove {
    /// The quantity in words, followed by the side of the reduction if that is known.
    pub(crate) fn words(&self) -> (&'static str, &'static str) {
        match self.signal {
            AlertSignal::Kind(Kind::GradReduced) => (AlertSignal::Grad.words(), " after reduction"),
            signal if self.before_reduction => (signal.words(), " before reduction"),
            signal => (signal.words(), ""),
        }
    }
}

impl fmt::Display for FirstMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, signal, layer, tensor, value, expected, before_reduction: _ } = self;
        let (value, usual) = (short(*value, DIGITS), short(*expected, DIGITS));
        match (tensor, layer.is_empty()) {
            (Some(name), _) if *signal == AlertSignal::Kind(Kind::Scalar) => {
                write!(f, "`{name}` at step {step} ({value}, usually {usual})")
            }
            (None, true) => write!(f, "{} at step {step} ({value}, usually {usual})", signal.words()),
            _ => {
                let name = tensor.as_deref().unwrap_or(layer);
                let name = if f.alternate() { quoted_name(name).into() } else { shown_name(name) };
                let (words, side) = self.words();
                write!(f, "{words} of {name}{side} at step {step} (norm {value}, usually {usual})")
            }
        }
    }
}

/// A finding of a rule, in the form that leaves the detectors.
///
/// In JSON, a number that is not finite is one of the strings `"NaN"`, `"Infinity"`, `"-Infinity"`, and `time` is RFC
/// 3339.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The rule.
    pub rule: AlertRule,
    /// The severity.
    pub severity: AlertSeverity,
    /// Whether the alert begins or ends.
    pub phase: AlertPhase,
    /// The number of findings of this rule on this series since the alert began, including this one.
    pub findings: u64,
    /// The step of the finding. When an alert ends, the first step that is normal again.
    pub step: Step,
    /// The rank of the finding.
    pub rank: Rank,
    /// The wall-clock time at the end of that step.
    #[serde(with = "time")]
    pub time: SystemTime,
    /// The series.
    pub series: AlertSeries,
    /// The value found.
    #[serde(with = "number")]
    pub value: f64,
    /// The value expected.
    pub expected: Expectation,
    /// One sentence for a person, including the root cause.
    pub message: String,
    /// The root cause, if one was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved_first: Option<FirstMove>,
    /// The incident that the alert belongs to. `None` for rules that are not about the model's numbers (`Stall`,
    /// `Straggler`, `NormMismatch`), and in files of older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub incident: Option<Incident>,
}

impl Alert {
    /// The step of the root cause and its position in the order of a step; without a root cause, those of the alert.
    pub fn first_place(&self) -> (Step, usize) {
        let own = (self.step, self.series.signal);
        let (step, signal) = self.moved_first.as_ref().map_or(own, |first| (first.step, first.signal));
        (step, signal.place_in_step())
    }
}

/// An alert belongs to an incident if it begins at most this many steps after the incident's latest alert.
pub const INCIDENT_STEPS: u64 = 16;

/// Alerts of one rank that begin within a few steps of each other, of any rule. They most likely have one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The step in which the first alert began. It identifies the incident: at most one incident per rank begins in a
    /// step.
    pub step: Step,
    /// Whether this alert was sent for the incident. The other alerts are recorded and counted only.
    pub headline: bool,
}

/// Serializes a point in time as RFC 3339.
mod time {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        let stamp = jiff::Timestamp::try_from(*time).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&stamp)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        let stamp: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(stamp.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn alert() -> Alert {
        Alert {
            rule: AlertRule::Spike,
            severity: AlertSeverity::Warning,
            phase: AlertPhase::Begins,
            findings: 1,
            step: Step(7),
            rank: Rank(3),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            series: AlertSeries {
                scope: AlertScope::Tensor,
                name: "h.3.fc.weight".into(),
                layer: Some("h.3".into()),
                vpp_stage: 1,
                ..AlertSeries::global(AlertSignal::Kind(Kind::ExpAvg), Some(Statistic::Norm))
            },
            value: f64::INFINITY,
            expected: Expectation { typical: Some(1.0), lower: None, upper: Some(f64::NAN) },
            message: "m".into(),
            moved_first: Some(FirstMove {
                step: Step(6),
                signal: AlertSignal::Grad,
                layer: "h.3".into(),
                tensor: None,
                value: 2.0,
                expected: 1.0,
                before_reduction: false,
            }),
            incident: Some(Incident { step: Step(7), headline: true }),
        }
    }

    #[test]
    fn an_alert_survives_json_with_numbers_that_are_not_finite() {
        let json = serde_json::to_value(alert()).unwrap();
        assert_eq!(json["value"], "Infinity");
        assert_eq!(json["expected"], serde_json::json!({"typical": 1.0, "upper": "NaN"}));
        assert_eq!(json["time"], "1970-01-01T00:00:01.5Z");
        assert_eq!(json["series"]["signal"], "exp_avg");
        let back: Alert = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&back).unwrap(), json);
        assert_eq!((back.value, back.series, back.moved_first), (alert().value, alert().series, alert().moved_first));
    }

    #[test]
    fn names_and_their_rules_and_signals_are_one_to_one() {
        for rule in AlertRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
        }
        for kind in Kind::ALL {
            assert_eq!(AlertSignal::from_name(kind.name()), Some(AlertSignal::Kind(kind)));
        }
        assert_eq!(AlertSignal::from_name("grad"), Some(AlertSignal::Grad));
        assert_eq!(AlertSignal::from_name("hope"), None);
    }

    #[test]
    fn a_series_reads_as_a_phrase() {
        assert_eq!(alert().series.to_string(), "exp_avg norm of h.3.fc.weight in model chunk 1");
        assert_eq!(AlertSeries::global(AlertSignal::Loss, None).to_string(), "loss");
    }
}
