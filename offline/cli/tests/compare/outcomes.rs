//! Code that was written otherwise in a way that nobody can follow call by call: what comes of the step tells whether it is the same.

use serde_json::{Map, Value, json};

use crate::small::{answer_of, numbers};

fn sized(sizes: &[u64], size: f64) -> Value {
    let count: u64 = sizes.iter().product();
    numbers(sizes, "torch.float32", [size, -0.9 * size, 0.1 * size, 0.4 * size * (count as f64).sqrt()])
}

fn scalar(value: f64) -> Value {
    numbers(&[], "torch.float32", [value; 4])
}

fn grown(mut tensor: Value) -> Value {
    tensor["requires_grad"] = json!(true);
    tensor
}

fn call(inputs: &[Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

fn backward(input: &Value, outputs: &[Value]) -> Value {
    json!({"input": [input], "output": outputs})
}

/// What of a step is as it should be, and what may be wrong.
#[derive(Clone, Copy)]
struct Step {
    /// Whether a cast's scale is taken away by a product with its inverse. Neither the cast nor its limits are recorded.
    is_inverse: bool,
    gradient: f64,
    /// A number that is only printed.
    accuracy: f64,
    /// What a normalisation adds to a variance, far too small to be seen.
    epsilon: f64,
    /// A running mean that is only used in evaluation.
    running: f64,
    /// The running mean that a normalisation is given, and that an evaluation uses.
    loaded: f64,
    /// What is written into a cache.
    cached: f64,
    /// The parameter behind the update.
    updated: f64,
    loss: f64,
    has_gradient: bool,
}

const GOLDEN: Step = Step {
    is_inverse: false,
    gradient: 0.5,
    accuracy: 0.75,
    epsilon: 1e-5,
    running: 0.3,
    loaded: 0.2,
    cached: 0.7,
    updated: 0.999,
    loss: 1.25,
    has_gradient: true,
};

const TARGET: Step = Step { is_inverse: true, ..GOLDEN };

fn capture(step: Step) -> Value {
    let (x, quantised, cast, restored) =
        (sized(&[4, 8], 2.7), sized(&[4, 8], 345.5), sized(&[4, 8], 352.0), sized(&[4, 8], 2.75));
    let (weight, scale, inverse) = (sized(&[8, 8], 1.0), scalar(128.0), scalar(1.0 / 128.0));
    let epsilon = json!({"type": "float", "value": step.epsilon});
    let mut normalised = call(&[sized(&[4, 8], 1.1)], &grown(x.clone()));
    normalised["input_kwargs"]["eps"] = epsilon;
    let mut calls = vec![("Functional.layer_norm.0.forward", normalised)];
    if step.is_inverse {
        calls.push(("Tensor.reciprocal.0.forward", call(&[scale], &inverse)));
        let one = json!({"type": "int", "value": 1});
        calls.push(("Tensor.__mul__.0.forward", call(&[inverse.clone(), one.clone()], &inverse)));
        calls.push(("Tensor.__truediv__.0.forward", call(&[x.clone(), inverse.clone()], &quantised)));
        calls.push(("Tensor.reciprocal.1.forward", call(&[scalar(128.0)], &inverse)));
        calls.push(("Tensor.__mul__.1.forward", call(&[inverse.clone(), one], &inverse)));
        calls.push(("Tensor.__mul__.2.forward", call(&[cast, inverse], &restored)));
    } else {
        calls.push(("Tensor.__mul__.0.forward", call(&[x.clone(), scale.clone()], &quantised)));
        calls.push(("Tensor.__truediv__.0.forward", call(&[cast, scale], &restored)));
    }
    let (output, gradient) = (grown(sized(&[4, 8], 6.0)), sized(&[4, 8], 0.2));
    let loss = grown(scalar(step.loss));
    calls.push(("Functional.linear.0.forward", call(&[restored.clone(), weight.clone()], &output)));
    calls.push(("Module.l.Linear.forward.0", call(&[restored], &output)));
    calls.push((
        "Tensor.lerp_.0.forward",
        call(&[sized(&[8], 0.31), sized(&[8], 0.2), scalar(0.1)], &sized(&[8], step.running)),
    ));
    let normalised = grown(sized(&[4, 8], 1.6));
    calls.push((
        "Functional.batch_norm.0.forward",
        call(&[output.clone(), sized(&[8], step.loaded), sized(&[8], 1.0)], &normalised),
    ));
    calls.push((
        "Tensor.__setitem__.0.forward",
        json!({"input_args": [sized(&[9, 8], 0.9), {"type": "int", "value": 3}, sized(&[8], step.cached)], "input_kwargs": {}, "output": [null]}),
    ));
    calls.push(("Tensor.mean.0.forward", call(&[sized(&[4], 1.0)], &scalar(step.accuracy))));
    calls.push(("Functional.mse_loss.0.forward", call(&[output], &loss)));
    calls.push(("Functional.mse_loss.0.backward", backward(&scalar(1.0), std::slice::from_ref(&gradient))));
    calls.push(("Functional.linear.0.backward", backward(&gradient, &[sized(&[4, 8], 0.3)])));
    let of_weight = sized(&[8, 8], step.gradient);
    if step.has_gradient {
        calls.push(("Module.l.Linear.parameters_grad.0", json!({"weight": [of_weight]})));
    }
    calls.push(("Tensor.add_.0.forward", call(&[weight, of_weight], &sized(&[8, 8], step.updated))));
    Value::Object(calls.into_iter().map(|(name, call)| (name.to_owned(), call)).collect::<Map<_, _>>())
}

fn judged(target: Step, golden: Step) -> (Option<i32>, String) {
    let (code, answer) = answer_of(&capture(target), &capture(golden));
    (code, format!("{} {} {}", answer["verdict"].as_str().unwrap(), answer["operator"], answer["sentence"]))
}

#[test]
fn what_nobody_can_follow_is_written_otherwise_if_all_gradients_losses_and_updates_are_the_same() {
    let (code, said) = judged(TARGET, GOLDEN);
    assert!(code == Some(0) && said.starts_with("rewritten"), "{said}");
}

#[test]
fn it_is_not_if_anything_that_comes_of_the_step_is_another() {
    let wrong = [
        ("gradient", Step { gradient: 0.505, ..TARGET }),
        ("loss", Step { loss: 1.26, ..TARGET }),
        ("update", Step { updated: 0.999_01, ..TARGET }),
    ];
    for (name, step) in wrong {
        let (code, said) = judged(step, GOLDEN);
        assert!(code == Some(1), "{name}: {said}");
    }
}

#[test]
fn what_a_step_does_not_show_is_no_part_of_it() {
    let wrong = [
        ("accuracy", Step { accuracy: 0.76, ..TARGET }),
        ("epsilon", Step { epsilon: 1e-6, ..TARGET }),
        ("running mean", Step { running: 0.303, ..TARGET }),
        ("loaded mean", Step { loaded: 0.3, ..TARGET }),
        ("cache", Step { cached: 0.9, ..TARGET }),
    ];
    for (name, step) in wrong {
        let (code, said) = judged(step, GOLDEN);
        assert!(code == Some(1), "{name}: {said}");
    }
}

#[test]
fn gradients_that_one_side_lacks_are_told_whatever_else_is_written_otherwise() {
    let (_, said) = judged(Step { has_gradient: false, ..TARGET }, GOLDEN);
    assert!(said.contains("only the baseline has `Module.l.Linear.parameters_grad.0`"), "{said}");
}

#[test]
fn steps_with_the_same_calls_are_judged_as_ever() {
    let (code, said) = judged(Step { accuracy: 0.76, ..GOLDEN }, GOLDEN);
    assert!(code == Some(1) && said.contains("Tensor.mean.0.forward"), "{said}");
}

/// Two linear layers in one module, whose parameters' gradients are listed together: the second one's, and what lies between, come later.
fn in_one_module(is_reduced: bool) -> Value {
    let size = |right: f64| if is_reduced { right } else { 0.8 * right };
    let gradient = sized(&[4, 8], 0.2);
    let between = sized(&[4, 8], size(0.3));
    let gradients = json!({"second": [sized(&[8, 8], 0.5)], "first": [sized(&[8, 8], size(0.7))]});
    let mut calls = vec![
        ("Functional.linear.0.forward", call(&[sized(&[4, 8], 1.0)], &grown(sized(&[4, 8], 1.5)))),
        ("Functional.linear.1.forward", call(&[grown(sized(&[4, 8], 1.5))], &grown(sized(&[4, 8], 1.7)))),
        ("Module.m.Two.forward.0", call(&[sized(&[4, 8], 1.0)], &grown(sized(&[4, 8], 1.7)))),
        ("Module.m.Two.parameters_grad.0", gradients),
        ("Functional.linear.1.backward", backward(&gradient, &[sized(&[4, 8], 0.3)])),
    ];
    if is_reduced {
        calls.push(("Distributed.all_reduce.0.forward", call(&[sized(&[4, 8], 0.3)], &between)));
    }
    calls.push(("Functional.linear.0.backward", backward(&between, &[sized(&[4, 8], size(0.4))])));
    calls.push(("Module.m.Two.backward.0", backward(&gradient, &[sized(&[4, 8], size(0.4))])));
    Value::Object(calls.into_iter().map(|(name, call)| (name.to_owned(), call)).collect::<Map<_, _>>())
}

#[test]
fn gradients_that_a_module_lists_together_are_judged_when_the_last_of_them_is_there() {
    let (code, answer) = answer_of(&in_one_module(false), &in_one_module(true));
    assert_eq!((code, answer["operator"].as_str()), (Some(1), Some("Distributed.all_reduce.0.forward")), "{answer}");
}
