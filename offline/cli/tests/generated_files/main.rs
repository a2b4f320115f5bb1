//! The files generated from the config's types and from the metric catalogue are up to date.

mod key_reference;

use std::path::Path;

use serde_json::json;
use trainmon_core::AlertRule;
use trainmon_core::catalog::{self, Metric, Status};

const REGENERATE: &str = "TRAINMON_REGENERATE";

/// Compares a generated file with its committed copy, or writes it when asked to.
fn assert_up_to_date(path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, generated).expect("writable");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is out of date; run: {REGENERATE}=1 cargo test -p trainmon-cli --test generated_files",
        path.display()
    );
}

#[test]
fn the_committed_schema_is_the_one_of_the_types() {
    let schema = serde_json::to_string_pretty(trainmon_core::config::json_schema()).expect("JSON") + "\n";
    assert_up_to_date("configs/trainmon.schema.json", &schema);
}

#[test]
fn the_key_reference_is_the_one_of_the_types() {
    assert_up_to_date("docs/configuration.md", &key_reference::markdown());
}

/// What the generator of the Grafana dashboards reads, which is Python.
#[test]
fn the_catalogue_of_the_dashboards_is_that_of_the_exporters() {
    let metric = |metric: &Metric| {
        let Metric { name, otel_name: _, unit, metric_type, labels, status, help } = *metric;
        let status = match status {
            Status::Available => "available",
            Status::Pushed => "pushed",
            Status::Planned => "planned",
        };
        json!({"name": name, "type": metric_type.name(), "unit": unit, "labels": labels, "status": status, "help": help})
    };
    let metrics: Vec<_> = catalog::ALL.iter().map(metric).collect();
    let rules: Vec<_> = AlertRule::ALL.iter().map(|rule| rule.name()).collect();
    let catalogue =
        serde_json::to_string_pretty(&json!({"metrics": metrics, "alert_rules": rules})).expect("JSON") + "\n";
    assert_up_to_date("dashboards/grafana/catalog.json", &catalogue);
}
