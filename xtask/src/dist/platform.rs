//! What a release is built for.

use std::env::consts::ARCH;
use std::fmt;

use anyhow::Result;
use clap::ValueEnum;

use crate::hint::{self, Hinted};
use crate::process;

/// A processor's architecture; the system is Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    /// Intel and AMD
    #[value(name = "x86_64")]
    X86,
    /// Arm, 64 bits
    #[value(name = "aarch64")]
    Arm,
}

impl Architecture {
    /// All that are wanted, this machine's first.
    pub(super) fn ordered(only: Option<Self>) -> Vec<Self> {
        let mut all: Vec<Self> = only.map_or_else(|| Self::value_variants().to_vec(), |one| vec![one]);
        all.sort_by_key(|one| !one.is_this_machines());
        all
    }

    /// This machine's; that of most, where it is another one.
    pub fn of_this_machine() -> Self {
        Self::value_variants().iter().copied().find(|one| one.is_this_machines()).unwrap_or(Self::X86)
    }

    /// Whether this machine can start what is built for it.
    pub(super) fn is_this_machines(self) -> bool {
        self.name() == ARCH
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Rust's name of the target whose libraries are the system's: the wheel's.
    pub(super) fn gnu(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-gnu",
            Self::Arm => "aarch64-unknown-linux-gnu",
        }
    }

    /// Rust's name of the target without any: the program's.
    pub(super) fn musl(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// The number in the header of an ELF file.
    pub(super) fn elf_machine(self) -> u16 {
        match self {
            Self::X86 => elf::abi::EM_X86_64,
            Self::Arm => elf::abi::EM_AARCH64,
        }
    }

    /// Makes sure of Rust's standard library for these of its targets.
    pub(super) fn ensure_targets(targets: &[&str]) -> Result<()> {
        let installed = process::output("rustup", &["target", "list", "--installed"]).map_err(|error| {
            Hinted::new(hint::render(&error), "install Rust through rustup: it has the other targets' libraries")
        })?;
        for &target in targets {
            if installed.lines().any(|line| line == target) {
                continue;
            }
            let mut command = std::process::Command::new("rustup");
            process::run_visibly(command.args(["target", "add", target])).map_err(|error| {
                let message = format!("there is no target {target}: {error}");
                Hinted::new(message, format!("check the network, then try `rustup target add {target}`"))
            })?;
        }
        Ok(())
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_comes_first() {
        let all = Architecture::ordered(None);
        assert_eq!(all.len(), 2);
        assert!(all[0].is_this_machines() || !all[1].is_this_machines());
        assert_eq!(Architecture::ordered(Some(Architecture::Arm)), [Architecture::Arm]);
    }
}
