//! Every recorded dump, written anew through the writer's own encodings, says the same.

use std::path::{Path, PathBuf};

use jiter::JsonValue;
use trainmon_capture_files::{
    Construct, DigestText, EntryRecord, Frames, Header, Hole, Json, JsonText, Node, NumberText, Plain, Stacks,
    TensorText, data_name_member, parse_document,
};

use crate::support::{Capture, files_named, skip};

fn golden() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    std::env::var_os("TRAINMON_GOLDEN").map_or_else(default, PathBuf::from)
}

/// Writes a value as a front would: every kind by its own call.
struct Rewriter {
    holes: u32,
    fills: Vec<(Hole, Vec<u8>)>,
    /// Which encodings were needed.
    kinds: std::collections::BTreeSet<String>,
}

impl Rewriter {
    fn value(&mut self, value: &Json, to: &mut JsonText) {
        match value {
            Json::Plain(plain) => plain_value(plain, to),
            Json::List(items) => {
                to.begin_list();
                for item in items {
                    self.value(item, to);
                }
                to.end_list();
            }
            Json::Object(fields) => self.object(fields, to),
        }
    }

    fn object(&mut self, fields: &[(Box<str>, Json)], to: &mut JsonText) {
        if let Some(tensor) = field(fields, "tensor").filter(|_| field(fields, "class_type").is_some()) {
            to.begin_peer();
            self.value(tensor, to);
            // The id is a hash of the ranks: these captures have one group.
            let [operation, peer, tag] = ["op", "peer", "tag"].map(|key| field(fields, key).unwrap());
            let (Json::Plain(Plain::Text(operation)), Json::Plain(Plain::Int(peer)), Json::Plain(Plain::Int(tag))) =
                (operation, peer, tag)
            else {
                panic!("{fields:?}")
            };
            to.end_peer(operation, *peer, *tag, &[0, 1]);
            self.kinds.insert("P2POp".to_owned());
            return;
        }
        let Some(Json::Plain(Plain::Text(kind))) = field(fields, "type") else {
            to.begin_object();
            for (key, value) in fields {
                to.key(key);
                self.value(value, to);
            }
            return to.end_object();
        };
        self.kinds.insert(kind.to_string());
        if field(fields, "dtype").is_some() && field(fields, "shape").is_some() {
            return self.tensor(kind, fields, to);
        }
        match (&**kind, field(fields, "value")) {
            ("slice", Some(Json::List(ends))) => {
                let ends: Vec<Option<i64>> = ends.iter().map(int).collect();
                to.slice(ends.try_into().unwrap());
            }
            ("torch.Size", Some(Json::List(sizes))) => to.size(&ints(sizes)),
            ("torch.ProcessGroup", None) => {
                let Some(Json::List(ranks)) = field(fields, "group_ranks") else { panic!("{fields:?}") };
                to.process_group(&ints(ranks).into_iter().map(|rank| rank as u64).collect::<Vec<_>>());
            }
            ("torch.memory_format", None) => to.memory_format(text(field(fields, "format")).unwrap()),
            (_, Some(value)) => to.typed(kind, |to| self.value(value, to)),
            (_, None) => panic!("no encoding for {fields:?}"),
        }
    }

    fn tensor(&mut self, kind: &str, fields: &[(Box<str>, Json)], to: &mut JsonText) {
        let Some(Json::List(shape)) = field(fields, "shape") else { panic!("{fields:?}") };
        let statistics = ["Max", "Min", "Mean", "Norm"].map(|key| field(fields, key));
        let numbers = statistics.iter().all(Option::is_some).then(|| statistics.map(|value| number(value.unwrap())));
        let digest = field(fields, "md5").map(|digest| match text(Some(digest)) {
            None if matches!(digest, Json::Plain(Plain::Null)) => DigestText::Null,
            Some(digest) => match digest.strip_prefix("0x") {
                Some(word) => DigestText::Xor64(u64::from_str_radix(word, 16).unwrap()),
                None => DigestText::Crc32(u32::from_str_radix(digest, 16).unwrap()),
            },
            // msprobe's bug: the xor of a number is the number.
            None => {
                self.holes += 1;
                self.fills.push((Hole(self.holes), json_of(digest)));
                DigestText::Hole(Hole(self.holes))
            }
        });
        let file = text(field(fields, "data_name")).map(|name| {
            self.holes += 1;
            self.fills.push((Hole(self.holes), data_name_member(name)));
            Hole(self.holes)
        });
        let requires_grad = field(fields, "requires_grad").map(|value| *value == Json::Plain(Plain::Bool(true)));
        let dtype = text(field(fields, "dtype")).unwrap();
        let shape = ints(shape);
        to.tensor(&TensorText {
            kind,
            dtype,
            shape: &shape,
            numbers,
            requires_grad,
            spread: None,
            is_from_empty: false,
            file,
            digest,
        });
    }
}

/// A document's entries as they stand in the file.
fn entries(text: &[u8]) -> Vec<(Box<str>, Json)> {
    let Ok(JsonValue::Object(keys)) = JsonValue::parse(text, true) else { panic!("no object") };
    let data = keys.iter().find(|(key, _)| key == "data").map(|(_, value)| tree(value));
    let Some(Json::Object(entries)) = data else { panic!("no entries") };
    entries
}

fn tree(value: &JsonValue<'_>) -> Json {
    Json::Plain(match value {
        JsonValue::Array(items) => return Json::List(items.iter().map(tree).collect()),
        JsonValue::Object(fields) => {
            return Json::Object(fields.iter().map(|(key, value)| ((&**key).into(), tree(value))).collect());
        }
        JsonValue::Null => Plain::Null,
        JsonValue::Bool(value) => Plain::Bool(*value),
        JsonValue::Int(value) => Plain::Int(*value),
        JsonValue::BigInt(value) => Plain::Big(value.to_string().into()),
        JsonValue::Float(value) => Plain::Float(*value),
        JsonValue::Str(text) => Plain::Text((&**text).into()),
    })
}

fn json_of(value: &Json) -> Vec<u8> {
    let Json::Plain(plain) = value else { panic!("{value:?}") };
    let mut json = JsonText::new();
    plain_value(plain, &mut json);
    json.as_bytes().to_vec()
}

fn plain_value(plain: &Plain, to: &mut JsonText) {
    match plain {
        Plain::Null => to.null(),
        Plain::Bool(value) => to.bool(*value),
        Plain::Int(value) => to.int(*value),
        Plain::Big(digits) => to.big_int(digits),
        Plain::Float(value) => to.float(*value),
        Plain::Text(value) => to.text(value),
        Plain::List(_) => unreachable!("lists are no plain values here"),
    }
}

fn field<'f>(fields: &'f [(Box<str>, Json)], name: &str) -> Option<&'f Json> {
    fields.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
}

fn text(value: Option<&Json>) -> Option<&str> {
    if let Some(Json::Plain(Plain::Text(text))) = value { Some(text) } else { None }
}

fn int(value: &Json) -> Option<i64> {
    if let Json::Plain(Plain::Int(value)) = value { Some(*value) } else { None }
}

fn ints(values: &[Json]) -> Vec<i64> {
    values.iter().map(|value| int(value).unwrap()).collect()
}

fn number(value: &Json) -> NumberText {
    match value {
        Json::Plain(Plain::Null) => NumberText::Null,
        Json::Plain(Plain::Bool(value)) => NumberText::Bool(*value),
        Json::Plain(Plain::Int(value)) => NumberText::Int(*value),
        Json::Plain(Plain::Float(value)) => NumberText::Float(*value),
        other => panic!("{other:?}"),
    }
}

fn task_of(text: &str) -> String {
    ["statistics", "tensor", "structure"]
        .into_iter()
        .find(|task| text.contains(&format!("\"task\": \"{task}\"")))
        .unwrap()
        .to_owned()
}

/// Writes a rank's recorded files anew.
fn rewritten(original: &Path, kinds: &mut std::collections::BTreeSet<String>) -> Capture {
    let bytes = std::fs::read(original).unwrap();
    let document = parse_document(&bytes, original).unwrap();
    let level = document.level.as_deref().unwrap_or_default();
    let framework =
        if document.framework == trainmon_capture_files::Framework::MindSpore { "mindspore" } else { "pytorch" };
    let header = Header {
        task: task_of(std::str::from_utf8(&bytes).unwrap()),
        level: level.to_owned(),
        framework: framework.to_owned(),
        extra_info: true,
    };
    let mut capture = Capture::begin(&header);
    let mut rewriter = Rewriter { holes: 0, fills: Vec::new(), kinds: std::mem::take(kinds) };
    for (name, value) in entries(&bytes) {
        let is_saved = name.ends_with(".debug");
        let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
        let mut part = |key: &str, value: &Json, rewriter: &mut Rewriter| {
            let mut json = JsonText::new();
            rewriter.value(value, &mut json);
            parts.push((key.to_owned(), json.as_bytes().to_vec()));
        };
        match &value {
            Json::Object(fields) if !is_saved => fields.iter().for_each(|(key, value)| part(key, value, &mut rewriter)),
            value => part("", value, &mut rewriter),
        }
        // As modules come: the inputs, others, the outputs; one frame for each.
        for (key, json) in &parts {
            capture.entry(&name, &[(key, json)]);
        }
    }
    let Rewriter { fills, kinds: seen, .. } = rewriter;
    *kinds = seen;
    capture.frames(|frames| frames.fills(fills.iter().map(|(hole, json)| (*hole, &json[..]))));
    beside(original, &mut capture);
    capture
}

/// `construct.json` and `stack.json`.
fn beside(original: &Path, capture: &mut Capture) {
    let construct = original.with_file_name("construct.json");
    if construct.exists() {
        let construct = Construct::parse(&std::fs::read(&construct).unwrap(), &construct).unwrap();
        for node in construct.nodes() {
            let parent = construct.parent(node).unwrap();
            let at = Node { parent: parent.name.as_deref(), micro_step: parent.micro_step };
            let record = EntryRecord { name: node, moves_to_end: false, node: Some(at), stack: None, parts: &[] };
            capture.frames(|frames| frames.entry(&record));
        }
    }
}

#[test]
fn every_recorded_dump_written_anew_says_the_same() {
    let root = golden();
    if !root.exists() {
        return skip("every_recorded_dump_written_anew_says_the_same", &format!("`{}` does not exist", root.display()));
    }
    let mut originals = Vec::new();
    for directory in ["03_dump", "dump-format", "10_vllm"] {
        files_named(&root.join(directory), &["dump.json", "debug.json"], &mut originals);
    }
    assert!(originals.len() > 70, "{}", originals.len());
    let mut kinds = std::collections::BTreeSet::new();
    for original in &originals {
        let capture = rewritten(original, &mut kinds);
        let name = original.file_name().unwrap().to_str().unwrap();
        let level_is_debug = name == "debug.json";
        let now = capture.text(if level_is_debug { "debug.json" } else { "dump.json" });
        let before = std::fs::read(original).unwrap();
        let [before_read, now_read] = [&before[..], now.as_bytes()].map(|text| parse_document(text, original).unwrap());
        assert_eq!(format!("{before_read:?}"), format!("{now_read:?}"), "{}", original.display());
        // And key by key, in the order of the file.
        let [before, now] = [&before[..], now.as_bytes()].map(entries);
        assert_eq!(before.len(), now.len(), "{}", original.display());
        for (before, now) in before.iter().zip(&now) {
            assert_eq!(format!("{before:?}"), format!("{now:?}"), "{}", original.display());
        }
        let construct = original.with_file_name("construct.json");
        if construct.exists() && !level_is_debug {
            let [before, now] = [construct.clone(), capture.path().join("construct.json")].map(|path| {
                let construct = Construct::parse(&std::fs::read(&path).unwrap(), &path).unwrap();
                construct.nodes().iter().map(|node| (node.clone(), construct.parent(node).cloned())).collect::<Vec<_>>()
            });
            assert_eq!(before, now, "{}", construct.display());
        }
    }
    for kind in [
        "torch.Tensor",
        "int",
        "float",
        "bool",
        "str",
        "slice",
        "torch.Size",
        "torch.ProcessGroup",
        "P2POp",
        "ellipsis",
    ] {
        assert!(kinds.contains(kind), "{kind} is among the recorded values: {kinds:?}");
    }
    println!("{} files", originals.len());
}

#[test]
fn stacks_are_written_once_with_all_that_came_from_there() {
    let mut capture = Capture::begin(&crate::support::header("L1"));
    let stack_of = |frames: &mut Frames, name: &str, stack| {
        frames.entry(&EntryRecord { name, moves_to_end: false, node: None, stack: Some(stack), parts: &[] });
    };
    capture.frames(|frames| {
        frames.stack(0, br#"["File a.py, line 1, in f, \n x"]"#);
        stack_of(frames, "Functional.relu.0.forward", 0);
        frames.stack(1, br#"["File b.py, line 2, in g, \n y"]"#);
        stack_of(frames, "Functional.relu.1.forward", 1);
        stack_of(frames, "Tensor.add.0.forward", 0);
    });
    let text = capture.text("stack.json");
    let stacks = Stacks::parse(text.as_bytes(), Path::new("stack.json")).unwrap();
    let frames = |name| stacks.of(name).map(|lines| lines.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(frames("Tensor.add.0.forward"), frames("Functional.relu.0.forward"));
    assert_eq!(frames("Functional.relu.1.forward").unwrap(), ["File b.py, line 2, in g, \n y"]);
    assert_eq!(text.matches("a.py").count(), 1, "{text}");
}
