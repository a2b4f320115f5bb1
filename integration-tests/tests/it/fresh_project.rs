//! The README's Rust example in a project of its own, as someone would begin one.

use std::path::Path;
use std::process::Command;

/// The README's only block in a language.
fn block(readme: &str, language: &str) -> String {
    let mut blocks = readme.split("```").filter(|block| block.starts_with(language));
    let block = blocks.next().unwrap_or_else(|| panic!("the README has no block `{language}`"));
    assert!(blocks.next().is_none(), "the README has several blocks `{language}`");
    block.split_once('\n').expect("a language ends with its line").1.to_owned()
}

#[test]
fn the_readmes_example_is_built_in_a_fresh_project_with_its_dependencies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("readable");
    let project = tempfile::tempdir().expect("a directory");
    let mut dependencies = block(&readme, "toml").replace("../trainmon", root.to_str().expect("UTF-8"));
    if std::env::var_os("TRAINMON_TEST_MATRIX").is_none_or(|matrix| matrix != "full") {
        // With every output, as the other tests have it: little is left to be compiled.
        let all = r#"/agent/trainmon", features = ["otlp", "prometheus", "tensorboard", "webhook"]"#;
        dependencies = dependencies.replace(r#"/agent/trainmon""#, all);
    }
    let package = "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    let write = |name: &str, text: &str| std::fs::write(project.path().join(name), text).expect("writable");
    write("Cargo.toml", &(package.to_owned() + &dependencies));
    std::fs::create_dir(project.path().join("src")).expect("writable");
    write("src/main.rs", &block(&readme, "rust"));
    // The same versions and the same profile as here, for what was compiled for the other tests serves this one too.
    std::fs::copy(root.join("Cargo.lock"), project.path().join("Cargo.lock")).expect("writable");
    let target = std::env::current_exe().expect("known");
    let target = target.ancestors().nth(3).expect("target/debug/deps/test");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--quiet"]).current_dir(project.path()).env("CARGO_TARGET_DIR", target);
    cargo.args([
        "--config",
        "profile.dev.debug=\"line-tables-only\"",
        "--config",
        "profile.dev.package.\"*\".debug=false",
    ]);
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    succeeds(&mut cargo);
    let program = || {
        let mut program = Command::new(target.join("debug/fresh"));
        program.current_dir(project.path());
        program
    };
    succeeds(&mut program());
    let files = |pattern: &str| walk(project.path()).into_iter().filter(|file| file.contains(pattern)).count();
    assert!(files("grad_reduced") > 0, "the rows of the gradients: {:?}", walk(project.path()));
    assert!(files("step50/rank0/dump.json") == 1, "the capture of a step: {:?}", walk(project.path()));
    // The same once more, held against the first: the same numbers, so nothing is found.
    let runs =
        std::fs::read_dir(project.path().join("monitor_output")).expect("a run").map(|entry| entry.expect("readable"));
    let first = runs.map(|entry| entry.path()).find(|path| path.is_dir() && !path.is_symlink()).expect("a run");
    let said = succeeds(program().arg(first));
    assert!(said.contains("baseline: compared with"), "{said}");
    assert!(!said.contains("Baseline:") && !said.contains("no rule"), "{said}");
}

/// Runs a program; what it wrote on standard error.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Every file below a directory.
fn walk(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path());
    entries
        .flat_map(
            |path| if path.is_dir() && !path.is_symlink() { walk(&path) } else { vec![path.display().to_string()] },
        )
        .collect()
}
