//! Kernels: fold k sources into m destinations.
//!
//! ```text
//! for every block of elements:
//!     acc = load(src[0]);  for s in 1..k: acc = fold(acc, load(src[s]))        in source order, in the accumulation type
//!     finish(acc)                                                              divide, round once
//!     for d in 0..m: store(dst[d], acc)
//! ```
//!
//! All sources of a block are read before a destination is written, so a destination may be exactly a source. One generic
//! routine ([`block`]) is compiled once per instruction set; the compiler vectorises it, and since it neither reassociates
//! nor fuses, every instruction set gives the same bits. Only non-temporal stores are spelled out. **A dtype is one row
//! of [`element`], an op one arm of [`arm`].**
//!
//! A kernel is chosen once, when a plan is bound; a call is one indirect jump.

mod arm;
mod copy;
mod block;
mod element;
mod environment;
mod stream;

pub use environment::FloatEnvironment;

use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;

/// An instruction set for which the kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every processor of the architecture has.
    Baseline,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// Returns the instruction sets of this processor, the best last.
    pub fn available() -> Vec<Isa> {
        let mut all = vec![Isa::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Isa::Avx2);
            }
            let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if has_avx512 && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
                all.push(Isa::Avx512);
            }
        }
        all
    }

    /// Returns the best instruction set of this processor.
    pub fn detect() -> Isa {
        *Self::available().last().expect("the baseline is always there")
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Baseline if cfg!(target_arch = "aarch64") => "NEON (arm64 baseline)",
            Isa::Baseline => "SSE2 (x86-64 baseline)",
            Isa::Avx2 => "AVX2",
            Isa::Avx512 => "AVX-512",
        }
    }
}

/// What a step does with its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// One source, unchanged.
    Copy,
    /// Addition.
    Sum,
    /// IEEE 754-2019 minimum.
    Min,
    /// IEEE 754-2019 maximum.
    Max,
    /// Each source times its scalar, then addition.
    SumScaled,
    /// Addition, then division.
    SumDivided,
}

impl Arm {
    /// Returns what a step with `n_src` sources does under `op`.
    pub fn of(op: Op, n_src: usize, is_final: bool, has_contribution: bool) -> Arm {
        match op {
            Op::PremulSum if has_contribution => Arm::SumScaled,
            _ if n_src == 1 => Arm::Copy,
            Op::Avg if is_final => Arm::SumDivided,
            Op::Sum | Op::Avg | Op::PremulSum => Arm::Sum,
            Op::Min => Arm::Min,
            Op::Max => Arm::Max,
        }
    }
}

/// What one run of a kernel works on. Pointers may have any alignment.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// The sources.
    pub src: *const *const u8,
    /// How many, at least 1.
    pub n_src: usize,
    /// The destinations.
    pub dst: *const *mut u8,
    /// How many, at least 1.
    pub n_dst: usize,
    /// Elements of each.
    pub count: usize,
    /// One scalar per source for [`Arm::SumScaled`]: 1 where the source is no contribution.
    pub scalars: *const f64,
    /// What [`Arm::SumDivided`] divides by.
    pub divisor: u32,
    /// The first `plain` destinations get ordinary stores, the others non-temporal ones.
    pub plain: usize,
}

/// A kernel for one dtype, arm and instruction set.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(unsafe fn(&Args));

impl Kernel {
    /// Chooses the kernel.
    pub fn select(isa: Isa, dtype: DType, arm: Arm) -> Kernel {
        Kernel(block::select(isa, dtype, arm))
    }

    /// Folds.
    ///
    /// # Safety
    /// `args` names `n_src` sources and `n_dst` destinations of `count` elements each, valid for reads and writes while
    /// no other thread writes the sources or touches the destinations. A destination is exactly a source or disjoint from
    /// all of them; destinations are disjoint. `scalars` has `n_src` values if the arm scales. The instruction set is
    /// available.
    #[inline]
    pub unsafe fn run(&self, args: &Args) {
        // SAFETY: the caller's.
        unsafe { (self.0)(args) }
    }
}
