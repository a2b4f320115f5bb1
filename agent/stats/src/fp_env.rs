//! The floating-point environment that the kernels require.
//!
//! In the calling thread, the host may have set flush-to-zero (`torch.set_flush_denormal`), another rounding mode, or
//! unmasked traps. Subnormal elements would then read as zero and a NaN could raise a signal. Rust itself assumes the
//! default environment, so every entry point of this crate sets it and restores the host's on return.
#![expect(unsafe_code, reason = "the control register is accessible from assembly only")]

/// Guard that sets the default environment and restores the host's when dropped.
pub(crate) struct StandardFloats {
    /// The host's register value, if it had to be changed.
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
    /// MXCSR without its sticky exception flags.
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
    /// All of FPCR.
    pub(super) const CONTROL: Register = u64::MAX;
    /// Round to nearest, no traps, subnormals kept.
    pub(super) const STANDARD: Register = 0;

    #[inline]
    pub(super) fn read() -> Register {
        let value: Register;
        // SAFETY: user code may read this register.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nostack, preserves_flags)) };
        value
    }

    #[inline]
    pub(super) fn write(value: Register) {
        // SAFETY: user code may write this register; the value is a former one or the default.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Register = u32;
    pub(super) const CONTROL: Register = 0;
    pub(super) const STANDARD: Register = 0;

    /// Returns the default: this architecture has no known control register to restore.
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
