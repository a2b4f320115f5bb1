//! The sentence for a value that is not what a rule expected.

use crate::{ALERT_DIGITS, Alert, Expectation, Step, short};

/// From this multiple of its usual value on, a value is reported as such.
const MIN_TIMES: f64 = 1.5;
/// Below this share of its usual value, a value is reported as such.
const MIN_SHARE: f64 = 0.67;
/// The number of significant digits of such a multiple or share.
const TIMES_DIGITS: usize = 2;

impl Alert {
    /// The value of the series at step `since` in words: ``loss is 50 times its usual value at step 20 on rank 0 (100,
    /// usually 2, alert above 6)``. If it is about as large as usual, or cannot be compared, the value itself comes first.
    pub fn value_sentence(&self, since: Step) -> String {
        let Self { series, rank, .. } = self;
        let value = short(self.value, ALERT_DIGITS);
        let (is, own) = match times_usual(self) {
            Some(times) => (times, Some(value)),
            None => (value, None),
        };
        let values = values(own, &self.expected);
        format!("{series:#} is {is} at step {since} on rank {rank}{values}")
    }
}

/// The value as a multiple or a share of its usual value; `None` if they are of about the same size, or not comparable.
fn times_usual(alert: &Alert) -> Option<String> {
    let typical = alert.expected.typical.filter(|&typical| typical.is_finite() && typical > 0.0)?;
    let times = alert.value / typical;
    if !times.is_finite() || times <= 0.0 || (MIN_SHARE..MIN_TIMES).contains(&times) {
        return None;
    }
    let is_above = times >= MIN_TIMES;
    let (number, unit) = if is_above { (times, " times") } else { (100.0 * times, " % of") };
    Some(format!("{}{unit} its usual value", short(number, TIMES_DIGITS)))
}

/// The value and the expected ones in parentheses; empty without any.
fn values(own: Option<String>, Expectation { typical, lower, upper }: &Expectation) -> String {
    let part = |words: &str, value: &Option<f64>| value.map(|value| format!("{words} {}", short(value, ALERT_DIGITS)));
    let parts = [own, part("usually", typical), part("alert below", lower), part("alert above", upper)];
    let listed: Vec<String> = parts.into_iter().flatten().collect();
    if listed.is_empty() { String::new() } else { format!(" ({})", listed.join(", ")) }
}
