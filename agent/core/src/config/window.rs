//! The measured steps and changes of them. Each key of the window is declared once, in the table below.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Step;

/// msprobe's "no end": more steps than any run has.
const UNLIMITED_STEPS: u64 = 100_000_000;

/// Defines the window and a change of it from a table of keys, types and defaults.
macro_rules! window {
    ($($(#[$about:meta])* $key:ident: $type:ty = $default:expr,)*) => {
        /// The steps measured: `start_step`, then every `step_interval`-th, at most `collect_times` of them, none from
        /// `stop_step` on. These are keys of a config file of either dialect and part of a [`Plan`](super::Plan).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct Window {
            $($(#[$about])* pub $key: $type,)*
        }

        impl Default for Window {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        /// A change of the window. A key that is `None` is unchanged.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct WindowChange {
            $($(#[$about])* #[serde(deserialize_with = "given")] pub $key: Option<$type>,)*
        }

        impl WindowChange {
            /// The window after this change.
            #[must_use]
            pub fn applied_to(self, window: Window) -> Window {
                Window { $($key: self.$key.unwrap_or(window.$key),)* }
            }
        }
    };
}

window! {
    /// The first step measured.
    #[schemars(extend("x-msprobe" = "a bad value means the default"))]
    start_step: u64 = 0,
    /// The first step that is no longer measured.
    #[schemars(extend("x-msprobe" = "V2 only"))]
    stop_step: Option<u64> = None,
    /// The interval, in steps, between measured steps.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-msprobe" = "a bad value means the default; skipped steps are computed anyway"))]
    step_interval: u64 = 1,
    /// The maximum number of steps measured.
    #[schemars(extend("x-msprobe" = "0 still measures one step"))]
    collect_times: u64 = UNLIMITED_STEPS,
}

/// Reads a key of a change: `null` is a value if the key allows it, and otherwise leaves the key unchanged.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(key: D) -> Result<Option<T>, D::Error> {
    match Value::deserialize(key)? {
        Value::Null => Ok(T::deserialize(Value::Null).ok()),
        value => T::deserialize(value).map(Some).map_err(D::Error::custom),
    }
}

impl Window {
    /// Whether `step` is measured, given how many steps were measured before it.
    #[inline]
    pub fn includes(&self, step: Step, collected_before: u64) -> bool {
        step.0 >= self.start_step
            && self.stop_step.is_none_or(|stop| step.0 < stop)
            && (step.0 - self.start_step).is_multiple_of(self.step_interval.max(1))
            && collected_before < self.collect_times
    }
}

/// `one step in 10 from step 100 on before step 200, 5 at most`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interval, start, most) = (self.step_interval, self.start_step, self.collect_times);
        let every = if interval == 1 { "every step".to_owned() } else { format!("one step in {interval}") };
        let from = if start > 0 { format!(" from step {start} on") } else { String::new() };
        let before = self.stop_step.map(|stop| format!(" before step {stop}")).unwrap_or_default();
        let most = if most < UNLIMITED_STEPS { format!(", {most} at most") } else { String::new() };
        write!(f, "{every}{from}{before}{most}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_strides_and_stops() {
        let twice = Window { step_interval: 2, collect_times: 2, ..Window::default() };
        let window = Window { start_step: 3, stop_step: Some(9), ..twice };
        let mut collected = 0;
        let steps: Vec<u64> = (0..12)
            .filter(|&step| {
                let included = window.includes(Step(step), collected);
                collected += u64::from(included);
                included
            })
            .collect();
        assert_eq!(steps, [3, 5]);
        assert!(!Window { collect_times: 0, ..window }.includes(Step(3), 0));
        assert!(!window.includes(Step(9), 0));
    }
}
