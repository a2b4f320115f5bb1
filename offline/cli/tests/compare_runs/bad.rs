//! What cannot be compared, and what is said of it.

use std::fs;

use crate::transcript::Transcript;
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
    workspace.write(
        &format!("torn/{RUN}/grad_reduced_0-0.csv"),
        &format!("{HEADER}0,a,0,1.5,[2],torch.float32\n0,a,1,x,[2],torch.float32\n"),
    );
    let mut transcript = Transcript::default();
    for path in ["missing", "empty", "dump", "loop", "/dev/null", "holes", "line", "torn_line", "notes.txt", "torn"] {
        let said = workspace.compare(&[path, path, "-o", "report"]);
        assert_eq!((said.out.as_str(), said.code), ("", Some(2)), "{path}");
        assert!(!workspace.path("report").exists(), "{path}");
        transcript.add(path, &said);
    }
    insta::assert_snapshot!(transcript);
    let (found, code) = workspace.json(&["missing", "good"]);
    assert_eq!((found["error"]["message"].as_str(), code), (Some("`missing` does not exist"), Some(2)));
}
