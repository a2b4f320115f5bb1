//! What a person at a terminal sees: colours, and sentences for slips.

use std::io::Read as _;
use std::path::Path;

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
    assert!(parting.starts_with(&format!("{RED}They diverge")), "{parting:?}");
    let same = shown(workspace.path(), &["compare", "a", "a"], &[]);
    assert!(same.starts_with(&format!("{GREEN}No divergence")), "{same:?}");
    let plain = shown(workspace.path(), &["compare", "b", "a"], &[("NO_COLOR", "1")]);
    assert!(plain.starts_with("They diverge") && !plain.contains('\u{1b}'), "{plain:?}");
    let piped = trainmon(workspace.path(), &["compare", "b", "a"]);
    assert!(piped.out.starts_with("They diverge") && !piped.out.contains('\u{1b}'), "{piped:?}");
}

#[test]
fn slips_get_the_sentence_that_mends_them() {
    let workspace = tempdir().unwrap();
    dump(&workspace.path().join("a/dump.json"), 2.0);
    put(&workspace.path().join("file"), "text");
    let said = trainmon(workspace.path(), &["compare", "a", "a", "-o", "file"]);
    let sentence = "error: `file` is a file, expected a directory for the tables\n\
                    hint: name another path after -o: the directory is made if it is not there\n";
    assert_eq!((said.code, &*said.err), (Some(2), sentence));
    let said = trainmon(workspace.path(), &["comapre", "a", "a"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("unrecognized subcommand 'comapre'") && said.err.contains("'compare'"), "{said:?}");
}
