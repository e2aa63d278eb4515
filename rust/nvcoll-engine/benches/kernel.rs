//! How many GB/s does a kernel read and write, by dtype, arm and instruction set, and what do two hand-written loops reach?
//!
//! ```text
//! cargo bench -p nvcoll-engine --bench kernel                    the short list: five minutes
//! cargo bench -p nvcoll-engine --bench kernel -- bfloat16/sum    any part of the whole: dtype/arm/k to m/stores/isa/KiB
//! ```
//!
//! Throughput counts every source read and every destination written once. Folds of k sources into k destinations are in
//! place, as in an all-reduce; `roofline` is the same work by [`nvcoll_engine::roofline`] on one thread. Data stays where
//! the last iteration left it: small sizes measure caches. Buffers begin 16 bytes after a page, as large numpy arrays do.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nvcoll_core::dtype::{DType, Kind};
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::{select, Args, Arm, Isa};
use nvcoll_engine::memory::block::MemoryBlock;
use nvcoll_engine::roofline::{self, StoreMode};
use std::time::Duration;

const SHAPES: [(usize, usize); 4] = [(1, 1), (2, 1), (2, 2), (8, 8)];
const KIB: [usize; 5] = [1, 64, 1 << 10, 16 << 10, 64 << 10];

/// Where a large numpy array begins in its first page.
const OFFSET_BYTES: usize = 16;

struct Buffers {
    _blocks: Vec<MemoryBlock>,
    src: Vec<*const u8>,
    dst: Vec<*mut u8>,
}

/// `k` sources; `k` destinations are the sources, fewer are blocks of their own.
fn buffers(k: usize, m: usize, bytes: usize) -> Buffers {
    let fresh = if k == m && k > 1 { 0 } else { m };
    let blocks: Vec<MemoryBlock> =
        (0..k + fresh).map(|_| MemoryBlock::try_zeroed(bytes + OFFSET_BYTES).expect("memory")).collect();
    let starts: Vec<*mut u8> = blocks.iter().map(|block| block.start().wrapping_add(OFFSET_BYTES)).collect();
    // SAFETY: every start has `bytes` bytes in its block; zeros would leave pages untouched.
    starts.iter().for_each(|start| unsafe { start.write_bytes(1, bytes) });
    let dst = if fresh == 0 { starts.clone() } else { starts[k..].to_vec() };
    Buffers { src: starts[..k].iter().map(|start| start.cast_const()).collect(), dst, _blocks: blocks }
}

fn arms(dtype: DType) -> Vec<Arm> {
    let marks = [(false, false), (true, false), (false, true)];
    let ops = Op::ALL.iter().filter(|op| op.is_defined_on(dtype));
    let mut arms: Vec<Arm> = ops.flat_map(|op| marks.map(|(last, first)| Arm::of(*op, 2, last, first))).collect();
    arms.push(Arm::Copy);
    arms.sort_by_key(|arm| *arm as u8);
    arms.dedup();
    arms
}

/// The short list: every dtype and arm in one place, every instruction set and size for the sums that people time.
fn is_short(dtype: DType, arm: Arm, (k, m): (usize, usize), kib: usize, isa: Isa, is_plain: bool) -> bool {
    let is_timed = matches!(dtype.kind(), Kind::Float | Kind::Float8) && arm == Arm::Sum;
    let is_main = is_plain && isa == Isa::detect() && (k, m) == (8, 8) && kib <= 16 << 10;
    let is_central = is_plain && (k, m) == (8, 8) && kib == 64;
    (is_timed && (is_main || is_central)) || (isa == Isa::detect() && is_central)
}

fn kernels(criterion: &mut Criterion) {
    let is_filtered = std::env::args().skip(1).any(|word| !word.starts_with('-'));
    for &dtype in DType::ALL {
        for arm in arms(dtype) {
            for (k, m) in SHAPES.into_iter().filter(|(k, m)| (*k == 1) == (arm == Arm::Copy) || (*k, *m) == (8, 8)) {
                let k = if arm == Arm::Copy { 1 } else { k };
                for is_plain in [true, false] {
                    let stores = if is_plain { "plain" } else { "non-temporal" };
                    let name = format!("{}/{}/{k} to {m}/{stores}", dtype.name(), format!("{arm:?}").to_lowercase());
                    let mut group = criterion.benchmark_group(&name);
                    for (isa, kib) in Isa::available().into_iter().flat_map(|isa| KIB.map(|kib| (isa, kib))) {
                        if is_filtered || is_short(dtype, arm, (k.max(m), m), kib, isa, is_plain) {
                            let bytes = kib << 10;
                            group.throughput(Throughput::BytesDecimal((bytes * (k + m)) as u64));
                            group.bench_function(BenchmarkId::new(isa.name(), format!("{kib} KiB")), |bencher| {
                                let buffers = buffers(k, m, bytes);
                                let scalars = vec![1.0; k];
                                let args = Args {
                                    src: buffers.src.as_ptr(),
                                    n_src: k,
                                    dst: buffers.dst.as_ptr(),
                                    n_dst: m,
                                    count: bytes / dtype.bytes(),
                                    scalars: scalars.as_ptr(),
                                    divisor: 1,
                                    plain: if is_plain { m } else { 0 },
                                    is_far: kib >= 1024,
                                };
                                let kernel = select(isa, dtype, arm);
                                // SAFETY: live blocks of `bytes` bytes; the instruction set is from `available`.
                                bencher.iter(|| unsafe { kernel.run(&args) });
                            });
                        }
                    }
                    group.finish();
                }
            }
        }
    }
}

fn roofline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("roofline/float32/sum/8 to 8");
    for kib in KIB.into_iter().take(3) {
        let bytes = kib << 10;
        group.throughput(Throughput::BytesDecimal((bytes * 16) as u64));
        group.bench_function(BenchmarkId::new("one thread", format!("{kib} KiB")), |bencher| {
            let buffers = buffers(8, 8, bytes);
            let starts: Vec<*mut f32> = buffers.dst.iter().map(|start| start.cast()).collect();
            bencher.iter_custom(|iterations| {
                // SAFETY: eight live blocks of `bytes` bytes.
                let run = |_| unsafe { roofline::run(1, &starts, bytes / 4, StoreMode::Plain) };
                (0..iterations).map(run).sum()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots();
    targets = kernels, roofline
}
criterion_main!(all);
