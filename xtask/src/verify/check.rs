//! The checks, and which of them were selected.

use clap::ValueEnum;

/// A check, in the order they are listed: the quick ones first, then those that share what they compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// rustfmt changes nothing
    Format,
    /// Crates depend on each other as docs/architecture.md draws it
    Arrows,
    /// Foreign crates: licences, sources, banned names
    Dependencies,
    /// Unsafe code is in its modules only, and no retired name returns
    Sources,
    /// Pages, messages and doc comments follow the mechanical part of docs/style.md, and no link is dead
    Prose,
    /// Installs libtorch, a C++ compiler and the system packages of the tests if they are missing
    Provision,
    /// Every target compiles, without a lint
    Clippy,
    /// Unit, property, golden and integration tests
    Tests,
    /// The examples in doc comments
    Doctests,
    /// The documentation builds without a warning
    Docs,
    /// Crates with features compile without any, and with each alone
    Features,
    /// The unit tests of code that reads raw memory and foreign bytes, under the address sanitizer
    Sanitizer,
    /// The pool of threads that share a reduction, in thousands of orders of events
    Interleavings,
    /// The unit tests of views of raw memory under Miri, with a nightly toolchain that has it
    Miri,
    /// Python: lints, types, format, and the stub of the extension
    PythonLint,
    /// Python: the tests of the front, in the environment of the checks
    PythonTests,
    /// The device kit: its table is complete without a GPU; with --full as it is built for use
    DeviceKit,
    /// The wheel in an empty environment: its command, and the README's example; with --full the whole release
    Install,
    /// The workflows of a public forge pass its schema and a linter
    Workflows,
}

impl Check {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Arrows => "arrows",
            Self::Dependencies => "dependencies",
            Self::Sources => "sources",
            Self::Prose => "prose",
            Self::Provision => "provision",
            Self::Clippy => "clippy",
            Self::Tests => "tests",
            Self::Doctests => "doctests",
            Self::Docs => "docs",
            Self::Features => "features",
            Self::Sanitizer => "sanitizer",
            Self::Interleavings => "interleavings",
            Self::Miri => "miri",
            Self::PythonLint => "python-lint",
            Self::PythonTests => "python-tests",
            Self::DeviceKit => "device-kit",
            Self::Install => "install",
            Self::Workflows => "workflows",
        }
    }

    /// Whether it compiles the workspace, and so needs libtorch.
    fn compiles(self) -> bool {
        matches!(self, Self::Clippy | Self::Tests | Self::Doctests | Self::Docs)
    }

    /// Whether the other checks wait for it: it is quick, or they need its results.
    pub(super) fn goes_first(self) -> bool {
        matches!(
            self,
            Self::Format
                | Self::Arrows
                | Self::Dependencies
                | Self::Sources
                | Self::Prose
                | Self::Provision
                | Self::Clippy
        )
    }

    /// Whether it needs the Python environment, which it makes itself.
    pub(super) fn is_python(self) -> bool {
        matches!(self, Self::PythonLint | Self::PythonTests | Self::DeviceKit | Self::Install | Self::Workflows)
    }
}

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Leave out what needs libtorch or Python.
    pub quick: bool,
    /// These checks only; all if empty.
    pub only: Vec<Check>,
    /// Every version of torch and every framework in every form, not the short form of both.
    pub full: bool,
}

impl Selection {
    /// The checks to run, in order. Provisioning comes with whatever compiles.
    pub(super) fn checks(&self) -> Vec<Check> {
        let chosen = |check: Check| self.only.is_empty() || self.only.contains(&check);
        let compiles = Check::value_variants().iter().any(|&check| chosen(check) && check.compiles());
        let wanted = |check: Check| match check {
            Check::Provision => !self.quick && (chosen(check) || compiles),
            _ => chosen(check) && !(self.quick && check.is_python()),
        };
        Check::value_variants().iter().copied().filter(|&check| wanted(check)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_has_every_check_in_order() {
        assert_eq!(Selection::default().checks(), Check::value_variants());
    }

    #[test]
    fn a_quick_run_provisions_nothing() {
        let checks = Selection { quick: true, ..Selection::default() }.checks();
        assert!(!checks.contains(&Check::Provision));
        assert!(!checks.iter().any(|check| check.is_python()));
        assert_eq!(checks.len(), Check::value_variants().len() - 6);
    }

    #[test]
    fn what_compiles_is_provisioned_first_and_what_does_not_is_not() {
        let only = |check| Selection { only: vec![check], ..Selection::default() }.checks();
        assert_eq!(only(Check::Docs), [Check::Provision, Check::Docs]);
        assert_eq!(only(Check::Arrows), [Check::Arrows]);
        assert_eq!(only(Check::PythonTests), [Check::PythonTests], "no libtorch is needed, torch comes with Python's");
    }
}
