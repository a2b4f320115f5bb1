//! What cannot be compared, and what is said of it.

use std::fs;

use crate::workspace::{HEADER, Made, RUN, Workspace};

#[test]
fn what_is_no_run_is_refused_with_its_reason() {
    let workspace = Workspace::new();
    workspace.make("good", &Made::GOLDEN);
    fs::create_dir_all(workspace.path("empty")).expect("writable");
    workspace.write("dump/step0/rank0/dump.json", "{}");
    workspace.write("notes.txt", "");
    std::os::unix::fs::symlink(workspace.path("loop"), workspace.path("loop")).expect("writable");
    // Holes alone, and a line of them.
    for (run, ending) in [("holes", ""), ("line", "\n"), ("torn_line", "\n0,a")] {
        workspace.write(&format!("{run}/{RUN}/grad_reduced_0-0.csv"), HEADER);
        let path = workspace.path(&format!("{run}/{RUN}/grad_reduced_0-0.csv"));
        let mut file = fs::File::options().append(true).open(path).expect("there");
        file.set_len(20 << 20).expect("a sparse file");
        std::io::Write::write_all(&mut file, ending.as_bytes()).expect("writable");
    }
    let too_long = "Caused by: a line of more than 16 MiB\nhint: the file was damaged";
    workspace.write(
        &format!("torn/{RUN}/grad_reduced_0-0.csv"),
        &format!("{HEADER}0,a,0,1.5,[2],torch.float32\n0,a,1,x,[2],torch.float32\n"),
    );
    for (path, message) in [
        ("missing", "error: `missing` does not exist\nhint: check the path".to_owned()),
        ("empty", "error: `empty` is no monitored run: it is empty\nhint: both sides".to_owned()),
        ("dump", "error: `dump` is no monitored run: it holds dumps (dump.json)\nhint: both sides must be".to_owned()),
        (
            "loop",
            "error: cannot read `loop`\nCaused by: Too many levels of symbolic links (os error 40)\nhint: ".to_owned(),
        ),
        (
            "/dev/null",
            "error: `/dev/null` is no monitored run: it is neither a file nor a directory\nhint: ".to_owned(),
        ),
        ("holes", format!("error: cannot read `holes/{RUN}/grad_reduced_0-0.csv`\n{too_long}")),
        ("line", format!("error: `line/{RUN}/grad_reduced_0-0.csv` line 2: not a row of a CSV file\n{too_long}")),
        (
            "torn_line",
            format!("error: `torn_line/{RUN}/grad_reduced_0-0.csv` line 2: not a row of a CSV file\n{too_long}"),
        ),
        ("notes.txt", "error: `notes.txt` is no monitored run: it is a file and no journal".to_owned()),
        (
            "torn",
            format!(
                "error: `torn/{RUN}/grad_reduced_0-0.csv` line 3, column `norm`: expected a number, found \"x\"\nhint: "
            ),
        ),
    ] {
        let said = workspace.compare(&[path, path, "-o", "report"]);
        assert!(said.err.starts_with(&message), "{path}: {}", said.err);
        assert_eq!((said.out.as_str(), said.code), ("", Some(2)), "{path}");
        assert!(!workspace.path("report").exists(), "{path}");
    }
    let (found, code) = workspace.json(&["missing", "good"]);
    assert_eq!((found["error"]["message"].as_str(), code), (Some("`missing` does not exist"), Some(2)));
}
