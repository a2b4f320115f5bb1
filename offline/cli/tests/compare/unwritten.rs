//! Memory that nobody has written yet: what is in it is no difference, and what is written there is one.

use serde_json::{Value, json};

use crate::small::{answer_of, document, numbers, put, trainmon};

/// What a process had in its memory before.
const LEFT: [[f64; 4]; 2] = [[3e30, -2.0, 1e29, 4e30], [7.0, 7.0, 7.0, 28.0]];

fn float(shape: &[u64], statistics: [f64; 4]) -> Value {
    numbers(shape, "torch.float32", statistics)
}

fn call(inputs: &[&Value], output: &Value) -> Value {
    json!({"input_args": inputs, "input_kwargs": {}, "output": [output]})
}

/// Memory is taken, looked at through a view, filled, and read: by functions of this family.
fn written_later(names: [&str; 4], left: [f64; 4], written: [f64; 4]) -> Value {
    let sizes = json!({"type": "list", "value": [16]});
    let [memory, part] = [float(&[16], left), float(&[8], left.map(|one| one / 2.0))];
    let full = float(&[8], written);
    let [take, view, fill, read] = names;
    json!({
        take: call(&[&sizes], &memory),
        view: call(&[&memory], &part),
        fill: call(&[&part], &full),
        read: call(&[&full], &full),
    })
}

const FAMILIES: [[&str; 4]; 2] = [
    [
        "Aten.empty.memory_format.0.forward",
        "Aten.slice.Tensor.0.forward",
        "Aten.fill_.Scalar.0.forward",
        "Aten.neg.default.0.forward",
    ],
    ["Tensor.new_empty.0.forward", "Tensor.narrow.0.forward", "Tensor.copy_.0.forward", "Torch.neg.0.forward"],
];

#[test]
fn what_nobody_had_written_is_no_difference() {
    for names in FAMILIES {
        let written = [1.0, 1.0, 1.0, 2.5];
        let [one, other] = LEFT.map(|left| written_later(names, left, written));
        let (code, answer) = answer_of(&one, &other);
        assert_eq!((code, &answer["verdict"]), (Some(0), &json!("same")), "{}", answer["sentence"]);
    }
}

#[test]
fn what_is_written_there_is_one() {
    for names in FAMILIES {
        let one = written_later(names, LEFT[0], [1.5, 1.0, 1.0, 2.5]);
        let other = written_later(names, LEFT[1], [1.0, 1.0, 1.0, 2.5]);
        let (code, answer) = answer_of(&one, &other);
        assert_eq!((code, &answer["operator"]), (Some(1), &json!(names[2])), "{}", answer["sentence"]);
    }
}

/// Fresh memory is often zero: zeros that somebody computed are held against the golden's all the same.
#[test]
fn a_result_that_looks_like_such_memory_is_judged() {
    let with = |left: [f64; 4], result: [f64; 4]| {
        let (memory, input, output) = (float(&[16], left), float(&[16], [1.0, -1.0, 0.5, 3.0]), float(&[16], result));
        json!({
            "Torch.empty.0.forward": call(&[], &memory),
            "Torch.relu.0.forward": call(&[&input], &output),
        })
    };
    let (code, answer) = answer_of(&with([0.0; 4], [0.0; 4]), &with(LEFT[0], [1.0, 0.0, 0.6, 3.0]));
    assert_eq!((code, &answer["operator"]), (Some(1), &json!("Torch.relu.0.forward")), "{}", answer["sentence"]);
}

/// What was freed just before is given again, with its content: what it was is a difference all the same.
#[test]
fn a_difference_that_fresh_memory_still_holds_is_judged() {
    let with = |result: [f64; 4]| {
        let (input, output) = (float(&[16], [1.0, -1.0, 0.5, 3.0]), float(&[16], result));
        json!({
            "Torch.relu.0.forward": call(&[&input], &output),
            "Torch.empty.0.forward": call(&[], &output),
            "Torch.neg.0.forward": call(&[&output], &output),
        })
    };
    let (code, answer) = answer_of(&with([0.9, 0.0, 0.6, 3.0]), &with([1.0, 0.0, 0.6, 3.0]));
    assert_eq!((code, &answer["operator"]), (Some(1), &json!("Torch.relu.0.forward")), "{}", answer["sentence"]);
}

/// And what the last step freed may be what this one computes again: a mask, say.
#[test]
fn a_result_that_fresh_memory_held_from_the_step_before_is_judged() {
    let with = |mask: [f64; 4]| {
        let (input, mask) = (float(&[16], [1.0, -1.0, 0.5, 3.0]), float(&[16], mask));
        json!({
            "Torch.empty.0.forward": call(&[], &mask),
            "Torch.triu.0.forward": call(&[&input], &mask),
            "Torch.add.0.forward": call(&[&input, &mask], &input),
        })
    };
    let (code, answer) = answer_of(&with([0.9, 0.0, 0.6, 3.0]), &with([1.0, 0.0, 0.6, 3.0]));
    assert_eq!((code, &answer["operator"]), (Some(1), &json!("Torch.triu.0.forward")), "{}", answer["sentence"]);
}

#[test]
fn another_shape_or_dtype_of_it_shows_where_it_is_used() {
    let names = FAMILIES[0];
    let mut one = written_later(names, LEFT[0], [1.0, 1.0, 1.0, 2.5]);
    let other = written_later(names, LEFT[1], [1.0, 1.0, 1.0, 2.5]);
    one[names[0]]["output"][0]["dtype"] = json!("torch.float16");
    one[names[1]]["input_args"][0]["dtype"] = json!("torch.float16");
    let (code, answer) = answer_of(&one, &other);
    assert_eq!((code, &answer["operator"]), (Some(1), &json!(names[1])), "{}", answer["sentence"]);
}

/// Two gathers of one value into buffers that hold what the processes had there: by position, and by keyword as msprobe dumps it.
#[test]
fn what_a_communication_only_writes_into_is_no_difference_and_what_it_sends_is() {
    let gathered = |left: [f64; 4], sent: [f64; 4]| {
        let (buffer, part, whole) = (float(&[16], left), float(&[8], sent), float(&[16], [1.0, 1.0, 1.0, 4.0]));
        json!({
            "Torch.neg.0.forward": call(&[&float(&[8], [1.0, 1.0, 1.0, 2.5])], &float(&[8], [1.0, 1.0, 1.0, 2.5])),
            "Distributed.all_gather_into_tensor.0.forward": call(&[&buffer, &part], &whole),
            "Distributed.all_gather_into_tensor.1.forward": {"input_args": [], "output": [whole],
                "input_kwargs": {"output_tensor": buffer, "input_tensor": part}},
        })
    };
    let sent = [1.0, 1.0, 1.0, 2.5];
    let (code, answer) = answer_of(&gathered(LEFT[0], sent), &gathered(LEFT[1], sent));
    assert_eq!((code, &answer["verdict"]), (Some(0), &json!("same")), "{}", answer["sentence"]);
    let (code, answer) = answer_of(&gathered(LEFT[0], [1.5, 1.0, 1.0, 2.5]), &gathered(LEFT[1], sent));
    assert_eq!(
        (code, &answer["operator"]),
        (Some(1), &json!("Distributed.all_gather_into_tensor.0.forward")),
        "{}",
        answer["sentence"]
    );
}

/// As Megatron's attention scores are made: into a buffer of `torch.empty`, with `beta` 0. With another `beta` the buffer counts.
#[test]
fn what_a_product_is_not_added_to_is_no_difference() {
    let product = |left: [f64; 4], beta: f64| {
        let (buffer, factor) = (float(&[2, 4, 4], left), float(&[2, 4, 8], [1.0, -1.0, 0.5, 3.0]));
        json!({"Torch.baddbmm.0.forward": {"input_args": [buffer, factor, factor], "output": [float(&[2, 4, 4], [2.0, -1.0, 0.5, 3.0])],
            "input_kwargs": {"beta": {"type": "float", "value": beta}, "alpha": {"type": "float", "value": 0.125}}}})
    };
    for (beta, code) in [(0.0, 0), (1.0, 1)] {
        let (said, answer) = answer_of(&product(LEFT[0], beta), &product(LEFT[1], beta));
        assert_eq!(said, Some(code), "beta {beta}: {}", answer["sentence"]);
    }
}

/// A buffer that is filled a part at a time: what is left of the memory's past shows in every look at it until it is whole.
#[test]
fn a_buffer_that_is_filled_by_parts_is_judged_where_it_is_read() {
    let filled = |left: [f64; 4], part: [f64; 4], whole: [f64; 4]| {
        let mut buffer = float(&[4, 8], left);
        buffer["from_empty"] = json!(true);
        let mut row = float(&[8], left.map(|one| one / 2.0));
        row["from_empty"] = json!(true);
        let (index, part, whole) = (json!({"type": "int", "value": 1}), float(&[8], part), float(&[4, 8], whole));
        json!({
            "Tensor.__getitem__.0.forward": call(&[&buffer, &index], &row),
            "Tensor.__setitem__.0.forward": call(&[&buffer, &index, &part], &buffer),
            "Torch.neg.0.forward": call(&[&whole], &whole),
        })
    };
    let (part, whole) = ([1.0, 1.0, 1.0, 2.5], [2.0, -1.0, 0.5, 3.0]);
    let golden = filled(LEFT[1], part, whole);
    for (target, expected) in [
        (filled(LEFT[0], part, whole), Value::Null),
        (filled(LEFT[0], [1.5, 1.0, 1.0, 2.5], whole), json!("Tensor.__setitem__.0.forward")),
        (filled(LEFT[0], part, [2.5, -1.0, 0.5, 3.0]), json!("Torch.neg.0.forward")),
    ] {
        let (_, answer) = answer_of(&target, &golden);
        assert_eq!(answer["operator"], expected, "{}", answer["sentence"]);
    }
}

/// `fill_` and its kin are given NaN by nobody: they write over what was there.
#[test]
fn nan_that_is_written_over_is_no_overflow() {
    // serde_json has no NaN: this number becomes one.
    const LEFT_THERE: f64 = 123_456.5;
    let workspace = tempfile::tempdir().unwrap();
    let data = json!({
        FAMILIES[0][0]: call(&[], &float(&[8], [LEFT_THERE; 4])),
        FAMILIES[0][2]: call(&[&float(&[8], [LEFT_THERE; 4])], &float(&[8], [1.0; 4])),
    });
    let text = document(&data).to_string().replace("123456.5", "NaN");
    assert!(text.contains("NaN"));
    put(&workspace.path().join("a/step0/rank0/dump.json"), text);
    let said = trainmon(workspace.path(), &["overflow", "a"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
