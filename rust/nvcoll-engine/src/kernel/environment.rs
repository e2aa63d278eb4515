//! The floating-point environment: kernels round to nearest and keep subnormals, whatever the caller's control word says.
//!
//! Callers change the control word: torch's `set_flush_denormal` does, and so does loading a shared library built with `-ffast-math`.
//! The same sum would then have other bits on one thread than on another. Compiled Rust assumes the default environment. So a thread
//! takes the guard before it runs kernels, and the guard restores the caller's word afterwards.
//!
//! ```text
//! read the word ─▶ as it should be? ─ yes ─▶ nothing to do, now or later
//!                                   └ no ──▶ write the default ─▶ kernels ─▶ write the caller's word back
//! ```
//!
//! The compiler does not move kernels across the guard: they are called through a pointer, and the instructions here have effects on
//! memory as far as it knows. Cost: reading the word, a few cycles, once per call of a plan. Exception flags that kernels raise are
//! lost if the word was changed, and stay if it was not. Source: Intel SDM volume 1, 10.2.3; Arm ARM, FPCR.

/// Holds the default environment until dropped, then restores the caller's.
#[derive(Debug)]
pub struct FloatEnvironment {
    before: Option<u64>,
}

impl FloatEnvironment {
    /// Sets round-to-nearest without flush-to-zero, with exceptions masked, unless the word has these settings already.
    pub fn round_to_nearest() -> Self {
        let found = read();
        let before = (found & RELEVANT != DEFAULT).then_some(found);
        if before.is_some() {
            write(DEFAULT);
        }
        Self { before }
    }
}

impl Drop for FloatEnvironment {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            write(before);
        }
    }
}

/// MXCSR with every exception masked, round to nearest, no FTZ, no DAZ. Cited: Intel SDM volume 1, 10.2.3.
#[cfg(target_arch = "x86_64")]
const DEFAULT: u64 = 0x1f80;
/// The bits of the word that matter: all but the sticky exception flags.
#[cfg(target_arch = "x86_64")]
const RELEVANT: u64 = 0xffc0;

#[cfg(target_arch = "x86_64")]
fn read() -> u64 {
    let mut word = 0u32;
    // SAFETY: stmxcsr stores four bytes to a live u32.
    unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &mut word, options(nostack, preserves_flags)) };
    word.into()
}

#[cfg(target_arch = "x86_64")]
fn write(word: u64) {
    let word = word as u32;
    // SAFETY: ldmxcsr loads a word that was read before or is the default; reserved bits are zero. It replaces the sticky
    // exception flags too, so it does not claim `preserves_flags`.
    unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &word, options(nostack)) };
}

/// FPCR zero: round to nearest, no flush to zero, no traps. Cited: Arm ARM, FPCR.
#[cfg(target_arch = "aarch64")]
const DEFAULT: u64 = 0;
#[cfg(target_arch = "aarch64")]
const RELEVANT: u64 = u64::MAX;

#[cfg(target_arch = "aarch64")]
fn read() -> u64 {
    let word: u64;
    // SAFETY: reading FPCR has no effect.
    unsafe { core::arch::asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
    word
}

#[cfg(target_arch = "aarch64")]
fn write(word: u64) {
    // SAFETY: the word was read before or is the default.
    unsafe { core::arch::asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_flushes_to_zero_gets_its_word_back() {
        let flushing = DEFAULT | 0x8040;
        write(flushing);
        {
            let _environment = FloatEnvironment::round_to_nearest();
            assert_eq!(read() & RELEVANT, DEFAULT);
        }
        assert_eq!(read() & RELEVANT, flushing & RELEVANT);
        write(DEFAULT);
    }
}
