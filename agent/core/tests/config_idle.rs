//! What a config has that measures or writes nothing is warned of, with its place.

use trainmon_core::config::{Config, Diagnostic, DiagnosticKind, Parsed};

/// The warnings, each as `key: message`; the config is a good one.
fn warnings(text: &str) -> Vec<String> {
    let Parsed { warnings, .. } = Config::parse(text, "c.json", &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(warnings.iter().all(|warning| warning.hint.is_some()), "{warnings:?}");
    warnings.iter().map(Diagnostic::message).collect()
}

#[test]
fn keys_of_a_measurement_that_is_off_are_named() {
    for (key, value, needed) in [
        ("monitor_mbs_grad", "true", "wg_distribution"),
        ("all_xy", "true", "xy_distribution"),
        ("forward_only", "true", "xy_distribution"),
        ("backward_only", "true", "xy_distribution"),
        ("l2_targets", r#"{"linear_hook": []}"#, "recording_l2_features"),
        ("sa_order", r#""b,s,h,d""#, "recording_l2_features"),
    ] {
        let with = |needed: &str| format!(r#"{{"param_distribution": true, {needed} "{key}": {value}}}"#);
        let expected = format!("key `{key}`: has no effect without `{needed}`");
        assert_eq!(warnings(&with("")), [expected.as_str()]);
        assert_eq!(warnings(&with(&format!(r#""{needed}": false,"#))), [expected.as_str()]);
    }
    let collectives = r#"{"param_distribution": true, "cc_distribution": {"cc_pre_hook": true}}"#;
    assert_eq!(warnings(collectives), ["key `cc_distribution.cc_pre_hook`: has no effect without `enable`"]);
}

#[test]
fn a_key_with_its_default_or_with_what_it_needs_is_fine() {
    for config in [
        r#"{"param_distribution": true, "all_xy": false, "l2_targets": {}, "sa_order": "s,b,h,d"}"#,
        r#"{"xy_distribution": true, "all_xy": true, "forward_only": true}"#,
        r#"{"recording_l2_features": true, "l2_targets": {"linear_hook": []}, "sa_order": "b,s,h,d"}"#,
    ] {
        assert_eq!(warnings(config), Vec::<String>::new(), "{config}");
    }
}

#[test]
fn a_config_that_never_measures_says_so() {
    assert_eq!(
        warnings(r#"{"wg_distribution": true, "collect_times": 0}"#),
        ["key `collect_times`: no step is measured"]
    );
    assert_eq!(warnings("{}"), ["the config measures nothing"]);
}

#[test]
fn a_training_given_the_config_of_a_capture_measures_nothing_and_is_told() {
    let text = r#"{"task": "tensor", "level": "L0", "step": [1]}"#;
    let parsed = Config::parse_for_training(text, "c.json", &|_| None).expect("accepted");
    let kinds: Vec<DiagnosticKind> = parsed.warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [DiagnosticKind::Nothing, DiagnosticKind::Conflict]);
    let errors = Config::parse(text, "c.json", &|_| None).expect_err("refused");
    let message = "key `task`: `task: tensor` belongs to the config of a capture, but this is a monitor";
    assert_eq!(errors.errors[0].message(), message);
}
