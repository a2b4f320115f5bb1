//! The record file: what is in it whole comes back, whatever became of the rest.

use std::path::Path;

use trainmon_capture_files::{
    EntryRecord, Hole, Node, TensorText, data_name_member, documents_of, parse_document, recover,
};

use crate::support::{Capture, header, json};

fn names(text: &str) -> Vec<String> {
    let document = parse_document(text.as_bytes(), Path::new("dump.json")).unwrap();
    document.operators.iter().map(|operator| operator.name.to_string()).collect()
}

#[test]
fn functions_stand_where_they_began_and_modules_where_they_ended() {
    let mut capture = Capture::begin(&header("mix"));
    let module = |capture: &mut Capture, name, part: &str, moves_to_end| {
        let parts = [(part, &b"[]"[..])];
        let node = Some(Node::default());
        capture.frames(|frames| frames.entry(&EntryRecord { name, moves_to_end, node, stack: None, parts: &parts }));
    };
    module(&mut capture, "Module.a.A.forward.0", "input_args", false);
    capture.entry("Functional.relu.0.forward", &[("input_args", b"[1]")]);
    module(&mut capture, "Module.a.b.B.forward.0", "input_args", false);
    capture.entry("Functional.linear.0.forward", &[("input_args", b"[2]"), ("input_kwargs", b"{}")]);
    capture.entry("Functional.linear.0.forward", &[("output", b"[3]")]);
    module(&mut capture, "Module.a.b.B.forward.0", "output", true);
    capture.entry("Functional.relu.0.forward", &[("output", b"[4]")]);
    module(&mut capture, "Module.a.A.forward.0", "output", true);
    let text = capture.text("dump.json");
    assert_eq!(
        names(&text),
        ["Functional.relu.0.forward", "Functional.linear.0.forward", "Module.a.b.B.forward.0", "Module.a.A.forward.0"]
    );
    assert!(
        text.contains(r#""Functional.linear.0.forward":{"input_args":[2],"input_kwargs":{},"output":[3]}"#),
        "{text}"
    );
    assert_eq!(capture.text("construct.json"), "{\"Module.a.A.forward.0\":null,\"Module.a.b.B.forward.0\":null}\n");
}

#[test]
fn a_part_told_twice_is_the_later_one() {
    let mut capture = Capture::begin(&header("L1"));
    capture.entry("Distributed.all_reduce.0.forward", &[("input_args", b"[1]"), ("output", b"[2]")]);
    capture.entry("Distributed.wait.0.forward", &[("output", b"[9]")]);
    capture.entry("Distributed.all_reduce.0.forward", &[("output", b"[3]")]);
    let text = capture.text("dump.json");
    assert!(text.contains(r#""Distributed.all_reduce.0.forward":{"input_args":[1],"output":[3]}"#), "{text}");
}

#[test]
fn holes_are_filled_or_null_or_nothing() {
    let mut capture = Capture::begin(&header("L1"));
    let tensor = |file, hole| {
        json(|json| {
            let numbers = Some([trainmon_capture_files::NumberText::Hole(Hole(hole)); 4]);
            let digest = None;
            let shape = &[1];
            json.begin_list();
            let (kind, dtype) = ("torch.Tensor", "torch.float32");
            let requires_grad = None;
            json.tensor(&TensorText {
                kind,
                dtype,
                shape,
                numbers,
                requires_grad,
                spread: None,
                is_from_empty: false,
                file: Some(Hole(file)),
                digest,
            });
            json.end_list();
        })
    };
    capture.entry("A.0.forward", &[("output", &tensor(1, 2))]);
    capture.entry("B.0.forward", &[("output", &tensor(3, 4))]);
    capture.frames(|frames| {
        let member = data_name_member("A.0.forward.output.0.pt");
        frames.fills([(Hole(1), &member[..]), (Hole(2), b"1.5")].into_iter());
    });
    let text = capture.text("dump.json");
    let rest = r#""type":"torch.Tensor","dtype":"torch.float32","shape":[1],"#;
    let filled = format!(
        r#""A.0.forward":{{"output":[{{{rest}"Max":1.5,"Min":1.5,"Mean":1.5,"Norm":1.5,"data_name":"A.0.forward.output.0.pt"}}]}}"#
    );
    let unfilled = format!(r#""B.0.forward":{{"output":[{{{rest}"Max":null,"Min":null,"Mean":null,"Norm":null}}]}}"#);
    assert!(text.contains(&filled) && text.contains(&unfilled), "{text}");
}

#[test]
fn what_fills_a_hole_may_have_holes_itself() {
    let mut capture = Capture::begin(&header("debug"));
    capture.entry("y_grad.0.debug", &[("", &json(|json| json.hole(Hole(0))))]);
    let inner = json(|json| {
        json.begin_list();
        json.hole(Hole(1));
        json.end_list();
    });
    capture.frames(|frames| frames.fills([(Hole(0), &inner[..]), (Hole(1), b"7")].into_iter()));
    // One that contains itself ends.
    capture.entry("z_grad.0.debug", &[("", &json(|json| json.hole(Hole(2))))]);
    let circle = json(|json| json.hole(Hole(2)));
    capture.frames(|frames| frames.fills([(Hole(2), &circle[..])].into_iter()));
    let text = capture.text("debug.json");
    assert!(text.contains("\"y_grad.0.debug\":[7]"), "{text}");
    assert!(text.contains("\"z_grad.0.debug\":null"), "{text}");
}

/// The whole record file cut after every byte: everything before the cut comes back, and it is valid JSON.
#[test]
fn cut_anywhere_it_gives_every_entry_that_was_whole() {
    let mut capture = Capture::begin(&header("L1"));
    let mut ends = Vec::new();
    for number in 0..20 {
        let text = format!("[{number}]");
        capture.entry(&format!("Tensor.add.{number}.forward"), &[("input_args", text.as_bytes())]);
        ends.push(capture.recorder.length() as usize);
    }
    capture.recorder.trim().unwrap();
    let whole = std::fs::read(capture.path().join("capture.records")).unwrap();
    let first = ends[0] - (ends[1] - ends[0]) - 8;
    let other = tempfile::tempdir().unwrap();
    for length in 0..=whole.len() {
        let directory = other.path().join(format!("cut{length}"));
        std::fs::create_dir(&directory).unwrap();
        let records = directory.join("capture.records");
        std::fs::write(&records, &whole[..length]).unwrap();
        let Ok(made) = recover(&directory) else {
            assert!(length < ends[0], "{length}: a file with a header is recovered");
            assert!(length < first || length < ends[0]);
            continue;
        };
        let expected = ends.iter().filter(|&&end| end <= length).count();
        assert_eq!(made.entries, expected, "{length}");
        let text = std::fs::read_to_string(made.document).unwrap();
        assert_eq!(names(&text).len(), expected);
        let whole_frames = ends.iter().rev().find(|&&end| end <= length).copied();
        assert_eq!(made.torn as usize, whole_frames.map_or(made.torn as usize, |end| length - end));
        assert!(!records.exists(), "the record file goes when its documents are there");
    }
}

/// What a killed process had reserved and not used is no half record.
#[test]
fn zeros_behind_the_last_record_are_nothing_and_half_a_record_before_them_is_told() {
    let mut capture = Capture::begin(&header("L1"));
    capture.entry("Tensor.add.0.forward", &[("input_args", b"[1]")]);
    capture.recorder.trim().unwrap();
    let path = capture.path().join("capture.records");
    let whole = std::fs::read(&path).unwrap();
    for (half, torn) in [(&b""[..], 0), (b"\x30\0\0\0\x01\x02\x03\x04half", 8 + 0x30)] {
        std::fs::write(&path, [&whole, half, &vec![0; 70_000][..]].concat()).unwrap();
        let made = documents_of(&capture.directory).unwrap();
        assert_eq!((made.entries, made.torn), (1, torn));
    }
}

/// A flipped bit ends the reading there; it never gives another value.
#[test]
fn a_flipped_byte_loses_what_follows_and_invents_nothing() {
    let mut capture = Capture::begin(&header("L1"));
    for number in 0..6 {
        capture.entry(&format!("Tensor.add.{number}.forward"), &[("input_args", b"[1]")]);
    }
    capture.recorder.trim().unwrap();
    let path = capture.path().join("capture.records");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let Ok(made) = documents_of(&capture.directory) else { continue };
        let text = std::fs::read_to_string(made.document).unwrap();
        let found = names(&text);
        let expected: Vec<String> = (0..found.len()).map(|number| format!("Tensor.add.{number}.forward")).collect();
        assert_eq!(found, expected, "byte {at}");
    }
}

#[test]
fn a_look_for_nan_is_read_like_statistics_without_numbers() {
    for task in ["nan_check", "overflow_check"] {
        let mut capture = Capture::begin(&trainmon_capture_files::Header { task: task.to_owned(), ..header("L1") });
        let tensor = br#"[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"requires_grad":false}]"#;
        capture.entry("A.0.forward", &[("output", tensor), ("is_nan", b"1")]);
        let document = parse_document(capture.text("dump.json").as_bytes(), Path::new("dump.json")).unwrap();
        assert!(!document.has_statistics() && document.tensors().next().unwrap().sizes() == Some(vec![2]));
    }
}

/// Linear: what is written to disk for N entries is at most a constant times N, however long the capture is.
#[test]
fn what_is_written_grows_with_the_entries_and_not_faster() {
    let written = |entries: usize| {
        let mut capture = Capture::begin(&header("L1"));
        let value = json(|json| json.typed("int", |json| json.int(3)));
        for number in 0..entries {
            capture.entry(
                &format!("Tensor.add.{number:06}.forward"),
                &[("input_args", &[b"[", &value[..], b"]"].concat())],
            );
        }
        let text = capture.text("dump.json");
        assert_eq!(names(&text).len(), entries);
        (capture.recorder.length() + text.len() as u64) as f64
    };
    let [small, large] = [200, 20_000].map(written);
    let ratio = large / small;
    assert!((80.0..=101.0).contains(&ratio), "{ratio}");
}
