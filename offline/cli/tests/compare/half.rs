//! What half precision may hide, and what it may not: captures with a fault of the size of a few of its units.

use serde_json::{Map, Value, json};

use crate::small::{answer_of, numbers};

const BRAIN: &str = "torch.bfloat16";
const HALF: &str = "torch.float16";
/// Statistics of a hidden state: max, min, mean and norm of 8 x 16 x 64 elements of about 0.5.
const HIDDEN: [f64; 4] = [2.0, -2.0, 0.01, 45.0];
const SHAPE: [u64; 3] = [8, 16, 64];

fn call(inputs: &[Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

fn object(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Object(calls.into_iter().map(|(name, call)| (name.to_owned(), call)).collect::<Map<_, _>>())
}

fn hidden(dtype: &str, factors: [f64; 4]) -> Value {
    let [max, min, mean, norm] = HIDDEN;
    let of = |number: f64, factor: f64| number * factor;
    numbers(&SHAPE, dtype, [of(max, factors[0]), of(min, factors[1]), of(mean, factors[2]), of(norm, factors[3])])
}

/// Attention by one operator.
fn fused(dtype: &str) -> Value {
    let (given, mixed) = (hidden(dtype, [1.5; 4]), hidden(dtype, [1.0; 4]));
    object([
        ("Functional.linear.0.forward", call(&[hidden(dtype, [3.0; 4])], &given)),
        ("Functional.scaled_dot_product_attention.0.forward", call(&[given], &mixed)),
        ("Functional.linear.1.forward", call(&[mixed], &hidden(dtype, [0.7; 4]))),
        ("Functional.gelu.0.forward", call(&[hidden(dtype, [0.7; 4])], &hidden(dtype, [0.4; 4]))),
    ])
}

/// The same written out. `factors`: by how much its statistics are others.
fn written_out(dtype: &str, factors: [f64; 4]) -> Value {
    let (given, scores, mixed) = (hidden(dtype, [1.5; 4]), hidden(dtype, [0.2; 4]), hidden(dtype, factors));
    object([
        ("Functional.linear.0.forward", call(&[hidden(dtype, [3.0; 4])], &given)),
        ("Torch.softmax.0.forward", call(&[given], &scores)),
        ("Torch.matmul.0.forward", call(&[scores], &mixed)),
        ("Functional.linear.1.forward", call(&[mixed], &hidden(dtype, factors.map(|factor| 0.7 * factor)))),
        (
            "Functional.gelu.0.forward",
            call(
                &[hidden(dtype, factors.map(|factor| 0.7 * factor))],
                &hidden(dtype, factors.map(|factor| 0.4 * factor)),
            ),
        ),
    ])
}

#[test]
fn results_of_rewritten_half_precision_agree_if_norms_and_means_do_to_more_than_their_elements() {
    for (dtype, unit) in [(BRAIN, 2_f64.powi(-8)), (HALF, 2_f64.powi(-11))] {
        let golden = fused(dtype);
        // As elements round: max and min by two units, the norm by a part of one.
        let rounded = written_out(dtype, [1.0 + 2.0 * unit, 1.0, 1.0, 1.0 + unit / 40.0]);
        let (code, answer) = answer_of(&rounded, &golden);
        assert_eq!((code, &answer["verdict"]), (Some(0), &json!("rewritten")), "{dtype}: {answer}");
        // All elements two units too large.
        let scaled = written_out(dtype, [1.0 + 2.0 * unit; 4]);
        let (code, answer) = answer_of(&scaled, &golden);
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{dtype}: {answer}");
        // One element six units too large.
        let outlier = written_out(dtype, [1.0 + 6.0 * unit, 1.0, 1.0, 1.0]);
        let (code, answer) = answer_of(&outlier, &golden);
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{dtype}: {answer}");
    }
}

#[test]
fn norms_that_were_rounded_to_half_precision_themselves_agree_to_their_last_bit() {
    let verdict = |norm: f64| {
        let (code, answer) = answer_of(&written_out(BRAIN, [1.0, 1.0, 1.0, norm / HIDDEN[3]]), &fused(BRAIN));
        (code, answer["verdict"].clone())
    };
    // At 45 numbers of bfloat16 are 0.25 apart; 2 % are four of these.
    assert_eq!(verdict(45.25), (Some(0), json!("rewritten")));
    assert_eq!(verdict(45.2), (Some(1), json!("parts")), "that norm was not rounded");
    assert_eq!(verdict(46.0), (Some(1), json!("parts")));
}

/// The backward of an activation and of the norm in front of it. `by`: what the norm's bias has more in one element.
fn behind_a_relu(incoming: f64, dtype: &str, of_bias: &str, by: f64) -> Value {
    // 2,048 elements of about 0.5; the sum of all is 40.96.
    let gradient = numbers(&[32, 64], dtype, [2.0, -1.5, 0.02, 22.0]);
    let bias = numbers(&[64], of_bias, [5.0 + by, -4.0, 0.64 + by / 64.0, 16.0 + by / 4.0]);
    json!({
        "Functional.linear.0.backward":
            {"input": [numbers(&[32, 5], dtype, [incoming, -1.0, 0.01, 9.0])], "output": [numbers(&[32, 64], dtype, [2.5, -1.5, 0.02, 25.0])]},
        "Functional.relu.0.backward":
            {"input": [numbers(&[32, 64], dtype, [2.5, -1.5, 0.02, 25.0])], "output": [gradient]},
        "Functional.batch_norm.0.backward": {"input": [gradient], "output": [bias]},
    })
}

#[test]
fn a_sum_behind_a_jump_is_confirmed_by_totals_in_single_precision_alone() {
    // In half precision the totals agree within what elements of it round by, and a sum is wrong all the same.
    for (dtype, of_bias) in [(BRAIN, "torch.float32"), (HALF, "torch.float32"), (BRAIN, BRAIN)] {
        let golden = behind_a_relu(1.0, dtype, of_bias, 0.0);
        let (code, answer) = answer_of(&behind_a_relu(1.0 + 1e-6, dtype, of_bias, 1.5), &golden);
        assert_eq!((code, &answer["verdict"]), (Some(1), &json!("parts")), "{dtype} {of_bias}: {answer}");
        assert_eq!(answer["operator"], "Functional.batch_norm.0.backward");
    }
}

/// A backward of which one output has another shape and the other not; both are used.
fn two_outputs(dtype: &str, shape: &[u64], first: f64, second: f64) -> Value {
    let of = |shape: &[u64], factor: f64| numbers(shape, dtype, [0.5, -0.4, 0.01, 3.0].map(|number| number * factor));
    json!({
        "Functional.mix.0.backward": {
            "input": [numbers(&[6, 8], dtype, [1.0, -1.0, 0.1, 6.0])],
            "output": [of(shape, first), of(&[16, 3], 1.3 * second)],
        },
        "Functional.gelu.0.backward": {"input": [of(&[16, 3], 1.3 * second)], "output": [of(&[16, 3], 2.0 * second)]},
        "Functional.silu.0.backward": {"input": [of(&[6, 8], first)], "output": [of(&[6, 8], 2.0 * first)]},
    })
}

#[test]
fn beside_a_gradient_in_another_shape_the_others_are_judged() {
    for dtype in ["torch.float32", BRAIN] {
        let golden = two_outputs(dtype, &[6, 8], 1.0, 1.0);
        let (code, answer) = answer_of(&two_outputs(dtype, &[8, 6], 1.0, 1.0), &golden);
        assert_eq!(code, Some(0), "{answer}");
        // What has another shape may be another node's; then whoever is given it is given something else.
        for (first, second, operator) in
            [(1.0, 0.5, "Functional.mix.0.backward"), (0.5, 1.0, "Functional.silu.0.backward")]
        {
            let (code, answer) = answer_of(&two_outputs(dtype, &[8, 6], first, second), &golden);
            let found = (code, &answer["verdict"], &answer["operator"]);
            let wanted = (Some(1), &json!("parts"), &json!(operator));
            assert_eq!(found, wanted, "{dtype} {first} {second}: {answer}");
        }
    }
}
