//! What cannot be compared, and what is said of it.

use std::fs;

use crate::desk::{Desk, HEADER, Made, RUN};

#[test]
fn what_is_no_run_is_refused_with_its_reason() {
    let desk = Desk::new();
    desk.make("good", &Made::GOLDEN);
    fs::create_dir_all(desk.path("empty")).expect("writable");
    desk.write("dump/step0/rank0/dump.json", "{}");
    desk.write("notes.txt", "");
    desk.write(
        &format!("torn/{RUN}/grad_reduced_0-0.csv"),
        &format!("{HEADER}0,a,0,1.5,[2],torch.float32\n0,a,1,x,[2],torch.float32\n"),
    );
    for (path, message) in [
        ("missing", "error: `missing` does not exist\nhint: check the path".to_owned()),
        ("empty", "error: `empty` is no monitored run: it is empty\nhint: both sides".to_owned()),
        ("dump", "error: `dump` is no monitored run: it holds dumps (dump.json)\nhint: both sides must be".to_owned()),
        ("notes.txt", "error: `notes.txt` is no monitored run: it is a file and no journal".to_owned()),
        (
            "torn",
            format!(
                "error: `torn/{RUN}/grad_reduced_0-0.csv` line 3, column `norm`: expected a number, found \"x\"\nhint: "
            ),
        ),
    ] {
        let said = desk.compare(&[path, path, "-o", "report"]);
        assert!(said.err.starts_with(&message), "{path}: {}", said.err);
        assert_eq!((said.out.as_str(), said.code), ("", Some(2)), "{path}");
        assert!(!desk.path("report").exists(), "{path}");
    }
    let (found, code) = desk.json(&["missing", "good"]);
    assert_eq!((found["error"]["message"].as_str(), code), (Some("`missing` does not exist"), Some(2)));
}
