//! A caller that flushes subnormals or rounds elsewhere changes no bit, and finds its control word as it left it.

use nvcoll_core::dtype::DType;
use nvcoll_engine::kernel::{select, Args, Arm, FloatEnvironment, Isa};

/// What a caller may have set: flush to zero (and denormals are zero), and rounding towards positive infinity.
#[cfg(target_arch = "x86_64")]
const UNUSUAL: u64 = 0x1f80 | 0x8040 | 0x4000;
#[cfg(target_arch = "aarch64")]
const UNUSUAL: u64 = 1 << 24 | 1 << 22;

#[cfg(target_arch = "x86_64")]
fn control_word() -> u64 {
    let mut word = 0u32;
    // SAFETY: stmxcsr stores four bytes to a live u32.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut word, options(nostack)) };
    u64::from(word)
}

#[cfg(target_arch = "x86_64")]
fn set_control_word(word: u64) {
    let word = word as u32;
    // SAFETY: ldmxcsr loads a live u32 whose reserved bits are zero; the test restores the word.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &word, options(nostack)) };
}

#[cfg(target_arch = "aarch64")]
fn control_word() -> u64 {
    let word: u64;
    // SAFETY: reading FPCR has no effect.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nostack)) };
    word
}

#[cfg(target_arch = "aarch64")]
fn set_control_word(word: u64) {
    // SAFETY: the bits are defined ones; the test restores the word.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word, options(nostack)) };
}

/// Adds `a` and `b` in a kernel and returns the bits of the sum.
fn sum(isa: Isa, a: f32, b: f32, environment: impl FnOnce() -> Option<FloatEnvironment>) -> u32 {
    u32::from_ne_bytes(sum_of(isa, DType::F32, a.to_ne_bytes(), b.to_ne_bytes(), environment))
}

/// Adds two stored elements in a kernel.
fn sum_of<const BYTES: usize>(
    isa: Isa,
    dtype: DType,
    a: [u8; BYTES],
    b: [u8; BYTES],
    environment: impl FnOnce() -> Option<FloatEnvironment>,
) -> [u8; BYTES] {
    let (count, mut result) = (64, vec![[0; BYTES]; 64]);
    let sources = [vec![a; count], vec![b; count]];
    let src = [sources[0].as_ptr().cast::<u8>(), sources[1].as_ptr().cast()];
    let dst = [result.as_mut_ptr().cast::<u8>()];
    let args = Args {
        src: src.as_ptr(),
        n_src: 2,
        dst: dst.as_ptr(),
        n_dst: 1,
        count,
        scalars: std::ptr::null(),
        divisor: 1,
        plain: 1,
        is_far: false,
    };
    let kernel = select(isa, dtype, Arm::Sum);
    let before = control_word();
    set_control_word(UNUSUAL);
    {
        let _environment = environment();
        // SAFETY: live vectors of `count` elements; the instruction set is from `available`.
        unsafe { std::hint::black_box(kernel).run(std::hint::black_box(&args)) };
    }
    let after = control_word();
    set_control_word(before);
    assert_eq!(without_flags(after), without_flags(UNUSUAL), "the caller's word is restored");
    result[0]
}

/// x86-64 keeps sticky exception flags in the lowest six bits of the same word.
fn without_flags(word: u64) -> u64 {
    if cfg!(target_arch = "x86_64") {
        word & !0x3f
    } else {
        word
    }
}

#[test]
fn subnormals_survive_a_caller_that_flushes_them() {
    let (subnormal, twice) = (f32::from_bits(3), 6);
    for isa in Isa::available() {
        assert_eq!(sum(isa, subnormal, subnormal, || Some(FloatEnvironment::round_to_nearest())), twice);
        assert_ne!(sum(isa, subnormal, subnormal, || None), twice, "without the guard the caller's word rules");
    }
}

#[test]
fn subnormals_of_small_floats_survive_too() {
    let guard = || Some(FloatEnvironment::round_to_nearest());
    for isa in Isa::available() {
        let halves = [3u16, 0x8001].map(u16::to_ne_bytes);
        assert_eq!(sum_of(isa, DType::F16, halves[0], halves[1], guard), 2u16.to_ne_bytes());
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            assert_eq!(sum_of(isa, dtype, [3], [0x81], guard), [2]);
        }
    }
}

#[test]
fn sums_round_to_nearest_for_a_caller_that_rounds_up() {
    let tiny = 1e-20;
    for isa in Isa::available() {
        assert_eq!(sum(isa, 1.0, tiny, || Some(FloatEnvironment::round_to_nearest())), 1f32.to_bits());
        assert_ne!(sum(isa, 1.0, tiny, || None), 1f32.to_bits(), "without the guard the caller's word rules");
    }
}

#[test]
fn guards_nest() {
    let before = control_word();
    set_control_word(UNUSUAL);
    let outer = FloatEnvironment::round_to_nearest();
    let inner = FloatEnvironment::round_to_nearest();
    drop(inner);
    let between = control_word();
    drop(outer);
    let after = control_word();
    set_control_word(before);
    assert_eq!(without_flags(between), without_flags(before));
    assert_eq!(without_flags(after), without_flags(UNUSUAL));
}
