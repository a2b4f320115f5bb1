//! A key that is declared is one wherever it belongs: in both dialects, in the effective config, and in a change.

use serde_json::{Value, json};
use trainmon_core::config::{CaptureConfig, CaptureDialect, Config, Plan, PlanChange};

fn config(text: &str) -> Config {
    Config::parse(text, "c.json", &|_| None).unwrap_or_else(|errors| panic!("{text}: {errors}")).config
}

/// `keys`, and each of them with another value than it has: the key, the value, and what the keys are then.
fn changed(keys: &Value) -> Vec<(String, Value, Value)> {
    let other = |value: &Value| match value {
        Value::Bool(is_on) => json!(!is_on),
        number => json!(number.as_u64().unwrap_or(0) + 7),
    };
    let each = keys.as_object().expect("an object").iter().map(|(key, value)| {
        let mut after = keys.clone();
        after[key] = other(value);
        (key.clone(), other(value), after)
    });
    each.collect()
}

#[test]
fn a_key_of_the_window_is_a_key_of_a_change_and_begins_the_window_anew() {
    let start = Config::default();
    for (key, value, after) in changed(&json!(start.window)) {
        let text = json!({ (key.as_str()): value }).to_string();
        let change = PlanChange::parse(&text, "request").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(json!(change.applied_to(&Plan::of(&start), &start).window), after, "{key}");
        assert!(change.restarts_window(), "{key}");
    }
    let silent = PlanChange::parse(r#"{"step_interval": null, "ops": ["max"]}"#, "request").expect("a change");
    assert!(!silent.restarts_window(), "null gives no value to a key that has one");
}

#[test]
fn a_key_that_means_the_same_everywhere_is_read_from_both_dialects() {
    type Part = fn(&Config) -> Value;
    let parts: [Part; 3] =
        [|config| json!(config.window), |config| json!(config.general), |config| json!(config.pipeline)];
    for part in parts {
        for (key, value, after) in changed(&part(&Config::default())) {
            for switch in ["wg_distribution", "monitors"] {
                let on = if switch == "monitors" { json!({"param": {"enabled": true}}) } else { json!(true) };
                let config = config(&json!({ (switch): on, (key.as_str()): value }).to_string());
                assert_eq!(part(&config), after, "{switch}, {key}");
            }
        }
    }
}

#[test]
fn a_key_of_how_a_captures_files_are_written_is_read_from_its_file() {
    let parse = |text: &str| {
        let parsed = CaptureConfig::parse(text, "dump.json", CaptureDialect::Trainmon);
        parsed.unwrap_or_else(|errors| panic!("{text}: {errors}")).config
    };
    let usual = parse(r#"{"task": "tensor"}"#);
    for (key, value, after) in changed(&json!(usual.files)) {
        let files = parse(&json!({"task": "tensor", (key.as_str()): value}).to_string()).files;
        assert_eq!(json!(files), after, "{key}");
    }
}
