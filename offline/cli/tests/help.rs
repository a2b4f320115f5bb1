//! What `--help` says of every command.

mod support;

use std::path::Path;

use support::{ProgramOutput, trainmon};

fn help(arguments: &[&str]) -> String {
    let ProgramOutput { code, out, err } = trainmon(Path::new("."), arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}");
    out
}

/// The commands that a help text lists: those of the first column.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn every_command_says_what_it_does_and_shows_it() {
    let whole = help(&["--help"]);
    insta::assert_snapshot!("trainmon", whole);
    for command in commands(&whole) {
        let of_command = help(&[command, "--help"]);
        insta::assert_snapshot!(command, of_command);
        for part in commands(&of_command) {
            insta::assert_snapshot!(format!("{command} {part}"), help(&[command, part, "--help"]));
        }
    }
}
