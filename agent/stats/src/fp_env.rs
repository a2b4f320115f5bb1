//! The floating-point environment the kernels count on.
//!
//! A host may have set flush-to-zero (`torch.set_flush_denormal`), another rounding, or unmasked traps in the thread
//! that calls. Subnormal elements would then read as zero and a NaN could raise a signal. Rust itself assumes the
//! default environment, so every entry of this crate puts it in force and gives the host's back on the way out.
#![expect(unsafe_code, reason = "the control register is reached by assembly only")]

/// The default environment is in force while this lives.
pub(crate) struct StandardFloats {
    /// The host's register if it had to be changed.
    host: Option<Register>,
}

impl StandardFloats {
    /// Costs a few nanoseconds when the host has the default already.
    #[inline]
    pub(crate) fn enter() -> Self {
        let found = read();
        if found & CONTROL == STANDARD {
            return Self { host: None };
        }
        write(STANDARD);
        Self { host: Some(found) }
    }
}

impl Drop for StandardFloats {
    #[inline]
    fn drop(&mut self) {
        if let Some(found) = self.host {
            write(found);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    pub(super) type Register = u32;
    /// All but the sticky exception flags of MXCSR.
    pub(super) const CONTROL: Register = 0xffc0;
    /// Round to nearest, every trap masked, subnormals kept.
    pub(super) const STANDARD: Register = 0x1f80;

    #[inline]
    pub(super) fn read() -> Register {
        let mut value: Register = 0;
        // SAFETY: stores the 32-bit register to a local.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
        value
    }

    #[inline]
    pub(super) fn write(value: Register) {
        // SAFETY: loads a valid control word from a local; without `nomem` no float operation on memory crosses it.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    pub(super) type Register = u64;
    /// Everything in FPCR.
    pub(super) const CONTROL: Register = u64::MAX;
    /// Round to nearest, no traps, subnormals kept.
    pub(super) const STANDARD: Register = 0;

    #[inline]
    pub(super) fn read() -> Register {
        let value: Register;
        // SAFETY: reads a register user code may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nostack, preserves_flags)) };
        value
    }

    #[inline]
    pub(super) fn write(value: Register) {
        // SAFETY: writes a register user code may write, with a value it held or its default.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Register = u32;
    pub(super) const CONTROL: Register = 0;
    pub(super) const STANDARD: Register = 0;

    /// No known switch on this architecture: nothing to restore.
    pub(super) fn read() -> Register {
        STANDARD
    }

    pub(super) fn write(_: Register) {}
}

use register::{CONTROL, Register, STANDARD, read, write};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_environment_is_replaced_and_given_back() {
        const FLUSH_BOTH: u32 = 0x8040;
        let before = read();
        write(before | FLUSH_BOTH);
        let inside = {
            let _standard = StandardFloats::enter();
            read() & CONTROL
        };
        let after = read() & CONTROL;
        write(before);
        assert_eq!(inside, STANDARD);
        assert_eq!(after, STANDARD | FLUSH_BOTH);
    }
}
