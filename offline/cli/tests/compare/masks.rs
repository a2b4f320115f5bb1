//! Masks of bools: what their statistics tell, and what the answer says where they tell nothing.

use serde_json::{Value, json};

use crate::small::{answer_of, numbers};

fn fill(mask: &Value, out: f64) -> Value {
    let scores = |size: f64| numbers(&[4, 4], "torch.float32", [size, -size, 0.0, 2.0 * size]);
    json!({
        "Functional.relu.0.forward": {"input_args": [scores(0.5)], "input_kwargs": {}, "output": [scores(1.0)]},
        "Tensor.masked_fill.0.forward": {"input_args": [scores(1.0), mask], "input_kwargs": {}, "output": [scores(out)]},
    })
}

fn mask(share: Option<f64>) -> Value {
    let mean = share.map_or(Value::Null, |share| json!(share));
    let norm = share.map_or(Value::Null, |share| json!((16.0 * share).sqrt()));
    json!({"type": "torch.Tensor", "dtype": "torch.bool", "shape": [4, 4], "Max": true, "Min": false, "Mean": mean, "Norm": norm,
        "requires_grad": false})
}

#[test]
fn another_mask_is_named_where_it_is_counted_and_where_not_nothing_is_said_of_rows() {
    let (code, answer) = answer_of(&fill(&mask(Some(0.5)), 0.75), &fill(&mask(Some(0.375)), 0.7));
    assert_eq!((code, &answer["looks_like"]), (Some(1), &json!("the masks differ")), "{answer:#}");
    assert_eq!(answer["suspects"][0]["name"], "Tensor.masked_fill.0.forward.input.1", "{answer:#}");
    let (code, answer) = answer_of(&fill(&mask(None), 0.75), &fill(&mask(None), 0.7));
    let details = answer["details"].to_string();
    assert_eq!((code, answer["kind"].as_str()), (Some(1), Some("operator")), "{answer:#}");
    assert!(details.contains("input.1` is a bool tensor") && !details.contains("rows"), "{details}");
}
