//! `cargo xtask fuzz`: the fuzz targets of `fuzz/`, each for a while.
//!
//! cargo-fuzz wants a nightly compiler for its sanitizer. The readers are safe Rust, where an address sanitizer has little
//! to find; what matters (panics, overflows, endless loops, memory by claims) libFuzzer finds by itself, and the coverage
//! it steers by needs no more than flags the stable compiler has. The layout is cargo-fuzz's: with a nightly compiler
//! `cargo fuzz run pickle` works as well.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

/// Every target, with the directory of further seeds beside `fuzz/corpus`.
const TARGETS: &[(&str, Option<&str>)] = &[
    ("capture", None),
    ("npy", Some(TENSOR_FILES)),
    ("pickle", None),
    ("safetensors", Some(TENSOR_FILES)),
    ("torch", Some(TENSOR_FILES)),
];
const TENSOR_FILES: &str = "formats/tensors/tests/tensor_files/corpus";

/// What libFuzzer steers by: a counter per edge, the table that leads back to the code, and the operands of comparisons.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// More than the largest piece of memory a reader may ask for (a view that repeats elements), and than all of them.
const MALLOC_LIMIT_MB: u32 = 300;
const MEMORY_LIMIT_MB: u32 = 2048;
/// An input that takes longer is a finding.
const INPUT_SECONDS: u32 = 25;
const MAX_INPUT_BYTES: u32 = 16_384;

/// Builds the targets and runs each for `seconds`; all of them, or `only` the named.
///
/// # Errors
/// The build failed, there is no such target, or one found something: its input is then in `target/fuzz/findings`.
pub fn run(root: &Path, seconds: u32, only: &[String]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|name| TARGETS.iter().all(|(target, _)| target != name)) {
        let known: Vec<_> = TARGETS.iter().map(|(target, _)| *target).collect();
        bail!("no fuzz target `{unknown}`: there are {}", known.join(", "));
    }
    let programs = build(root)?;
    let mut failed = Vec::new();
    for (target, seeds) in TARGETS {
        if !only.is_empty() && !only.iter().any(|name| name == target) {
            continue;
        }
        let work = workspace::cargo_target(root).join("fuzz").join("corpus").join(target);
        let findings = workspace::cargo_target(root).join("fuzz").join("findings");
        for directory in [&work, &findings] {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut command = Command::new(programs.join(target));
        // What is found to be of use goes to the first directory; the kept corpus stays as it is.
        command.arg(&work).arg(root.join("fuzz/corpus").join(target)).args(seeds.map(|seeds| root.join(seeds)));
        command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={MAX_INPUT_BYTES}"));
        command.arg(format!("-rss_limit_mb={MEMORY_LIMIT_MB}")).arg(format!("-malloc_limit_mb={MALLOC_LIMIT_MB}"));
        command.arg(format!("-timeout={INPUT_SECONDS}")).arg("-print_final_stats=1");
        if let Err(error) = process::run_visibly(&mut command) {
            eprintln!("{target}: {error:#}");
            failed.push(*target);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} found something: mend it, and keep the input in fuzz/corpus", failed.join(", "))
}

/// Builds the targets and gives the directory they lie in.
fn build(root: &Path) -> Result<PathBuf> {
    let triple = process::host_triple()?;
    let directory = workspace::cargo_target(root).join("fuzz").join("build");
    let mut command = process::cargo();
    // A named target keeps the flags away from build scripts.
    command.args(["build", "--release", "--locked", "--target", &triple]).current_dir(root.join("fuzz"));
    command.env("RUSTFLAGS", INSTRUMENTATION).env("CARGO_TARGET_DIR", &directory);
    process::run_visibly(&mut command)?;
    Ok(directory.join(triple).join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_program_and_its_corpus() {
        let root = workspace::root();
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for (target, seeds) in TARGETS {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
            assert!(root.join(format!("fuzz/fuzz_targets/{target}.rs")).is_file(), "{target}");
            let kept = root.join("fuzz/corpus").join(target);
            let places = [Some(kept), seeds.map(|seeds| root.join(seeds))];
            let files: usize = places
                .into_iter()
                .flatten()
                .filter_map(|place| std::fs::read_dir(place).ok())
                .map(Iterator::count)
                .sum();
            assert!(files > 0, "{target} has seeds");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len(), "every program is a target here");
    }
}
