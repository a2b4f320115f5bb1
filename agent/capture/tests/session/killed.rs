//! SIGKILL at random moments: everything appended is there.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use trainmon_capture::{Direction, Notices, Part, Session};
use trainmon_capture_files::recover;

use crate::support::{PLACE, document, floats, names, numbers_in, plan, tensor_of};

const DIRECTORY: &str = "TRAINMON_TEST_CAPTURE_HERE";
const KILLS: u64 = 12;

/// The process that is killed: captures for ever, and says how many entries it has appended.
fn capture_if_asked(row: fn(u64) -> Vec<f32>) {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let keys = r#""task": "tensor", "level": "L1", "pool_mib": 1"#;
    let session = Session::open(plan(keys, Path::new(&directory)), PLACE, Notices::new(|_| ())).unwrap();
    let mut out = std::io::stdout().lock();
    for count in 1.. {
        let name = session.begin_call("Tensor", "add").forward;
        session.begin(&name, Direction::Forward);
        let mut entry = session.entry(&name);
        let values = entry.part(Part::Output);
        values.begin_list();
        floats(values, &row(count));
        values.end_list();
        entry.append();
        writeln!(out, "appended {count}").unwrap();
    }
}

#[test]
fn killed_at_any_moment_a_capture_keeps_every_entry_that_was_appended() {
    let test = "killed::killed_at_any_moment_a_capture_keeps_every_entry_that_was_appended";
    kill_and_recover(test, 700, |count| vec![1.0; 1 + count as usize % 2000]);
}

#[test]
fn killed_among_shared_files_a_capture_names_none_that_is_not_whole() {
    let test = "killed::killed_among_shared_files_a_capture_names_none_that_is_not_whole";
    let shared = kill_and_recover(test, 150, |count| vec![(count / 3 % 5) as f32; 20_000 + count as usize % 2]);
    assert!(shared > 0, "some are");
}

/// Gives how many of the files that were found share theirs with another name.
fn kill_and_recover(test: &str, most: u64, row: fn(u64) -> Vec<f32>) -> usize {
    capture_if_asked(row);
    let mut shared = 0;
    let seed = RandomState::new().hash_one(test);
    println!("seed {seed}");
    for kill in 0..KILLS {
        let root = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(DIRECTORY, root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 1 + seed.rotate_left(kill as u32 * 5) % most;
        let count = |line: &str| line.strip_prefix("appended ").and_then(|count| count.parse::<u64>().ok());
        let mut last = 0;
        while last < wanted {
            last = count(&lines.next().unwrap().unwrap()).unwrap_or(last);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died and nobody had read.
        for line in lines.map_while(Result::ok) {
            last = count(&line).unwrap_or(last);
        }
        let directory = root.path().join("step0/rank0");
        let made = recover(&directory).unwrap();
        let document = document(&directory);
        let found = made.entries as u64;
        assert!(found == last || found == last + 1, "{found} of {last}: at most the one being written is lost");
        let expected: Vec<String> = (0..found).map(|number| format!("Tensor.add.{number}.forward")).collect();
        assert_eq!(names(&document), expected);
        // A file that a document names is whole.
        let mut files = 0;
        for operator in &document.operators {
            let facts = tensor_of(&operator.values[0]);
            let Some(file) = &facts.data_name else { continue };
            let path = directory.join("dump_tensor_data").join(&**file);
            let count = operator.name.split('.').nth(2).unwrap().parse::<u64>().unwrap() + 1;
            let expected: Vec<f64> = row(count).into_iter().map(f64::from).collect();
            assert_eq!(Some(expected.len() as u64), facts.elements());
            assert!(numbers_in(&path) == expected, "{}", path.display());
            shared += usize::from(path.metadata().unwrap().nlink() > 1);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777 & !0o640, 0);
            files += 1;
        }
        println!("kill {kill} after {last}: {found} entries, {files} files, {} bytes torn", made.torn);
    }
    shared
}
