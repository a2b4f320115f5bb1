//! What the first difference looks like, in words: of captures with one cause each.

use serde_json::{Value, json};

use crate::small::{answer_of, numbers};

const SINGLE: &str = "torch.float32";
const LOGITS: [f64; 4] = [2.0, -2.0, 0.1, 12.0];

fn call(inputs: &[Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

fn of(shape: &[u64], stats: [f64; 4]) -> Value {
    numbers(shape, SINGLE, stats)
}

/// A training step: attention with a mask, a loss, its backward, and an update of one parameter.
fn step(change: &str) -> Value {
    let scaled = |stats: [f64; 4], by: f64| stats.map(|stat| stat * by);
    let is = |cause: &str| change == cause;
    let mask = numbers(&[4, 4], "torch.bool", [1.0, 0.0, if is("mask") { 0.5 } else { 0.375 }, 2.0]);
    let labels = numbers(&[8], "torch.int64", if is("labels") { [9.0, 0.0, 4.0, 14.0] } else { [9.0, 0.0, 5.0, 15.0] });
    let loss = if is("order") { 1.25 } else { 1.5 };
    let (weight, gradient) = ([0.5, -0.5, 0.01, 3.0], [0.02, -0.01, 0.001, 0.1]);
    let gradient = if is("scale") { scaled(gradient, 2.0) } else { gradient };
    let moment = if is("state") { [0.0; 4] } else { [0.01, -0.02, 0.002, 0.15] };
    let used = call(&[of(&[8, 10], LOGITS), of(&[10, 10], weight)], &of(&[8, 10], LOGITS));
    json!({
        "Tensor.masked_fill.0.forward": call(&[of(&[4, 4], [1.0, -1.0, 0.0, 3.0]), mask], &of(&[4, 4], [0.75, -0.75, 0.0, 2.0])),
        "Functional.linear.0.forward": used,
        "Module.head.Linear.forward.0": {"input_args": [of(&[8, 10], LOGITS)], "input_kwargs": {},
            "parameters": {"weight": of(&[10, 10], weight)}, "output": [of(&[8, 10], LOGITS)]},
        "Functional.cross_entropy.0.forward": call(&[of(&[8, 10], LOGITS), labels], &of(&[], [loss; 4])),
        "Functional.cross_entropy.0.backward": {"input": [of(&[], [1.0; 4])], "output": [of(&[8, 10], gradient)]},
        "Tensor.lerp_.0.forward": call(&[of(&[10, 10], moment), of(&[10, 10], [0.03, -0.02, 0.0, 0.2])],
            &of(&[10, 10], [0.004, -0.02, 0.002, 0.1])),
        "Tensor.addcdiv_.0.forward": call(&[of(&[10, 10], weight)], &of(&[10, 10], [0.49, -0.5, 0.01, 2.9])),
    })
}

#[test]
fn causes_that_leave_a_mark_are_named() {
    let golden = step("");
    for (change, operator, words) in [
        ("mask", "Tensor.masked_fill.0.forward", "the masks differ"),
        ("labels", "Functional.cross_entropy.0.forward", "the labels differ"),
        ("order", "Functional.cross_entropy.0.forward", "rows of one are in another order"),
        ("scale", "Functional.cross_entropy.0.backward", "2 times the baseline throughout"),
        ("state", "Tensor.lerp_.0.forward", "an optimizer state that was not loaded"),
    ] {
        let (code, answer) = answer_of(&step(change), &golden);
        assert_eq!((code, answer["operator"].as_str()), (Some(1), Some(operator)), "{change}: {answer:#}");
        assert!(answer["looks_like"].as_str().is_some_and(|looks| looks.contains(words)), "{change}: {answer:#}");
    }
    let (code, answer) = answer_of(&golden, &golden);
    assert_eq!((code, answer["verdict"].as_str()), (Some(0), Some("same")));
}

#[test]
fn a_call_of_an_optimizer_names_the_parameter_that_it_updates() {
    let (_, answer) = answer_of(&step("state"), &step(""));
    assert_eq!(answer["parameter"], "head.weight", "{answer:#}");
    assert!(
        answer["sentence"].as_str().is_some_and(|said| said.contains("in the update of `head.weight`")),
        "{answer:#}"
    );
}
