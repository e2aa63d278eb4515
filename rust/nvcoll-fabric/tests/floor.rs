//! The floor: exact on fabrics whose worst cut is known, and below whatever links allow.

mod common;

use common::runs_above_the_floor;
use nvcoll_core::collective::{Collective, COLLECTIVES};
use nvcoll_fabric::hardware::media::Medium;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::preset::presets;
use nvcoll_fabric::topology::cluster::{cluster, network};
use nvcoll_fabric::Fabric;

/// GB/s of algbw that no schedule exceeds.
fn ceiling(fabric: &Fabric, collective: &str) -> f64 {
    fabric.floor(Collective::named(collective).unwrap()).unwrap().algbw.unwrap().gbps()
}

fn four_gpus(lanes: u32, abilities: &str) -> Fabric {
    let text = format!(
        r#"gpu = "h100-sxm"
        abilities = {{ peer_access = false, {abilities}, gpu_direct = false }}
        sources = []
        [[machines]]
        name = "four"
        title = "four"
        [[devices]]
        names = "gpu[0-3]"
        kind = "gpu"
        [[devices]]
        names = "nvswitch"
        kind = "nvswitch"
        [[links]]
        from = "gpu[0-3]"
        to = "nvswitch"
        medium = "nvlink4"
        lanes = {lanes}"#
    );
    Fabric::from_text(&text, None, "text").unwrap()
}

#[test]
fn a_switch_lets_a_ring_through_at_line_rate_and_one_that_folds_more() {
    let plain = four_gpus(18, "multicast = false, switch_reduction = false");
    // A ring of 4 sends 2 (n-1)/n = 1.5 N through a port of 450 GB/s.
    assert_eq!(ceiling(&plain, "all_reduce"), 300.0);
    assert_eq!(ceiling(&plain, "all_gather"), 600.0);
    assert_eq!(ceiling(&plain, "broadcast"), 450.0);
    assert_eq!(ceiling(&plain, "gather"), 600.0);
    // 3/4 N leaves each GPU. Of two together N leaves, through two ports.
    assert_eq!(ceiling(&plain, "all_to_all"), 600.0);
    let folds = four_gpus(18, "multicast = true, switch_reduction = true");
    assert_eq!(ceiling(&folds, "all_reduce"), 360.0);
}

#[test]
fn the_cut_between_two_nodes_bounds_their_all_gather() {
    let node = preset("hgx-h100").unwrap();
    let pair = cluster(&node, 2, network("ib-ndr-1").unwrap()).unwrap();
    // Half of the N bytes cross one port of 50 GB/s; a whole N of an all_reduce crosses it each way.
    assert_eq!(ceiling(&pair, "all_gather"), 100.0);
    assert_eq!(ceiling(&pair, "all_reduce"), 50.0);
    let four = cluster(&node, 4, network("ib-ndr-1").unwrap()).unwrap();
    assert_eq!(ceiling(&four, "all_reduce").round(), 33.0);
}

#[test]
fn what_is_staged_crosses_memory_twice() {
    let memory = 8.0 * 25.6;
    let staged = ceiling(&preset("rtx4090-4-staged").unwrap(), "all_to_all");
    let peers = ceiling(&preset("rtx4090-4-p2p").unwrap(), "all_to_all");
    assert!(staged <= peers, "{staged} {peers}");
    assert!(staged <= memory * 16.0 / 3.0);
}

#[test]
fn every_collective_has_a_floor_on_every_fabric() {
    for fabric in presets().iter().filter(|fabric| fabric.world_size() <= 16) {
        for collective in COLLECTIVES {
            let floor = fabric.floor(collective).unwrap();
            assert!(floor.time(1 << 30) >= floor.time(1 << 20), "{}", fabric.name);
        }
    }
}

#[test]
fn a_gpu_alone_has_nothing_to_wait_for() {
    let one = preset("hgx-h100[3]").unwrap();
    assert_eq!(one.floor(Collective::named("all_reduce").unwrap()).unwrap().time(1 << 30), 0);
}

#[test]
fn what_is_quicker_over_another_gpu_may_go_there() {
    // 0.6 us of NVLink to GPU 4 and from there to GPU 5; PCIe from 0 to 5 takes longer.
    let cube = preset("dgx1-v100").unwrap();
    let floor = cube.floor(Collective::named("barrier").unwrap()).unwrap();
    assert_eq!(floor.time(0), 2 * cube.route(0, 4).unwrap().latency(&cube));
    assert!(floor.time(0) < cube.route(0, 5).unwrap().latency(&cube));
}

#[test]
fn two_gpus_at_a_switch_that_reduces_exchange_their_buffers() {
    // A GPU sends over NVLink and PCIe 5 x16 together.
    let port = 450.0 + 63.008;
    for (name, part) in [
        ("hgx-h100[0-1]", 1.0), // either way: 2 (n-1)/n < 1 + 1/n
        ("hgx-h200[2-3]", 1.0),
        ("hgx-h100[0-2]", 3.0 / 4.0), // both ways alike
        ("hgx-h100", 8.0 / 9.0),      // by the switch
    ] {
        let found = ceiling(&preset(name).unwrap(), "all_reduce");
        assert!((found / (port * part) - 1.0).abs() < 1e-6, "{name}: {found}");
    }
}

/// Links that carry their line rate.
fn at_line_rate(fabric: &Fabric) -> Fabric {
    let mut ideal = fabric.clone();
    for link in &mut ideal.links {
        link.medium = Box::leak(Box::new(Medium { efficiency: 1.0, ..link.medium.clone() }));
    }
    ideal
}

#[test]
fn no_proved_schedule_over_links_at_line_rate_is_faster_than_the_floor() {
    const NBYTES: usize = 1 << 26;
    let machines = [
        "hgx-h100[0-1]",
        "hgx-h100[0-2]",
        "hgx-h100[0-3]",
        "hgx-h100",
        "hgx-b200[0-1]",
        "hgx-b200[3-5]",
        "hgx-a100[0-2]",
        "dgx1-v100",
        "dgx1-v100[0-1]",
        "dgx1-v100[0,3,5]",
        "rtx4090-4-staged",
        "rtx4090-2-p2p",
        "mi300x-8",
        "v100-4-mesh",
    ];
    let mut compared = 0;
    for name in machines {
        let fabric = at_line_rate(&preset(name).unwrap());
        for slice_bytes in [NBYTES as u64, 1 << 22] {
            compared += runs_above_the_floor(&fabric, NBYTES, slice_bytes);
        }
    }
    assert!(compared > 300, "{compared} runs");
}
