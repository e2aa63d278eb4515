//! The instances of the routine: dtype by arm by instruction set.

use super::arm::{self, Arm, Fold};
use super::element::{Bf16, Element};
use super::fold::fold;
#[cfg(target_arch = "x86_64")]
use super::stream::{Avx2, Avx512};
use super::stream::{Baseline, Stream};
use super::{Args, Isa};
use nvcoll_core::dtype::DType;

/// A kernel.
pub(super) type Run = unsafe fn(&Args);

/// Chooses the instance. The number is the elements in a block: 256 bytes of accumulated values, which are four registers
/// of AVX-512 and half the registers of AVX2. Measured: half as many are slower in the first-level cache, because the
/// compiler then unrolls loops before it looks for vectors; twice as many do not fit AVX2's registers.
pub(super) fn select(isa: Isa, dtype: DType, arm: Arm) -> Run {
    match dtype {
        DType::F32 => of_element::<f32, 64>(isa, arm),
        DType::F64 => of_element::<f64, 32>(isa, arm),
        DType::I32 => of_element::<i32, 64>(isa, arm),
        DType::BF16 => of_element::<Bf16, 64>(isa, arm),
    }
}

fn of_element<E: Element, const L: usize>(isa: Isa, arm: Arm) -> Run {
    match arm {
        Arm::Copy => of_width::<E>(isa),
        Arm::Sum => of_arm::<E, arm::Sum, L, 1>(isa),
        Arm::Min => of_arm::<E::ForMin, arm::Min, L, 1>(isa),
        Arm::Max => of_arm::<E::ForMax, arm::Max, L, 1>(isa),
        Arm::SumScaled => of_arm::<E, arm::SumScaled, L, 1>(isa),
        Arm::SumDivided => of_arm::<E, arm::SumDivided, L, 1>(isa),
    }
}

/// A copy is a fold of bytes that has one source.
fn of_width<E: Element>(isa: Isa) -> Run {
    match size_of::<E>() {
        1 => of_arm::<u8, arm::Copy, 256, 1>(isa),
        2 => of_arm::<u8, arm::Copy, 256, 2>(isa),
        4 => of_arm::<u8, arm::Copy, 256, 4>(isa),
        8 => of_arm::<u8, arm::Copy, 256, 8>(isa),
        width => unreachable!("no dtype is {width} bytes wide"),
    }
}

/// `EACH` is how many `E` one element of the caller's is.
fn of_arm<E: Element, F: Fold, const L: usize, const EACH: usize>(isa: Isa) -> Run {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => with_avx512::<E, F, L, EACH>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => with_avx2::<E, F, L, EACH>,
        _ => with_baseline::<E, F, Baseline, L, EACH>,
    }
}

unsafe fn with_baseline<E: Element, F: Fold, S: Stream, const L: usize, const EACH: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { fold::<E, F, S, L>(args, args.count * EACH) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<E: Element, F: Fold, const L: usize, const EACH: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { fold::<E, F, Avx2, L>(args, args.count * EACH) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<E: Element, F: Fold, const L: usize, const EACH: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { fold::<E, F, Avx512, L>(args, args.count * EACH) }
}
