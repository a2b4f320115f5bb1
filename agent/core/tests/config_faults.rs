//! What the config's author is told.

use serde_json::json;
use trainmon_core::Statistic::{self, Max, Mean, Min, Nans, Norm, Zeros};
use trainmon_core::config::{
    AttentionOrder, Config, ConfigErrors, Diagnostic, DiagnosticKind, Dialect, FileLayout, FrontTask, Parsed, Signals,
    TargetRule, TimeTag, USUAL_CONFIG,
};
use trainmon_core::{Kind, Step};

fn parse(text: &str) -> Result<Parsed, ConfigErrors> {
    Config::parse(text, "c.json", &|_| None)
}

fn config(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// One line per diagnostic, its hint after a bar.
fn told(diagnostics: &[Diagnostic]) -> String {
    let line = |diagnostic: &Diagnostic| match &diagnostic.hint {
        Some(hint) => format!("{diagnostic} | {hint}"),
        None => diagnostic.to_string(),
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn assert_refused(text: &str, expected: &[&str]) {
    let errors = parse(text).expect_err(text).errors;
    assert_eq!(told(&errors), expected.join("\n"), "{text}");
}

#[track_caller]
fn assert_warned(text: &str, expected: &[&str]) {
    let warnings = parse(text).expect(text).warnings;
    assert_eq!(told(&warnings), expected.join("\n"), "{text}");
}

#[test]
fn syntax_faults_have_a_place_and_plain_words() {
    for (text, expected) in [
        ("", "c.json:1:1: the file is empty | the smallest valid file is {}"),
        ("{\n  'a': 1}", "c.json:2:3: text in single quotes | write \"text\""),
        ("{\"a\": 1 \"b\": 2}", "c.json:1:8: missing comma | put a comma between entries"),
        ("{\"a\" 1}", "c.json:1:6: missing colon after the key | write \"key\": value"),
        ("{\"eps\": True}", "c.json:1:9: `True` is not a JSON value | write true"),
        ("{\"ndigits\": None}", "c.json:1:13: `None` is not a JSON value | write null, or remove the key"),
        ("{\"eps\": nan}", "c.json:1:9: `nan` is not a JSON value | put text in double quotes"),
        ("{\"a\": [1}", "c.json:1:9: unexpected close brace"),
        ("{\"a\": 1", "c.json:1:1: this `{` is never closed | add `}`"),
        ("{} {}", "c.json:1:4: text after the end of the config | remove it"),
        ("{eps: 1}", "c.json:1:2: key without double quotes | write \"key\": value"),
    ] {
        assert_refused(text, &[expected]);
    }
}

#[test]
fn comments_trailing_commas_and_a_byte_order_mark_are_accepted() {
    let text = "\u{feff}// one\n{ /* two */ \"wg_distribution\": true, \"ops\": [\"max\", /* three */], }\r\n";
    let config = config(text);
    assert_eq!(config.signals.weight_grad.expect("on").signal.ops, [Max]);
}

#[test]
fn a_wrong_type_says_what_to_write_where_that_is_plain() {
    assert_refused(
        r#"{"start_step": 3.0, "step_interval": "2", "wg_distribution": 1, "ops": "norm", "targets": ["a"], "eps": null}"#,
        &[
            "c.json:1:16: key `start_step`: expected an integer of at least 0, found 3.0 | write 3",
            "c.json:1:38: key `step_interval`: expected an integer of at least 1, found \"2\" | write 2 without quotes",
            "c.json:1:62: key `wg_distribution`: expected true or false, found 1 | write true",
            "c.json:1:72: key `ops`: expected a list, each entry one of `min`, `max`, `mean`, `norm`, `absmax`, `std`, \
             `nans`, `infs`, `zeros`, `count`, `crc32`, `xor64`, `id`, `shape`, `dtype`, found \"norm\" | write [\"norm\"]",
            "c.json:1:91: key `targets`: expected an object in braces, found a list | write {\"name\": {}}",
            "c.json:1:105: key `eps`: expected a number of at least 0, found null | leave the key out for its default",
        ],
    );
}

#[test]
fn a_hint_names_only_what_is_accepted_next() {
    for (key, hint) in [
        (r#""module_ranks": "0""#, "write [0]"),
        (r#""module_ranks": "0, 3""#, "write [0, 3]"),
        (r#""module_ranks": 2"#, "write [2]"),
        (r#""ops": "norm,max""#, r#"write ["norm", "max"]"#),
        (r#""wg_distribution": "True""#, "write true without quotes"),
        (r#""output_dir": 5"#, r#"write "5""#),
    ] {
        let text = format!("{{{key}}}");
        let refused = Config::parse(&text, "c.json", &|_| None).expect_err(key);
        assert_eq!(refused.errors[0].hint.as_deref(), Some(hint), "{key}");
        let value = hint.trim_start_matches("write ").trim_end_matches(" without quotes");
        let name = key.split_once(':').expect("a key").0;
        Config::parse(&format!("{{{name}: {value}}}"), "c.json", &|_| None).expect(hint);
    }
    for without in [r#""module_ranks": "first""#, r#""ops": "nrom""#, r#""module_ranks": "-1""#] {
        let refused = Config::parse(&format!("{{{without}}}"), "c.json", &|_| None).expect_err(without);
        assert_eq!(refused.errors[0].hint, None, "{without}");
    }
}

#[test]
fn numbers_out_of_range_name_the_range() {
    assert_refused(
        r#"{"ndigits": 21, "step_interval": 0, "step_count_per_record": 1000001, "eps": -0.5, "module_ranks": [-1],
"start_step": 18446744073709551616, "prometheus": {"port": 65536, "top_k": 17}}"#,
        &[
            "c.json:1:13: key `ndigits`: expected an integer from 1 to 20, found 21 | remove the key: trainmon \
             then writes the fewest digits that read back exactly",
            "c.json:1:34: key `step_interval`: expected an integer of at least 1, found 0",
            "c.json:1:62: key `step_count_per_record`: expected an integer from 1 to 1000000, found 1000001",
            "c.json:1:78: key `eps`: expected a number of at least 0, found -0.5",
            "c.json:1:101: key `module_ranks[0]`: expected an integer of at least 0, found -1",
            "c.json:2:15: key `start_step`: expected an integer of at least 0, found 18446744073709551616 | the largest \
             integer is 18446744073709551615",
            "c.json:2:60: key `prometheus.port`: expected an integer from 0 to 65535, found 65536",
            "c.json:2:76: key `prometheus.top_k`: expected an integer from 0 to 16, found 17",
        ],
    );
}

#[test]
fn infinities_and_nan_are_refused_in_clear_words() {
    for number in ["NaN", "Infinity", "-Infinity", "1e999"] {
        let expected = format!(
            "c.json:1:9: key `eps`: expected a number of at least 0, found {number} | write a finite number, \
             at most 1.8e308"
        );
        assert_refused(&format!("{{\"eps\": {number}}}"), &[&expected]);
    }
}

#[test]
fn a_key_that_resembles_a_real_one_is_an_error_and_any_other_a_warning() {
    let text = r#"{"wg_distribtion": true, "lr": 1, "prometheus": {"prot": 1}}"#;
    assert_refused(
        text,
        &[
            "c.json:1:2: key `wg_distribtion`: unknown key; did you mean `wg_distribution`?",
            "c.json:1:50: key `prometheus.prot`: unknown key; did you mean `port`?",
        ],
    );
    let warnings = parse(text).expect_err("refused").warnings;
    assert_eq!(told(&warnings), "c.json:1:26: key `lr`: unknown key; it has no effect");
}

#[test]
fn keys_without_effect_are_warned_about_and_the_schema_key_is_not() {
    assert_warned(
        r#"{"$schema": "s", "_note": 1, "//": "x", "opt_ty": "adam", "ur_distribution": true, "mg_distribution": true,
"targets": {"a.b": {"input": "tuple[2]:0"}, "c": {}}, "wg_distribution": true}"#,
        &[
            "c.json:1:18: key `_note`: has no effect: treated as a comment | // and /* */ comments are allowed",
            "c.json:1:30: key `//`: has no effect: treated as a comment | // and /* */ comments are allowed",
            "c.json:1:41: key `opt_ty`: has no effect: trainmon detects the optimizer",
            "c.json:1:59: key `ur_distribution`: has no effect: msprobe disables it too; use `update`",
            "c.json:1:84: key `mg_distribution`: has no effect: use `mg_direction`",
            "c.json:2:13: key `targets[\"a.b\"]`: the content of the braces has no effect | write {}: inputs and \
             outputs are always measured",
        ],
    );
    assert_warned(r#"{"wg_distribution": true, "ur_distribution": false, "opt_ty": null}"#, &[]);
}

#[test]
fn a_key_given_twice_is_an_error_at_any_depth() {
    assert_refused(
        "{\"targets\": {\"a\": {},\n\"a\": {}},\n\"targets\": {}}",
        &[
            "c.json:2:1: key `targets.a`: duplicate key, first given at 1:14 | keep one of them",
            "c.json:3:1: key `targets`: duplicate key, first given at 1:2 | keep one of them",
        ],
    );
}

/// Each key or word that this version lacks, with a file that asks for it.
const NOT_IMPLEMENTED: [(&str, &str); 2] =
    [("format[1]", r#"{"format": ["csv", "api"]}"#), ("framework", r#"{"framework": "ms"}"#)];

#[test]
fn what_is_not_implemented_is_refused_by_name_when_switched_on() {
    for (key, text) in NOT_IMPLEMENTED {
        let errors = parse(text).expect_err(text).errors;
        let found: Vec<_> = errors.iter().map(|error| (error.key.as_str(), error.kind)).collect();
        assert_eq!(found, [(key, DiagnosticKind::NotImplemented)], "{text}");
    }
}

#[test]
fn a_training_starts_without_what_is_not_implemented_and_is_told_its_name() {
    for (key, text) in NOT_IMPLEMENTED {
        let parsed = Config::parse_for_training(text, "c.json", &|_| None).expect(text);
        let told: Vec<_> = parsed.warnings.iter().map(|warning| (warning.key.as_str(), warning.kind)).collect();
        assert!(told.contains(&(key, DiagnosticKind::NotImplemented)), "{text}: {told:?}");
        let warning = parsed.warnings.iter().find(|warning| warning.key == key).expect(key);
        assert!(warning.to_string().ends_with("not implemented yet; it has no effect"), "{warning}");
    }
    // What stands beside it is in force.
    let text = r#"{"cc_distribution": {"enable": true, "cc_pre_hook": true, "cc_codeline": ["a"]}, "format": "api"}"#;
    let config = Config::parse_for_training(text, "c.json", &|_| None).expect(text).config;
    assert!(config.collectives.is_some_and(|collectives| collectives.before) && config.csv.is_some());
    // A fault is one here too.
    let errors = Config::parse_for_training(r#"{"format": "api", "ops": ["nrm"]}"#, "c.json", &|_| None).expect_err("");
    assert_eq!(errors.errors.iter().map(|error| error.key.as_str()).collect::<Vec<_>>(), ["ops[0]"]);
}

#[test]
fn what_is_not_implemented_is_accepted_while_off() {
    assert_warned(
        r#"{"wg_distribution": true, "cc_distribution": {"enable": false, "cc_codeline": ["a"]},
            "alert": {"rules": [], "dump": true}, "journal": null}"#,
        &[],
    );
    assert_warned(r#"{"monitors": {"module": {}, "cc": {"cc_pre_hook": true}}}"#, &[]);
}

#[test]
fn collectives_are_measured_after_the_call_and_before_it_on_request() {
    let of = |text: &str| config(text).collectives.expect("on");
    let v1 = of(r#"{"cc_distribution": {"enable": true}, "ops": ["norm", "nans"]}"#);
    assert_eq!((v1.before, v1.signal.ops.clone()), (false, vec![Norm, Nans]));
    assert!(of(r#"{"cc_distribution": {"enable": true, "cc_pre_hook": true}}"#).before);
    assert!(of(r#"{"monitors": {"cc": {"enabled": true, "cc_pre_hook": true}}}"#).before);
    assert!(of(r#"{"monitors": {"cc": {"enabled": true, "cc_distribution": {"cc_pre_hook": true}}}}"#).before);
    assert_eq!(config(r#"{"monitors": {"module": {}, "cc": {"enabled": false}}}"#).collectives, None);
    assert_eq!((v1.payload, v1.log_only, v1.code_lines.len(), v1.ranks.len()), (true, false, 0, 0));
    let lines = of(r#"{"cc_distribution": {"cc_codeline": ["a"], "enable": true, "cc_payload": false}}"#);
    assert_eq!((lines.code_lines, lines.payload), (vec!["a".to_owned()], false));
    assert!(of(r#"{"cc_distribution": {"enable": true, "cc_log_only": true}}"#).log_only);
    let v2 = of(r#"{"monitors": {"cc": {"enabled": true, "module_ranks": [1], "cc_codeline": ["a"],
        "cc_distribution": {"cc_codeline": ["b"], "cc_payload": false, "cc_log_only": true}}}}"#);
    assert_eq!((v2.code_lines.join(" "), v2.payload, v2.log_only), ("a b".to_owned(), false, true));
    assert!(v2.includes(1) && !v2.includes(0) && v1.includes(0));
    assert_warned(
        r#"{"cc_distribution": {"enable": true, "cc_codeline": [""]}}"#,
        &[
            "c.json:1:38: key `cc_distribution.cc_codeline`: contains an empty pattern, which matches every stack | write a part of `<path>[<line>]`, or remove the key",
        ],
    );
    let asked = config(r#"{"cc_distribution": {"enable": true}}"#);
    assert!(asked.measures(Kind::Comm) && asked.measures(Kind::CommTime));
}

#[test]
fn features_are_on_for_the_modules_named_and_an_empty_list_means_every_linear_module() {
    let text = |targets: &str| {
        format!(r#"{{"recording_l2_features": true, "sa_order": "b,s,h,d", "l2_targets": {{{targets}}}}}"#)
    };
    let asked = config(&text(r#""linear_hook": [], "attention_hook": ["a.core"], "moe_router_logit_hook": []"#));
    let features = asked.features.as_ref().expect("on");
    assert_eq!(features.order, AttentionOrder::BatchFirst);
    let measured: Vec<_> = Kind::ALL.into_iter().filter(|&kind| asked.measures(kind)).collect();
    assert_eq!(measured, [Kind::AttentionHook, Kind::LinearHook, Kind::Adhoc, Kind::Scalar]);
    assert_eq!(features.modules(Kind::LinearHook), Some(&[][..]));
    assert_eq!(features.modules(Kind::AttentionHook), Some(&["a.core".to_owned()][..]));
    let without = r#"{"l2_targets": {"linear_hook": []}, "wg_distribution": true}"#;
    assert_eq!(config(without).features, None);
    assert_warned(
        r#"{"recording_l2_features": true, "wg_distribution": true}"#,
        &["c.json:1:2: key `recording_l2_features`: has no effect: `l2_targets` names no module | \
           \"l2_targets\": {\"linear_hook\": []} takes every linear module"],
    );
}

#[test]
fn append_output_takes_two_times_in_order_or_nothing() {
    let window = |text: &str| config(text).csv.expect("on").append_output;
    let tags = window(r#"{"append_output": ["Dec03_21-34-40", "Dec03_21-34-41"]}"#).expect("on");
    assert_eq!((tags.first.to_string(), tags.last.to_string()), ("Dec03_21-34-40".into(), "Dec03_21-34-41".into()));
    let inside = ["Dec03_21-34-39", "Dec03_21-34-40", "Dec03_21-34-41", "Dec03_21-34-42"]
        .map(|text| tags.contains(TimeTag::parse(text).expect("a time")));
    assert_eq!(inside, [false, true, true, false]);
    assert_eq!(window(r#"{"append_output": []}"#), None);
    for (value, expected) in [
        (
            r#"["Dec03_21-34-40"]"#,
            "c.json:1:2: key `append_output`: expected two times, or an empty list, found 1 entry | \
             write [\"Dec03_21-34-40\", \"Dec03_21-34-41\"]",
        ),
        (
            r#"["Dec03_21-34-40", "Dec32_21-34-41"]"#,
            "c.json:1:2: key `append_output[1]`: expected a time like `Dec03_21-34-40`, found \"Dec32_21-34-41\" | \
             month, day, hour, minute, second, as the run directory's name begins",
        ),
        (
            r#"["Dec03_21-34-41", "Dec03_21-34-40"]"#,
            "c.json:1:2: key `append_output`: `Dec03_21-34-40` is before `Dec03_21-34-41` | \
             write the earlier time first, in the same year",
        ),
    ] {
        assert_refused(&format!(r#"{{"append_output": {value}}}"#), &[expected]);
    }
}

#[test]
fn keys_that_only_msprobes_layout_knows_ask_for_it() {
    let layout = |text: &str| (config(text).csv.expect("on").layout, config(text).csv_layout.layout);
    for (text, expected) in [
        ("{}", None),
        (r#"{"wg_distribution": true, "ndigits": 6, "output_dir": "a", "append_output": []}"#, None),
        (r#"{"step_count_per_record": 1}"#, Some(FileLayout::Msprobe)),
        (r#"{"append_output": ["Dec03_21-34-40", "Dec03_21-34-41"]}"#, Some(FileLayout::Msprobe)),
        (r#"{"monitors": {}}"#, Some(FileLayout::Msprobe)),
        (r#"{"monitors": {}, "layout": "run"}"#, Some(FileLayout::Run)),
        (r#"{"step_count_per_record": 1, "layout": "run"}"#, Some(FileLayout::Run)),
        (r#"{"layout": "msprobe"}"#, Some(FileLayout::Msprobe)),
    ] {
        assert_eq!(layout(text), (expected, expected), "{text}");
    }
    let steps = |text: &str, front| {
        let mut config = config(text);
        config.settle_layout(front);
        let csv = config.csv.expect("on");
        (csv.layout, csv.steps_per_file())
    };
    assert_eq!(steps("{}", FileLayout::Run), (Some(FileLayout::Run), 10_000));
    assert_eq!(steps("{}", FileLayout::Msprobe), (Some(FileLayout::Msprobe), 1));
    assert_eq!(steps(r#"{"layout": "msprobe"}"#, FileLayout::Run), (Some(FileLayout::Msprobe), 1));
    assert_eq!(steps(r#"{"layout": "run", "step_count_per_record": 7}"#, FileLayout::Msprobe).1, 7);
    assert_warned(
        r#"{"wg_distribution": true, "layout": "run", "append_output": ["Dec03_21-34-40", "Dec03_21-34-41"]}"#,
        &["c.json:1:44: key `append_output`: has no effect: it applies to msprobe's layout only | \
           remove `layout`, or write \"layout\": \"msprobe\""],
    );
}

#[test]
fn the_front_is_asked_for_what_is_switched_on() {
    let keys = |text: &str| config(text).front_tasks().map(FrontTask::key).collect::<Vec<_>>();
    assert_eq!(keys(r#"{"print_struct": true, "stack_info": true}"#), ["print_struct", "stack_info"]);
    let features = r#"{"recording_l2_features": true, "l2_targets": {"linear_hook": []}}"#;
    assert_eq!(keys(features), ["recording_l2_features"]);
    assert_eq!(keys(r#"{"framework": "pytorch", "patch_optimizer_step": true}"#), ["patch_optimizer_step"]);
    assert_eq!(keys(r#"{"framework": "pytorch", "patch_optimizer_step": false}"#), [""; 0]);
}

#[test]
fn what_the_front_needs_to_know_is_in_the_effective_configs_json() {
    let json = |text: &str| serde_json::to_value(config(text)).expect("JSON");
    let flat = json(
        r#"{"targets": {"fc": {}}, "wg_distribution": true, "monitor_mbs_grad": true, "xy_distribution": true,
            "forward_only": true, "squash_name": true, "print_struct": true, "stack_info": true, "start_step": 3,
            "recording_l2_features": true, "l2_targets": {"moe_router_weight_hook": ["r"]}}"#,
    );
    for (pointer, expected) in [
        ("/dialect", json!("v1")),
        ("/window/start_step", json!(3)),
        ("/targets/names", json!(["fc"])),
        ("/squash_name", json!(true)),
        ("/weight_grad/every_micro_batch", json!(true)),
        ("/activations/forward", json!(true)),
        ("/activations/backward", json!(false)),
        ("/activations/all", json!(false)),
        ("/print_struct", json!(true)),
        ("/stack_info", json!(true)),
        ("/features/attention", json!(null)),
        ("/features/linear", json!(null)),
        ("/features/router_weight", json!(["r"])),
        ("/features/order", json!("s,b,h,d")),
        ("/patch_optimizer_step", json!(null)),
    ] {
        assert_eq!(flat.pointer(pointer), Some(&expected), "{pointer}");
    }
    let nested = json(r#"{"monitors": {"param": {"enabled": true}}, "patch_optimizer_step": false}"#);
    assert_eq!(nested["patch_optimizer_step"], json!(false));
}

#[test]
fn the_environment_switches_the_dynamic_mode_on_and_the_file_the_measuring() {
    let read = |text: &str, value: Option<&str>| {
        let env = |name: &str| (name == "DYNAMIC_MONITOR").then(|| value.map(str::to_owned)).flatten();
        Config::parse(text, "c.json", &env).expect(text)
    };
    let (on, off) = (r#"{"wg_distribution": true, "dynamic_on": true}"#, r#"{"wg_distribution": true}"#);
    assert_eq!(read(on, Some("True")).config.dynamic_on, Some(true));
    assert_eq!(read(off, Some("true")).config.dynamic_on, Some(false));
    assert_eq!(read(off, Some("False")).config.dynamic_on, None);
    assert!(read(on, Some("True")).warnings.is_empty());
    assert_warned(
        on,
        &["c.json:1:27: key `dynamic_on`: has no effect: the dynamic mode is off | \
                         set DYNAMIC_MONITOR=True in the environment"],
    );
}

#[test]
fn control_listens_on_this_machine_only() {
    assert_refused(
        r#"{"wg_distribution": true, "control": {"bind": "0.0.0.0"}}"#,
        &["c.json:1:39: key `control.bind`: expected an address of this machine only, found 0.0.0.0 | \
           write 127.0.0.1; from another machine, use an SSH tunnel: ssh -L 9470:127.0.0.1:9470 host"],
    );
    let control = |text: &str| config(text).control;
    assert_eq!(control(r#"{"control": {"enabled": false, "port": 1}}"#), None);
    let open = control(r#"{"control": {"bind": "::1", "port": 9470}}"#).expect("on");
    assert_eq!((open.bind.to_string(), open.port, open.socket), ("::1".to_owned(), Some(9470), None));
}

#[test]
fn the_overhead_budget_is_a_percentage() {
    assert_eq!(config(r#"{"overhead_budget": 1}"#).overhead_budget, Some(0.01));
    assert_eq!(config(r#"{"overhead_budget": 0}"#).overhead_budget, None);
    let refused = parse(r#"{"overhead_budget": 101}"#).expect_err("too much").errors;
    assert_eq!(refused[0].kind, DiagnosticKind::OutOfRange);
}

#[test]
fn a_change_is_checked_like_a_config_and_refused_for_a_single_unknown_key() {
    use trainmon_core::config::{PlanChange, SignalSwitches};
    let change = PlanChange::parse(
        r#"{"targets": {"a": {}, "b": {}}, "stop_step": null, "ops": ["norm", "max", "norm"], "kinds": {"param": false}}"#,
        "request",
    )
    .expect("a change");
    assert_eq!(change.targets, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((change.window.stop_step, change.window.start_step), (Some(None), None));
    assert_eq!(change.signal.ops.expect("given").len(), 2);
    assert_eq!(change.kinds, Some(SignalSwitches { param: Some(false), ..SignalSwitches::default() }));
    let refused = PlanChange::parse("{\"step_interval\": 0,\n\"kind\": {}, \"z\": 1}", "request").expect_err("faulty");
    let said: Vec<String> = refused.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "request:1:19: key `step_interval`: expected an integer of at least 1, found 0",
            "request:2:1: key `kind`: unknown key; did you mean `kinds`?",
            "request:2:13: key `z`: unknown key; it has no effect",
        ]
    );
}

#[test]
fn a_key_of_the_other_dialect_is_a_warning() {
    let hint = "a file with `monitors` or `framework` is a TrainerMonitorV2 config, any other a TrainerMon config";
    let expected =
        |place, key| format!("c.json:{place}: key `{key}`: has no effect: a key of the other dialect | {hint}");
    assert_warned(r#"{"monitors": {"module": {}}, "ops": ["max"]}"#, &[&expected("1:30", "ops")]);
    assert_warned(r#"{"wg_distribution": true, "rank": 0}"#, &[&expected("1:27", "rank")]);
}

#[test]
fn both_single_directions_together_are_an_error() {
    assert_refused(
        r#"{"xy_distribution": true, "forward_only": true, "backward_only": true}"#,
        &["c.json:1:49: key `backward_only`: excludes `forward_only`: nothing would be measured | remove both to \
           measure both directions"],
    );
}

#[test]
fn a_config_that_does_nothing_is_a_warning() {
    let hint = "switch on wg_distribution, mv_distribution, param_distribution or xy_distribution";
    assert_warned("{}", &[&format!("c.json:1:1: the config measures nothing | {hint}")]);
    assert_warned(
        r#"{"wg_distribution": true, "format": []}"#,
        &["c.json:1:27: the config writes nothing | set `format` to csv, prometheus, otlp, tensorboard or journal"],
    );
    assert_warned(
        r#"{"monitors": {"module": {}, "param": {"ops": ["norm"]}}}"#,
        &["c.json:1:29: key `monitors.param`: has no effect: the monitor is not enabled | add \"enabled\": true"],
    );
}

#[test]
fn columns_count_characters_and_keys_are_quoted_where_they_must_be() {
    assert_refused(
        "{\"targets\": {\"é.ü\": 1, \"\": 2}}",
        &[
            "c.json:1:21: key `targets[\"é.ü\"]`: expected an object in braces, found 1",
            "c.json:1:28: key `targets[\"\"]`: expected an object in braces, found 2",
        ],
    );
}

#[test]
fn statistics_keep_their_order_lose_repetitions_and_fall_back_to_the_norm() {
    let ops =
        |ops: &str| config(&format!("{{\"param_distribution\": true, \"ops\": {ops}}}")).signals.param.expect("on").ops;
    assert_eq!(ops(r#"["zeros", "shape", "min", "zeros", "dtype"]"#), [Zeros, Min]);
    assert_eq!(ops(r#"["shape"]"#), [Norm]);
    assert_eq!(ops("[]"), [Norm]);
    let every: Vec<String> = Statistic::ALL.iter().map(|statistic| format!("\"{statistic}\"")).collect();
    assert_eq!(ops(&format!("[{}]", every.join(","))), Statistic::ALL);
}

#[test]
fn targets_of_the_flat_dialect_decide_whether_all_modules_are_measured() {
    let all = |text: &str| config(&format!("{{\"xy_distribution\": true{text}}}")).signals.activations.expect("on").all;
    assert!(all(""));
    assert!(all(r#", "targets": {}"#));
    assert!(!all(r#", "targets": {"": {}}"#));
    assert!(all(r#", "targets": {"": {}}, "all_xy": true"#));
    assert!(config(r#"{"wg_distribution": true, "all_xy": true}"#).signals.activations.is_none());
}

#[test]
fn the_scrape_page_is_on_when_named_or_configured_and_off_when_switched_off() {
    let page = |text: &str| config(&format!("{{\"wg_distribution\": true{text}}}")).prometheus.map(|page| page.port);
    assert_eq!(page(""), None);
    assert_eq!(page(r#", "format": "prometheus""#), Some(9464));
    assert_eq!(page(r#", "prometheus": {}"#), Some(9464));
    assert_eq!(page(r#", "format": ["csv", "prometheus"], "prometheus": {"port": 1}"#), Some(1));
    assert_eq!(page(r#", "prometheus": {"enabled": false}"#), None);
    assert_eq!(page(r#", "page": true"#), Some(9464));
    assert_eq!(page(r#", "page": true, "prometheus": {"port": 1}"#), Some(1));
    assert_eq!(page(r#", "page": false"#), None);
    let is_served = |text: &str| {
        let text = format!("{{\"wg_distribution\": true, {text}}}");
        config(&text).prometheus.is_some_and(|prometheus| prometheus.page)
    };
    assert!(is_served(r#""page": true"#) && is_served(r#""prometheus": {}"#));
    assert!(!is_served(r#""page": false, "prometheus": {}"#));
    assert!(is_served(r#""page": true, "prometheus": {"page": false}"#));
    assert_eq!(page(r#", "format": ["csv", "prometheus"], "prometheus": {"enabled": false}"#), None);
    let is_writing_csv =
        |format: &str| config(&format!("{{\"wg_distribution\": true, \"format\": {format}}}")).csv.is_some();
    assert!(
        is_writing_csv("\"csv\"") && !is_writing_csv("\"prometheus\"") && is_writing_csv("[\"prometheus\", \"csv\"]")
    );
}

#[test]
fn the_output_directory_is_any_path_and_stays_open_without_one() {
    let dir = |text: &str| config(text).csv.expect("on").output_dir.map(|dir| dir.display().to_string());
    assert_eq!(dir(r#"{"wg_distribution": true}"#), None);
    assert_eq!(dir(r#"{"wg_distribution": true, "output_dir": "./a b/ü"}"#).as_deref(), Some("./a b/ü"));
    assert_eq!(dir(r#"{"monitors": {"module": {}}}"#), None);
}

#[test]
fn nesting_without_end_is_refused() {
    for opening in ["[", "{\"a\":", "{\"_\":["] {
        let errors = parse(&opening.repeat(100_000)).expect_err("refused").errors;
        assert_eq!(errors.iter().map(|error| error.kind).collect::<Vec<_>>(), [DiagnosticKind::Syntax]);
    }
}

#[test]
fn the_second_dialect_is_read_whole() {
    let config = config(
        r#"{"framework": "torch", "rank": 3, "start_step": 1, "stop_step": 9, "step_interval": 2, "monitors": {
            "module": {"targets": ["ln"], "ops": ["max"]},
            "weight_grad": {"enabled": true, "monitor_mbs_grad": true, "grad_acc_steps": 4},
            "optimizer": {"enabled": true, "mv_distribution": false},
            "param": {"enabled": true, "ops": ["norm"], "eps": 1},
            "update": {"enabled": true}}}"#,
    );
    assert_eq!((config.dialect, config.targets.rule), (Dialect::V2, TargetRule::Substring));
    assert_eq!((config.ranks, config.targets.names), (vec![3], vec!["ln".to_owned()]));
    let steps: Vec<u64> = (0..12).filter(|&step| config.window.includes(Step(step), 0)).collect();
    assert_eq!(steps, [1, 3, 5, 7]);
    let activations = config.signals.activations.expect("on");
    assert_eq!((activations.all, activations.signal.ops), (false, vec![Max]));
    let weight_grad = config.signals.weight_grad.expect("on");
    assert_eq!((weight_grad.every_micro_batch, weight_grad.micro_batches), (true, Some(4)));
    assert_eq!(weight_grad.signal.ops, [Min, Max, Mean, Norm, Nans]);
    assert!(config.signals.moments.is_none() && config.signals.update.is_some());
    let param = config.signals.param.expect("on");
    assert_eq!((param.ops, param.eps), (vec![Norm], 1.0));
}

#[test]
fn without_a_file_gradients_moments_and_parameters_go_to_files_and_no_port_is_opened() {
    let Config { signals, csv, prometheus, window, .. } = Config::default();
    let Signals { weight_grad, moments, param, activations, .. } = signals;
    let ops = vec![Min, Max, Mean, Norm, Nans];
    assert_eq!(weight_grad.expect("on").signal.ops, ops);
    assert_eq!((moments.expect("on").ops, param.expect("on").ops), (ops.clone(), ops));
    assert!(activations.is_none() && csv.is_some() && prometheus.is_none());
    assert_eq!((window.start_step, window.step_interval, window.stop_step), (0, 1, None));
}

#[test]
fn steps_among_which_none_is_measured_are_refused_and_for_msprobe_warned_of() {
    for (text, place) in [
        (
            r#"{"wg_distribution": true, "start_step": 10, "stop_step": 5}"#,
            "1:45: key `stop_step`: no step would be measured: 5 is not after `start_step`, 10",
        ),
        (
            r#"{"wg_distribution": true, "stop_step": 0}"#,
            "1:27: key `stop_step`: no step would be measured: 0 is not after `start_step`, 0",
        ),
    ] {
        let hint = "`stop_step` is the first step no longer measured: write a larger number, or remove it";
        assert_refused(text, &[&format!("c.json:{place} | {hint}")]);
        assert!(Config::parse_for_training(text, "c.json", &|_| None).is_err(), "{text}");
        let parsed = Config::parse_for_msprobe(text, "c.json", &|_| None).unwrap();
        assert_eq!(told(&parsed.warnings), format!("c.json:{place} | {hint}"));
    }
    assert_warned(r#"{"wg_distribution": true, "start_step": 10, "stop_step": 11}"#, &[]);
}

#[test]
fn keys_given_besides_a_text_take_the_place_of_its_own() {
    let over = |keys: serde_json::Value| keys.as_object().unwrap().clone();
    let text = "// a remark\n{\"wg_distribution\": true, \"ops\": [\"min\"], \"colour\": 1, \"step_interval\": 7}";
    let read = |keys| Config::parse_over(text, &over(keys), "c.json", &|_| None);
    let parsed = read(json!({"ops": ["norm"], "xy_distribution": true})).unwrap();
    assert_eq!(parsed.config.signals.weight_grad.unwrap().signal.ops, [Norm]);
    assert!(parsed.config.signals.activations.is_some());
    assert_eq!(parsed.config.window.step_interval, 7);
    assert_eq!(told(&parsed.warnings), "c.json:2:43: key `colour`: unknown key; it has no effect", "with its place");
    let errors = read(json!({"ops": ["nrm"], "stop_step": 0})).unwrap_err().errors;
    assert!(told(&errors).contains("keyword arguments: key `ops[0]`: "), "{}", told(&errors));
    assert!(told(&errors).contains("keyword arguments: key `stop_step`: "), "{}", told(&errors));
    let faulty = Config::parse_over("{\"ops\": 1}", &over(json!({"ops": ["norm"]})), "c.json", &|_| None);
    assert!(told(&faulty.unwrap_err().errors).starts_with("c.json:1:9: key `ops`"), "the text is read first");
}

#[test]
fn the_usual_config_is_the_default() {
    let parsed = parse(USUAL_CONFIG).unwrap();
    assert_eq!(parsed.warnings, []);
    // A script may show tensors of its own accord.
    let adhoc = parsed.config.adhoc.clone();
    assert_eq!(parsed.config, Config { adhoc, ..Config::default() });
}

#[test]
fn the_outermost_keys_are_those_of_both_dialects() {
    let keys = Config::keys();
    for key in ["wg_distribution", "ops", "prometheus", "monitors", "framework", "alert", "stop_step"] {
        assert_eq!(keys.iter().filter(|known| **known == key).count(), 1, "{key}");
    }
    assert!(!keys.contains(&"port"));
}

#[test]
fn a_capture_on_demand_that_cannot_be_is_refused_with_its_place() {
    assert_refused(
        r#"{"capture": {"level": "L3"}}"#,
        &["c.json:1:23: key `capture.level`: expected one of `L0`, `L1`, `L2`, `mix`, found \"L3\""],
    );
    assert_refused(
        r#"{"capture": {"steps": 0}}"#,
        &["c.json:1:23: key `capture.steps`: expected an integer from 1 to 1000, found 0"],
    );
    assert_refused(
        r#"{"capture": {"request": {"scope": ["a", "Functional.linear.0.forward"]}}}"#,
        &[
            "c.json:1:26: key `capture.request.scope[0]`: expected an entry's full name of the level mix, found \"a\" | \
           like Functional.linear.0.forward or Module.layers.0.Linear.forward.0",
        ],
    );
    assert_refused(
        r#"{"capture": {"scope": ["a"]}}"#,
        &["c.json:1:14: key `capture.scope`: expected two names: the first and the last entry, found 1 names"],
    );
}
