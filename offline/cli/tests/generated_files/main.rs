//! The files generated from the config's types are up to date.

mod key_reference;

use std::path::Path;

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
