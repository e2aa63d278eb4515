//! How many events does virtual time pass in a second? An event is the completion of one step on one link.
//!
//! ```text
//! cargo bench -p nvcoll-fabric --bench simulate
//! ```
//!
//! Each line is the best of some rounds on one core: schedules are built and flattened beforehand, and that is timed
//! apart. Every transfer is two events of the clock; links are filled anew for the component that changes.
#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{link, machine, medium, partition, schedule, star};
use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Buffer, Dependency, Event, Path, Schedule, Source, Step, View};
use nvcoll_fabric::hardware::media::LinkFamily;
use nvcoll_fabric::hardware::{DeviceKind, Fabric};
use nvcoll_fabric::simulate::{protocol, AtSwitch, Detail, Settings, Simulation};

fn main() {
    let is_named = |name: &str| std::env::args().skip(1).all(|arg| arg.starts_with('-') || name.contains(&arg));
    let cases: [(&str, Make); 6] = [
        ("uncontended", uncontended),
        ("uncontended in turns", || in_turns(4)),
        ("uncontended by clock", || in_turns(16)),
        ("max-min over 64", sixty_four),
        ("ring of 1,024", ring),
        ("two_level of 16,384", two_level),
    ];
    for (name, case) in cases.iter().filter(|(name, _)| is_named(name)) {
        run(name, &case());
    }
}

type Make = fn() -> Case;

struct Case {
    schedule: Schedule,
    partition: Partition,
    fabric: Fabric,
    /// Links that the transfer of a step crosses.
    crossings: u64,
    slice_bytes: u64,
}

fn run(name: &str, case: &Case) {
    for detail in [Detail::Ends, Detail::Path] {
        let protocol = protocol::named("simple").unwrap();
        let at_switch = AtSwitch::Ignore;
        let settings = Settings { detail, at_switch, ..Settings::new(protocol, case.slice_bytes) };
        let begin = Instant::now();
        let simulation = Simulation::new(&case.schedule, &case.partition, DType::U8, &case.fabric, &settings).unwrap();
        let flattening = begin.elapsed();
        let mut best = Duration::MAX;
        let mut total = 0;
        for _ in 0..3 {
            let begin = Instant::now();
            total = simulation.run().unwrap().total_ps();
            best = best.min(begin.elapsed());
        }
        let events = simulation.steps() * case.crossings;
        println!(
            "{name:20} {:16} {:>7.1} M events  {:>8.1} ms  {:>6.1} M/s   flattening {:>7.1} ms   virtual {:.3} ms",
            format!("{detail:?}"),
            events as f64 / 1e6,
            best.as_secs_f64() * 1e3,
            events as f64 / best.as_secs_f64() / 1e6,
            flattening.as_secs_f64() * 1e3,
            total as f64 / 1e9
        );
    }
}

/// A copy of a chunk from a rank's input to another's output.
fn copy(rank: u32, queue: u32, index: u32, from: u32, chunk: u32) -> Step {
    let view = |rank, buffer| View { rank, buffer, chunks: chunk..chunk + 1 };
    Step {
        rank,
        queue,
        index,
        src: vec![Source { view: view(from, Buffer::Input), contribution: None }],
        dst: vec![view(rank, Buffer::Output)],
        is_final: false,
        at_switch: false,
        after: Vec::new(),
    }
}

fn all_reduce_of(world_size: u32, chunks: u32, steps: Vec<Step>) -> Schedule {
    let mut schedule = schedule(&ALL_REDUCE, "ring", 2, Path::Mapped);
    schedule.leave = vec![Vec::new(); world_size as usize];
    (schedule.world_size, schedule.chunks_per_part, schedule.steps) = (world_size, chunks, steps);
    schedule
}

/// Numbers without pattern (Marsaglia's xorshift, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(end)) as u32
    }
}

/// Chunks of a thousand lengths, so that nothing ends at the same time as anything else.
fn uneven(chunks: u32) -> (u32, Partition) {
    // Parts of one chunk each have any length; the schedule takes chunks by number.
    let mut random = Random(1);
    let counts = (0..chunks).map(|_| 100_000 + random.below(1_000_000) as usize).collect();
    (chunks, Partition::new(counts, 1))
}

/// 64 pairs, each with a link of its own, a thousand copies one after the other.
fn uncontended() -> Case {
    let mut fabric = machine(&[DeviceKind::Gpu; 128]);
    for pair in 0..64 {
        link(
            &mut fabric,
            &format!("gpu{}", 2 * pair),
            &format!("gpu{}", 2 * pair + 1),
            medium(LinkFamily::Nvlink, 10.0, 100),
        );
    }
    let (chunks, partition) = uneven(1000);
    let steps = (0..64)
        .flat_map(|pair| (0..4000).map(move |nth| copy(2 * pair, 0, nth, 2 * pair + 1, (nth * 7 + pair) % 1000)));
    Case {
        schedule: all_reduce_of(128, chunks, steps.collect()),
        partition,
        fabric,
        crossings: 1,
        slice_bytes: u64::MAX,
    }
}

/// The same copies at the same times, by `queues` queues of each GPU in turns. If the queues are many, only the clock
/// tells that each copy is alone.
fn in_turns(queues: u32) -> Case {
    let mut case = uncontended();
    for step in &mut case.schedule.steps {
        let nth = step.index;
        (step.queue, step.index) = (nth % queues, nth / queues);
        let before = nth.checked_sub(1).map(|nth| Event::Step { queue: nth % queues, index: nth / queues });
        step.after = before.map(|event| Dependency { rank: step.rank, event, lag: 0 }).into_iter().collect();
    }
    case
}

/// 8 GPUs around a switch, 8 queues each that copy from anyone.
fn sixty_four() -> Case {
    let (chunks, partition) = uneven(1000);
    let mut random = Random(2);
    let mut steps = Vec::new();
    for (rank, queue) in (0..8).flat_map(|rank| (0..8).map(move |queue| (rank, queue))) {
        for index in 0..2000 {
            let from = (rank + 1 + random.below(7)) % 8;
            steps.push(copy(rank, queue, index, from, random.below(1000)));
        }
    }
    Case {
        schedule: all_reduce_of(8, chunks, steps),
        partition,
        fabric: star(&[10.0; 8]),
        crossings: 2,
        slice_bytes: u64::MAX,
    }
}

fn ring() -> Case {
    let schedule = schedule(&ALL_REDUCE, "ring", 1024, Path::Mapped);
    let partition = partition(&schedule, 1 << 30);
    Case { schedule, partition, fabric: star(&[400.0; 1024]), crossings: 2, slice_bytes: u64::MAX }
}

/// 2,048 nodes of 8, which hang on one switch: reduce in the node, exchange between nodes by halving and doubling, tell
/// the node.
fn two_level() -> Case {
    let begin = Instant::now();
    let schedule = schedule(&ALL_REDUCE, "two_level(per_node=8,outer=halving_doubling)", 1 << 14, Path::Mapped);
    println!("two_level of 16,384: {} steps, built in {:.1} s", schedule.steps.len(), begin.elapsed().as_secs_f64());
    let partition = partition(&schedule, 1 << 30);
    Case { schedule, partition, fabric: star(&[400.0; 1 << 14]), crossings: 2, slice_bytes: u64::MAX }
}
