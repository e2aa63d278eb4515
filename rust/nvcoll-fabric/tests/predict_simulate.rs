//! The closed forms beside the event simulator, with the same constants: they must say the same of one node.

mod common;

use common::{partition, schedule, star};
use nvcoll_core::collective::{Collective, ALL_REDUCE, BROADCAST, REDUCE_SCATTER};
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Path;
use nvcoll_fabric::hardware::{media, Fabric};
use nvcoll_fabric::nccl::{NcclAlgorithm, Protocol};
use nvcoll_fabric::predict::constants::Constants;
use nvcoll_fabric::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};
use nvcoll_fabric::preset::preset;
use nvcoll_fabric::simulate::{protocol, simulate, Settings};

const MIB: u64 = 1 << 20;

/// A hop of the machines here, in microseconds: two links of 100 ns there, and as much until the next rank knows.
const HOP_US: f64 = 0.4;

/// What a loop through the switch of eight H100 takes besides its bytes: four links of 600 ns, to it and from it, twice.
const LOOP_US: f64 = 2.4;

/// Small enough to be nothing.
const NOTHING: f64 = 1e-6;

fn simulated_us(
    fabric: &Fabric,
    collective: &'static Collective,
    algorithm: &str,
    nbytes: u64,
    slice_bytes: u64,
) -> f64 {
    let schedule = schedule(collective, algorithm, fabric.world_size(), Path::Mapped);
    let settings = Settings::new(protocol::named("ideal").unwrap(), slice_bytes);
    let partition = partition(&schedule, nbytes as usize);
    let timeline = simulate(&schedule, &partition, DType::U8, fabric, &settings).unwrap();
    timeline.total_ps() as f64 / 1e6
}

fn predicted_us(fabric: &Fabric, pattern: Pattern, algorithm: NcclAlgorithm, nbytes: u64) -> f64 {
    let mut predictor = Predictor::of(fabric, None).unwrap();
    let same = [
        ("hop_us.simple.nvlink", HOP_US),
        ("start_us.simple", NOTHING),
        ("startup_us.hopper", NOTHING),
        ("nvls.hopper", media::named("nvlink4").unwrap().efficiency),
        ("nvls.chunk_us", LOOP_US / 8.0),
        ("nvls.fill_loops", NOTHING),
        ("nvls.start_us.hopper", NOTHING),
    ];
    predictor.set(&Constants::shipped().with(same).unwrap());
    let forced = AlgorithmFilter { algorithm: Some(algorithm), protocol: Some(Protocol::Simple) };
    let call = CollectiveCall { pattern, launch: Launch::ProcessPerGpu, forced };
    predictor.us(&call, &predictor.weigh(&call, nbytes).unwrap())
}

fn assert_alike(predicted: f64, simulated: f64, within: f64) {
    assert!((predicted / simulated - 1.0).abs() < within, "predicted {predicted}, simulated {simulated}");
}

#[test]
fn rings_take_as_long_as_their_schedules() {
    for gpus in [2, 4, 8] {
        let fabric = star(&vec![100.0; gpus]);
        for nbytes in [16 * MIB, 256 * MIB] {
            for (pattern, collective) in [(Pattern::AllReduce, &ALL_REDUCE), (Pattern::ReduceScatter, &REDUCE_SCATTER)]
            {
                let predicted = predicted_us(&fabric, pattern, NcclAlgorithm::Ring, nbytes);
                assert_alike(predicted, simulated_us(&fabric, collective, "ring", nbytes, u64::MAX), 0.02);
            }
        }
    }
}

#[test]
fn chains_take_as_long_as_their_schedules_in_slices() {
    for gpus in [2, 4, 8] {
        let (fabric, nbytes) = (star(&vec![100.0; gpus]), 4096 * MIB);
        let predicted = predicted_us(&fabric, Pattern::Broadcast, NcclAlgorithm::Ring, nbytes);
        assert_alike(predicted, simulated_us(&fabric, &BROADCAST, "chain", nbytes, 4 * MIB), 0.02);
    }
}

/// In the schedule each rank folds and multicasts its own chunk in one step, so there are no stages to fill: `fill_loops`, which
/// is fitted, stands for what NCCL's kernel does besides. Synchronisation, once a loop, is the latency of the links here.
#[test]
fn the_switch_takes_as_long_as_its_schedule_in_loops() {
    let fabric = preset("hgx-h100").unwrap();
    for nbytes in [256 * MIB, 1024 * MIB, 4096 * MIB] {
        let predicted = predicted_us(&fabric, Pattern::AllReduce, NcclAlgorithm::Nvls, nbytes);
        let one_loop = if nbytes < 1024 * MIB { 8 * MIB } else { 16 * MIB };
        let simulated = simulated_us(&fabric, &ALL_REDUCE, "nvswitch", nbytes, one_loop / 8);
        assert_alike(predicted, simulated, 0.02);
    }
}
