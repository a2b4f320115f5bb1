//! What a page says: values, labels, the limit.

use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{collectives, config, gradient, names, parts, reading, record, run, sources, start, step, value};
use trainmon_core::catalog::{self, Status};
use trainmon_core::{
    DropReason, GradNorm, HeldPart, Kind, MicroStep, ParameterParts, PartTable, Phase, Reading, Record, Scalar,
    Statistic, StatisticSet, StepBatch, TensorInfo, TensorStats,
};
use trainmon_exporters::{Exporter, PrometheusExporter, Sources};

/// Every signal of a small model in one step.
fn full_step(number: u64) -> (Vec<TensorInfo>, StepBatch) {
    let names = names(&["blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "wte.weight"]);
    let mut records = Vec::new();
    for kind in Kind::ALL {
        records.extend(
            (0..3).map(|tensor| record(tensor, kind, Reading::of_kind(kind, reading(4, f64::from(tensor + 1))))),
        );
    }
    let mut batch = StepBatch {
        loss: Some(2.5),
        learning_rate: Some(3e-4),
        framework_grad_norm: Some(1.0),
        ..step(number, records)
    };
    batch.cost.add(Phase::Measure, Duration::from_millis(3));
    (names, batch)
}

#[test]
fn layers_add_up_as_norm_maximum_weighted_mean_and_share() {
    let mut exporter = start(&config());
    let names = names(&["blocks.1.attn.q_proj.weight", "blocks.1.attn.k_proj.weight", "blocks.1.mlp.fc1.weight"]);
    let of = |elements, norm, abs_max, mean, zeros| TensorStats { abs_max, mean, zeros, ..reading(elements, norm) };
    let records = vec![
        record(0, Kind::GradReduced, of(10, 3.0, 0.5, 1.0, 10)),
        record(1, Kind::GradReduced, of(30, 4.0, 0.7, 2.0, 0)),
        record(2, Kind::GradReduced, of(10, 12.0, 0.1, 0.0, 0)),
    ];
    exporter.export(&names, &step(1, records)).unwrap();
    let page = exporter.page();
    let attention = |family| {
        value(&page, &format!("{family}{}", "{layer=\"blocks.1\",group=\"attn\",tensor=\"grad\",scope=\"reduced\"}"))
    };
    assert_eq!(attention("trainmon_layer_norm"), Some(5.0));
    assert_eq!(attention("trainmon_layer_abs_max"), Some(0.7));
    assert_eq!(attention("trainmon_layer_mean"), Some(1.75));
    assert_eq!(attention("trainmon_zero_elements_ratio"), Some(0.25));
    assert_eq!(value(&page, "trainmon_grad_norm"), Some(13.0));
    let share = value(&page, "trainmon_group_grad_norm_share{group=\"attn\"}").unwrap();
    assert!((share - 25.0 / 169.0).abs() < 1e-15, "{share}");
    assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"0\"}"), Some(12.0));
    assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"2\"}"), Some(3.0));
    assert!(!page.contains("q_proj"), "a parameter's name is no label");
}

#[test]
fn the_norm_the_front_knows_is_served_and_checked_against_the_frameworks() {
    let mut exporter = start(&config());
    let names = names(&["a.attn.weight", "a.mlp.weight"]);
    let served = |exporter: &PrometheusExporter| {
        let page = exporter.page();
        ["trainmon_grad_norm", "trainmon_grad_norm_self_check_ratio", "trainmon_grad_norm_mismatches_total"]
            .map(|series| value(&page, series))
    };
    let batch = |number, grad_norm, framework_grad_norm| StepBatch {
        grad_norm,
        framework_grad_norm,
        ..step(number, vec![gradient(0, 3.0), gradient(1, 4.0)])
    };
    exporter.export(&names, &batch(1, GradNorm::OfRecords, None)).unwrap();
    assert_eq!(served(&exporter), [Some(5.0), None, Some(0.0)]);
    exporter.export(&names, &batch(2, GradNorm::Known(10.0), Some(10.0))).unwrap();
    assert_eq!(served(&exporter), [Some(10.0), Some(1.0), Some(0.0)]);
    let share = value(&exporter.page(), "trainmon_group_grad_norm_share{group=\"attn\"}").unwrap();
    assert!((share - 9.0 / 25.0).abs() < 1e-15, "a share is of this rank's records: {share}");
    exporter.export(&names, &batch(3, GradNorm::Known(10.0), Some(20.0))).unwrap();
    assert_eq!(served(&exporter), [Some(10.0), Some(0.5), Some(1.0)]);
    // Without a norm of ours there is nothing to serve and nothing to check.
    exporter.export(&names, &batch(4, GradNorm::Unknown, Some(7.0))).unwrap();
    assert_eq!(served(&exporter), [Some(10.0), Some(0.5), Some(1.0)]);
}

#[test]
fn features_are_not_on_the_page() {
    let mut exporter = start(&config());
    let names = names(&["a.attention"]);
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_feature());
    let records = kinds.map(|kind| record(0, kind, Reading::of_values(&[0.5, f64::NAN]))).collect();
    exporter.export(&names, &step(1, records)).unwrap();
    let page = exporter.page();
    assert!(!page.contains("_hook"), "{page}");
}

#[test]
fn of_several_micro_batches_the_last_one_counts() {
    let mut exporter = start(&config());
    let at = |micro_step, norm| Record {
        micro_step: MicroStep(micro_step),
        ..record(0, Kind::GradUnreduced, reading(4, norm))
    };
    let batch = step(1, vec![at(0, 100.0), at(1, 7.0), gradient(0, 1.0)]);
    exporter.export(&names(&["fc.weight"]), &batch).unwrap();
    let page = exporter.page();
    let layer = |scope| {
        value(&page, &format!("trainmon_layer_norm{{layer=\"fc\",group=\"other\",tensor=\"grad\",scope=\"{scope}\"}}"))
    };
    assert_eq!((layer("unreduced"), layer("reduced")), (Some(7.0), Some(1.0)));
    assert_eq!(value(&page, "trainmon_grad_norm"), Some(7.0));
    assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"0\"}"), Some(7.0));
    assert_eq!(value(&page, "trainmon_top_grad_norm{slot=\"1\"}"), None);
}

#[test]
fn a_nan_step_is_served_as_nan_and_counted() {
    let mut exporter = start(&config());
    let names = names(&["a.weight", "b.weight"]);
    exporter.export(&names, &step(1, vec![gradient(0, 1.0), gradient(1, 2.0)])).unwrap();
    let broken = TensorStats { nans: 3, infs: 1, max: Scalar::Float(f64::NAN), ..reading(4, f64::NAN) };
    let infinite = TensorStats { infs: 1, ..reading(4, f64::INFINITY) };
    let records = vec![record(0, Kind::GradReduced, broken), record(1, Kind::GradReduced, infinite)];
    exporter.export(&names, &step(2, records)).unwrap();
    let page = exporter.page();
    assert!(page.contains("\ntrainmon_grad_norm NaN\n"), "{page}");
    assert!(page.contains("layer=\"b\",group=\"other\",tensor=\"grad\",scope=\"reduced\"} +Inf\n"));
    assert_eq!(value(&page, "trainmon_nonfinite_elements_total{tensor=\"grad\"}"), Some(5.0));
    assert!(value(&page, "trainmon_top_grad_norm{slot=\"0\"}").unwrap().is_nan());
    assert!(value(&page, "trainmon_grad_norm_interval_max").unwrap().is_nan());
    assert_eq!(value(&page, "trainmon_grad_norm_interval_max_step"), Some(2.0));
    exporter.export(&names, &step(3, vec![gradient(0, 1.0), gradient(1, 2.0)])).unwrap();
    assert_eq!(
        value(&exporter.page(), "trainmon_layer_norm{layer=\"a\",group=\"other\",tensor=\"grad\",scope=\"reduced\"}"),
        Some(1.0)
    );
}

#[test]
fn update_ratios_are_served_as_largest_and_median() {
    let mut exporter = start(&config());
    let ratio = |tensor, value| record(tensor, Kind::UpdateRatio, Reading::of_values(&[value]));
    let records = vec![
        ratio(0, 0.004),
        ratio(1, 0.001),
        ratio(2, 0.5),
        ratio(3, 0.002),
        record(0, Kind::Update, reading(4, 3.0)),
        record(1, Kind::Update, reading(4, 4.0)),
    ];
    exporter.export(&names(&["a", "b", "c", "d"]), &step(1, records)).unwrap();
    let page = exporter.page();
    assert_eq!(value(&page, "trainmon_update_ratio{agg=\"max\"}"), Some(0.5));
    assert_eq!(value(&page, "trainmon_update_ratio{agg=\"median\"}"), Some(0.003));
    assert_eq!(value(&page, "trainmon_update_norm"), Some(5.0));
}

#[test]
fn counters_exist_at_zero_before_the_first_step() {
    let page = start(&config()).page();
    for series in [
        "trainmon_steps_total",
        "trainmon_skipped_steps_total",
        "trainmon_series_overflow_total",
        "trainmon_bytes_read_total",
        "trainmon_step_duration_seconds_count",
        "trainmon_collect_duration_seconds_sum{phase=\"measure\"}",
        "trainmon_nonfinite_elements_total{tensor=\"grad\"}",
        "trainmon_nonfinite_elements_total{tensor=\"exp_avg_sq\"}",
        "trainmon_nonfinite_elements_total{tensor=\"actv\"}",
        "trainmon_records_dropped_total{sink=\"worker\",reason=\"queue_full\"}",
        "trainmon_records_dropped_total{sink=\"worker\",reason=\"worker_gone\"}",
        "trainmon_records_dropped_total{sink=\"csv\",reason=\"failed\"}",
        "trainmon_records_dropped_total{sink=\"prometheus\",reason=\"queue_full\"}",
    ] {
        assert_eq!(value(&page, series), Some(0.0), "{series}");
    }
    assert_eq!(value(&page, "trainmon_loss"), None, "an untold loss is not 0");
}

#[test]
fn counters_only_grow_even_when_the_step_goes_back() {
    let mut exporter = start(&config());
    let names = names(&["a.weight"]);
    let mut last = HashMap::new();
    for (count, number) in [100, 101, 50, 51].into_iter().enumerate() {
        let nan = TensorStats { nans: 1, ..reading(4, f64::NAN) };
        exporter.export(&names, &step(number, vec![record(0, Kind::GradReduced, nan)])).unwrap();
        let page = exporter.page();
        assert_eq!(value(&page, "trainmon_step"), Some(number as f64));
        assert_eq!(value(&page, "trainmon_steps_total"), Some(count as f64 + 1.0));
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, now) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            if ["_total", "_count", "_sum", "_bucket"].iter().any(|ending| name.ends_with(ending)) {
                let now: f64 = now.parse().unwrap();
                let before = last.insert(series.to_owned(), now).unwrap_or(0.0);
                assert!(now >= before, "{series}: {before} then {now}");
            }
        }
    }
    assert_eq!(last["trainmon_step_duration_seconds_sum"], 8.0);
    assert_eq!(last["trainmon_nonfinite_elements_total{tensor=\"grad\"}"], 4.0);
}

#[test]
fn the_books_are_read_when_the_page_is() {
    let sources = sources();
    let exporter = PrometheusExporter::start(&config(), run(), sources.clone()).unwrap();
    sources.ledger.observe(10);
    sources.ledger.skip(1);
    sources.ledger.offer(6, Ok(()));
    sources.ledger.offer(3, Err(DropReason::QueueFull));
    sources.sinks[0].ledger.accept(6);
    sources.sinks[0].ledger.exported(4);
    sources.sinks[0].ledger.failed(2);
    let page = exporter.page();
    assert_eq!(value(&page, "trainmon_records_observed_total"), Some(10.0));
    assert_eq!(value(&page, "trainmon_records_not_sampled_total"), Some(1.0));
    assert_eq!(value(&page, "trainmon_records_accepted_total{sink=\"worker\"}"), Some(6.0));
    assert_eq!(value(&page, "trainmon_records_exported_total{sink=\"csv\"}"), Some(4.0));
    assert_eq!(value(&page, "trainmon_records_dropped_total{sink=\"worker\",reason=\"queue_full\"}"), Some(3.0));
    assert_eq!(value(&page, "trainmon_records_dropped_total{sink=\"csv\",reason=\"failed\"}"), Some(2.0));
    assert_eq!(value(&page, "trainmon_queue_length{sink=\"csv\"}"), Some(2.0));
    assert_eq!(value(&page, "trainmon_queue_capacity{sink=\"worker\"}"), Some(16.0));
}

#[test]
fn above_the_limit_the_first_series_stay_and_the_rest_is_counted() {
    let mut exporter = start(&config());
    let fixed = {
        let (names, batch) = full_step(1);
        exporter.export(&names, &StepBatch { records: Vec::new(), ..batch }).unwrap();
        value(&exporter.page(), "trainmon_series").unwrap() as usize
    };
    let mut limited = config();
    // The marks of the other rules would still have room.
    limited.max_series = fixed + trainmon_core::AlertRule::ALL.len() + 30;
    let mut exporter = start(&limited);
    let many: Vec<String> = (0..100).map(|layer| format!("layers.{layer}.attn.weight")).collect();
    let names = names(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let mut served: Option<HashSet<String>> = None;
    let mut overflow = 0.0;
    for number in 1..=3 {
        // The hooks may fire in another order later: who came first stays.
        let order: Vec<u32> = if number == 1 { (0..100).collect() } else { (0..100).rev().collect() };
        let records = order.into_iter().map(|tensor| gradient(tensor, 1.0)).collect();
        exporter.export(&names, &step(number, records)).unwrap();
        let page = exporter.page();
        let samples = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!(samples <= limited.max_series, "{samples} of {}", limited.max_series);
        assert_eq!(value(&page, "trainmon_series"), Some(samples as f64));
        assert_eq!(value(&page, "trainmon_series_limit"), Some(limited.max_series as f64));
        let layers = page.lines().filter(|line| line.contains("layer=\"")).map(|line| line.rsplit_once(' ').unwrap().0);
        let layers: HashSet<String> = layers.map(str::to_owned).collect();
        assert!(layers.iter().any(|series| series.contains("layers.0\"")) && layers.len() < 30, "{layers:?}");
        let refused = 400.0 - layers.len() as f64;
        assert_eq!(value(&page, "trainmon_series_overflow_total"), Some(overflow + refused));
        overflow += refused;
        assert!(served.as_ref().is_none_or(|before| *before == layers));
        served = Some(layers);
    }
}

#[test]
fn parameters_are_labels_only_when_asked_for_and_then_escaped() {
    let mut named = config();
    named.per_parameter = true;
    let mut exporter = start(&named);
    let mut names = names(&["a\\b\"c\nd.weight", "e.weight", "e.weight", "e.weight"]);
    names[3].vpp_stage = 1;
    let records = vec![gradient(0, 1.5), gradient(1, 3.0), gradient(2, 4.0), gradient(3, 7.0)];
    exporter.export(&names, &step(1, records)).unwrap();
    let page = exporter.page();
    assert_eq!(
        value(
            &page,
            "trainmon_parameter_norm{name=\"a\\\\b\\\"c\\nd.weight\",vpp_stage=\"0\",tensor=\"grad\",scope=\"reduced\"}"
        ),
        Some(1.5)
    );
    let e = |stage| {
        value(
            &page,
            &format!(
                "trainmon_parameter_norm{{name=\"e.weight\",vpp_stage=\"{stage}\",tensor=\"grad\",scope=\"reduced\"}}"
            ),
        )
    };
    assert_eq!(e(0), Some(5.0), "two tensors of one name are one series: Prometheus refuses duplicates");
    assert_eq!(e(1), Some(7.0));
    assert!(page.contains("layer=\"1:e\""), "stages do not mix in the layer tier either");
    assert_passes_promtool(&page);
}

#[test]
fn what_was_not_measured_is_not_served() {
    let mut sources = sources();
    sources.statistics.set(Kind::GradReduced, StatisticSet::EMPTY.with(Statistic::Mean));
    let mut exporter = PrometheusExporter::start(&config(), run(), sources).unwrap();
    exporter.export(&names(&["a.weight"]), &step(1, vec![gradient(0, 0.0)])).unwrap();
    let page = exporter.page();
    assert_eq!(value(&page, "trainmon_grad_norm"), None);
    assert!(page.contains("trainmon_layer_mean{") && !page.contains("trainmon_layer_norm{"));
}

#[test]
fn findings_of_the_alert_rules_are_counted_from_zero() {
    let page = start(&config()).page();
    assert_eq!(value(&page, "trainmon_alerts_total{rule=\"Spike\"}"), Some(1.0));
    assert_eq!(value(&page, "trainmon_alerts_total{rule=\"Stall\"}"), Some(0.0));
    assert_eq!(value(&page, "trainmon_grad_norm_spikes_total"), Some(1.0));
    assert_eq!(value(&page, "trainmon_update_norm_spikes_total"), Some(0.0));
    assert_eq!(value(&page, "trainmon_grad_norm_zscore"), Some(7.5));
    let first = "trainmon_alert_first_move{rule=\"Spike\",signal=\"loss\"}";
    assert_eq!(value(&page, first), Some(1.04));
}

#[test]
fn a_page_has_exactly_the_available_metrics_with_their_types_and_labels() {
    let mut everything = config();
    everything.per_parameter = true;
    let guarding = Sources { collectives: collectives(), parts: parts(), ..sources() };
    let mut exporter = PrometheusExporter::start(&everything, run(), guarding).unwrap();
    let (names, batch) = full_step(7);
    exporter.export(&names, &batch).unwrap();
    let page = exporter.page();
    let mut declared = HashSet::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, metric_type) = line.split_once(' ').unwrap();
        let metric = catalog::ALL.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(metric.metric_type.name(), metric_type, "{name}");
        assert!(page.contains(&format!("# HELP {name} {}\n", metric.help)));
        assert!(declared.insert(name), "{name} twice");
    }
    let available = catalog::ALL.iter().filter(|metric| metric.status == Status::Available);
    assert_eq!(declared, available.map(|metric| metric.name).collect());
    let mut seen = HashSet::new();
    for series in page.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0) {
        assert!(seen.insert(series), "{series} twice");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let endings = ["_bucket", "_sum", "_count"];
        let base = endings.iter().find_map(|ending| name.strip_suffix(ending)).filter(|base| declared.contains(base));
        let metric = catalog::ALL.iter().find(|metric| metric.name == base.unwrap_or(name)).unwrap();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let label = label.split('=').next().unwrap();
            assert!(label == "le" || metric.labels.contains(&label), "{series}: {label}");
        }
    }
    assert_passes_promtool(&page);
}

#[test]
fn collective_operations_are_served_per_operation_and_group_as_far_as_there_is_room() {
    let guarding = || Sources { collectives: collectives(), ..sources() };
    let exporter = PrometheusExporter::start(&config(), run(), guarding()).unwrap();
    let page = exporter.page();
    let (sums, gathers) = ("{op=\"all_reduce\",process_group=\"dp\"}", "{op=\"all_gather\",process_group=\"tp\"}");
    for (name, labels, expected) in [
        ("trainmon_collective_operations_total", sums, 2.0),
        ("trainmon_collective_failures_total", sums, 1.0),
        ("trainmon_collective_payload_bytes_total", sums, 8192.0),
        ("trainmon_collective_duration_seconds_count", sums, 1.0),
        ("trainmon_collective_duration_seconds_sum", gathers, 120.0),
    ] {
        assert_eq!(value(&page, &format!("{name}{labels}")), Some(expected), "{name}\n{page}");
    }
    let bucket = |bound: &str| {
        let labels = format!("{{op=\"all_reduce\",process_group=\"dp\",le=\"{bound}\"}}");
        value(&page, &format!("trainmon_collective_duration_seconds_bucket{labels}"))
    };
    assert_eq!((bucket("0.00025"), bucket("0.001"), bucket("+Inf")), (Some(0.0), Some(1.0), Some(1.0)));
    for share in ["0.5", "0.9", "0.99"] {
        let labels = format!("{{op=\"all_reduce\",process_group=\"dp\",share=\"{share}\"}}");
        let found = value(&page, &format!("trainmon_collective_duration_quantile_seconds{labels}")).unwrap();
        assert!((found - 300e-6).abs() <= 3e-6, "{share}: {found}, one operation of 300 us, within 1 %");
    }
    assert_passes_promtool(&page);

    let samples = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
    let mut limited = config();
    // Its group and who came last in it, three samples, would leave room for the second operation.
    limited.max_series = samples(&page) - 4;
    let exporter = PrometheusExporter::start(&limited, run(), guarding()).unwrap();
    let page = exporter.page();
    assert!(page.contains("process_group=\"dp\"") && !page.contains("process_group=\"tp\""), "{page}");
    assert_eq!(value(&page, "trainmon_series"), Some(samples(&page) as f64));
    assert_eq!(value(&exporter.page(), "trainmon_series_overflow_total"), Some(24.0));
}

#[test]
fn what_counts_of_a_rank_in_sums_over_ranks_is_served_under_the_names_of_the_whole_model() {
    let totals = Arc::<PartTable>::default();
    let mut named = config();
    named.per_parameter = true;
    let told = Sources { parts: Arc::clone(&totals), ..sources() };
    let mut exporter = PrometheusExporter::start(&named, run(), told).unwrap();
    let names = names(&["h.0.w", "h.0.v", "h.0.b", "h.1.w", "h.1.extra"]);
    let of = |mean: f64, elements, norm| TensorStats { mean, zeros: 1, ..reading(elements, norm) };
    let records = || {
        vec![
            record(0, Kind::GradReduced, of(0.5, 4, 3.0)),
            record(1, Kind::GradReduced, of(2.0, 2, 4.0)),
            record(2, Kind::GradReduced, of(9.0, 8, 100.0)),
            record(3, Kind::GradReduced, of(9.0, 8, 100.0)),
            record(4, Kind::GradReduced, of(9.0, 8, 100.0)),
            record(0, Kind::GradUnreduced, of(9.0, 4, 100.0)),
            record(0, Kind::ExpAvg, of(9.0, 4, 5.0)),
            record(0, Kind::ExpAvgSq, of(9.0, 1, 5.0)),
        ]
    };
    exporter.export(&names, &step(1, records())).unwrap();
    assert!(!exporter.page().contains("_part_"), "nothing is told yet");
    let held = |is_counted, elements| Some(HeldPart { is_counted, elements: Some(elements) });
    let parts = |name: &str, held| ParameterParts {
        whole_name: name.into(),
        elements: 8,
        held: [None, held, held],
        is_stepped_by_holders: true,
    };
    let told = [
        (names[0].clone(), parts("h.4.w", held(true, 4))),
        (names[1].clone(), parts("h.4.v", held(true, 2))),
        (names[2].clone(), parts("h.4.b", held(false, 8))),
        (names[3].clone(), parts("h.5.w", held(true, 8))),
        (names[4].clone(), parts("h.5.extra", None)),
    ];
    totals.set(told);
    exporter.export(&names, &step(2, records())).unwrap();
    let page = exporter.page();
    let of_layer = |what: &str, tensor: &str| {
        value(&page, &format!("trainmon_layer_part_{what}{{layer=\"h.4\",group=\"other\",tensor={tensor}}}"))
    };
    let gradient = "\"grad\",scope=\"reduced\"";
    assert_eq!(of_layer("norm", gradient), Some(5.0), "what a lower rank holds too is not counted");
    assert_eq!(of_layer("abs_max", gradient), Some(4.0));
    assert_eq!(of_layer("mean", gradient), Some(1.0));
    assert_eq!(of_layer("zero_elements_ratio", gradient), Some(1.0 / 3.0));
    assert_eq!(of_layer("elements", gradient), Some(6.0));
    assert_eq!(of_layer("norm", "\"exp_avg\""), Some(5.0));
    assert_eq!(of_layer("norm", "\"exp_avg_sq\""), None, "state of another shape than the part's");
    assert!(!page.contains("_part_norm{layer=\"h.5\""), "a tensor of that layer is unknown");
    assert!(!page.lines().any(|line| line.contains("_part_") && line.contains("unreduced")), "each rank's own");
    let of_tensor = "trainmon_parameter_part_norm{name=\"h.4.v\",tensor=\"grad\",scope=\"reduced\"}";
    assert_eq!(value(&page, of_tensor), Some(4.0));
    assert!(!page.contains("trainmon_parameter_part_norm{name=\"h.4.b\""));
    assert_passes_promtool(&page);
}

#[test]
fn pages_before_and_after_steps_pass_promtool() {
    let mut exporter = start(&config());
    assert_passes_promtool(&exporter.page());
    let (names, batch) = full_step(7);
    exporter.export(&names, &batch).unwrap();
    assert_passes_promtool(&exporter.page());
    let nan = step(8, vec![gradient(0, f64::NAN), gradient(1, f64::INFINITY)]);
    exporter.export(&names, &nan).unwrap();
    assert_passes_promtool(&exporter.page());
}

/// Prometheus' own checker: the format is parsed and names are linted. Says so when it is not installed.
fn assert_passes_promtool(page: &str) {
    use std::io::Write;
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped promtool check metrics: promtool is not on PATH (Debian: prometheus)");
            return;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{page}");
}

#[test]
fn what_a_script_tells_by_name_is_a_series_each_up_to_the_limit_and_keeps_its_last_value() {
    let told = |tensor, value| record(tensor, Kind::Scalar, Reading::of_values(&[value]));
    let names = names(&["fc.weight", "accuracy", "tokens \"per\" s"]);
    let mut exporter = start(&config());
    exporter.export(&names, &step(1, vec![told(1, 0.25), told(2, 1e6)])).unwrap();
    exporter.export(&names, &step(2, vec![told(1, f64::NAN)])).unwrap();
    let page = exporter.page();
    assert!(value(&page, "trainmon_scalar{name=\"accuracy\"}").is_some_and(f64::is_nan));
    assert_eq!(value(&page, "trainmon_scalar{name=\"tokens \\\"per\\\" s\"}"), Some(1e6));
    assert_eq!(value(&page, "trainmon_nonfinite_elements_total{tensor=\"grad\"}"), Some(0.0));

    let mut limited = config();
    limited.max_series = 1;
    let mut exporter = start(&limited);
    for number in 1..=3 {
        exporter.export(&names, &step(number, vec![told(1, 0.25), told(2, 1e6)])).unwrap();
    }
    let page = exporter.page();
    assert!(!page.contains("trainmon_scalar"), "{page}");
    assert_eq!(value(&page, "trainmon_series_overflow_total"), Some(6.0));
}
