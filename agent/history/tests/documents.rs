//! A history as its readers see it.
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::SystemTime;

use trainmon_core::{Alert, AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, Rank, Step};
use trainmon_history::{ABSENT, Cursor, HeatMap, History, Limits, Overview, Tail, curves};

const SMALL: Limits = Limits { steps: 8, curves: 3, columns: 4, rows: 16, alerts: 2 };

/// Steps 1 to `steps`, with a loss and one gradient each.
fn history(limits: Limits, steps: u64) -> History {
    let mut history = History::new(limits);
    let loss = history.curve(curves::LOSS).unwrap();
    let row = history.row("grad_reduced", "h.0.w").unwrap();
    for step in 1..=steps {
        history.step(step, 1000.0 + step as f64, true);
        assert!(history.record(loss, step, step as f64));
        assert!(history.set(row, step, [step as f32, 0.5, ABSENT]));
    }
    history
}

fn alert(step: u64) -> Alert {
    Alert {
        rule: AlertRule::Spike,
        severity: AlertSeverity::Warning,
        phase: AlertPhase::Begins,
        findings: 1,
        step: Step(step),
        rank: Rank(0),
        time: SystemTime::UNIX_EPOCH,
        series: AlertSeries::global(AlertSignal::Loss, None),
        value: f64::NAN,
        expected: Expectation::default(),
        message: "m".to_owned(),
        moved_first: None,
        incident: None,
    }
}

fn through_json<T: serde::Serialize + serde::de::DeserializeOwned>(document: &T) -> T {
    serde_json::from_str(&serde_json::to_string(document).unwrap()).unwrap()
}

#[test]
fn an_overview_survives_json_and_has_ranges_only_where_bins_are_merged() {
    let mut history = history(SMALL, 8);
    let loss = history.curve(curves::LOSS).unwrap();
    history.record(loss, 8, f64::NAN);
    history.alert(alert(8));
    let overview = history.overview();
    let json = serde_json::to_value(&overview).unwrap();
    assert_eq!(json["version"], 2);
    assert_eq!(json["curves"][0]["last"], serde_json::json!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, "NaN"]));
    assert!(json["curves"][0].get("low").is_none());
    assert_eq!(json["steps"]["first"], serde_json::json!([1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(json["steps"]["time"][0], 1001.0);
    let back: Overview = through_json(&overview);
    assert_eq!(serde_json::to_value(&back).unwrap(), json);

    history.step(9, 0.0, false);
    let curve = history.overview().curves.remove(0);
    assert_eq!(curve.low, [Some(1.0), Some(3.0), Some(5.0), Some(7.0), None]);
    assert_eq!(
        curve.high,
        [Some(2.0), Some(4.0), Some(6.0), Some(8.0), None],
        "what is finite is not covered by a NaN"
    );
    assert_eq!(curve.broken, [3], "nor a NaN by its neighbour");
    assert!(curve.is_broken(3, 0) && !curve.is_broken(2, 0));
}

#[test]
fn a_tail_holds_the_bin_that_may_still_grow_and_what_came_after_it() {
    let mut history = history(Limits { steps: 100, ..SMALL }, 5);
    history.alert(alert(5));
    let cursor = history.overview().cursor;
    assert_eq!(cursor, Cursor { generation: 0, bins: 4, alerts: 1 });
    let loss = history.curve(curves::LOSS).unwrap();
    history.step(6, 0.0, false);
    history.record(loss, 6, 0.25);
    let tail: Tail = through_json(&history.since(cursor).unwrap());
    assert_eq!((tail.steps.from, tail.steps.first), (4, vec![5, 6]));
    assert_eq!(tail.curves[0].last, [Some(5.0), Some(0.25)]);
    assert!(tail.alerts.is_empty());
    for step in 6..10 {
        history.alert(alert(step));
    }
    let tail = history.since(cursor).unwrap();
    assert_eq!(
        tail.alerts.iter().map(|alert| alert.step.0).collect::<Vec<_>>(),
        [8, 9],
        "of four, the two that are kept"
    );
    assert_eq!((tail.alerts_seen, tail.alerts_begun), (5, 5));
    history.alert(Alert { phase: AlertPhase::Ends, ..alert(10) });
    let overview = history.overview();
    assert_eq!((overview.alerts_seen, overview.alerts_begun), (6, 5), "the end of an alert is none");
}

#[test]
fn a_reader_whose_bins_have_moved_is_told_to_read_anew() {
    let mut merging = history(SMALL, 8);
    let cursor = merging.overview().cursor;
    merging.step(9, 0.0, false);
    assert_eq!(merging.since(cursor), None);
    let mut resuming = history(SMALL, 8);
    resuming.step(3, 0.0, false);
    assert_eq!(resuming.since(cursor), None);
    assert_eq!(resuming.since(Cursor { bins: 99, ..resuming.overview().cursor }), None);
}

#[test]
fn a_heat_map_has_a_value_per_tensor_and_column_and_goes_on_from_a_column() {
    let mut history = history(SMALL, 4);
    let other = history.row("grad_reduced", "h.1.w").unwrap();
    assert!(history.set(other, 2, [7.0, ABSENT, ABSENT]), "rows come in any order");
    assert!(!history.set(other, 99, [7.0, ABSENT, ABSENT]), "a step that was never opened has no column");
    let map: HeatMap = through_json(&history.heat_map("grad_reduced", "norm", 0).unwrap());
    assert_eq!(
        (&map.names[..], &map.layers[..], &map.layer_of[..]),
        (&["h.0.w".to_owned(), "h.1.w".to_owned()][..], &["h.0".to_owned(), "h.1".to_owned()][..], &[0, 1][..],)
    );
    assert_eq!(map.values, [1.0, 2.0, 3.0, 4.0, ABSENT, 7.0, ABSENT, ABSENT]);
    let tail = history.heat_map("grad_reduced", "norm", 3).unwrap();
    assert_eq!((tail.values, tail.names.len(), tail.rows), (vec![4.0, ABSENT], 0, 2));
    assert_eq!(history.heat_map("grad_reduced", "zeros", 0).unwrap().values, [ABSENT; 8]);
    assert_eq!(history.heat_map("grad_reduced", "median", 0), None);
    assert_eq!(history.heat_map("update", "norm", 0), None);

    history.step(5, 0.0, true);
    let merged = history.heat_map("grad_reduced", "norm", 0).unwrap();
    assert_eq!(merged.values, [2.0, 4.0, ABSENT, 7.0, ABSENT, ABSENT]);
    assert_eq!((merged.columns.first, merged.columns.last), (vec![1, 3, 5], vec![2, 4, 5]));
}

#[test]
fn the_worst_tensors_are_those_that_are_not_finite_then_those_far_from_their_level() {
    let mut history = History::new(Limits { columns: 64, ..SMALL });
    let names = ["steady", "jumped", "broken", "fell"];
    let rows = names.map(|name| history.row("grad_reduced", name).unwrap());
    for step in 0..30 {
        history.step(step, 0.0, true);
        for (row, name) in rows.iter().zip(names) {
            let value = match (name, step) {
                ("jumped", 29) => 50.0,
                ("broken", 29) => f32::NAN,
                ("fell", 29) => 0.9,
                _ => 1.0,
            };
            history.set(*row, step, [value, ABSENT, ABSENT]);
        }
    }
    let worst = history.overview().tables.worst;
    let order: Vec<&str> = worst.iter().map(|state| &*state.name).collect();
    assert_eq!(order, ["broken", "jumped", "fell"]);
    assert!(worst[0].value.is_nan() && worst[2].deviations < 0.0);
    assert_eq!((worst[1].step, worst[1].usual), (29, Some(1.0)));
}

#[test]
fn what_finds_no_room_is_counted() {
    let mut history = History::new(SMALL);
    for index in 0..20 {
        history.row("update", &format!("w{index}"));
        history.curve(&format!("scalar/{index}"));
    }
    let overview = history.overview();
    assert_eq!((overview.tables.kinds[0].rows, overview.tables.rows_left_out), (16, 4));
    assert_eq!((overview.curves.len(), overview.curves_left_out), (3, 17));
}

#[test]
fn a_run_of_any_length_stays_within_the_limits() {
    let limits = Limits { steps: 64, curves: 4, columns: 16, rows: 4, alerts: 2 };
    let history = history(limits, 10_000);
    let overview = history.overview();
    assert!((32..=64).contains(&overview.steps.first.len()), "{}", overview.steps.first.len());
    assert_eq!((overview.steps.first[0], overview.steps.last.last()), (1, Some(&10_000)));
    let map = history.heat_map("grad_reduced", "norm", 0).unwrap();
    assert!((8..=16).contains(&map.values.len()));
    assert_eq!(map.values.last(), Some(&10_000.0));
    assert!(map.values.is_sorted(), "each column has the largest value of its steps");
    // Two numbers per cell and three per point at most, as the documentation of `History` says.
    assert_eq!(size_of::<trainmon_history::Cell>(), 12);
}

#[test]
fn a_run_that_resumes_without_measuring_forgets_its_columns_too() {
    let mut history = history(Limits { columns: 64, steps: 64, ..SMALL }, 30);
    history.step(21, 0.0, false);
    let map = history.heat_map("grad_reduced", "norm", 0).unwrap();
    assert_eq!((map.columns.last.last(), map.values.len()), (Some(&20), 20));
    assert!(history.columns().generation() > 0, "a reader is told to begin anew");
}

#[test]
fn a_run_that_resumes_forgets_what_it_did_after_that_step() {
    let mut history = history(Limits { columns: 64, steps: 64, ..SMALL }, 30);
    history.step(21, 0.0, true);
    let map = history.heat_map("grad_reduced", "norm", 0).unwrap();
    assert_eq!((map.values.len(), map.values[19], map.values[20]), (21, 20.0, ABSENT));
    let row = history.row("grad_reduced", "h.0.w").unwrap();
    assert!(history.set(row, 21, [500.0, ABSENT, ABSENT]));
    let worst = history.overview().tables.worst;
    assert_eq!((worst[0].step, worst[0].value), (21, 500.0), "the step after the resume is the newest");
}

#[test]
fn an_alert_that_is_over_makes_room_before_one_that_goes_on() {
    let mut history = history(SMALL, 8);
    let of = |signal, phase, step| Alert { phase, series: AlertSeries::global(signal, None), ..alert(step) };
    let steps = |history: &History| history.overview().alerts.iter().map(|alert| alert.step.0).collect::<Vec<_>>();
    history.alert(of(AlertSignal::StepTime, AlertPhase::Begins, 1));
    for step in 2..5 {
        history.alert(of(AlertSignal::Loss, AlertPhase::Begins, 10 * step));
        history.alert(of(AlertSignal::Loss, AlertPhase::Ends, 10 * step + 1));
    }
    assert_eq!(steps(&history), [1, 41], "what began first still goes on");
    // A reader that has seen all but the last two is given what is left of them, and nothing twice.
    let cursor = Cursor { alerts: 5, ..history.overview().cursor };
    let tail = history.since(cursor).unwrap();
    assert_eq!(tail.alerts.iter().map(|alert| alert.step.0).collect::<Vec<_>>(), [41]);
    assert_eq!((tail.alerts_seen, tail.alerts_begun), (7, 4));
}

#[test]
fn labels_are_named_and_the_bound_grows_with_what_is_looked_at() {
    let mut few = history(SMALL, 8);
    few.curve("scalar/straggler_rank/world");
    let mut many = history(Limits { rows: 4096, columns: 64, ..SMALL }, 60);
    (0..2000).for_each(|row| assert!(many.row("grad_reduced", &format!("w{row}")).is_some()));
    let (few, many) = (few.overview().tables, many.overview().tables);
    assert_eq!(few.labels, ["scalar/straggler_rank/world"]);
    assert!(few.far_deviations > 3.5 && many.far_deviations > few.far_deviations + 1.0, "{few:?}");
}
