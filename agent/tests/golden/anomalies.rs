//! Holds our `anomaly.json` against msprobe's: the same findings, apart from listed repairs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::case::Case;
use crate::compare::Tally;
use crate::deviations::Deviation;
use crate::table::Table;

/// A finding taken apart.
#[derive(Clone, Debug)]
struct Finding {
    entry: Map<String, Value>,
    value: f64,
    history: f64,
}

/// Tag, step, op, rule.
type Key = (String, u64, String, String);

/// Compares the findings of a replayed case; nothing where msprobe was not asked for any.
pub(crate) fn compare(case: &Case, output: &Path, tally: &mut Tally) {
    let file = |base: &Path| base.join("anomaly_detected/rank0/anomaly.json");
    let theirs_file = file(&case.directory.join("msprobe_out"));
    if !theirs_file.is_file() {
        return;
    }
    let (theirs, ours) = (read(&theirs_file), read(&file(output)));
    let tables = case.answer_directory().map_or_else(Vec::new, |directory| Table::read_all(&directory));
    tally.files += 1;
    tally.rows += theirs.len();
    for (key, their) in &theirs {
        match ours.get(key) {
            Some(our) => compare_finding(case, key, our, their, tally),
            None if their.value.is_nan() && is_row_without_tensor(&tables, key) => {
                tally.deviates(Deviation::MissingIsNoAnomaly, 1);
            }
            None => tally.faults.push(format!("{}: finding {key:?} is missing", case.name)),
        }
    }
    for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
        match reason_for_more(case, key, &theirs) {
            Some(deviation) => tally.deviates(deviation, 1),
            None => tally.faults.push(format!("{}: msprobe has no finding {key:?}", case.name)),
        }
    }
}

/// Whether msprobe's own row of what a finding is about has no tensor: every statistic of it is NaN then.
fn is_row_without_tensor(tables: &[Table], (tag, step, ..): &Key) -> bool {
    let Tag { name, micro, kind } = Tag::of(tag);
    let is_it = |table: &Table, row: usize| {
        table.cell(row, "step") == step.to_string()
            && table.cell(row, "name") == name
            && micro.is_none_or(|micro| table.cell(row, "micro_step") == micro.to_string())
    };
    tables
        .iter()
        .filter(|table| table.prefix() == kind)
        .any(|table| (0..table.rows.len()).any(|row| is_it(table, row) && table.cell(row, "dtype") == "nan"))
}

/// The parts of `<vpp>:<name>[:<micro-batch>]/rank<R>/<kind>`.
struct Tag<'a> {
    name: &'a str,
    micro: Option<u64>,
    kind: &'a str,
}

impl<'a> Tag<'a> {
    fn of(tag: &'a str) -> Self {
        let (name, rest) = tag.split_once('/').unwrap();
        let (_, kind) = rest.split_once('/').unwrap();
        let (_, name) = name.split_once(':').unwrap();
        match name.rsplit_once(':').and_then(|(name, micro)| Some((name, micro.parse().ok()?))) {
            Some((name, micro)) => Self { name, micro: Some(micro), kind },
            None => Self { name, micro: None, kind },
        }
    }
}

fn read(file: &Path) -> BTreeMap<Key, Finding> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let entries: Map<String, Value> = serde_json::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    for (name, entry) in entries {
        let entry = entry.as_object().unwrap().clone();
        let message = entry["message"].as_str().unwrap();
        let part = |before: &str, after: &str| {
            let start = message.split_once(before).unwrap().1;
            start.split_once(after).unwrap().0.to_owned()
        };
        let (tag, step) = (entry["tag_name"].as_str().unwrap().to_owned(), entry["step"].as_u64().unwrap());
        assert!(name.starts_with(&format!("{tag}_step_{step}_call_{}", entry["call_id"])), "{name}");
        let key = (tag.clone(), step, part(&format!("('{tag}', '"), "')"), part("Rule ", " reports"));
        let number = |text: String| text.parse::<f64>().unwrap();
        let value = number(part("current value ", ","));
        let history = number(message.rsplit_once("history mean ").unwrap().1.trim_end_matches('.').to_owned());
        assert!(found.insert(key, Finding { entry, value, history }).is_none(), "{name} twice");
    }
    found
}

fn compare_finding(case: &Case, key: &Key, ours: &Finding, theirs: &Finding, tally: &mut Tally) {
    let place = format!("{}: {key:?}", case.name);
    let without_message = |finding: &Finding| {
        let mut entry = finding.entry.clone();
        entry.remove("message");
        // The recorded tensors do not say how the hooks of backward mixed: their numbers cannot be told.
        let is_of_backward = key.0.ends_with("/actv_grad") || key.0.ends_with("/acc_grad");
        if case.json["config"]["xy_distribution"] == true && is_of_backward {
            entry.remove("call_id");
        }
        entry
    };
    tally.cells += 1;
    let (mut our_entry, their_entry) = (without_message(ours), without_message(theirs));
    excuse_entry(case, key, &mut our_entry, &their_entry, tally);
    if our_entry != their_entry {
        tally.faults.push(format!("{place}: {our_entry:?}, msprobe has {their_entry:?}"));
        return;
    }
    let agree = |a: f64, b: f64| (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-7 * b.abs();
    if !agree(ours.value, theirs.value) {
        tally.faults.push(format!("{place}: value {}, msprobe has {}", ours.value, theirs.value));
    } else if agree(ours.history, theirs.history) {
        tally.agree();
    } else if theirs.history.is_nan() && ours.history.is_finite() {
        tally.deviates(Deviation::HistoryStaysFinite, 1);
    } else {
        tally.faults.push(format!("{place}: history {}, msprobe has {}", ours.history, theirs.history));
    }
}

/// Puts msprobe's micro-batch and call in the place of ours where their difference has its listed cause.
fn excuse_entry(case: &Case, key: &Key, ours: &mut Map<String, Value>, theirs: &Map<String, Value>, tally: &mut Tally) {
    let tag = Tag::of(&key.0);
    let micro_batches = case.number("grad_acc", 1);
    let micro = tag.micro.unwrap_or(micro_batches - 1);
    if theirs["micro_step"] == 0 && micro > 0 && ours["micro_step"] == micro {
        ours.insert("micro_step".to_owned(), 0.into());
        tally.deviates(Deviation::RealMicroStep, 1);
    }
    let (Some(our_call), Some(their_call)) = (ours.get("call_id"), theirs.get("call_id")) else { return };
    let prefix = format!("grad_unreduced/{}/", key.1);
    let gradients = case.tensors.iter().filter(|tensor| tensor.key.starts_with(&prefix)).count() as u64;
    let earlier = gradients * (micro_batches - 1);
    let is_gradient = matches!(tag.kind, "acc_grad" | "post_grad") && tag.micro.is_none();
    let is_shifted = || our_call.as_u64().map(|call| call + earlier) == their_call.as_u64();
    if is_gradient && earlier > 0 && is_shifted() {
        ours.insert("call_id".to_owned(), their_call.clone());
        tally.deviates(Deviation::CallPerFiring, 1);
    }
}

/// Why we have a finding that msprobe lacks: it has another under the same key of its own, which took this one's place
/// or kept its rule from being asked.
fn reason_for_more(case: &Case, key: &Key, theirs: &BTreeMap<Key, Finding>) -> Option<Deviation> {
    let (tag, step, op, rule) = key;
    let order = |list: &Value, name: &str| list.as_array().unwrap().iter().position(|known| known == name);
    let ops = &case.json["config"]["ops"];
    let rules: Vec<&Value> =
        case.json["config"]["alert"]["rules"].as_array().unwrap().iter().map(|rule| &rule["rule_name"]).collect();
    let rule_order = |name: &str| rules.iter().position(|known| *known == name);
    let (_, _, their_op, their_rule) = theirs.keys().find(|(t, s, ..)| t == tag && s == step)?;
    if their_op == op {
        return (rule_order(their_rule) < rule_order(rule)).then_some(Deviation::NoRuleHidesAnother);
    }
    (order(ops, op) < order(ops, their_op)).then_some(Deviation::FindingPerStatistic)
}
