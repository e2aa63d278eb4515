//! Machines made for a test, whose numbers no table changes.

#![allow(dead_code, reason = "every test file takes what it needs")]

use nvcoll_core::algorithm::{self, ALGORITHMS};
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::lower::lower;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_fabric::hardware::gpus::{Generation, Gpu, KnownBy};
use nvcoll_fabric::hardware::media::{self, LinkFamily, Medium};
use nvcoll_fabric::hardware::Origin;
use nvcoll_fabric::hardware::{Abilities, Device, DeviceKind, Fabric, Link};
use nvcoll_fabric::simulate::{protocol, simulate, Settings};

/// A medium with a rate in GB/s and a latency in nanoseconds.
pub(crate) fn medium(family: LinkFamily, gbps: f64, latency_ns: u64) -> &'static Medium {
    let name = format!("{family:?}");
    let source = "made for a test".to_owned();
    Box::leak(Box::new(Medium {
        title: name.clone(),
        name,
        family,
        lane_gbps: gbps,
        efficiency: 1.0,
        latency_ns,
        nvls_chunk_kib: None,
        source,
    }))
}

/// A machine without links, its devices named after their kind.
pub(crate) fn machine(kinds: &[DeviceKind]) -> Fabric {
    let gpu = Gpu {
        name: "gpu".to_owned(),
        title: "a GPU".to_owned(),
        generation: Generation::Hopper,
        memory_gbps: 1000.0,
        sm: Some(90),
        nvlink: None,
        nvlinks: 0,
        needs_bridge: false,
        pcie: media::named("pcie5").unwrap(),
        pcie_lanes: 16,
        c2c: None,
        full_board: None,
        compute: None,
        variant_of: None,
        known_by: KnownBy::default(),
        source: "made for a test".to_owned(),
    };
    let name = |(nth, kind): (usize, &DeviceKind)| {
        let before = kinds[..nth].iter().filter(|other| *other == kind).count();
        format!("{kind:?}{before}").to_lowercase()
    };
    let device = |(nth, &kind)| Device {
        name: name((nth, &kind)),
        kind,
        node: Some(0),
        tray: None,
        chips: 1,
        port_mbits: None,
        host_bridge: None,
    };
    Fabric {
        name: "made".to_owned(),
        title: "made for a test".to_owned(),
        gpu: Box::leak(Box::new(gpu)),
        devices: kinds.iter().enumerate().map(device).collect(),
        links: Vec::new(),
        abilities: Abilities {
            peer_access: true,
            multicast: true,
            switch_reduction: true,
            gpu_direct: true,
            forwards: false,
        },
        ram_gib: None,
        sources: Vec::new(),
        origin: Origin::default(),
    }
}

/// Links two devices, both ways.
pub(crate) fn link(fabric: &mut Fabric, a: &str, b: &str, medium: &'static Medium) {
    let (from, to) = (fabric.device(a).unwrap(), fabric.device(b).unwrap());
    fabric.links.push(Link { from, to, medium, lanes: 1 });
    fabric.links.push(Link { from: to, to: from, medium, lanes: 1 });
}

/// GPUs around one NVSwitch: gpu0, gpu1, … with ports of `ports_gbps`, 100 ns each.
pub(crate) fn star(ports_gbps: &[f64]) -> Fabric {
    let mut kinds = vec![DeviceKind::Gpu; ports_gbps.len()];
    kinds.push(DeviceKind::Nvswitch);
    let mut fabric = machine(&kinds);
    for (gpu, &gbps) in ports_gbps.iter().enumerate() {
        link(&mut fabric, &format!("gpu{gpu}"), "nvswitch0", medium(LinkFamily::Nvlink, gbps, 100));
    }
    fabric
}

/// A schedule of the registry.
pub(crate) fn schedule(collective: &'static Collective, algorithm: &str, n: u32, path: Path) -> Schedule {
    let mapped = algorithm::build(collective, algorithm, Roles::of(n), Aliasing::Disjoint).unwrap();
    lower(&mapped, path).unwrap()
}

/// The partition of a call of `count` elements.
pub(crate) fn partition(schedule: &Schedule, count: usize) -> Partition {
    let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
    Partition::new(counts, schedule.chunks_per_part)
}

/// Simulates every algorithm that a fabric can run; fails if a time is below the lower bound. Returns the number of runs.
pub(crate) fn runs_above_the_floor(fabric: &Fabric, nbytes: usize, slice_bytes: u64) -> usize {
    let mut compared = 0;
    for algorithm in ALGORITHMS {
        let (collective, roles) = (algorithm.collective, Roles::of(fabric.world_size()));
        let Ok(mapped) = algorithm::build(collective, algorithm.name, roles, Aliasing::Disjoint) else { continue };
        let Ok(floor) = fabric.floor(collective) else { continue };
        let schedule = lower(&mapped, Path::Mapped).unwrap();
        let settings = Settings::new(protocol::named("ideal").unwrap(), slice_bytes);
        let run = simulate(&schedule, &partition(&schedule, nbytes), DType::U8, fabric, &settings);
        let Ok(timeline) = run else { continue };
        let (took, least) = (timeline.total_ps(), floor.time(nbytes as u64));
        assert!(took >= least, "{} by {} on {}: {took} < {least}", collective.name, algorithm.name, fabric.name);
        compared += 1;
    }
    compared
}
