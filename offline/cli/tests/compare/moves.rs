//! Calls that one side makes alone: what only moves values is no other way to compute, and a sentence says what differs.

use serde_json::{Map, Value, json};

use crate::small::{answer_of, numbers};

fn float(sizes: &[u64], statistics: [f64; 4]) -> Value {
    numbers(sizes, "torch.float32", statistics)
}

fn call(inputs: &[&Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

fn put(calls: &mut Map<String, Value>, name: &str, inputs: &[&Value], output: &Value) {
    calls.insert(name.to_owned(), call(inputs, output));
}

/// A batch, its layer, a dropout and a loss; on the target the batch goes through `mover` first. Statistics do not see that: what they see
/// first is the dropout, whose mask meets other rows.
fn batch(mover: Option<&str>) -> Value {
    let (images, hidden) = (float(&[8, 4], [2.0, -1.5, 0.1, 5.0]), float(&[8, 4], [1.5, -1.0, 0.2, 4.0]));
    let labels = numbers(&[8], "torch.int64", [3.0, 0.0, 1.5, 6.0]);
    let is_moved = mover.is_some();
    let kept = float(&[8, 4], if is_moved { [3.0, -2.0, 0.25, 4.6] } else { [2.8, -2.0, 0.21, 4.4] });
    let loss = float(&[], if is_moved { [1.9; 4] } else { [1.2; 4] });
    let mut calls = Map::new();
    if let Some(mover) = mover {
        put(&mut calls, mover, &[&images], &images);
    }
    put(&mut calls, "Functional.linear.0.forward", &[&images], &hidden);
    put(&mut calls, "Functional.dropout.0.forward", &[&hidden], &kept);
    put(&mut calls, "Functional.cross_entropy.0.forward", &[&kept, &labels], &loss);
    Value::Object(calls)
}

#[test]
fn a_batch_that_was_moved_is_no_part_computed_otherwise() {
    for mover in [
        "Torch.roll.0.forward",
        "Torch.flip.0.forward",
        "Tensor.index_select.0.forward",
        "Torch.gather.0.forward",
        "Torch.sort.0.forward",
        "Tensor.index_copy_.0.forward",
    ] {
        let (code, answer) = answer_of(&batch(Some(mover)), &batch(None));
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{mover}: {}", answer["sentence"]);
        assert_eq!(
            (&answer["operator"], &answer["kind"]),
            (&json!(mover), &json!("target_only")),
            "{}",
            answer["sentence"]
        );
    }
    // A layout is no other order: it is told besides.
    let (_, answer) = answer_of(&batch(Some("Tensor.permute.0.forward")), &batch(None));
    assert_eq!((&answer["verdict"], &answer["operator"]), (&json!("parts"), &json!("Functional.dropout.0.forward")));
    assert!(answer["details"].to_string().contains("`Tensor.permute.0.forward` (only in the target)"), "{answer:#}");
}

/// Two layers, the second written out on the target, all later values apart by `apart`.
fn written_out(is_target: bool, apart: f64) -> Value {
    let off = |statistics: [f64; 4]| statistics.map(|it| if is_target { it * (1.0 + apart) } else { it });
    let (x, h) = (float(&[8, 4], [2.0, -1.5, 0.1, 5.0]), float(&[8, 4], [1.5, -1.0, 0.2, 4.0]));
    let (scaled, y) = (float(&[8, 4], off([0.75, -0.5, 0.1, 2.0])), float(&[8, 4], off([0.6, -0.4, 0.08, 1.7])));
    let mut calls = Map::new();
    put(&mut calls, "Functional.linear.0.forward", &[&x], &h);
    if is_target {
        put(&mut calls, "Tensor.__mul__.0.forward", &[&h], &scaled);
        put(&mut calls, "Torch.erf.0.forward", &[&scaled], &y);
    } else {
        put(&mut calls, "Functional.gelu.0.forward", &[&h], &y);
    }
    put(&mut calls, "Functional.linear.1.forward", &[&y], &float(&[8, 4], off([1.1, -0.9, 0.3, 3.0])));
    Value::Object(calls)
}

#[test]
fn that_no_value_differs_is_said_only_where_none_does() {
    let (_, answer) = answer_of(&written_out(true, 0.0), &written_out(false, 0.0));
    let same = answer["sentence"].to_string();
    assert_eq!(answer["verdict"], "one_sided", "{answer:#}");
    assert!(same.contains("No divergence, but"), "{same}");
    let (_, answer) = answer_of(&written_out(true, 2e-7), &written_out(false, 2e-7));
    let apart = answer["sentence"].to_string();
    assert_eq!(answer["verdict"], "rewritten", "{answer:#}");
    assert!(!apart.contains("No divergence, but"), "{apart}");
}
