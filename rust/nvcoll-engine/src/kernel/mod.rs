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
//! routine (`fold`) is compiled once per instruction set; the compiler vectorises it, and since it neither reassociates
//! nor fuses, every instruction set gives the same bits. Only non-temporal stores and the conversions of float16 are spelled
//! out. **A dtype is one row of `element`, an op one arm of `arm`**, and a line of `select` each; [`mod@reference`] says the same things slowly.
//!
//! A kernel is chosen once, when a plan is bound; a call is one indirect jump. Cost: every source read once, every
//! destination written once. What it does not do: check anything, or set the floating-point environment
//! ([`FloatEnvironment`] does, once per call of a plan).

mod arm;
mod bfloat16;
mod complex;
mod element;
mod environment;
mod float16;
mod float8;
mod fold;
mod half;
mod isa;
mod number;
mod ordered;
mod prefetch;
pub mod reference;
mod select;
mod stream;

pub use arm::Arm;
pub use environment::FloatEnvironment;
pub use isa::Isa;

use nvcoll_core::dtype::DType;

/// The arguments of one run of a kernel. Pointers may have any alignment.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// The sources.
    pub src: *const *const u8,
    /// The number of sources, at least 1.
    pub n_src: usize,
    /// The destinations.
    pub dst: *const *mut u8,
    /// The number of destinations, at least 1.
    pub n_dst: usize,
    /// The number of elements of each source and destination.
    pub count: usize,
    /// One scalar per source for [`Arm::SumScaled`]; 1 for a source that is not a contribution.
    pub scalars: *const f64,
    /// The divisor of [`Arm::SumDivided`].
    pub divisor: u32,
    /// The number of destinations that get ordinary stores; the later ones get non-temporal stores.
    pub plain: usize,
    /// Whether the sources are too long for a near cache, so that prefetching pays.
    pub is_far: bool,
}

/// A kernel for one dtype, arm and instruction set.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    run: select::KernelFunction,
    /// Kernel elements per caller element (2 for complex sums).
    times: u8,
}

impl PartialEq for Kernel {
    /// Says whether both certainly compute the same; equal kernels may differ in address.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.run, other.run) && self.times == other.times
    }
}

impl Kernel {
    /// Chooses the kernel.
    ///
    /// # Panics
    /// If the table of ops has no op that leads to `arm` on `dtype`; [`Op::check`](nvcoll_core::op::Op::check) asks it.
    pub fn select(isa: Isa, dtype: DType, arm: Arm) -> Kernel {
        select::select(isa, dtype, arm)
    }

    /// Sets the number of kernel elements per caller element.
    fn times(self, times: usize) -> Kernel {
        Kernel { times: times as u8, ..self }
    }

    /// Folds the sources into every destination.
    ///
    /// # Safety
    /// `args` names `n_src` sources and `n_dst` destinations of `count` elements each, valid for reads and writes while
    /// no other thread writes the sources or touches the destinations. A destination is exactly a source or disjoint from
    /// all of them; destinations are disjoint. `scalars` has `n_src` values if the arm scales. The instruction set is
    /// available.
    #[inline]
    pub unsafe fn run(&self, args: &Args) {
        // SAFETY: the function was selected for an instruction set that `Isa::check` found, and demands what this one does.
        unsafe { (self.run)(args, args.count * usize::from(self.times)) }
    }
}
