//! The config of a capture: msprobe's files load, faults are told with their places, all at once.

use std::path::Path;

use serde_json::{Map, Value, json};
use trainmon_core::config::{
    CaptureConfig, CaptureDialect, CaptureFiles, CaptureLevel, CaptureTask, ConfigErrors, DataMode, Diagnostic,
    DiagnosticKind, ParsedCapture, Precision, RiskLevel, Slice, Summary, TensorFormat,
};

fn parse(text: &str) -> Result<ParsedCapture, ConfigErrors> {
    CaptureConfig::parse(text, "c.json", CaptureDialect::Trainmon)
}

fn config(text: &str) -> CaptureConfig {
    parse(text).expect("accepted").config
}

/// What is wrong with a file that has `dump_path` and these keys.
fn faults(keys: &str) -> Vec<(String, DiagnosticKind)> {
    let of = |found: Vec<Diagnostic>| found.into_iter().map(|fault| (fault.key, fault.kind)).collect();
    match parse(&format!("{{\"dump_path\": \"d\", {keys}}}")) {
        Ok(parsed) => of(parsed.warnings),
        Err(errors) => of(errors.errors),
    }
}

fn fault(key: &str, kind: DiagnosticKind) -> Vec<(String, DiagnosticKind)> {
    vec![(key.to_owned(), kind)]
}

/// msprobe's sample of former versions, every block in it.
const FOUNDING: &str = include_str!("data/msprobe_sample.json");

#[test]
fn the_incumbents_whole_sample_loads_and_each_idle_block_says_what_to_use() {
    let parsed = parse(FOUNDING).expect("accepted");
    let ParsedCapture { config, warnings } = parsed;
    assert_eq!(
        (config.task, config.level, config.list),
        (CaptureTask::Statistics, CaptureLevel::L1, vec!["relu".to_owned()])
    );
    assert_eq!(
        (config.dump_path.as_path(), config.steps.to_string().as_str()),
        (Path::new("/home/data_dump"), "0, 2-3")
    );
    let told: Vec<(&str, &str)> =
        warnings.iter().map(|warning| (warning.key.as_str(), warning.found.as_deref().expect("a reason"))).collect();
    let expected = [
        ("seed", "seed_all(seed)"),
        ("overflow_check.check_mode", "every call is checked"),
        ("run_ut", "see `acc_check`"),
        ("grad_probe", "`wg_distribution`"),
        ("free_benchmark", "`trainmon compare`"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((key, found), (expected_key, instead)) in told.iter().zip(expected) {
        assert!(*key == expected_key && found.contains(instead), "{key}: {found}");
    }
    assert!(warnings.iter().all(|warning| warning.line > 1), "each has its place: {warnings:?}");
}

#[test]
fn every_key_reaches_the_config() {
    let text = r#"{"task": "tensor", "dump_path": "d", "rank": ["0-3", 7], "step": [1], "level": "mix", "async_dump": true,
        "dump_enable": true, "extra_info": false, "precision": "low", "risk_level": "CORE", "custom_op_namespaces": ["mine"],
        "compress": true, "share_files": false, "disk_budget_mib": 10, "pool_mib": 20, "durable": true,
        "tensor": {"scope": ["Module.a.A.forward.0", "Tensor.add.3.forward"], "list": ["x"], "data_mode": ["forward", "input"],
            "slice": [{"dim": 1, "begin": -2, "end": -1, "size": 8}], "request_id": "r", "summary_mode": "xor",
            "file_format": "safetensors", "diff_nums": -1, "overflow_nums": 4}}"#;
    let expected = CaptureConfig {
        task: CaptureTask::Tensor,
        dump_path: "d".into(),
        level: CaptureLevel::Mix,
        async_dump: true,
        dump_enable: Some(true),
        extra_info: false,
        precision: Precision::Low,
        risk_level: RiskLevel::Core,
        custom_op_namespaces: vec!["mine".to_owned()],
        scope: Some(["Module.a.A.forward.0".to_owned(), "Tensor.add.3.forward".to_owned()]),
        list: vec!["x".to_owned()],
        data_mode: DataMode { forward: true, backward: false, input: true, output: false },
        slice: vec![Slice { dim: 1, begin: -2, end: Some(-1), size: Some(8) }],
        request_id: Some("r".to_owned()),
        summary: Summary::Xor,
        diff_nums: None,
        overflow_nums: Some(4),
        file_format: TensorFormat::Safetensors,
        files: CaptureFiles {
            compress: true,
            share_files: false,
            disk_budget_mib: Some(10),
            pool_mib: 20,
            durable: true,
        },
        ..config(r#"{"task": "tensor", "dump_path": "d", "rank": ["0-3", 7], "step": [1]}"#)
    };
    assert_eq!(config(text), expected);
    assert_eq!(expected.ranks.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
}

#[test]
fn a_file_with_nothing_but_its_task_has_the_defaults() {
    let expected = CaptureConfig { dump_path: "d".into(), ..CaptureConfig::default() };
    assert_eq!(config(r#"{"task": "statistics", "dump_path": "d"}"#), expected);
    let parsed =
        CaptureConfig::parse(r#"{"task": "statistics"}"#, "c.json", CaptureDialect::Msprobe).expect("accepted");
    let ours = (CaptureConfig::default().precision, CaptureConfig::default().neutral);
    assert_eq!(ours, (Precision::High, true));
    let found = (parsed.config.precision, parsed.config.neutral);
    assert_eq!(found, (Precision::Low, false), "msprobe's meaning for msprobe's names");
    assert_eq!(parsed.warnings[0].key, "dump_path");
}

#[test]
fn tasks_that_are_tools_of_their_own_say_what_to_use() {
    for (task, instead) in [
        ("acc_check", "trainmon compare"),
        ("run_ut", "trainmon compare"),
        ("exception_dump", "overflow_check"),
        ("grad_probe", "wg_distribution"),
        ("free_benchmark", "trainmon compare"),
    ] {
        let errors = parse(&format!("{{\"task\": \"{task}\", \"dump_path\": \"d\"}}")).expect_err("refused").errors;
        assert_eq!((errors.len(), errors[0].kind), (1, DiagnosticKind::NotImplemented), "{task}");
        assert!(errors[0].hint.as_deref().is_some_and(|hint| hint.contains(instead)), "{errors:?}");
    }
    let misspelt = parse(r#"{"task": "tensr", "dump_path": "d"}"#).expect_err("refused");
    assert_eq!(misspelt.errors[0].suggestion.as_deref(), Some("tensor"));
}

#[test]
fn everything_wrong_is_told_at_once_with_its_place() {
    use DiagnosticKind::{Conflict, OutOfRange, UnknownKey, WrongType};
    let text = "{\n \"task\": \"statistics\",\n \"dump_path\": \"d\",\n \"levle\": \"L1\",\n \"rank\": [\"5-3\", -1],\n \"async_dump\": 1,\n \"statistics\": {\"scope\": [\"x\"], \"data_mode\": [\"all\", \"forward\"]},\n \"nonsense\": 1\n}";
    let ConfigErrors { errors, warnings } = parse(text).expect_err("refused");
    let told: Vec<(usize, &str, DiagnosticKind)> =
        errors.iter().map(|error| (error.line, error.key.as_str(), error.kind)).collect();
    let expected = [
        (4, "levle", UnknownKey),
        (5, "rank[0]", OutOfRange),
        (5, "rank[1]", OutOfRange),
        (6, "async_dump", WrongType),
        (7, "statistics.scope", OutOfRange),
        (7, "statistics.data_mode", Conflict),
    ];
    assert_eq!(told, expected);
    assert_eq!(errors[0].suggestion.as_deref(), Some("level"));
    assert_eq!((warnings.len(), warnings[0].key.as_str()), (1, "nonsense"));
}

/// msprobe's own cases of ranks and steps that are refused.
#[test]
fn numbers_that_are_none_are_refused() {
    for listed in
        ["[-1]", "[3.5]", "[true]", "[10000000]", "[\"x\"]", "[\"1-4-5\"]", "[\"!-,\"]", "[\"5-3\"]", "3", "\"3\""]
    {
        let keys = format!("\"task\": \"statistics\", \"step\": {listed}");
        let found = faults(&keys);
        assert!(found.len() == 1 && found[0].0.starts_with("step"), "{listed}: {found:?}");
    }
}

#[test]
fn a_scope_is_two_names_of_its_level() {
    let with = |level: &str, first: &str, last: &str| {
        faults(&format!(
            "\"task\": \"statistics\", \"level\": \"{level}\", \"statistics\": {{\"scope\": [\"{first}\", \"{last}\"]}}"
        ))
    };
    let (function, module) = ("Tensor.add.0.forward", "Module.a.b.Linear.backward.2");
    assert_eq!(with("L1", function, "Tensor.add.0.backward"), []);
    assert_eq!(with("L0", module, module), []);
    assert_eq!(with("mix", function, module), []);
    assert_eq!(with("L2", "Aten.add.Tensor.0.forward", "Aten.mm.default.3.backward"), []);
    assert_eq!(with("L1", module, function), fault("statistics.scope[0]", DiagnosticKind::OutOfRange));
    assert_eq!(with("L0", module, function), fault("statistics.scope[1]", DiagnosticKind::OutOfRange));
    assert_eq!(
        with("L1", "Tensor.add.", "Tensor.add.0.forward"),
        fault("statistics.scope[0]", DiagnosticKind::OutOfRange)
    );
}

#[test]
fn keys_that_say_nothing_together_are_told() {
    use DiagnosticKind::{Conflict, MissingKey, NoEffect, OutOfRange};
    assert_eq!(faults(r#""task": "structure", "level": "L1""#), fault("level", NoEffect));
    assert_eq!(config(r#"{"task": "structure", "dump_path": "d"}"#).level, CaptureLevel::Mix);
    assert_eq!(faults(r#""task": "tensor", "tensor": {"tensor_list": ["a"]}"#), fault("tensor.tensor_list", NoEffect));
    assert_eq!(
        faults(r#""task": "nan_check", "nan_check": {"data_mode": ["input"]}"#),
        fault("nan_check.data_mode", Conflict)
    );
    assert_eq!(faults(r#""task": "diff_check""#), fault("diff_check.bench_path", MissingKey));
    assert_eq!(
        faults(r#""task": "overflow_check", "overflow_check": {"overflow_nums": 0}"#),
        fault("overflow_check.overflow_nums", OutOfRange)
    );
    assert_eq!(faults(r#""task": "nan_check", "level": "debug""#), fault("level", Conflict));
    let diff = config(
        r#"{"task": "tensor", "dump_path": "d", "tensor": {"bench_path": "b", "summary_mode": "md5", "diff_nums": 3}}"#,
    );
    assert_eq!((diff.task, diff.diff_nums), (CaptureTask::DiffCheck, Some(3)), "msprobe's way to ask for it");
}

#[test]
fn arguments_stand_in_the_place_of_keys() {
    let over = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let text = r#"{"task": "statistics", "dump_path": "d", "level": "L0", "unknown": 1}"#;
    let parse = |over: &Map<String, Value>| CaptureConfig::parse_over(text, over, "c.json", CaptureDialect::Msprobe);
    let parsed = parse(&over(json!({"dump_path": "e", "step": [3], "level": "mix"}))).expect("accepted");
    assert_eq!((parsed.config.dump_path.as_path(), parsed.config.level), (Path::new("e"), CaptureLevel::Mix));
    assert!(parsed.config.steps.contains(3) && !parsed.config.steps.contains(0));
    assert_eq!((parsed.warnings[0].line, parsed.warnings[0].key.as_str()), (1, "unknown"));
    let errors = parse(&over(json!({"level": "L9"}))).expect_err("refused");
    assert_eq!((errors.errors[0].line, errors.errors[0].key.as_str()), (0, "level"));
}

#[test]
fn a_capture_is_told_from_a_monitor() {
    assert!(CaptureConfig::is_meant_by(FOUNDING));
    assert!(!CaptureConfig::is_meant_by(r#"{"ops": ["norm"]}"#) && !CaptureConfig::is_meant_by("{"));
}

#[test]
fn the_sample_is_every_key_at_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/dump-full.json");
    let text = std::fs::read_to_string(path).expect("readable");
    let parsed = parse(&text).expect("accepted");
    let expected = CaptureConfig { dump_path: "./dump_path".into(), ..CaptureConfig::default() };
    assert_eq!((parsed.config, parsed.warnings), (expected, Vec::new()));
    let schema = trainmon_core::config::json_schema();
    for kind in ["CaptureFile", "BlockFile"] {
        let properties = schema["$defs"][kind]["properties"].as_object().expect("an object");
        // Those of former versions and of other frameworks are not for new files.
        let keys = properties.iter().filter(|(_, property)| property.get("x-no-effect").is_none()).map(|(key, _)| key);
        let missing: Vec<&String> = keys.filter(|key| !text.contains(&format!("\"{key}\":"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
