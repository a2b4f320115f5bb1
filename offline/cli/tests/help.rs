//! What `--help` says of every command.

mod support;

use std::path::Path;

use support::{ProgramOutput, trainmon};

fn help(arguments: &[&str]) -> String {
    let ProgramOutput { code, out, err } = trainmon(Path::new("."), arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}");
    out
}

/// The commands that a help text lists: those of the first column, between the usage and the options.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    let listed = listed.take_while(|line| !line.starts_with("Options:") && !line.starts_with("Arguments:"));
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn every_command_is_listed_once_in_its_group() {
    let whole = help(&["--help"]);
    let mut listed = commands(&whole);
    listed.sort_unstable();
    // The completion script has every command, from clap itself.
    let script = help(&["completions", "fish"]);
    let known = script.lines().filter(|line| line.contains("__fish_trainmon_needs_command") && line.contains(" -a \""));
    let mut known: Vec<&str> = known.filter_map(|line| line.split(" -a \"").nth(1)?.split('"').next()).collect();
    known.retain(|name| !matches!(*name, "help" | "overflow_check" | "merge_result" | "graph_visualize"));
    known.sort_unstable();
    assert_eq!(listed, known);
    assert!(known.len() > 15, "{script}");
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
