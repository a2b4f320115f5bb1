//! One computation written in two ways: where the results agree nobody is accused, and where they do not the place is named.

use serde_json::{Map, Value, json};

use crate::small::{answer_of, document, numbers, put, trainmon};

fn float(sizes: &[u64], statistics: [f64; 4]) -> Value {
    numbers(sizes, "torch.float32", statistics)
}

fn call(inputs: &[Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

fn capture(calls: &[(&str, Value)]) -> Value {
    Value::Object(calls.iter().map(|(name, call)| ((*name).to_owned(), call.clone())).collect::<Map<_, _>>())
}

fn verdict(target: &Value, golden: &Value) -> (Option<i32>, String) {
    let (code, answer) = answer_of(target, golden);
    (code, format!("{} {} {}", answer["verdict"].as_str().unwrap(), answer["operator"], answer["sentence"]))
}

/// A factor as float32 sums of msprobe's statistics tell it; `last` is a difference in the mean's last bits.
fn factor(sizes: &[u64], last: f64) -> Value {
    float(sizes, [3.0, -2.5, f64::from(0.0125_f32) + last, f64::from(33.75_f32)])
}

/// A layer whose input has its columns in another order on the target, and whose weight may have them, too; what it gives is `size`.
fn product(last: [f64; 2], size: f64) -> Value {
    let off = |it: f64| f64::from((it * 2.0_f64.powi(-30)) as f32);
    let output = float(&[32, 8], [2.0 * size, -size, 0.25, 9.0 * size]);
    capture(&[
        (
            "Functional.linear.0.forward",
            call(&[factor(&[32, 16], off(last[0])), factor(&[8, 16], off(last[1]))], &output),
        ),
        ("Functional.softmax.0.forward", call(&[output], &float(&[32, 8], [0.9 * size, 0.0, 0.125, 3.0 * size]))),
    ])
}

#[test]
fn factors_that_are_reordered_alike_are_the_same_and_one_alone_is_named() {
    let golden = product([0.0, 0.0], 1.0);
    let (code, said) = verdict(&product([1.0, 1.0], 1.0), &golden);
    assert!(code == Some(0) && said.starts_with("rounding"), "{said}");
    let (code, said) = verdict(&product([1.0, 0.0], 1.5), &golden);
    assert!(code == Some(1) && said.starts_with("parts \"Functional.linear.0.forward\""), "{said}");
}

/// (a - b) - (c - d), and (a - c) - (b - d): each difference is of others, and what comes of both is one.
fn differences(is_target: bool, wrong: f64) -> Value {
    let leaf = |at: f64| float(&[4], [at, -at, 0.1 * at, 2.0 * at]);
    let names = ["Torch.sin.0.forward", "Torch.sin.1.forward", "Torch.sin.2.forward", "Torch.sin.3.forward"];
    let mut calls: Vec<(&str, Value)> =
        names.iter().zip([1.0, 2.0, 3.0, 4.0]).map(|(name, at)| (*name, call(&[leaf(at + 8.0)], &leaf(at)))).collect();
    let [a, b, c, d] = [1.0, 2.0, 3.0, 4.0].map(leaf);
    let pairs = if is_target { [[a, b], [c, d]] } else { [[a, c], [b, d]] };
    let given = if is_target {
        [float(&[4], [0.5, -0.7, 0.2, 1.1]), float(&[4], [0.3, -0.1, 0.6, 0.8])]
    } else {
        [float(&[4], [0.9, -0.2, 0.1, 1.3]), float(&[4], [0.8, -0.6, 0.4, 1.2])]
    };
    let whole = float(&[4], [0.6 + wrong, -0.5, 0.25, 1.5 + wrong]);
    calls.push(("Tensor.__sub__.0.forward", call(&pairs[0], &given[0])));
    calls.push(("Tensor.__sub__.1.forward", call(&pairs[1], &given[1])));
    calls.push(("Tensor.__sub__.2.forward", call(&given, &whole)));
    calls.push(("Torch.tanh.0.forward", call(&[whole], &float(&[4], [0.5 + wrong, -0.4, 0.2, 1.2 + wrong]))));
    capture(&calls)
}

#[test]
fn a_sum_that_is_put_together_in_another_order_is_no_fault_if_it_is_the_same_sum() {
    let golden = differences(false, 0.0);
    let (code, said) = verdict(&differences(true, 0.0), &golden);
    assert!(code == Some(0) && said.starts_with("rewritten"), "{said}");
    let (code, said) = verdict(&differences(true, 0.2), &golden);
    assert!(code == Some(1) && said.starts_with("parts \"Tensor.__sub__"), "{said}");
}

/// The gradient of a maximum that is subtracted from both of two exponents: what the two uses give cancels, unseen.
fn cancelled(left: f64, scale: f64) -> Value {
    let gradient = |size: f64| float(&[3, 24], [size, -0.7 * size, 0.01 * size, 4.0 * size]);
    let backward = |input: Value, outputs: &[Value]| json!({"input": [input], "output": outputs});
    let rounding = float(&[3, 24], [left, -1.25e-10, 1e-12, 3.0 * left]);
    capture(&[
        ("Functional.linear.0.forward", call(&[gradient(2.0)], &gradient(1.0 + 2e-7 * scale))),
        ("Tensor.__sub__.1.backward", backward(gradient(1e-3), &[gradient(1e-3), gradient(9e-4)])),
        ("Tensor.__sub__.0.backward", backward(gradient(8e-4), &[gradient(8e-4), gradient(7e-4)])),
        ("Torch.maximum.0.backward", backward(rounding.clone(), &[rounding])),
    ])
}

#[test]
fn what_is_left_of_gradients_that_cancel_is_rounding_and_what_is_more_is_named() {
    let golden = cancelled(1.0e-10, 0.0);
    let (code, said) = verdict(&cancelled(1.5e-10, 1.0), &golden);
    assert!(code == Some(0) && said.starts_with("rounding"), "{said}");
    let (code, said) = verdict(&cancelled(1.5e-6, 1.0), &golden);
    assert!(code == Some(1) && said.starts_with("parts \"Torch.maximum.0.backward\""), "{said}");
}

fn attention(needs_weights: bool, output: f64) -> Value {
    let x = float(&[10, 4, 24], [2.5, -2.7, 0.0, 31.0]);
    let switch = json!({"need_weights": {"type": "bool", "value": needs_weights}});
    let given = float(&[10, 4, 24], [output, -0.4, 0.03, 4.4]);
    capture(&[(
        "Functional.multi_head_attention_forward.0.forward",
        json!({"input_args": [x], "input_kwargs": switch, "output": [given, Value::Null]}),
    )])
}

#[test]
fn a_switch_that_changes_nothing_is_told_and_one_that_does_is_named() {
    let golden = attention(false, 0.5);
    let (code, said) = verdict(&attention(true, 0.5), &golden);
    assert!(code == Some(0) && said.starts_with("rewritten"), "{said}");
    let (code, said) = verdict(&attention(true, 0.6), &golden);
    assert!(code == Some(1) && said.contains("argument `need_weights` is True (baseline: False)"), "{said}");
}

/// Patches by a convolution or by a product, put together by a call that no side records, and used.
fn patches(is_target: bool, mean: f64) -> Value {
    let (x, weight) = (float(&[4, 9, 48], [3.6, -3.1, 0.04, 41.8]), float(&[48, 24], [0.14, -0.14, 0.0, 2.9]));
    let off = if is_target { 1.0 + 6e-8 } else { 1.0 };
    let patch = float(&[4, 9, 24], [1.5 * off, -1.8, -0.02, 16.7]);
    let mut tokens = float(&[4, 10, 24], [1.5 * off, -1.8, mean, 16.8]);
    tokens["requires_grad"] = json!(true);
    let name = if is_target { "Tensor.__matmul__.0.forward" } else { "Functional.conv2d.0.forward" };
    let sum = float(&[4, 10, 24], [1.6 * off, -1.7, mean, 17.0]);
    capture(&[(name, call(&[x, weight], &patch)), ("Tensor.__add__.0.forward", call(&[tokens, sum.clone()], &sum))])
}

#[test]
fn a_call_that_nobody_records_may_stand_behind_code_that_is_written_otherwise() {
    let golden = patches(false, -0.016);
    let (code, said) = verdict(&patches(true, -0.016), &golden);
    assert!(code == Some(0), "{said}");
    let (code, said) = verdict(&patches(true, -0.096), &golden);
    assert!(code == Some(1), "{said}");
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// A product with its operands in either order, and the gradients that go back through it.
fn commuted(is_target: bool, other: f64) -> Value {
    let (a, b) = (float(&[4, 8], [1.0, -1.0, 0.1, 3.0]), float(&[4, 8], [0.5 + other, -2.0, 0.3, 4.0]));
    let product = float(&[4, 8], [0.75 + other, -0.5, 0.05, 2.0]);
    let (left, right) = (float(&[4, 8], [0.2, -0.1, 0.0, 0.6]), float(&[4, 8], [0.4, -0.3, 0.01, 0.9]));
    let order = |one: &Value, two: &Value| {
        if is_target { vec![two.clone(), one.clone()] } else { vec![one.clone(), two.clone()] }
    };
    capture(&[
        ("Functional.relu.0.forward", call(std::slice::from_ref(&a), &a)),
        ("Torch.sin.0.forward", call(&[float(&[4, 8], [9.0, -9.0, 0.0, 30.0])], &b)),
        ("Tensor.__mul__.0.forward", call(&order(&a, &b), &product)),
        (
            "Tensor.__mul__.0.backward",
            json!({"input": [float(&[4, 8], [0.3, -0.3, 0.0, 0.7])], "output": order(&left, &right)}),
        ),
    ])
}

#[test]
fn operands_of_a_product_may_stand_the_other_way_round() {
    let golden = commuted(false, 0.0);
    let (code, said) = verdict(&commuted(true, 0.0), &golden);
    assert!(code == Some(0) && said.starts_with("same"), "{said}");
    // The table says the same.
    let workspace = tempfile::tempdir().unwrap();
    for (side, calls) in [("b", commuted(true, 0.0)), ("a", golden.clone())] {
        put(&workspace.path().join(side).join("dump.json"), document(&calls).to_string());
    }
    let said = trainmon(workspace.path(), &["compare", "b", "a", "-o", "out", "--format", "json"]);
    let written: Vec<_> = walk(&workspace.path().join("out"));
    assert!(said.code == Some(0) && written.len() == 1, "{said:?} {written:?}");
    let table = std::fs::read_to_string(&written[0]).unwrap();
    assert!(table.contains("\"pass\"") && !table.contains("\"error\"") && !table.contains("\"warning\""), "{table}");
    let (code, said) = verdict(&commuted(true, 0.25), &golden);
    assert!(code == Some(1) && said.starts_with("parts \"Torch.sin.0.forward\""), "{said}");
}

/// A loss of a few thousandths, made of numbers of the size of 2: it is off by their rounding.
fn divergence(loss: f64) -> Value {
    let (log, target) = (float(&[8, 10], [-0.8, -3.5, -2.1, 20.0]), float(&[8, 10], [0.4, 0.03, 0.1, 1.0]));
    capture(&[
        ("Functional.log_softmax.0.forward", call(&[float(&[8, 10], [1.0 + 1e-7, -1.0, 0.0, 5.0])], &log)),
        ("Functional.kl_div.0.forward", call(&[log, target], &float(&[], [loss; 4]))),
    ])
}

#[test]
fn a_loss_that_is_small_beside_what_it_is_made_of_rounds_as_that_does() {
    let golden = divergence(0.002);
    let (code, said) = verdict(&divergence(0.002 * (1.0 + 2e-5)), &golden);
    assert!(code == Some(0) && said.starts_with("rounding"), "{said}");
    let (code, said) = verdict(&divergence(0.0023), &golden);
    assert!(code == Some(1) && said.contains("kl_div"), "{said}");
}
