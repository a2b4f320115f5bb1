//! Tensor files: named, whole, and what the tensor was when it was shown.

use trainmon_capture::{Content, Part, Tensor};
use trainmon_core::{Statistic, StatisticSet, TensorView};
use trainmon_stats::{Request, measure};

use crate::support::{Host, floats, names, numbers_in, operator, tensor_of};

#[test]
fn each_tensor_has_a_file_named_after_its_place() {
    for format in ["pt", "npy", "safetensors"] {
        let host = Host::new(&format!(r#""task": "tensor", "tensor": {{"file_format": "{format}"}}"#));
        let name = host.session.begin_call("Torch", "cat").forward;
        let mut entry = host.session.entry(&name);
        let values = entry.part(Part::InputArgs);
        values.begin_list();
        values.begin_list();
        floats(values, &[1.0, 2.0]);
        floats(values, &[3.0]);
        values.end_list();
        values.int("int", 0);
        values.end_list();
        let values = entry.part(Part::InputKwargs);
        values.begin_object();
        values.key("my mask/../x");
        floats(values, &[4.0]);
        values.key("empty");
        floats(values, &[]);
        values.end_object();
        entry.append();
        let document = host.document();
        let files: Vec<Option<&str>> = operator(&document, &name)
            .values
            .iter()
            .filter(|value| matches!(value.leaf, trainmon_capture_files::Leaf::Tensor(_)))
            .map(|value| tensor_of(value).data_name.as_deref())
            .collect();
        let at = |file: Option<&str>| numbers_in(&host.directory.join("dump_tensor_data").join(file.unwrap()));
        assert_eq!(files[0], Some(&*format!("Torch.cat.0.forward.input.0.0.{format}")));
        assert_eq!(files[1], Some(&*format!("Torch.cat.0.forward.input.0.1.{format}")));
        assert_eq!((at(files[0]), at(files[1]), at(files[2])), (vec![1.0, 2.0], vec![3.0], vec![4.0]));
        let odd = files[2].unwrap();
        assert!(odd.starts_with("Torch.cat.0.forward.kwargs.my mask_.._x~") && !odd.contains('/'), "{odd}");
        assert_eq!(files[3], None, "nothing to write");
        assert_eq!(host.session.progress().files, 3);
    }
}

#[test]
fn a_tensor_is_written_as_it_was_when_it_was_shown() {
    let host = Host::new(r#""task": "tensor", "tensor": {"summary_mode": "md5"}, "pool_mib": 1"#);
    let mut memory = vec![0.0_f32; 100_000];
    for round in 0..20u8 {
        memory.fill(f32::from(round));
        host.call("f", |values| floats(values, &memory), |_| ()).unwrap();
    }
    memory.fill(-1.0);
    let document = host.document();
    for round in 0..20u8 {
        let facts = tensor_of(&operator(&document, &format!("Functional.f.{round}.forward")).values[0]);
        let file = host.directory.join("dump_tensor_data").join(facts.data_name.as_deref().unwrap());
        let found = numbers_in(&file);
        assert!(found.len() == 100_000 && found.iter().all(|number| *number == f64::from(round)), "{round}");
        let bytes: Vec<u8> = found.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
        let crc = format!("{:08x}", crc32fast::hash(&bytes));
        assert_eq!(facts.digest.as_ref().and_then(|digest| digest.text()), Some(&*crc));
    }
}

#[test]
fn names_of_three_hundred_letters_and_deep_nests_do_no_harm() {
    let host = Host::new(r#""task": "tensor""#);
    let long = "very_long_layer_name.".repeat(15);
    let names_given = [format!("Module.{long}1.forward.0"), format!("Module.{long}2.forward.0")];
    for name in &names_given {
        let mut entry = host.session.entry(name);
        let values = entry.part(Part::Output);
        values.begin_list();
        floats(values, &[1.0]);
        for _ in 0..1000 {
            values.begin_list();
        }
        values.null();
        // A front that gives up half way: what is open is closed.
        entry.append();
    }
    let document = host.document();
    assert_eq!(names(&document), names_given);
    let files: Vec<&str> = document
        .operators
        .iter()
        .map(|operator| tensor_of(&operator.values[0]).data_name.as_deref().unwrap())
        .collect();
    assert!(files[0] != files[1] && files.iter().all(|file| file.len() <= 255), "{files:?}");
}

#[test]
fn numbers_that_are_told_later_take_their_place() {
    let host = Host::new(r#""task": "statistics""#);
    let mut entry = host.session.entry("Functional.f.0.forward");
    let values = entry.part(Part::Output);
    let shown = Tensor {
        kind: "torch.Tensor",
        dtype: "torch.float32",
        shape: &[2],
        requires_grad: Some(true),
        spread: None,
        is_from_empty: false,
        content: Content::Later,
    };
    assert!(values.wants_only_numbers());
    values.begin_list();
    let later = values.tensor(&shown).unwrap();
    let forgotten = values.tensor(&shown).unwrap();
    values.end_list();
    entry.append();
    assert_ne!(later, forgotten);
    let found = TensorView::from_slice(&[3.0_f32, 4.0], &[2]).unwrap();
    let wanted = [Statistic::Min, Statistic::Max, Statistic::Mean, Statistic::Norm];
    let statistics = wanted.into_iter().collect::<StatisticSet>();
    host.session.fill_numbers(&later, &measure(&found, Request { statistics, eps: 0.0 }), false);
    let text = host.text("dump.json");
    let filled = r#""Max":4.0,"Min":3.0,"Mean":3.5,"Norm":5.0,"requires_grad":true}"#;
    let unfilled = r#""Max":null,"Min":null,"Mean":null,"Norm":null,"requires_grad":true}"#;
    assert!(text.contains(filled) && text.contains(unfilled), "{text}");
}

#[test]
fn a_saved_values_gradient_comes_later_with_its_file() {
    let host = Host::new(r#""task": "tensor", "level": "debug""#);
    let names = host.session.begin_saved("y", true);
    let mut entry = host.session.entry(&names.backward);
    let values = entry.part(Part::Saved);
    values.begin_object();
    values.key("a");
    let gradient = values.later();
    values.key("b");
    let missing = values.later();
    values.end_object();
    entry.append();
    assert_ne!(gradient, missing);
    host.session.fill_value(&gradient, |values| floats(values, &[7.0]));
    let text = host.text("debug.json");
    assert!(
        text.contains("\"y_grad.0.debug\":{\"a\":{\"type\":\"torch.Tensor\"") && text.contains(",\"b\":null}"),
        "{text}"
    );
    assert!(text.contains("\"data_name\":\"y_grad.0.debug.a.pt\""), "{text}");
    assert_eq!(numbers_in(&host.directory.join("dump_tensor_data/y_grad.0.debug.a.pt")), [7.0]);
}

#[test]
fn compressed_files_are_the_same_inside() {
    let [plain, compressed] = [r#""task": "tensor""#, r#""task": "tensor", "compress": true"#].map(|keys| {
        let host = Host::new(keys);
        host.call("f", |values| floats(values, &vec![1.5; 5000]), |_| ()).unwrap();
        let document = host.document();
        let name = tensor_of(&document.operators[0].values[0]).data_name.clone().unwrap();
        let bytes = std::fs::read(host.directory.join("dump_tensor_data").join(&*name)).unwrap();
        (name, bytes)
    });
    assert_eq!(format!("{}.zst", plain.0), *compressed.0);
    assert_eq!(zstd::decode_all(&compressed.1[..]).unwrap(), plain.1);
    assert!(compressed.1.len() * 10 < plain.1.len());
}

#[test]
fn what_waits_stays_within_its_bound_and_every_tensor_is_written() {
    let host = Host::new(r#""task": "tensor", "pool_mib": 1"#);
    let memory = vec![1.0_f32; 60_000];
    for _ in 0..40 {
        host.call("f", |values| floats(values, &memory), |_| ()).unwrap();
        let (_, bytes) = host.session.progress().waiting;
        assert!(bytes <= 1 << 20, "{bytes}");
    }
    host.session.write_documents().unwrap();
    let progress = host.session.progress();
    assert_eq!((progress.files, progress.waiting, progress.stopped), (40, (0, 0), None));
    // One that is larger than all that may wait is written alone.
    host.call("f", |values| floats(values, &vec![1.0; 600_000]), |_| ()).unwrap();
    host.session.write_documents().unwrap();
    assert_eq!(host.session.progress().files, 41);
}

#[test]
fn a_capture_of_statistics_tells_what_one_of_tensors_would_write() {
    let host = Host::new(r#""task": "statistics""#);
    host.call("f", |values| floats(values, &[1.0; 100]), |values| floats(values, &[1.0; 50])).unwrap();
    let progress = host.session.progress();
    assert_eq!((progress.tensor_bytes, progress.files), (600, 0));
}

#[test]
fn threads_capture_at_a_time_and_every_entry_is_whole() {
    let host = Host::new(r#""task": "tensor", "level": "mix", "tensor": {"summary_mode": "md5"}"#);
    std::thread::scope(|threads| {
        for thread in 0..4_u8 {
            let host = &host;
            threads.spawn(move || {
                let module = format!("Module.m{thread}.M.forward.0");
                host.session.begin_module(&module, trainmon_capture::Direction::Forward);
                for _ in 0..100 {
                    let name = host.call("f", |values| floats(values, &[f32::from(thread)]), |_| ()).unwrap();
                    let mut entry = host.session.entry(&name);
                    entry.inside_open_module();
                    entry.stack(host.session.stack(&[format!("File t{thread}.py, line 1, in f, \n x")]));
                    entry.append();
                }
                host.session.end_module(&module);
            });
        }
    });
    let document = host.document();
    let mut found = names(&document);
    found.sort_unstable();
    let mut expected: Vec<String> = (0..400).map(|number| format!("Functional.f.{number}.forward")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "each number is given once");
    assert_eq!(host.session.progress().files, 400);
    let text = host.text("construct.json");
    for thread in 0..4 {
        assert_eq!(text.matches(&format!("\"Module.m{thread}.M.forward.0\"")).count(), 100, "each thread's own module");
    }
    assert_eq!(host.text("stack.json").matches(".py, line 1").count(), 4, "each stack once");
}
