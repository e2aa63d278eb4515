//! How near does nvswitch come to what two hand-written loops reach on the same buffers?
//!
//! ```text
//! cargo bench -p nvcoll-engine --bench roofline
//! ```
//!
//! A round runs both once, in an order drawn at random; before each the calling thread writes every buffer anew, after each
//! every element is compared. Both are called from here, so that neither pays for an interpreter whose code the data has
//! driven out of the caches: 3 to 5 us at 1 MiB, which `benches/bars.py` shows. Printed: the median of the rounds' ratios, the
//! bound below it in 95 % of bootstrap resamples, and the bar. It is no criterion benchmark, because a ratio of means taken
//! minutes apart says nothing on a machine whose speed changes.

use std::time::{Duration, Instant};

use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::memory::block::MemoryBlock;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::roofline::{self, StoreMode};
use nvcoll_engine::system::cpus;
use nvcoll_engine::{Buffers, Deadline};

/// Rounds that do not count: they start threads, bind and touch pages.
const WARM_UP: usize = 5;

/// Buffers of one size, what is written to them before each run, and what they hold after it.
struct Data {
    blocks: Vec<MemoryBlock>,
    fresh: Vec<Vec<f32>>,
    expected: Vec<f32>,
}

impl Data {
    fn new(ranks: usize, count: usize) -> Self {
        let fresh: Vec<Vec<f32>> =
            (0..ranks).map(|r| (0..count).map(|i| (i % 1013) as f32 * 0.37 + r as f32).collect()).collect();
        let expected = (0..count).map(|i| fresh[1..].iter().fold(fresh[0][i], |sum, x| sum + x[i])).collect();
        let blocks = (0..ranks).map(|_| MemoryBlock::try_unset(count * size_of::<f32>()).expect("memory")).collect();
        Self { blocks, fresh, expected }
    }

    fn starts(&self) -> Vec<*mut f32> {
        self.blocks.iter().map(|block| block.start().cast()).collect()
    }

    fn rewrite(&self) {
        for (start, fresh) in self.starts().into_iter().zip(&self.fresh) {
            // SAFETY: a block and `fresh` hold the same number of floats, and nobody else touches it between runs.
            unsafe { std::ptr::copy_nonoverlapping(fresh.as_ptr(), start, fresh.len()) };
        }
    }

    fn check(&self) {
        for start in self.starts() {
            // SAFETY: as above; every float was written.
            let found = unsafe { std::slice::from_raw_parts(start, self.expected.len()) };
            assert!(found == self.expected, "a wrong sum");
        }
    }
}

/// Returns the ratios of the roofline's time to nvswitch's, one per round.
fn ratios(ranks: u32, bytes: usize, rounds: usize, random: &mut Random) -> Vec<f64> {
    let count = bytes / size_of::<f32>();
    let data = Data::new(ranks as usize, count);
    let call = Call {
        collective: &ALL_REDUCE,
        algorithm: "nvswitch".into(),
        dtype: DType::F32,
        op: Op::Sum,
        counts: Counts::Even(count),
        root: 0,
        path: Path::Mapped,
        aliasing: Aliasing::InPlace,
        is_path_agreed: false,
        purpose: CallPurpose::Itself,
    };
    let node = Node::new(ranks, None).expect("a node");
    let program = node.program(&call, None).expect("a proof");
    let starts = data.starts();
    let buffer = |&start: &*mut f32| Buffers::new(start.cast(), start.cast(), 1.0);
    let mut buffers: Vec<Buffers> = starts.iter().map(buffer).collect();
    let mut nvswitch = || {
        let start = Instant::now();
        // SAFETY: live blocks of `count` floats, in place, which nobody else touches.
        unsafe { node.run(&program, &mut buffers, Deadline::after(None), &mut || false) }.expect("a sum");
        start.elapsed()
    };
    // SAFETY: as above.
    let mut roof = || unsafe { roofline::run(node.workers(), &starts, count, StoreMode::Plain) };
    let fresh = |run: &mut dyn FnMut() -> Duration| {
        data.rewrite();
        let time = run();
        data.check();
        time.as_secs_f64()
    };
    let mut round = |_| {
        if random.below(2) == 0 {
            let ours = fresh(&mut nvswitch);
            fresh(&mut roof) / ours
        } else {
            let roof = fresh(&mut roof);
            roof / fresh(&mut nvswitch)
        }
    };
    (0..WARM_UP + rounds).map(&mut round).skip(WARM_UP).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the value that 95 % of the medians of resamples are above.
fn lower_bound(ratios: &[f64], random: &mut Random) -> f64 {
    let resample = |random: &mut Random| (0..ratios.len()).map(|_| ratios[random.below(ratios.len())]).collect();
    let mut medians: Vec<f64> = (0..1000).map(|_| median(resample(random))).collect();
    medians.sort_unstable_by(f64::total_cmp);
    medians[50]
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn main() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    println!("nvswitch, float32 sum in place, of the roofline's speed; {} workers", cpus::usable());
    println!("ranks     bytes  median   bound   bar");
    for (ranks, bar) in [(2, 0.95), (8, 0.9)] {
        for (mib, rounds) in [(1, 300), (4, 150), (16, 60), (64, 25)] {
            let ratios = ratios(ranks, mib << 20, rounds, &mut random);
            let bound = lower_bound(&ratios, &mut random);
            println!("{ranks:5}  {mib:3} MiB  {:8.3}  {bound:6.3}  {bar:4}", median(ratios));
        }
    }
}
