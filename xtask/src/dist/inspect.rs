//! Whether what was built is what it should be.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use elf::ElfBytes;
use elf::abi::PT_INTERP;
use elf::endian::LittleEndian;
use elf::file::Class;

use super::platform::Architecture;
use crate::process;
use crate::provision::Environment;

/// The newest symbols of glibc that a wheel of its name may ask for.
const GLIBC: (u32, u32) = (2, 17);

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
    let file = of_architecture(&bytes, architecture).with_context(|| program.display().to_string())?;
    let asks_for_loader = file.segments().is_some_and(|segments| segments.iter().any(|one| one.p_type == PT_INTERP));
    ensure!(!asks_for_loader, "{}: it is not static: it asks for a loader", program.display());
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

fn of_architecture(bytes: &[u8], architecture: Architecture) -> Result<ElfBytes<'_, LittleEndian>> {
    let file = ElfBytes::minimal_parse(bytes).ok().filter(|file| file.ehdr.class == Class::ELF64);
    let file = file.context("not an ELF file of 64 bits")?;
    let (found, wanted) = (file.ehdr.e_machine, architecture.elf_machine());
    ensure!(found == wanted, "ELF machine {found}, {wanted} is {architecture}");
    Ok(file)
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
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[18] = machine;
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
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
        for other in [b"#!/bin/sh".to_vec(), made(183, 1)[..40].to_vec()] {
            assert!(told(other).unwrap().contains("not an ELF file of 64 bits"));
        }
    }

    #[test]
    fn the_newest_symbols_count() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.4\0GLIBC_PRIVATE\0"), Some((2, 17)));
        assert_eq!(newest_glibc(b"\0GLIBC_2.34\0"), Some((2, 34)));
        assert_eq!(newest_glibc(b"nothing"), None);
    }
}
