//! What `cargo xtask` understands.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::dist::Architecture;
use crate::provision::{Matrix, OtherTorch, environment};
use crate::run::Bench;
use crate::verify::{Check, Selection};
use crate::{device_kernels, device_kit, dist, fuzz, hint, load, provision, run, soak, torture, verify, workspace};

/// The commands of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check of the project; exit 1 if one fails
    #[command(after_help = TEST_HELP)]
    Test {
        /// Leave out what needs libtorch or Python
        #[arg(long)]
        quick: bool,
        /// Run this check only (may be given more than once)
        #[arg(long, value_name = "NAME")]
        only: Vec<Check>,
        /// Every version of torch, and every framework in every form
        #[arg(long)]
        full: bool,
    },
    /// Train a small GPT with trainmon watching
    #[command(after_help = DEMO_HELP)]
    Demo {
        /// Passed to the demo as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        arguments: Vec<OsString>,
    },
    /// Measure
    #[command(after_help = BENCH_HELP)]
    Bench {
        /// What to measure
        #[arg(default_value = "all")]
        which: Bench,
    },
    /// Build what one publishes: wheels, source package, static programs, what is in them, checksums
    #[command(after_help = DIST_HELP)]
    Dist {
        /// Where to; an older release there is removed first
        #[arg(long, value_name = "DIR", default_value = "target/dist")]
        out: PathBuf,
        /// For this architecture only
        #[arg(long, value_name = "ARCHITECTURE")]
        only: Option<Architecture>,
    },
    /// Build the folder that is run where there is a GPU: correctness, cost and captures on a device, in six minutes
    #[command(after_help = DEVICE_KIT_HELP)]
    DeviceKit {
        /// Where to; an older kit there is removed first
        #[arg(long, value_name = "DIR", default_value = "target/device-kit")]
        out: PathBuf,
    },
    /// Compile the GPU's kernels to what agent/device carries, and say what the compilers make of them; needs no GPU
    DeviceKernels,
    /// Give the readers of foreign files any bytes for a while; exit 1 if one panics, hangs or takes too much memory
    Fuzz {
        /// How long each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// These targets only: capture, npy, pickle, safetensors, torch
        #[arg(value_name = "TARGET")]
        only: Vec<String>,
    },
    /// Kill small trainings at random moments and look for steps that are not in their journals; exit 1 if one is lost
    #[command(after_help = TORTURE_HELP)]
    Torture {
        /// How many trainings, half of them at each load
        #[arg(long, default_value_t = 1000)]
        kills: u32,
        /// Where they write; a directory of the system's for temporary files if not given
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Train for long with every exporter, the OTLP receiver coming and going; exit 1 if memory, threads or file
    /// descriptors grow
    Soak {
        /// Optimizer steps
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(100..))]
        steps: u64,
    },
    /// Serve the pages of a large job to a real Prometheus and measure what it takes; `-- --help` has the sizes
    Load {
        /// `--ranks 256`, `--layers 8`, …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<String>,
    },
    /// Build the Python extension into the environment of the checks, for working on it
    Develop,
    /// Make sure of libtorch, a C++ compiler, the Python environment of the checks and Prometheus
    #[command(after_help = PROVISION_HELP)]
    Provision,
    /// Print the variables that lead to libtorch: `eval "$(cargo xtask env)"`, then plain cargo works on every crate
    Env,
    /// Run a check by itself, its findings printed
    Check {
        /// Which
        which: Static,
    },
}

/// A check that compiles nothing.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Static {
    /// Crates depend on each other as docs/architecture.md draws it
    Arrows,
    /// Foreign crates: licences, sources, banned names
    Dependencies,
    /// Unsafe code is in its modules only, and no retired name returns
    Sources,
    /// Pages, messages and doc comments follow the mechanical part of docs/style.md, and no link is dead
    Prose,
}

const TEST_HELP: &str = "\
The first run installs libtorch and Python packages below target/ (see `cargo xtask provision --help`).
Exit status: 0 if every check passed, else 1.
--full tries every version of torch and sets TRAINMON_TEST_MATRIX=full, with which the tests of the frameworks run what
is too much for every day; without it that is skipped by name.
The totals stand alone on a line, `N passed, N failed, N skipped`, and count the tests of Rust and Python.";

const DIST_HELP: &str = "\
zig, from the Python package index, compiles and links for both architectures and for old systems: wheels for glibc 2.17
and newer, programs that need no library. Rust's libraries for them come through rustup. docs/releasing.md lists the files.
Exit status: 0 if everything was built and looked into, else 1, with what is missing by name.";

const DEVICE_KIT_HELP: &str = "\
Examples:
  cargo xtask device-kit                              build it
  bash target/device-kit/run.sh --out results         run it where there is a GPU (the folder may be copied anywhere)
  bash target/device-kit/run.sh --dry                 the same code on the CPU, small and short

The folder has the published wheel, msprobe's with what it needs for Python 3.12, and scripts: at most 60 MiB. It needs
Python with torch there, and no network. docs/device.md has the results, docs/proof/device.md what each part measures.";

const TORTURE_HELP: &str = "\
Each training writes a line to a pipe after every step that has returned to it; what is read from the pipe after its death
is what `trainmon recover` must find. Nine of ten are ended by SIGKILL, the tenth calls _exit. Beside them 1, then 8 busy
processes run. Five minutes on two cores, and nothing else gets much done meanwhile: it is no part of `cargo xtask test`.";

const DEMO_HELP: &str = "\
Examples:
  cargo xtask demo                        train and watch
  cargo xtask demo --steps 500            a longer run
  cargo xtask demo --inject spike@200     break step 200 and find it in the files
  cargo xtask demo -- --help              everything the demo understands

The first run installs libtorch below target/ and compiles for some minutes.
Later runs start at once.";

const BENCH_HELP: &str = "\
overhead trains a 34 M parameter GPT without a monitor, with trainmon and (in PyTorch) with msprobe, the contenders step
by step in turn, and prints what each adds to a step. Some minutes on two cores; let nothing else run meanwhile.
The PyTorch half alone, with options: target/python/main/bin/python agent/python/benches/overhead.py --help
dump captures small and large operators with trainmon and with msprobe, and prints what each adds to an operator.
collectives does the same for all_reduce of a small tensor: sizes and times, then the tensors' statistics too.
compare runs `trainmon compare` and msprobe's on 20,020 nodes of statistics and 2 x 524 MB of tensors, in a temporary
directory. Ten minutes on two cores; its options: target/python/main/bin/python agent/python/benches/compare.py --help";

const PROVISION_HELP: &str = "\
libtorch is taken from the first of these that is whole and of the right version:
  1. the directory $LIBTORCH
  2. target/libtorch, where an earlier run installed it
  3. the torch that python3 would import
or installed into target/libtorch with `python3 -m pip` (1.2 GB, no GPU packages).
The Python environment (target/python/main) has the packages of agent/python/requirements, installed by uv, which the
pip of python3 fetches, or by that pip where uv cannot (3 GB to download, 7 GB on disk; most of it are torch's GPU
packages, which it does not start without).
The receiver of the OTLP tests has a small environment of its own (target/python/otlp).
The wheel is tried on older versions of torch, too, in target/python/torch21 and, with `test --full`, torch26 (5 GB
each). Those that do not fit on the disk, or have no packages for this Python, are left out: their tests are skipped by
name.
prometheus, chromium and OpenMPI are installed through apt-get if this runs as root; elsewhere the tests that need them
skip themselves.";

impl Arguments {
    /// Does what was asked.
    ///
    /// # Errors
    /// The task failed.
    pub fn run(self) -> Result<()> {
        let root = workspace::root();
        match self.task {
            Task::Test { quick, only, full } => verify::run(&Selection { quick, only, full }),
            Task::Demo { arguments } => run::demo(&arguments),
            Task::Bench { which } => run::bench(which),
            Task::Dist { out, only } => {
                let made = dist::run(&root, &out, only)?;
                made.files.iter().for_each(|file| println!("{}", file.display()));
                Ok(())
            }
            Task::DeviceKit { out } => device_kit::run(&root, &out),
            Task::DeviceKernels => device_kernels::run(&root),
            Task::Fuzz { seconds, only } => fuzz::run(&root, seconds, &only),
            Task::Torture { kills, dir } => torture::run(&root, kills, dir.as_deref()),
            Task::Soak { steps } => soak::run(&root, steps),
            Task::Load { arguments } => load::run(&root, &arguments),
            Task::Provision => {
                if let Err(error) = provision::ensure_system_packages().mpi {
                    eprintln!("note: no MPI: {}", hint::render(&error));
                }
                if let Err(error) = provision::web(&root) {
                    eprintln!("note: nothing builds the live page or renders the dashboards: {}", hint::render(&error));
                }
                let found = provision::libtorch(&root)?;
                println!("libtorch: {} ({})", found.dir.display(), found.origin);
                println!("otlp receiver: {}", provision::otlp_receiver(&root)?.program("python").display());
                println!("python: {}", provision::python(&root)?.program("python").display());
                provision::other_torches(&root, Matrix::Full).iter().for_each(tell);
                Ok(())
            }
            Task::Develop => run::develop(&root),
            Task::Env => {
                let found = provision::libtorch(&root)?;
                print!("{}", environment::shell_lines(&found.dir));
                Ok(())
            }
            Task::Check { which: Static::Arrows } => verify::check_arrows(&root),
            Task::Check { which: Static::Dependencies } => verify::check_dependencies(&root),
            Task::Check { which: Static::Sources } => verify::check_sources(&root),
            Task::Check { which: Static::Prose } => verify::check_prose(&root),
        }
    }
}

fn tell(other: &OtherTorch) {
    match &other.environment {
        Ok(environment) => println!("python with another torch: {}", environment.program("python").display()),
        Err(error) => eprintln!("note: {} is left out: {}", other.name, hint::render(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_demo_gets_its_options_untouched() {
        let line = ["cargo xtask", "demo", "--steps", "5", "--inject", "spike@200"];
        let Task::Demo { arguments } = Arguments::try_parse_from(line).unwrap().task else { panic!("not the demo") };
        assert_eq!(arguments, ["--steps", "5", "--inject", "spike@200"]);
    }

    #[test]
    fn every_command_the_documents_name_is_understood() {
        let root = workspace::root();
        let mut seen = 0;
        for file in ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/releasing.md"] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            for line in text.split(['\n', '`', '#']).filter_map(|part| part.trim().strip_prefix("cargo xtask ")) {
                let line = line.trim_end_matches([')', '"']);
                let words = std::iter::once("cargo xtask").chain(line.split_whitespace());
                let refused = Arguments::try_parse_from(words).err().filter(|e| e.kind() != ErrorKind::DisplayHelp);
                assert!(refused.is_none(), "{file}: `cargo xtask {line}`: {}", refused.unwrap());
                seen += 1;
            }
        }
        assert!(seen >= 4, "the documents name the commands");
    }
}
