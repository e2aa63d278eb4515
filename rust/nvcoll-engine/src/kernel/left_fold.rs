//! A left fold on the calling thread, without ranks or a schedule, that may continue another and be continued by one.
//!
//! ```text
//! out = carry op sources[0] op sources[1] …         with the bits of one fold of all sources in that order
//! ```
//!
//! Ranks of several hosts reduce in the order of ranks this way: each host continues the fold of the host before it. A sum or product of
//! small floats is rounded once at the end, so between hosts it is *wide*: in the accumulator of its dtype.
//!
//! If no vector is wide, it is one run of a kernel. Else it goes through [`BLOCK`] elements at a time, which stay in the first-level
//! cache: each source is widened and folded by the kernels of the accumulator. Cost: every vector read or written once.

use super::arm::Arm;
use super::environment::FloatEnvironment;
use super::isa::Isa;
use super::run::{Args, Kernel};
use super::select::select;
use super::wide::{conversions, Conversions};
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;

/// The elements that a wide fold takes through all sources at a time. Chosen: two blocks of float32 are a sixth of a first-level cache.
const BLOCK: usize = 1024;

/// The place of a vector of elements.
#[derive(Debug, Clone, Copy)]
pub struct Vector {
    /// The first element, at any alignment.
    pub start: *mut u8,
    /// Whether its elements are of the accumulator of the dtype.
    pub is_wide: bool,
}

/// A left fold of vectors.
#[derive(Debug, Clone, Copy)]
pub struct LeftFold<'a> {
    /// The dtype of vectors that are not wide.
    pub dtype: DType,
    /// The operation, defined on the dtype. `avg` adds.
    pub op: Op,
    /// The result of the sources before these, if there are any.
    pub carry: Option<Vector>,
    /// The sources, at least one.
    pub sources: &'a [*const u8],
    /// Whether the elements of the sources are of the accumulator of the dtype.
    pub are_sources_wide: bool,
    /// For `premul_sum`, the scalar of each source.
    pub scalars: &'a [f64],
    /// For `avg`, the divisor if the fold is complete.
    pub divisor: Option<u32>,
    /// The destination.
    pub out: Vector,
    /// The number of elements of every vector.
    pub count: usize,
}

// SAFETY: a fold is addresses and numbers. Following an address is unsafe and happens in `run`, whose caller says what other threads do.
unsafe impl Sync for LeftFold<'_> {}

impl LeftFold<'_> {
    /// Folds on the calling thread.
    ///
    /// # Panics
    /// If a vector is wide, and the dtype accumulates in itself or the op is neither a sum, a product nor an average; if sources and `out`
    /// are wide, which is a fold of the accumulator.
    ///
    /// # Safety
    /// Sources and carry are valid for reads of `count` elements that no other thread writes, `out` for writes of elements that no other
    /// thread touches. `out` is exactly a source, or the carry, with elements of the same width, or shares no byte with them.
    pub unsafe fn run(&self) {
        let _environment = FloatEnvironment::round_to_nearest();
        let isa = Isa::detect();
        // SAFETY: both demand what this function does, and an instruction set that is there.
        unsafe {
            match self.are_sources_wide || self.out.is_wide || self.carry.is_some_and(|carry| carry.is_wide) {
                true => self.run_wide(isa),
                false => self.run_at_once(isa),
            }
        }
    }

    /// Folds all elements with one kernel of the dtype.
    ///
    /// # Safety
    /// What [`LeftFold::run`] demands; the instruction set is available; no vector is wide.
    unsafe fn run_at_once(&self, isa: Isa) {
        let carry = self.carry.iter().map(|carry| carry.start.cast_const());
        let sources: Vec<*const u8> = carry.chain(self.sources.iter().copied()).collect();
        let scalars: Vec<f64> = self.carry.iter().map(|_| 1.0).chain(self.scalars.iter().copied()).collect();
        let arm = match self.divisor {
            Some(_) => Arm::SumDivided,
            None => Arm::of(self.op, sources.len(), false, true),
        };
        let kernel = select(isa, self.dtype, arm);
        // SAFETY: this function demands of the vectors what `fold` does, and there is a scalar for each if the op has them.
        unsafe { fold(kernel, &sources, &scalars, self.divisor, self.out.start, self.count) };
    }

    /// Folds block by block in the accumulator.
    ///
    /// # Safety
    /// What [`LeftFold::run`] demands; the instruction set is available.
    unsafe fn run_wide(&self, isa: Isa) {
        let wide = conversions(isa, self.dtype).expect("a wide vector of a dtype that accumulates in another");
        assert!(matches!(self.op, Op::Sum | Op::Prod | Op::Avg | Op::PremulSum), "{} rounds nothing", self.op);
        assert!(!(self.are_sources_wide && self.out.is_wide), "sources and `out` are wide");
        let accumulator = self.dtype.accumulator();
        let step = select(isa, accumulator, Arm::of(self.op, 2, false, true));
        let divide = self.divisor.map(|divisor| (select(isa, accumulator, Arm::SumDivided), divisor));
        let kernels = WideKernels { wide, step, divide };
        for begin in (0..self.count).step_by(BLOCK) {
            // SAFETY: the elements from `begin` on are the caller's.
            unsafe { self.run_block(&kernels, begin, BLOCK.min(self.count - begin)) };
        }
    }

    /// Folds one block.
    ///
    /// # Safety
    /// As [`LeftFold::run_wide`], for elements `begin` to `begin + count`, at most a block.
    unsafe fn run_block(&self, kernels: &WideKernels, begin: usize, count: usize) {
        let width = |is_wide| if is_wide { self.dtype.accumulator().bytes() } else { self.dtype.bytes() };
        let at = |start: *const u8, is_wide| start.wrapping_add(begin * width(is_wide));
        let out = at(self.out.start, self.out.is_wide).cast_mut();
        let (mut own, mut next) = ([0_f32; BLOCK], [0_f32; BLOCK]);
        let (own, next) = (own.as_mut_ptr().cast::<u8>(), next.as_mut_ptr().cast::<u8>());
        let total = if self.out.is_wide { out } else { own };
        // SAFETY: blocks of all vectors are the caller's, and the two arrays have room for one. Where `out` is the carry or a source, it
        // is exactly that: a kernel then reads and writes one place, or the block is written when all of it has been read.
        unsafe {
            let widened = |start: *const u8, is_wide: bool, room: *mut u8| match is_wide {
                true => at(start, true),
                false => {
                    (kernels.wide.widen)(at(start, false), room, count);
                    room.cast_const()
                }
            };
            let mut so_far = self.carry.map(|carry| widened(carry.start, carry.is_wide, own));
            for (nth, &source) in self.sources.iter().enumerate() {
                let next = widened(source, self.are_sources_wide, next);
                let scalars = [1.0, self.scalars.get(nth).copied().unwrap_or(1.0)];
                match so_far {
                    Some(so_far) => fold(kernels.step, &[so_far, next], &scalars, None, total, count),
                    None => fold(kernels.step, &[next], &scalars[1..], None, total, count),
                }
                so_far = Some(total);
            }
            if let Some((divide, divisor)) = kernels.divide {
                fold(divide, &[total], &[1.0], Some(divisor), total, count);
            }
            if !self.out.is_wide {
                (kernels.wide.narrow)(total, out, count);
            }
        }
    }
}

/// What a wide fold runs on each block.
struct WideKernels {
    wide: Conversions,
    /// Folds a source onto the sources before it.
    step: Kernel,
    divide: Option<(Kernel, u32)>,
}

/// Runs a kernel with one destination.
///
/// # Safety
/// What [`Kernel::run`] demands.
unsafe fn fold(kernel: Kernel, src: &[*const u8], scalars: &[f64], divisor: Option<u32>, to: *mut u8, count: usize) {
    let args = Args {
        src: src.as_ptr(),
        n_src: src.len(),
        dst: &to,
        n_dst: 1,
        count,
        scalars: scalars.as_ptr(),
        divisor: divisor.unwrap_or(1),
        plain: 1,
        is_far: false,
    };
    // SAFETY: this function demands what `run` does.
    unsafe { kernel.run(&args) };
}
