//! Calls of one side alone account for what comes of them, and for nothing else.

use serde_json::{Map, Value, json};

use crate::small::{answer_of, numbers};

const SINGLE: &str = "torch.float32";

/// A tensor of this size, all of its statistics times `factor`.
fn of(size: f64, factor: f64) -> Value {
    numbers(&[8, 64], SINGLE, [2.0, -1.5, 0.1, 20.0].map(|number| number * size * factor))
}

fn object(calls: &[(&str, Value)]) -> Value {
    Value::Object(calls.iter().map(|(name, call)| ((*name).to_owned(), call.clone())).collect::<Map<_, _>>())
}

fn forward(input: &Value, output: &Value) -> Value {
    json!({"input_args": [input], "input_kwargs": {}, "output": [output]})
}

fn backward(input: &Value, output: &Value) -> Value {
    json!({"input": [input], "output": [output]})
}

/// A norm, by one operator or written out, and the backward of what stands before it and behind it. `tail`: how far the gradient that the
/// first operator gets is apart, which nobody recorded.
fn trained(is_written_out: bool, is_foreign: bool, tail: f64) -> Value {
    let after = 1.0 + if is_written_out { 1e-7 } else { 0.0 };
    let mut calls = vec![
        ("Functional.tanh.0.forward", forward(&of(1.0, 1.0), &of(5.0, 1.0))),
        ("Functional.linear.0.forward", forward(&of(5.0, 1.0), &of(3.0, 1.0))),
    ];
    if is_written_out {
        calls.push(("Torch.rsqrt.0.forward", forward(&of(3.0, 1.0), &of(2.5, 1.0))));
        calls.push(("Torch.mul.0.forward", forward(&of(2.5, 1.0), &of(2.0, after))));
    } else {
        calls.push(("Functional.layer_norm.0.forward", forward(&of(3.0, 1.0), &of(2.0, 1.0))));
    }
    calls.push(("Functional.gelu.0.forward", forward(&of(2.0, after), &of(1.8, after))));
    if is_foreign {
        calls.push(("Torch.sin.0.forward", forward(&of(1.8, after), &of(0.9, 1.0))));
        calls.push(("Torch.sin.0.backward", backward(&of(0.1, 1.0), &of(0.2, 1.0))));
    }
    calls.push(("Functional.gelu.0.backward", backward(&of(0.3, 1.0), &of(0.4, 1.0))));
    if is_written_out {
        calls.push(("Torch.mul.0.backward", backward(&of(0.4, 1.0), &of(0.45, 1.0))));
        calls.push(("Torch.rsqrt.0.backward", backward(&of(0.45, 1.0), &of(0.47, 1.0))));
    } else {
        calls.push(("Functional.layer_norm.0.backward", backward(&of(0.4, 1.0), &of(0.46, 1.0))));
    }
    // The gradient was added up, unseen.
    calls.push(("Functional.linear.0.backward", backward(&of(0.5, after), &of(0.6, after))));
    calls.push(("Functional.tanh.0.backward", backward(&of(0.7, tail), &of(0.8, tail))));
    object(&calls)
}

#[test]
fn the_backward_of_a_rewritten_part_accounts_for_what_stands_before_it_and_for_nothing_else() {
    let golden = trained(false, false, 1.0);
    let (code, answer) = answer_of(&trained(true, false, 1.0), &golden);
    assert_eq!((code, &answer["verdict"]), (Some(0), &json!("rewritten")), "{answer}");
    // Far from the part: tanh gave what the linear before the part takes, and its gradient is wrong by 1e-5.
    for is_foreign in [false, true] {
        let (code, answer) = answer_of(&trained(true, is_foreign, 1.0 + 1e-5), &golden);
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{is_foreign}: {answer}");
    }
}

#[test]
fn a_call_shortly_before_a_rewritten_part_that_has_nothing_to_do_with_it_is_named() {
    let golden = trained(false, false, 1.0);
    let mut target = trained(true, false, 1.0).as_object().unwrap().clone();
    let rest: Vec<(String, Value)> = std::mem::take(&mut target).into_iter().collect();
    let extra = ("Torch.sin.0.forward".to_owned(), forward(&of(7.0, 1.0), &of(0.9, 1.0)));
    let (code, answer) = answer_of(&Value::Object(std::iter::once(extra).chain(rest).collect()), &golden);
    assert_eq!((code, &answer["verdict"]), (Some(0), &json!("rewritten")), "{answer}");
    assert!(answer["details"].to_string().contains("Torch.sin.0.forward"), "{answer}");
}
