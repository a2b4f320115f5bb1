//! What is broken or hostile: an error that names file and place, exit code 2, and nothing half-written.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::tempdir;
use trainmon_capture_files::{CaptureError, Construct, Stacks, parse_document};
use trainmon_tensor_files::write::write_pt_of_one;

use crate::small::{ProgramOutput, document, dump, floats, listed, operators, put, tensor, trainmon, trainmon_limited};

/// Exit code 2, these texts in the message, a hint, nothing in the output directory.
fn assert_refused(said: &ProgramOutput, workspace: &Path, texts: &[&str]) {
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    for text in texts {
        assert!(said.err.contains(text), "`{text}` is not in: {}", said.err);
    }
    assert!(said.err.starts_with("error: ") && said.err.contains("\nhint: "), "{}", said.err);
    assert_eq!(listed(&workspace.join("out")), Vec::<String>::new());
}

/// Compares `b` with a good `a`, with an output directory.
fn compare(workspace: &Path) -> ProgramOutput {
    dump(&workspace.join("a/step0/rank0/dump.json"), 1.0);
    trainmon(workspace, &["compare", "b", "a", "-o", "out", "--format", "csv"])
}

#[test]
fn json_cut_anywhere_is_an_error_that_names_file_and_place() {
    let path = Path::new("b/dump.json");
    let pretty = serde_json::to_vec_pretty(&document(&operators(1.0))).unwrap();
    for cut in 0..pretty.len() {
        let lines = pretty[..cut].split(|&byte| byte == b'\n').count();
        match parse_document(&pretty[..cut], path) {
            Err(CaptureError::Syntax { path: named, place, .. }) => {
                assert_eq!(named, path);
                assert!(place.line <= lines && place.line + 1 >= lines, "{place} of {lines} lines, cut at {cut}");
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    let stacks = json!({"0": [["Functional.relu.0.forward"], ["File a.py"]]}).to_string().into_bytes();
    let construct = json!({"Functional.relu.0.forward": null, "a": ["b", 1]}).to_string().into_bytes();
    for cut in 0..stacks.len() {
        assert!(matches!(Stacks::parse(&stacks[..cut], path), Err(CaptureError::Syntax { .. })), "{cut}");
    }
    for cut in 0..construct.len() {
        assert!(matches!(Construct::parse(&construct[..cut], path), Err(CaptureError::Syntax { .. })), "{cut}");
    }
}

#[test]
fn a_cut_file_beside_good_ones_ends_the_comparison_without_a_table() {
    let workspace = tempdir().unwrap();
    let text = document(&operators(1.0)).to_string();
    for rank in 0..2 {
        dump(&workspace.path().join(format!("a/step0/rank{rank}/dump.json")), 1.0);
        dump(&workspace.path().join(format!("b/step0/rank{rank}/dump.json")), 1.0);
    }
    put(&workspace.path().join("b/step0/rank1/dump.json"), &text[..text.len() / 2]);
    assert_refused(
        &compare(workspace.path()),
        workspace.path(),
        &["b/step0/rank1/dump.json`, line 1, column", "not JSON"],
    );
    // In a later step, when the table of the first is written already.
    dump(&workspace.path().join("b/step0/rank1/dump.json"), 1.0);
    dump(&workspace.path().join("a/step1/rank0/dump.json"), 1.0);
    put(&workspace.path().join("b/step1/rank0/dump.json"), &text[..text.len() - 1]);
    assert_refused(&compare(workspace.path()), workspace.path(), &["b/step1/rank0/dump.json`, line 1, column"]);
    put(&workspace.path().join("b/step1/rank0/dump.json"), &text);
    put(&workspace.path().join("b/step1/rank0/construct.json"), "{\"a\": ");
    assert_refused(&compare(workspace.path()), workspace.path(), &["b/step1/rank0/construct.json`, line 1, column"]);
}

#[test]
fn json_of_something_else_says_what_was_expected_where() {
    let good = document(&operators(1.0));
    let without = |key: &str| {
        let mut text = good.clone();
        text.as_object_mut().unwrap().remove(key);
        text.to_string()
    };
    let with = |key: &str, value: serde_json::Value| {
        let mut text = good.clone();
        text[key] = value;
        text.to_string()
    };
    for (text, says) in [
        (with("task", json!("acc_check")), vec!["`task`: expected statistics, tensor or structure, found acc_check"]),
        (without("task"), vec!["`task`: expected", "found no such key"]),
        (without("data"), vec!["`data`: expected the operators, found no such key"]),
        (with("data", json!([1])), vec!["`data`: expected an object of operators"]),
        (with("framework", json!("jax")), vec!["`framework`: expected pytorch, mindspore or mindtorch, found jax"]),
        (
            with("data", json!({"Torch.add.0.forward": 3})),
            vec!["`Torch.add.0.forward`: expected an object", "a number"],
        ),
        ("[]".to_owned(), vec!["`(the whole file)`: expected an object"]),
        ("# Notes\nof a run\n".to_owned(), vec!["expected a JSON object, found text that begins with \"# Notes\""]),
        ("PK\u{3}\u{4}...".to_owned(), vec!["expected a JSON object, found a zip archive, as `torch.save` writes it"]),
        ("\u{1}\u{2}".to_owned(), vec!["found binary data"]),
        (String::new(), vec!["line 1, column 0", "not JSON"]),
        (format!("{good}x"), vec!["line 1, column", "not JSON"]),
        (with("data", json!("[".repeat(3))).replace("\"[[[\"", &"[".repeat(100_000)), vec!["`data`: expected"]),
        (
            document(&json!({"a": "deep"})).to_string().replace("\"deep\"", &"[".repeat(100_000)),
            vec!["line 1, column", "recursion limit"],
        ),
    ] {
        let workspace = tempdir().unwrap();
        put(&workspace.path().join("b/step0/rank0/dump.json"), text);
        assert_refused(
            &compare(workspace.path()),
            workspace.path(),
            &[&["b/step0/rank0/dump.json"], &says[..]].concat(),
        );
    }
}

#[test]
fn a_run_without_numbers_is_reported_as_a_run() {
    let workspace = tempdir().unwrap();
    for side in ["a", "b"] {
        let directory = workspace.path().join(side).join("rank_0");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("alerts.jsonl"), "").unwrap();
        fs::write(workspace.path().join(side).join("run.json"), "{}").unwrap();
    }
    let said = trainmon(workspace.path(), &["compare", "b", "a"]);
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(said.err.starts_with("error: `b` is not a monitored run") && said.err.contains("\nhint: "), "{}", said.err);
}

#[test]
fn what_is_no_capture_is_said_to_be_none() {
    let workspace = tempdir().unwrap();
    fs::create_dir(workspace.path().join("b")).unwrap();
    assert_refused(&compare(workspace.path()), workspace.path(), &["`b` is not a capture"]);
    fs::remove_dir(workspace.path().join("b")).unwrap();
    assert_refused(&compare(workspace.path()), workspace.path(), &["cannot read `b`", "Caused by"]);
    // Loops of symbolic links: of a file, and of a directory in itself.
    symlink("b", workspace.path().join("b")).unwrap();
    assert_refused(&compare(workspace.path()), workspace.path(), &["cannot read `b`", "symbolic links"]);
    fs::remove_file(workspace.path().join("b")).unwrap();
    fs::create_dir_all(workspace.path().join("b/step0")).unwrap();
    symlink("..", workspace.path().join("b/step0/rank0")).unwrap();
    symlink(".", workspace.path().join("b/rank0")).unwrap();
    assert_refused(&compare(workspace.path()), workspace.path(), &["`b` is not a capture"]);
    // A pipe would never end.
    fs::remove_dir_all(workspace.path().join("b")).unwrap();
    assert!(Command::new("mkfifo").arg(workspace.path().join("b")).status().unwrap().success());
    assert_refused(&compare(workspace.path()), workspace.path(), &["`b` is not a regular file"]);
}

#[test]
fn two_directories_of_one_rank_are_not_chosen_between() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("b/step0/rank1/dump.json"), 1.0);
    dump(&workspace.path().join("b/step0/rank01/dump.json"), 2.0);
    assert_refused(
        &compare(workspace.path()),
        workspace.path(),
        &["rank1/dump.json`", "rank01/dump.json`", "are both rank 1"],
    );
    fs::remove_dir_all(workspace.path().join("b")).unwrap();
    dump(&workspace.path().join("b/step1/rank0/dump.json"), 1.0);
    dump(&workspace.path().join("b/step01/rank0/dump.json"), 2.0);
    assert_refused(&compare(workspace.path()), workspace.path(), &["b/step1`", "b/step01`", "are both step 1"]);
}

/// Ten gigabytes that are not there: with a gigabyte of memory they are mapped, and refused for what they hold.
#[test]
fn a_huge_file_costs_no_memory() {
    let workspace = tempdir().unwrap();
    let path = dump(&workspace.path().join("b/step0/rank0/dump.json"), 1.0);
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 2]).unwrap();
    File::options().append(true).open(&path).unwrap().set_len(10 << 30).unwrap();
    dump(&workspace.path().join("a/step0/rank0/dump.json"), 1.0);
    let said =
        trainmon_limited(workspace.path(), "ulimit -d 1000000", &["compare", "b", "a", "-o", "out", "--format", "csv"]);
    assert_refused(&said, workspace.path(), &["dump.json`, line 1, column", "not JSON"]);
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_anything_is_read() {
    let workspace = tempdir().unwrap();
    put(&workspace.path().join("file"), "in the way");
    for (directory, words) in [("file", "`file` is a file, not a directory"), ("file/out", "cannot write `file/out`")] {
        let said = trainmon(workspace.path(), &["compare", "not there", "either", "-o", directory]);
        assert_refused(&said, workspace.path(), &[words]);
    }
    assert_eq!(fs::read_to_string(workspace.path().join("file")).unwrap(), "in the way");
}

/// A bound on the size of files is met like a full disk: a write fails in the middle of a table.
#[test]
fn a_capture_and_a_monitored_run_are_told_apart() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("captured/step0/rank0/dump.json"), 1.0);
    let rows = "vpp_stage,name,step,min,max\n0,fc.weight,0,-1.0,1.0\n";
    put(&workspace.path().join("monitored/param_origin_0-0.csv"), rows);
    for (target, golden, said) in [
        ("captured", "monitored", "`monitored` is a monitor's output, the other path is not"),
        ("monitored", "captured", "`captured` is not a monitored run: it contains dumps"),
    ] {
        let found = trainmon(workspace.path(), &["compare", target, golden]);
        assert_eq!(found.code, Some(2), "{}", found.out);
        assert!(found.err.contains(said) && found.err.contains("hint: "), "{}", found.err);
    }
}

#[test]
fn a_table_that_does_not_fit_leaves_nothing_behind() {
    let workspace = tempdir().unwrap();
    large(workspace.path());
    for format in ["csv", "xlsx", "json", "md"] {
        let arguments = ["compare", "b", "a", "-o", "out", "--format", format];
        let said = trainmon_limited(workspace.path(), "trap '' XFSZ && ulimit -f 16", &arguments);
        assert_refused(&said, workspace.path(), &["cannot write", "Caused by"]);
        let said = trainmon(workspace.path(), &arguments);
        assert_eq!((said.code, listed(&workspace.path().join("out")).len()), (Some(1), 1), "{}", said.err);
        fs::remove_dir_all(workspace.path().join("out")).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let workspace = tempdir().unwrap();
    large(workspace.path());
    let out = workspace.path().join("out");
    fs::create_dir(&out).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&out).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        crate::skip("a full disk", "a file system cannot be mounted here");
        return;
    }
    let said = trainmon(workspace.path(), &["compare", "b", "a", "-o", "out", "--format", "csv"]);
    let left = listed(&out);
    assert!(Command::new("umount").arg(&out).status().unwrap().success());
    assert_eq!((said.code, left), (Some(2), Vec::new()), "{}", said.err);
    assert!(said.err.contains("No space left"), "{}", said.err);
}

/// Captures whose tables are larger than any of these bounds, in every format.
fn large(workspace: &Path) {
    for (side, value) in [("b", 2.0), ("a", 1.0)] {
        let operators = (0..2000).map(|call| {
            let entry =
                json!({"input_args": [tensor(1.0)], "input_kwargs": {}, "output": [tensor(value + f64::from(call))]});
            (format!("Functional.relu.{call}.forward"), entry)
        });
        let data: serde_json::Map<_, _> = operators.collect();
        put(&workspace.join(side).join("dump.json"), document(&data.into()).to_string());
    }
}

/// Missing, cut, hostile and packed files of tensors: their rows say so, and the rest is compared.
#[test]
fn a_tensor_that_cannot_be_read_is_told_in_its_row() {
    let workspace = tempdir().unwrap();
    let names = ["good", "missing", "cut", "hostile", "bomb", "sparse", "outside", "calls"];
    for side in ["b", "a"] {
        let operator = |name: &str| {
            let mut facts = tensor(1.0);
            let file = if name == "outside" { format!("../{name}.pt") } else { format!("{name}.pt") };
            (facts["shape"], facts["data_name"]) = (json!([2]), json!(file));
            (format!("Torch.{name}.0.forward"), json!({"input_args": [], "output": [facts]}))
        };
        let data: serde_json::Map<_, _> = names.iter().map(|name| operator(name)).collect();
        let mut text = document(&data.into());
        text["task"] = json!("tensor");
        let path = put(&workspace.path().join(side).join("dump.json"), text.to_string());
        let mut file = Vec::new();
        write_pt_of_one(&floats(&[1.0, if side == "b" { 3.0 } else { 2.0 }]), &mut file).unwrap();
        for name in names {
            put(&path.with_file_name("dump_tensor_data").join(format!("{name}.pt")), &file);
        }
        put(&path.with_file_name("outside.pt"), &file);
    }
    let data = workspace.path().join("b/dump_tensor_data");
    fs::remove_file(data.join("missing.pt")).unwrap();
    let file = fs::read(data.join("cut.pt")).unwrap();
    fs::write(data.join("cut.pt"), &file[..file.len() / 2]).unwrap();
    // `os.system("touch stolen")` to whoever executes it.
    fs::write(data.join("hostile.pt"), b"\x80\x02cos\nsystem\nX\x0c\x00\x00\x00touch stolen\x85R.").unwrap();
    // Several tensors, and a call of the system.
    let calls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints/made/attack_within.pt");
    fs::copy(calls, data.join("calls.pt")).unwrap();
    fs::write(data.join("bomb.pt"), bomb()).unwrap();
    File::create(data.join("sparse.pt")).unwrap().set_len(10 << 30).unwrap();
    let arguments = ["compare", "b", "a", "-o", "out", "--format", "csv"];
    let said = trainmon_limited(workspace.path(), "ulimit -d 1000000", &arguments);
    assert_eq!(said.code, Some(1), "the statistics agree, the elements do not: {}{}", said.out, said.err);
    let table = workspace.path().join("out").join(&listed(&workspace.path().join("out"))[0]);
    let mut reader = csv::Reader::from_path(table).unwrap();
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let (difference, level, notes) = (column("MaxAbsErr"), column("Result"), column("Err_message"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), names.len());
    assert_eq!(
        (&rows[0][difference], &rows[0][level]),
        ("1.0", "error"),
        "an element is another though no statistic is"
    );
    for (row, name) in rows.iter().zip(names).skip(1) {
        assert_eq!((&row[difference], &row[level]), ("unsupported", "warning"), "{row:?}");
        assert!(row[notes].contains(&format!("{name}.pt")), "{row:?}");
    }
    assert!(
        said.err.contains("calls.pt contains calls of posix.system; trainmon did not execute them"),
        "{}",
        said.err
    );
    assert!(!workspace.path().join("stolen").exists());
}

/// An archive whose 64 MiB of zeros are packed into as many kilobytes.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 64 << 20), &mut packed).unwrap();
    let packed = packed.finish().unwrap();
    let name = b"archive/data.pkl";
    let sizes = |bytes: &mut Vec<u8>| {
        bytes.extend([0_u8; 4]);
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend((64_u32 << 20).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
    };
    let mut file = b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0".to_vec();
    sizes(&mut file);
    file.extend([0; 2]);
    file.extend(name);
    file.extend(&packed);
    let directory = file.len() as u32;
    file.extend(b"PK\x01\x02\x14\0\x14\0\0\0\x08\0\0\0\0\0");
    sizes(&mut file);
    file.extend([0; 16]);
    file.extend(name);
    let length = file.len() as u32 - directory;
    file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    file.extend(length.to_le_bytes());
    file.extend(directory.to_le_bytes());
    file.extend([0; 2]);
    file
}
