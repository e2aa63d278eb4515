//! The one routine, and its instances: dtype by arm by instruction set.
//!
//! Elements go in blocks of [`LANES`]: enough independent additions to hide their latency, few enough to stay in
//! registers. What remains goes in eighths of a block and then one by one; all three do the same arithmetic.
//!
//! Non-temporal stores are the 16-byte ones that every x86-64 has: four fill a line in the write-combining buffer. A
//! destination that is not 16-byte aligned at a block gets ordinary stores; the first elements are peeled so that the first
//! streaming destination is aligned to a line.

use super::arm::{Fold, Max, Min, Sum, SumDivided, SumScaled};
use super::element::{Bf16, Element, Number};
use super::{Args, Arm, Isa};
use nvcoll_core::dtype::DType;

/// Elements in a block: four AVX-512 registers of f32. Chosen.
const LANES: usize = 64;

/// A cache line.
const LINE_BYTES: usize = 64;

/// Chooses the instance.
pub(super) fn select(isa: Isa, dtype: DType, arm: Arm) -> unsafe fn(&Args) {
    match dtype {
        DType::F32 => of_element::<f32>(isa, arm),
        DType::F64 => of_element::<f64>(isa, arm),
        DType::I32 => of_element::<i32>(isa, arm),
        DType::BF16 => of_element::<Bf16>(isa, arm),
    }
}

fn of_element<E: Element>(isa: Isa, arm: Arm) -> unsafe fn(&Args) {
    match arm {
        Arm::Copy => super::copy::select::<E>(),
        Arm::Sum => of_arm::<E, Sum>(isa),
        Arm::Min => of_arm::<E, Min>(isa),
        Arm::Max => of_arm::<E, Max>(isa),
        Arm::SumScaled => of_arm::<E, SumScaled>(isa),
        Arm::SumDivided => of_arm::<E, SumDivided>(isa),
    }
}

fn of_arm<E: Element, F: Fold>(isa: Isa) -> unsafe fn(&Args) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => with_avx512::<E, F>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => with_avx2::<E, F>,
        _ => fold_all::<E, F>,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<E: Element, F: Fold>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { fold_all::<E, F>(args) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<E: Element, F: Fold>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { fold_all::<E, F>(args) }
}

#[inline(always)]
unsafe fn fold_all<E: Element, F: Fold>(args: &Args) {
    let (mut at, count) = (0, args.count);
    let is_streaming = args.plain < args.n_dst;
    // SAFETY: every block lies below `count`, for which the caller vouches.
    unsafe {
        if is_streaming {
            let misplaced = (*args.dst.add(args.plain)).align_offset(LINE_BYTES) / size_of::<E>();
            let peeled = misplaced.min(count);
            while at < peeled {
                block::<E, F, 1>(args, at, false);
                at += 1;
            }
        }
        while at + LANES <= count {
            block::<E, F, LANES>(args, at, is_streaming);
            at += LANES;
        }
        while at + LANES / 8 <= count {
            block::<E, F, { LANES / 8 }>(args, at, false);
            at += LANES / 8;
        }
        while at < count {
            block::<E, F, 1>(args, at, false);
            at += 1;
        }
    }
    if is_streaming {
        super::stream::fence();
    }
}

/// Folds `L` elements from element `at` on.
///
/// # Safety
/// `at + L <= args.count`, and what [`super::Kernel::run`] demands.
#[inline(always)]
unsafe fn block<E: Element, F: Fold, const L: usize>(args: &Args, at: usize, is_streaming: bool) {
    // SAFETY: indices are below n_src, n_dst and count; loads and stores are unaligned ones of `L` elements.
    unsafe {
        let mut acc = source::<E, F, L>(args, 0, at);
        for s in 1..args.n_src {
            let next = source::<E, F, L>(args, s, at);
            for l in 0..L {
                acc[l] = F::fold(acc[l], next[l]);
            }
        }
        if F::DIVIDES {
            acc = acc.map(|value| value.divide(args.divisor));
        }
        let result = acc.map(E::round);
        for d in 0..args.n_dst {
            let to = (*args.dst.add(d)).cast::<E>().add(at);
            if is_streaming && d >= args.plain && super::stream::is_aligned(to.cast()) {
                super::stream::store(to.cast(), &result);
            } else {
                to.cast::<[E; L]>().write_unaligned(result);
            }
        }
    }
}

#[inline(always)]
unsafe fn source<E: Element, F: Fold, const L: usize>(args: &Args, s: usize, at: usize) -> [E::Acc; L] {
    // SAFETY: as in `block`.
    unsafe {
        let stored = (*args.src.add(s)).cast::<E>().add(at).cast::<[E; L]>().read_unaligned();
        let values = stored.map(E::load);
        if F::SCALES {
            let scalar = E::Acc::from_scalar(*args.scalars.add(s));
            values.map(|value| value.multiply(scalar))
        } else {
            values
        }
    }
}
