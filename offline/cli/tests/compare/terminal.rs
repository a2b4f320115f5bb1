//! What a person at a terminal sees: colours, and sentences for slips.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use tempfile::tempdir;

use crate::small::{dump, put, trainmon};

const RED: &str = "\u{1b}[1m\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";

/// All that the program writes to a terminal of its own.
fn shown(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let pair = native_pty_system().openpty(PtySize::default()).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_trainmon"));
    command.args(arguments);
    command.cwd(directory);
    command.env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR");
    for (name, value) in environment {
        command.env(name, value);
    }
    let mut reader = pair.master.try_clone_reader().expect("readable");
    let mut child = pair.slave.spawn_command(command).expect("starts");
    drop(pair.slave);
    let read = move || {
        let mut bytes = Vec::new();
        // A terminal whose program has ended gives an error on some systems, and an end on others.
        drop(reader.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let reads = std::thread::Builder::new().name("screen".to_owned()).spawn(read).expect("a thread");
    child.wait().expect("ends");
    drop(pair.master);
    reads.join().expect("readable")
}

#[test]
fn the_answers_first_line_has_its_colour_on_a_terminal_and_none_in_a_pipe_or_with_no_color() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("a/dump.json"), 2.0);
    dump(&workspace.path().join("b/dump.json"), 3.0);
    let parting = shown(workspace.path(), &["compare", "b", "a"], &[]);
    assert!(parting.starts_with(&format!("{RED}First divergence: ")), "{parting:?}");
    let same = shown(workspace.path(), &["compare", "a", "a"], &[]);
    assert!(same.starts_with(&format!("{GREEN}No divergence")), "{same:?}");
    let plain = shown(workspace.path(), &["compare", "b", "a"], &[("NO_COLOR", "1")]);
    assert!(plain.starts_with("First divergence: ") && !plain.contains('\u{1b}'), "{plain:?}");
    let piped = trainmon(workspace.path(), &["compare", "b", "a"]);
    assert!(piped.out.starts_with("First divergence: ") && !piped.out.contains('\u{1b}'), "{piped:?}");
}

#[test]
fn slips_get_the_sentence_that_mends_them() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("a/dump.json"), 2.0);
    put(&workspace.path().join("file"), "text");
    let said = trainmon(workspace.path(), &["compare", "a", "a", "-o", "file"]);
    let sentence = "error: `file` is a file, not a directory\n\
                    hint: pass a directory to `-o`; trainmon creates it if it does not exist\n";
    assert_eq!((said.code, &*said.err), (Some(2), sentence));
    let said = trainmon(workspace.path(), &["comapre", "a", "a"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("unrecognized subcommand 'comapre'") && said.err.contains("'compare'"), "{said:?}");
}

/// Steps of a side: so many that a bar is drawn more than once.
const STEPS: usize = 1500;

/// Numbers with a unit of indicatif's, such as `1.50 MiB`.
fn bytes_of(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').expect("a unit");
    let factor = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        other => panic!("{other}"),
    };
    number.parse::<f64>().expect("a number") * factor
}

#[test]
fn a_comparison_that_takes_long_shows_bytes_and_time_from_its_first_drawing_on_and_nothing_in_a_pipe() {
    let workspace = tempdir().unwrap();
    let mut bytes = 0;
    for side in ["b", "a"] {
        for step in 0..STEPS {
            let file = workspace.path().join(format!("{side}/step{step}/rank0/dump.json"));
            dump(&file, 1.0);
            bytes += 2 * file.metadata().unwrap().len();
        }
    }
    let arguments = ["compare", "b", "a"];
    let at_once = [("TRAINMON_PROGRESS_AFTER", "0")];
    let screen = shown(workspace.path(), &arguments, &at_once);
    let mut last = 0.0;
    let mut drawn = 0;
    for part in screen.split('[').filter(|part| part.contains(" of ") && part.contains(" left")) {
        let (done, rest) = part.rsplit("] ").next().and_then(|part| part.split_once(" of ")).expect("bytes");
        let (total, left) = rest.split_once(", ").expect("time left");
        assert!((bytes_of(total) - bytes as f64).abs() < 0.01 * bytes as f64, "{total} of {bytes}");
        let done = bytes_of(done);
        assert!(done > 0.0 && done <= 1.01 * bytes as f64 && done >= last, "{done} after {last} of {bytes}");
        assert!(left.starts_with(|first: char| first.is_ascii_digit()), "{left}");
        (last, drawn) = (done, drawn + 1);
    }
    assert!(drawn > 0, "{screen:?}");
    let mut piped = Command::new(env!("CARGO_BIN_EXE_trainmon"));
    let ended = piped.args(arguments).current_dir(workspace.path()).envs(at_once).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}
