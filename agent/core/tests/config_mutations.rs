//! Whatever becomes of a config file, it is read or refused with a place, never a panic.

use proptest::prelude::*;
use serde_json::Value;
use trainmon_core::config::{Config, ConfigErrors, DiagnosticKind};

const SAMPLES: [&str; 3] = [
    include_str!("../../../configs/full.json"),
    include_str!("../../../configs/v2.json"),
    include_str!("../../../configs/demo.json"),
];

/// Every error has a place in the text, they are in order, and none comes from beyond the checks.
fn assert_sound(text: &str) {
    let Err(ConfigErrors { errors, .. }) = Config::parse(text, "c.json", &|_| None) else { return };
    assert!(!errors.is_empty());
    for pair in errors.windows(2) {
        assert!((pair[0].line, pair[0].column) <= (pair[1].line, pair[1].column), "{pair:?}");
    }
    for error in &errors {
        let line = text.split('\n').nth(error.line - 1);
        let has_place = line.is_some_and(|line| error.column <= line.chars().count() + 1);
        assert!(has_place, "{error}");
        let is_from_the_checks = error.kind != DiagnosticKind::WrongType || error.expected.is_some();
        assert!(is_from_the_checks, "{error}");
    }
}

/// One edit of a text: at a share of its length, remove so many characters and put these in.
type Edit = (f64, usize, String);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let inserted = prop_oneof![
        Just(String::new()),
        "[\\[\\]{}:,\"'/*0-9.eE+\\-]{0,4}",
        "\\PC{0,6}",
        prop::sample::select(vec![
            "true",
            "null",
            "NaN",
            "-1",
            "1e400",
            "\"norm\"",
            "[[[[",
            "\u{0}",
            "\r",
            "\\u",
            "\"\\ud800\""
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec((0.0..1.0_f64, 0_usize..12, inserted), 1..6)
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (place, removed, inserted) in edits {
        let start = (place * chars.len() as f64) as usize;
        let end = (start + removed).min(chars.len());
        chars.splice(start..end, inserted.chars());
    }
    chars.into_iter().collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3_i64..30).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["norm", "shape", "csv", "prometheus", "Spike", "127.0.0.1", "pytorch"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{0,8}", inner.clone()), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            (prop::sample::select(vec!["enabled", "rules", "rule_name", "args", "port", "ops"]), inner)
                .prop_map(|(key, value)| Value::Object([(key.to_owned(), value)].into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edited_config_is_read_or_refused_with_a_place(sample in 0..SAMPLES.len(), edits in edits()) {
        assert_sound(&edited(SAMPLES[sample], &edits));
    }

    #[test]
    fn any_value_at_any_key_is_read_or_refused_by_the_checks(index in any::<prop::sample::Index>(), value in any_json(), is_v2: bool) {
        let schema = trainmon_core::config::json_schema();
        let dialect = if is_v2 { "V2File" } else { "V1File" };
        let keys: Vec<&String> = schema["$defs"][dialect]["properties"].as_object().expect("an object").keys().collect();
        let key = index.get(&keys);
        let framework = if is_v2 && key.as_str() != "framework" { "\"framework\": \"pytorch\", " } else { "" };
        assert_sound(&format!("{{{framework}\"{key}\": {value}}}"));
    }

    #[test]
    fn any_value_at_any_monitors_key_is_read_or_refused_by_the_checks(index in any::<prop::sample::Index>(), value in any_json()) {
        let monitors = ["module", "weight_grad", "optimizer", "param", "update", "cc"];
        let monitor = index.get(&monitors);
        for key in ["enabled", "ops", "eps", "targets", "mv_distribution", "micro_batch_number", "cc_distribution"] {
            assert_sound(&format!("{{\"monitors\": {{\"{monitor}\": {{\"{key}\": {value}}}}}}}"));
        }
        assert_sound(&format!("{{\"monitors\": {{\"{monitor}\": {value}}}}}"));
    }
}
