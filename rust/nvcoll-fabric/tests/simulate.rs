//! Virtual time on tiny machines, as exact picoseconds that can be worked out by hand.

mod common;

use common::{link, machine, medium, partition, schedule, star};
use nvcoll_core::collective::{ALL_GATHER, ALL_REDUCE, BARRIER};
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Path, Schedule};
use nvcoll_core::text;
use nvcoll_fabric::hardware::media::LinkFamily;
use nvcoll_fabric::hardware::{DeviceKind, Fabric};
use nvcoll_fabric::simulate::{
    protocol, simulate, AtSwitch, Damage, DelayReason, Ratio, Settings, Simulation, StepCosts, Timeline,
};
use nvcoll_fabric::units::Rate;
use nvcoll_fabric::Error;

const US: u64 = 1_000_000;

fn ideal() -> Settings {
    Settings::new(protocol::named("ideal").unwrap(), u64::MAX)
}

fn parsed(world_size: u32, chunks: u32, steps: &str) -> Schedule {
    let header = format!(
        "schedule all_reduce by_hand world_size {world_size} chunks_per_part {chunks} path mapped aliasing out_of_place\n"
    );
    text::parse(&format!("{header}{steps}")).unwrap()
}

/// Runs for chunks of one length, in bytes.
fn run(schedule: &Schedule, chunk: usize, fabric: &Fabric, settings: &Settings) -> Timeline {
    let partition = Partition::new(vec![chunk * schedule.chunks_per_part as usize], schedule.chunks_per_part);
    simulate(schedule, &partition, DType::U8, fabric, settings).unwrap()
}

/// Two GPUs, 10 GB/s, 100 ns.
fn pair() -> Fabric {
    let mut fabric = machine(&[DeviceKind::Gpu, DeviceKind::Gpu]);
    link(&mut fabric, "gpu0", "gpu1", medium(LinkFamily::Nvlink, 10.0, 100));
    fabric
}

/// Rank 1 takes what rank 0 has.
const TAKE: &str = "r1.q0.0 output[r1].0 = input[r0].0 after r0.enter\nleave r0 after r1.q0.0\n";

#[test]
fn a_copy_over_one_link_is_signal_latency_and_bytes() {
    let timeline = run(&parsed(2, 1, TAKE), 1_000_000, &pair(), &ideal());
    // Rank 1 hears that rank 0 entered after 0.1 us, the first byte takes 0.1 us, 1 MB at 10 GB/s 100 us; rank 0
    // hears of it.
    assert_eq!(timeline.ends_ps, [100_300_000, 100_200_000]);
    let at: Vec<_> = timeline.links.iter().map(|link| (link.nbytes, link.busy_ps)).collect();
    assert_eq!(at, [(1_000_000, 100 * US), (0, 0)]);
    assert_eq!(timeline.memory_bytes, [0, 1_000_000]);
    let reasons: Vec<_> = timeline.critical.pieces.iter().map(|piece| (piece.reason, piece.end_ps)).collect();
    let expected = [
        (DelayReason::Signal(0), 100_000),
        (DelayReason::Latency, 200_000),
        (DelayReason::Link(0), 100_200_000),
        (DelayReason::Signal(1), 100_300_000),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(timeline.critical.words(&pair()), "100 % of the time is gpu0 -> gpu1");
}

#[test]
fn tiles_pay_latency_each_and_uneven_ones_their_bytes() {
    let timeline = run(&parsed(2, 1, TAKE), 1_000_001, &pair(), &Settings { slice_bytes: 400_000, ..ideal() });
    assert_eq!(timeline.tiles, 3);
    assert_eq!(timeline.ends_ps[1], 100_000 + 3 * 100_000 + 100 * US + 100);
}

#[test]
fn three_gpus_that_read_one_port_share_it_until_the_shorter_is_done() {
    let steps = "r1.q0.0 output[r1].0..2 = input[r0].0..2\nr2.q0.0 output[r2].2 = input[r0].2\n";
    let timeline = run(&parsed(3, 3, steps), 320_000, &star(&[10.0; 3]), &ideal());
    // 640 kB and 320 kB at 5 GB/s each: the shorter takes 64 us, then the other has 320 kB left and all of the port.
    assert_eq!(timeline.ends_ps, [0, 200_000 + 96 * US, 200_000 + 64 * US]);
    assert_eq!(timeline.links[0].nbytes, 960_000);
    assert_eq!(timeline.links[0].busy_ps, 96 * US);
    let pieces: Vec<_> = timeline.critical.pieces.iter().map(|p| (p.reason, p.end_ps - p.start_ps)).collect();
    let expected =
        [(DelayReason::Latency, 200_000), (DelayReason::Link(0), 64 * US), (DelayReason::Shared(0, 2), 32 * US)];
    assert_eq!(pieces, expected, "alone it takes 64 us");
}

/// An anomaly of every network that shares fairly, not a promise: the port of rank 1 is ten times as fast in the
/// second run, so rank 1 takes more of what rank 0 sends, rank 2 gets its part later, and rank 3 waits for rank 2.
#[test]
fn a_faster_link_can_make_the_whole_slower() {
    let steps = "r1.q0.0 output[r1].0..3 = input[r0].0..3\n\
                 r2.q0.0 output[r2].3..21 = input[r0].3..21\n\
                 r3.q0.0 output[r3].3..21 = output[r2].3..21 after r2.q0.0\n";
    let total = |ports: &[f64]| run(&parsed(4, 21, steps), 64_000, &star(ports), &ideal()).total_ps();
    assert_eq!(total(&[10.0, 1.0, 10.0, 10.0]), 600_000 + 128 * US + 115_200_000, "1,152 kB at 9 GB/s, then at 10");
    assert_eq!(
        total(&[10.0; 4]),
        600_000 + 134_400_000 + 115_200_000,
        "192 kB at 5 GB/s, 960 kB at 10; then all at 10"
    );
}

#[test]
fn staged_transfers_cross_pcie_and_memory_twice_and_meet_in_memory() {
    let mut fabric = machine(&[DeviceKind::Gpu, DeviceKind::Gpu, DeviceKind::Socket, DeviceKind::Memory]);
    for gpu in ["gpu0", "gpu1"] {
        link(&mut fabric, gpu, "socket0", medium(LinkFamily::Pcie, 20.0, 500));
    }
    link(&mut fabric, "socket0", "memory0", medium(LinkFamily::Memory, 30.0, 100));
    fabric.abilities.peer_access = false;
    let both = "r1.q0.0 output[r1].0 = input[r0].0\nr0.q0.0 output[r0].0 = input[r1].0\n";
    let timeline = run(&parsed(2, 1, both), 3_000_000, &fabric, &ideal());
    // Each way through memory carries both: 15 GB/s each, below PCIe's 20.
    assert_eq!(timeline.ends_ps, [1_200_000 + 200 * US; 2]);
    assert!(timeline.links.iter().all(|link| link.nbytes == 3_000_000 || link.nbytes == 6_000_000));
    let memory = timeline.critical.words(&fabric);
    assert!(memory.contains("socket0 -> memory0"), "{memory}");
}

#[test]
fn two_sources_of_one_step_over_one_port_get_half_each() {
    let steps = "r1.q0.0 output[r1].0 = input[r0].0 + output[r0].0\n";
    let timeline = run(&parsed(2, 1, steps), 1_000_000, &pair(), &ideal());
    assert_eq!(timeline.ends_ps[1], 100_000 + 200 * US);
}

#[test]
fn what_is_here_costs_memory_and_a_copy_onto_itself_nothing() {
    let steps = "r0.q0.0 output[r0].0 = input[r0].0\nr1.q0.0 output[r1].0 = output[r1].0\n";
    let timeline = run(&parsed(2, 1, steps), 1_000_000, &pair(), &ideal());
    assert_eq!(timeline.ends_ps, [2 * US, 0], "2 MB at 1000 GB/s");
    assert_eq!(timeline.memory_bytes, [2_000_000, 0]);
    // Two queues share the memory.
    let steps = "r0.q0.0 output[r0].0 = input[r0].0\nr0.q1.0 output[r0].1 = input[r0].1\n";
    assert_eq!(run(&parsed(2, 2, steps), 1_000_000, &pair(), &ideal()).ends_ps[0], 4 * US);
}

#[test]
fn a_protocol_is_fixed_time_wire_bytes_a_cap_and_a_signal() {
    let protocol = StepCosts {
        name: "made".to_owned(),
        fixed_ps: 7,
        wire: Ratio::new(2, 1),
        cap: None,
        signal: Ratio::new(1, 2),
        source: String::new(),
    };
    let settings = |protocol: &StepCosts| Settings::new(protocol, u64::MAX);
    let timeline = run(&parsed(2, 1, TAKE), 1_000_000, &pair(), &settings(&protocol));
    assert_eq!(timeline.ends_ps, [50_000 + 7 + 100_000 + 200 * US + 50_000, 50_000 + 7 + 100_000 + 200 * US]);
    assert_eq!((timeline.links[0].nbytes, timeline.memory_bytes[1]), (2_000_000, 1_000_000));
    let capped = StepCosts { cap: Some(Rate::from_gbps(1.0)), ..protocol };
    let timeline = run(&parsed(2, 1, TAKE), 1_000_000, &pair(), &settings(&capped));
    assert_eq!(timeline.ends_ps[1], 50_000 + 7 + 100_000 + 1000 * US, "the cap is of data");
}

#[test]
fn a_step_of_no_bytes_pays_its_fixed_time_only() {
    let mut settings = ideal();
    settings.protocol.fixed_ps = 7;
    let timeline = run(&parsed(2, 1, TAKE), 0, &pair(), &settings);
    assert_eq!(timeline.ends_ps, [200_007, 100_007]);
}

#[test]
fn a_barrier_is_signals() {
    let barrier = schedule(&BARRIER, "direct", 3, Path::Mapped);
    let settings = Settings { starts_ps: vec![0, 5 * US, 1], ..ideal() };
    let timeline = simulate(&barrier, &partition(&barrier, 0), DType::U8, &star(&[10.0; 3]), &settings).unwrap();
    assert_eq!(timeline.ends_ps, [5 * US + 200_000, 5 * US, 5 * US + 200_000]);
    let reasons: Vec<_> = timeline.critical.pieces.iter().map(|piece| piece.reason).collect();
    assert_eq!(reasons, [DelayReason::Entering(1), DelayReason::Signal(1)]);
    assert_eq!(timeline.critical.words(&star(&[10.0; 3])), "96 % of the time is rank 1 entering late, 4 % signals");
}

#[test]
fn nvswitch_moves_n_and_an_nth_through_each_port_where_the_switch_reduction() {
    let (n, nbytes) = (8, 8 << 20);
    let all_reduce = schedule(&ALL_REDUCE, "nvswitch", n, Path::Mapped);
    let whole = partition(&all_reduce, nbytes);
    let fabric = star(&[10.0; 8]);
    let timeline = simulate(&all_reduce, &whole, DType::U8, &fabric, &ideal()).unwrap();
    assert!(timeline.links.iter().all(|link| link.nbytes == 9 << 20), "{:?}", timeline.links);
    // N (1 + 1/n) at 10 GB/s, after two signals and four hops.
    assert_eq!(timeline.ends_ps, [9 * (1 << 20) * 100 + 800_000; 8]);

    let weak = Fabric {
        abilities: nvcoll_fabric::hardware::Abilities { switch_reduction: false, ..fabric.abilities },
        ..fabric
    };
    let refused = simulate(&all_reduce, &whole, DType::U8, &weak, &ideal()).unwrap_err();
    let Error::Unable { message, .. } = &refused else { panic!("{refused}") };
    assert!(message.contains("two_shot") && message.contains("r0.q0.0"), "{message}");
    let ignoring = Settings { at_switch: AtSwitch::Ignore, ..ideal() };
    let timeline = simulate(&all_reduce, &whole, DType::U8, &weak, &ignoring).unwrap();
    assert!(timeline.links.iter().all(|link| link.nbytes == 14 << 20), "2 N (n-1)/n: {:?}", timeline.links);
    let gather = schedule(&ALL_GATHER, "nvswitch", n, Path::Mapped);
    let timeline = simulate(&gather, &partition(&gather, nbytes), DType::U8, &weak, &ideal()).unwrap();
    assert_eq!((timeline.links[0].nbytes, timeline.links[1].nbytes), (1 << 20, 8 << 20), "it still multicasts");
}

#[test]
fn stragglers_take_so_many_times_as_long() {
    let mut settings = Settings { slowdowns: vec![Ratio::ONE, Ratio::new(3, 2)], ..ideal() };
    settings.protocol.fixed_ps = 10;
    let timeline = run(&parsed(2, 1, TAKE), 1_000_000, &pair(), &settings);
    assert_eq!(timeline.ends_ps[1], 100_000 + 15 + 100_000 + 150 * US);
    let faster = Settings { slowdowns: vec![Ratio::ONE, Ratio::new(1, 2)], ..ideal() };
    let whole = Partition::new(vec![1], 1);
    assert!(matches!(simulate(&parsed(2, 1, TAKE), &whole, DType::U8, &pair(), &faster), Err(Error::Unable { .. })));
}

#[test]
fn a_damaged_link_is_slower_and_a_cut_one_is_gone_round_or_missed() {
    let damaged = |left| Settings { damages: vec![Damage { link: 0, left }], ..ideal() };
    let half = run(&parsed(2, 1, TAKE), 1_000_000, &pair(), &damaged(Ratio::new(1, 2)));
    assert_eq!(half.ends_ps[1], 200_000 + 200 * US);
    let cut = damaged(Ratio::new(0, 1));
    let whole = Partition::new(vec![1_000_000], 1);
    let missed = simulate(&parsed(2, 1, TAKE), &whole, DType::U8, &pair(), &cut).unwrap_err();
    assert!(matches!(missed, Error::NoPath { .. }), "{missed}");
    let mut fabric = pair();
    fabric.devices.push(machine(&[DeviceKind::Socket]).devices[0].clone());
    for gpu in ["gpu0", "gpu1"] {
        link(&mut fabric, gpu, "socket0", medium(LinkFamily::Pcie, 5.0, 100));
    }
    let round = run(&parsed(2, 1, TAKE), 1_000_000, &fabric, &cut);
    assert_eq!(round.ends_ps[1], 2 * 200_000 + 200 * US);
    assert_eq!((round.links[0].nbytes, round.links[2].nbytes), (0, 1_000_000), "positions stay as in the fabric given");
}

#[test]
fn a_run_that_is_told_to_stop_stops_and_can_run_again() {
    let ring = schedule(&ALL_REDUCE, "ring", 200, Path::Mapped);
    let (whole, star) = (partition(&ring, 1 << 20), star(&[10.0; 200]));
    let simulation = Simulation::new(&ring, &whole, DType::U8, &star, &ideal()).unwrap();
    let mut looks = 0;
    let mut second = || {
        looks += 1;
        looks == 2
    };
    assert_eq!(simulation.run_until(&mut second), Err(Error::Interrupted));
    assert_eq!(looks, 2);
    assert_eq!(simulation.run().unwrap().tiles, 1);
}

#[test]
fn links_and_ways_of_running_have_names() {
    let fabric = star(&[10.0; 3]);
    let name = |device: usize| fabric.devices[device].name.as_str();
    let half = Ratio::new(1, 2);
    let [up] = Damage::between(&fabric, "gpu1", name(fabric.links[0].to), half).unwrap()[..] else {
        panic!("one link")
    };
    assert_eq!((name(fabric.links[up.link].from), up.left), ("gpu1", half));
    assert!(matches!(Damage::between(&fabric, "gpu0", "gpu1", half), Err(Error::Unable { .. })));
    assert!(matches!(Damage::between(&fabric, "gpu0", "gpu9", half), Err(Error::Unknown { .. })));
    assert_eq!(AtSwitch::named("ignore"), Ok(AtSwitch::Ignore));
    assert!(AtSwitch::named("").is_err());
    assert_eq!(Ratio::nearest(1.5), Some(Ratio::new(1_500_000, 1_000_000)));
    assert_eq!([-1.0, f64::NAN, 5000.0].map(Ratio::nearest), [None; 3]);
}

#[test]
fn a_lag_waits_tiles_back() {
    // Rank 1 may be two tiles ahead of rank 0, whose link is its own memory: slot reuse, as in staging.
    let steps =
        "r0.q0.0 output[r0].0 = input[r0].0 after r1.q0.0\nr1.q0.0 output[r1].0 = input[r1].0 after r0.q0.0@2\n";
    let mut settings = Settings { slice_bytes: 1_000, spans: true, ..ideal() };
    settings.protocol.fixed_ps = 0;
    let timeline = run(&parsed(2, 1, steps), 4_000, &pair(), &settings);
    let ends = |rank| timeline.spans.iter().filter(|s| s.rank == rank).map(|s| s.end_ps).collect::<Vec<_>>();
    // A copy takes 2 ns, a signal 100 ns.
    assert_eq!(ends(1), [2_000, 4_000, 2_000 + 100_000 + 2_000 + 100_000 + 2_000, 208_000]);
    assert_eq!(ends(0), [104_000, 106_000, 308_000, 310_000]);
}

#[test]
fn what_waits_in_a_circle_is_an_error() {
    let steps = "r0.q0.0 output[r0].0 = input[r0].0 after r1.q0.0\nr1.q0.0 output[r1].0 = input[r1].0 after r0.q0.0\n";
    let whole = Partition::new(vec![1], 1);
    let stuck = simulate(&parsed(2, 1, steps), &whole, DType::U8, &pair(), &ideal()).unwrap_err();
    assert_eq!(
        stuck.to_string(),
        "all_reduce by_hand of 2, mapped, out of place cannot run: r0.q0.0 waits for what never happens"
    );
    let large = simulate(&parsed(3, 1, TAKE), &whole, DType::U8, &pair(), &ideal()).unwrap_err();
    assert!(matches!(large, Error::Unable { .. }), "{large}");
}

#[test]
fn every_protocol_has_a_source_and_a_name_of_its_own() {
    for (nth, protocol) in protocol::all().iter().enumerate() {
        assert!(!protocol.source.is_empty());
        assert_eq!(protocol::named(&protocol.name).unwrap(), &protocol::all()[nth]);
    }
    assert!(matches!(protocol::named("none"), Err(Error::Unknown { .. })));
}
