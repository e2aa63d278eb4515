//! What does running a plan cost beside its kernel? A plan of one step, 1 KiB from each of two ranks, against the same
//! kernel called directly on the same buffers.
//!
//! ```text
//! cargo bench -p nvcoll-engine --bench interpreter
//! ```
//!
//! The difference of the two is all that the node does for a call: its lock, base addresses, floating-point environment,
//! claims, addresses of the step, deadline. Bar: 10 % or 15 ns.

use std::hint::black_box;
use std::time::Duration;

use criterion::{criterion_group, criterion_main, Criterion};
use nvcoll_core::builder::Builder;
use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::verify;
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::kernel::{select, Args, Arm, Isa};
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::{Buffers, Deadline};

const COUNT: usize = 256;

fn one_step(criterion: &mut Criterion) {
    let mut builder = Builder::new(&ALL_REDUCE, Roles::of(2), Aliasing::InPlace).unwrap();
    let (inputs, outputs) = (builder.inputs(), builder.outputs());
    builder.fold(&inputs, &outputs);
    let schedule = builder.finish("one_step").unwrap();
    assert_eq!(schedule.steps.len(), 1);
    let proof = verify(schedule).unwrap();
    let call = Call {
        collective: &ALL_REDUCE,
        algorithm: "one_step".into(),
        dtype: DType::F32,
        op: Op::Sum,
        counts: Counts::Even(COUNT),
        root: 0,
        path: Path::Mapped,
        aliasing: Aliasing::InPlace,
        is_path_agreed: false,
        purpose: CallPurpose::Itself,
    };
    let node = Node::new(2, None).unwrap();
    let program = node.program(&call, Some(&proof)).unwrap();
    let mut data = [[0f32; COUNT]; 2];
    let starts = data.each_mut().map(|x| x.as_mut_ptr().cast::<u8>());

    let mut group = criterion.benchmark_group("one step of 1 KiB");
    group.bench_function("kernel", |bencher| {
        let sources = starts.map(|start| start.cast_const());
        let kernel = select(Isa::detect(), DType::F32, Arm::Sum);
        let (src, dst) = (sources.as_ptr(), starts.as_ptr());
        let (scalars, divisor) = (std::ptr::null(), 1);
        let args = Args { src, n_src: 2, dst, n_dst: 2, count: COUNT, scalars, divisor, plain: 2, is_far: false };
        // SAFETY: two live arrays of `COUNT` floats; the instruction set was detected.
        bencher.iter(|| unsafe { black_box(kernel).run(black_box(&args)) });
    });
    group.bench_function("plan", |bencher| {
        let mut buffers = starts.map(|start| Buffers::new(start, start, 1.0));
        // SAFETY: two live arrays of `COUNT` floats, in place, which nobody else touches.
        let mut run = || unsafe { node.run(&program, &mut buffers, Deadline::after(None), &mut || false) };
        bencher.iter(|| run().unwrap());
    });
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    targets = one_step
}
criterion_main!(all);
