//! The instances of the routine: dtype by arm by instruction set.
//!
//! Where dtypes give the same bits they share instances. Copies and bitwise arms see bytes; sums and products of integers
//! wrap and are the same with and without sign; complex sums are sums of their parts; bools are bytes under the
//! logical arms.

use super::arm::{self, Arm, Fold};
use super::bfloat16::Bf16;
use super::complex::{Complex, Product};
use super::element::Element;
use super::float16::F16;
use super::float8::{E4M3, E5M2, F8};
use super::fold::fold;
use super::half::Halves;
use super::isa::Isa;
use super::number::{Bits, Float, Number};
use super::run::{Args, Kernel, KernelFunction};
#[cfg(target_arch = "x86_64")]
use super::stream::{Avx2, Avx512};
use super::stream::{Baseline, Stream};
use nvcoll_core::dtype::DType;

/// Chooses the kernel of a dtype, an arm and an instruction set.
///
/// The last number of an instance is the elements in a block: 256 bytes of accumulated values, which are four registers of AVX-512 and
/// half the registers of AVX2. Measured: half as many are slower in the first-level cache, because the compiler then unrolls loops before
/// it looks for vectors; twice as many do not fit AVX2's registers.
///
/// # Panics
/// If the table of ops has no op that leads to `arm` on `dtype`; [`Op::check`](nvcoll_core::op::Op::check) asks it.
pub fn select(isa: Isa, dtype: DType, arm: Arm) -> Kernel {
    match dtype {
        _ if arm == Arm::Copy => of::<u8, arm::Copy, 256>(isa).times(dtype.bytes()),
        DType::F32 => floats::<f32, 64>(isa, arm),
        DType::F64 => floats::<f64, 32>(isa, arm),
        DType::F16 => floats::<F16, 64>(isa, arm),
        DType::BF16 => floats::<Bf16, 64>(isa, arm),
        DType::F8E4M3 => sums::<F8<E4M3>, 64>(isa, arm),
        DType::F8E5M2 => sums::<F8<E5M2>, 64>(isa, arm),
        DType::I8 => integers::<u8, i8, 256>(isa, arm),
        DType::I16 => integers::<u16, i16, 128>(isa, arm),
        DType::I32 => integers::<u32, i32, 64>(isa, arm),
        DType::I64 => integers::<u64, i64, 32>(isa, arm),
        DType::U8 => integers::<u8, u8, 256>(isa, arm),
        DType::U16 => integers::<u16, u16, 128>(isa, arm),
        DType::U32 => integers::<u32, u32, 64>(isa, arm),
        DType::U64 => integers::<u64, u64, 32>(isa, arm),
        DType::Bool => bools(isa, arm),
        DType::C64 => complex::<f32, 64, 32>(isa, arm),
        DType::C128 => complex::<f64, 32, 16>(isa, arm),
    }
}

fn floats<E: Element<Acc: Float>, const L: usize>(isa: Isa, arm: Arm) -> Kernel
where
    E::ForMin: Element<Acc: Number>,
    E::ForMax: Element<Acc: Number>,
{
    match arm {
        Arm::Prod => of::<E, arm::Prod, L>(isa),
        Arm::SumScaled => of::<E, arm::SumScaled, L>(isa),
        _ => sums::<E, L>(isa, arm),
    }
}

/// Chooses among the arms that every float has.
fn sums<E: Element<Acc: Float>, const L: usize>(isa: Isa, arm: Arm) -> Kernel
where
    E::ForMin: Element<Acc: Number>,
    E::ForMax: Element<Acc: Number>,
{
    match arm {
        Arm::Sum => of::<E, arm::Sum, L>(isa),
        Arm::Min => of::<E::ForMin, arm::Min, L>(isa),
        Arm::Max => of::<E::ForMax, arm::Max, L>(isa),
        Arm::SumDivided => of::<E, arm::SumDivided, L>(isa),
        _ => undefined(arm),
    }
}

/// `U` and `I` are of one width; `I` has the sign of the dtype, if it has one.
fn integers<U: Element<Acc: Number + Bits>, I: Element<Acc: Number>, const L: usize>(isa: Isa, arm: Arm) -> Kernel {
    match arm {
        Arm::Sum => of::<U, arm::Sum, L>(isa),
        Arm::Prod => of::<U, arm::Prod, L>(isa),
        Arm::SumScaled => of::<U, arm::SumScaled, L>(isa),
        Arm::Min => of::<I, arm::Min, L>(isa),
        Arm::Max => of::<I, arm::Max, L>(isa),
        Arm::Band => of::<u8, arm::Band, 256>(isa).times(size_of::<U>()),
        Arm::Bor => of::<u8, arm::Bor, 256>(isa).times(size_of::<U>()),
        Arm::Bxor => of::<u8, arm::Bxor, 256>(isa).times(size_of::<U>()),
        Arm::Land => of::<U, arm::Land, L>(isa),
        Arm::Lor => of::<U, arm::Lor, L>(isa),
        _ => undefined(arm),
    }
}

fn bools(isa: Isa, arm: Arm) -> Kernel {
    match arm {
        Arm::Sum | Arm::Max | Arm::Bor | Arm::Lor => of::<u8, arm::Lor, 256>(isa),
        Arm::Prod | Arm::Min | Arm::Band | Arm::Land => of::<u8, arm::Land, 256>(isa),
        Arm::Bxor => of::<u8, arm::Lxor, 256>(isa),
        _ => undefined(arm),
    }
}

/// `L` parts are `HALF_L` numbers.
fn complex<P: Element<Acc: Float>, const L: usize, const HALF_L: usize>(isa: Isa, arm: Arm) -> Kernel
where
    Complex<P>: Element,
    Product: Fold<<Complex<P> as Element>::Acc>,
{
    match arm {
        Arm::Sum => of::<P, arm::Sum, L>(isa).times(2),
        Arm::SumDivided => of::<P, arm::SumDivided, L>(isa).times(2),
        Arm::Prod => of::<Complex<P>, Product, HALF_L>(isa),
        _ => undefined(arm),
    }
}

fn undefined(arm: Arm) -> ! {
    panic!("the table of ops has no {arm:?} on this dtype")
}

/// Whether unit tests or loom models are compiled. They need only right results, so they do without the other
/// instances, which take two thirds of the compiler's time.
const ONLY_BASELINE: bool = cfg!(any(test, loom));

fn of<E: Element, F: Fold<E::Acc>, const L: usize>(isa: Isa) -> Kernel {
    let run: KernelFunction = match isa {
        _ if ONLY_BASELINE => with_baseline::<E, F, Baseline, L>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => with_avx512::<E, F, L>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => with_avx2::<E, F, L>,
        _ => with_baseline::<E, F, Baseline, L>,
    };
    Kernel { run, times: 1 }
}

/// Folds `count` kernel elements with the instructions that every processor of this build has.
///
/// # Safety
/// What [`Kernel::run`] demands of `args`, with `count` kernel elements, and of the instruction set.
unsafe fn with_baseline<E: Element, F: Fold<E::Acc>, S: Stream + Halves, const L: usize>(args: &Args, count: usize) {
    // SAFETY: `fold` demands what `Kernel::run` does, which this function's caller promised for this instruction set.
    unsafe { fold::<E, F, S, L>(args, count) }
}

/// Folds `count` kernel elements with the instructions of AVX2 with F16C.
///
/// # Safety
/// What [`Kernel::run`] demands of `args`, with `count` kernel elements, and of the instruction set.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn with_avx2<E: Element, F: Fold<E::Acc>, const L: usize>(args: &Args, count: usize) {
    // SAFETY: `fold` demands what `Kernel::run` does, which this function's caller promised for this instruction set.
    unsafe { fold::<E, F, Avx2, L>(args, count) }
}

/// Folds `count` kernel elements with the instructions of AVX-512.
///
/// # Safety
/// What [`Kernel::run`] demands of `args`, with `count` kernel elements, and of the instruction set.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<E: Element, F: Fold<E::Acc>, const L: usize>(args: &Args, count: usize) {
    // SAFETY: `fold` demands what `Kernel::run` does, which this function's caller promised for this instruction set.
    unsafe { fold::<E, F, Avx512, L>(args, count) }
}
