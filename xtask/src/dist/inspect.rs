//! Whether what was built is what it should be.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::platform::Architecture;
use crate::process;
use crate::provision::Environment;

/// The newest symbols of glibc that a wheel of its name may ask for.
const GLIBC: (u32, u32) = (2, 17);

/// What is read of an ELF file of 64 bits, little end first.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    machine: u16,
    /// Whether another program must load it.
    has_interpreter: bool,
}

/// The extension in a wheel is of this architecture and asks for no newer glibc than the wheel's name says.
pub(super) fn wheel(tools: &Environment, wheel: &Path, architecture: Architecture) -> Result<()> {
    let place = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut unpack = tools.command("python");
    process::run_visibly(unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(place.path()))?;
    let extension = place.path().join("trainmon/_trainmon.abi3.so");
    let bytes = fs::read(&extension).with_context(|| format!("{} has no extension", wheel.display()))?;
    let shown = wheel.display();
    of_architecture(&bytes, architecture).with_context(|| format!("the extension of {shown}"))?;
    match newest_glibc(&bytes) {
        Some(found) if found <= GLIBC => Ok(()),
        found => bail!("{shown} asks for glibc {found:?}, at most {GLIBC:?} is promised"),
    }
}

/// The program is of this architecture and needs no library.
pub(super) fn program(program: &Path, architecture: Architecture) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let elf = of_architecture(&bytes, architecture).with_context(|| program.display().to_string())?;
    ensure!(!elf.has_interpreter, "{}: it is not static: it asks for a loader", program.display());
    Ok(())
}

/// Starts the program, if need be under qemu; the reason if that is not there.
pub(super) fn starts(program: &Path, architecture: Architecture, version: &str) -> Result<Option<String>> {
    let mut command = Command::new(program);
    if !architecture.is_this_machines() {
        let names = [format!("qemu-{architecture}-static"), format!("qemu-{architecture}")];
        let Some(emulator) = names.iter().find(|name| process::is_on_path(name)) else {
            return Ok(Some(format!("no {} here to start it: install qemu-user-static", names[0])));
        };
        command = Command::new(emulator);
        command.arg(program);
    }
    command.arg("--version");
    let line = process::shown(&command);
    let said = process::capture(command)?;
    ensure!(said.text == format!("trainmon {version}\n"), "`{line}` said `{}`, {}", said.text.trim(), said.status);
    Ok(None)
}

fn of_architecture(bytes: &[u8], architecture: Architecture) -> Result<Elf> {
    let elf = elf(bytes).context("not an ELF file of 64 bits")?;
    let (found, wanted) = (elf.machine, architecture.elf_machine());
    ensure!(found == wanted, "ELF machine {found}, {wanted} is {architecture}");
    Ok(elf)
}

fn elf(bytes: &[u8]) -> Option<Elf> {
    /// Program header of the loader's name.
    const INTERPRETER: u64 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(size)?)?;
        Some(field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let machine = u16::try_from(number(18, 2)?).ok()?;
    let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut kinds = (0..count).map(|index| number(usize::try_from(headers + index * size).ok()?, 4));
    let has_interpreter = kinds.any(|kind| kind == Some(INTERPRETER));
    Some(Elf { machine, has_interpreter })
}

/// The newest version of glibc's symbols that is named anywhere in the file.
fn newest_glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_";
    let places = bytes.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let versions = places.filter_map(|(at, _)| {
        let rest = &bytes[at + PREFIX.len()..];
        let end = rest.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'.'))?;
        let mut numbers = std::str::from_utf8(&rest[..end]).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one program header of this kind.
    fn made(machine: u8, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = machine;
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
    }

    #[test]
    fn the_machine_and_the_loader_are_read_from_the_header() {
        assert_eq!(elf(&made(183, 1)), Some(Elf { machine: 183, has_interpreter: false }));
        assert_eq!(elf(&made(62, 3)), Some(Elf { machine: 62, has_interpreter: true }));
        assert_eq!(elf(b"#!/bin/sh"), None);
        assert_eq!(elf(&made(62, 3)[..40]), None);
    }

    #[test]
    fn another_architecture_and_a_program_with_a_loader_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("trainmon");
        let told = |bytes: Vec<u8>| {
            fs::write(&place, bytes).unwrap();
            program(&place, Architecture::Arm).err().map(|error| format!("{error:#}"))
        };
        assert_eq!(told(made(183, 1)), None);
        assert!(told(made(62, 1)).unwrap().ends_with("ELF machine 62, 183 is aarch64"));
        assert!(told(made(183, 3)).unwrap().contains("not static"));
    }

    #[test]
    fn the_newest_symbols_count() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.4\0GLIBC_PRIVATE\0"), Some((2, 17)));
        assert_eq!(newest_glibc(b"\0GLIBC_2.34\0"), Some((2, 34)));
        assert_eq!(newest_glibc(b"nothing"), None);
    }
}
