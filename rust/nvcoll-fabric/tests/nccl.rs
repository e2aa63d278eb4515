//! NCCL's cost model: points computed by hand, what NCCL itself printed, and choices that public measurements state.

use std::collections::BTreeMap;

use nvcoll_core::collective::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, COLLECTIVES, REDUCE_SCATTER};
use nvcoll_fabric::hardware::media::{LinkFamily, Medium};
use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::nccl::{Candidate, Model, NcclAlgorithm, PathClass, Protocol};
use nvcoll_fabric::preset::presets;
use nvcoll_fabric::topology::cluster::{cluster, network};
use nvcoll_fabric::{Error, Fabric};

use NcclAlgorithm::{Nvls, NvlsTree, Pat, Ring, Tree};
use Protocol::{Ll, Ll128, Simple};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn model(version: &str, fabric: &Fabric) -> Model {
    Model::of(version, fabric).unwrap_or_else(|error| panic!("{error}"))
}

fn of(version: &str, name: &str) -> Model {
    model(version, &preset(name).unwrap())
}

fn nodes(name: &str, count: u32, by: &str) -> Fabric {
    cluster(&preset(name).unwrap(), count, network(by).unwrap()).unwrap()
}

fn pair(model: &Model, name: &str, nbytes: u64, algorithm: NcclAlgorithm, protocol: Protocol) -> Candidate {
    let collective = COLLECTIVES.iter().find(|collective| collective.name == name).unwrap();
    let candidates = model.candidates(collective, nbytes).unwrap();
    *candidates.iter().find(|c| (c.algorithm, c.protocol) == (algorithm, protocol)).unwrap()
}

fn ps(us: f64) -> Option<u64> {
    Some((us * 1e6).round() as u64)
}

#[test]
fn channels_are_those_that_logs_of_real_machines_show() {
    // The first five are in logs, the others in the documents named in search.rs.
    for (version, name, algorithm, count, gbps) in [
        ("2.20.5", "hgx-a100", Ring, 12, 20.0),
        ("2.27.7", "hgx-a100[0-1]", Ring, 12, 20.0),
        ("2.20.5", "hgx-h100", Ring, 12, 30.0), // NVIDIA/nccl#1197
        ("2.20.5", "hgx-h100", Nvls, 8, 40.0),
        ("2.30.7", "hgx-b200", Nvls, 8, 80.0),
        ("2.30.7", "hgx-b200", Ring, 16, 45.0),
        ("2.18.5", "dgx1-v100", Ring, 6, 20.0),
        ("2.8.4", "dgx1-v100", Ring, 6, 21.0),
        ("2.18.5", "dgx2", Ring, 6, 20.0),
        ("2.18.5", "v100-4-mesh", Ring, 6, 20.0),
        ("2.18.5", "hgx-a100-4", Ring, 12, 20.0),
    ] {
        let found = of(version, name).channels(algorithm).unwrap();
        assert_eq!(
            (found.count, found.node_gbps, found.class),
            (count, gbps, PathClass::Nvl),
            "{version} {name} {algorithm:?}"
        );
    }
}

#[test]
fn pcie_goes_at_the_speed_of_its_slowest_hop() {
    let total = |model: Model| {
        let found = model.channels(Ring).unwrap();
        (f64::from(found.count) * found.node_gbps, found.class)
    };
    for (name, gbps, class) in [
        ("pcie3-2-p2p", 12.0, PathClass::Pix),      // one switch
        ("pcie3-4-p2p", 10.0, PathClass::Phb),      // two, through an Intel processor: 10 x 6/5 = 12
        ("pcie3-2-staged", 5.0, PathClass::Phb), // both cross the switch's one link to the processor: 2 x 5 x 6/5 = 12
        ("pcie3-8-p2p", 10.0, PathClass::Sys),   // between Skylakes
        ("rtx4090-4-p2p", 24.0, PathClass::Phb), // x16 of PCIe 4, through an AMD processor
        ("rtx4090-4-staged", 24.0, PathClass::Phb), // memory in between is not known to NCCL
        ("rtx5090-4-p2p", 48.0, PathClass::Phb),
        ("rtx5090-8-p2p", 15.0, PathClass::Sys), // 16 between AMD's sockets, NCCL says
        ("rtx3090-2-bridge", 40.0, PathClass::Nvl),
    ] {
        assert_eq!(total(of("2.20.5", name)), (gbps, class), "{name}");
    }
}

#[test]
fn several_nodes_go_at_the_speed_of_their_network_cards() {
    // 8 x 50 GB/s behind PCIe 5 x16 (48). A ring that leaves by the card by which it came needs NVLink (370.8) to reach that
    // card, and eight of 45 fit. Rings that leave by the card of their last GPU do not, and eight of 48 fit: since 2.20.3, where
    // that need not be 15 % faster.
    let several = nodes("hgx-h100", 4, "ib-ndr-8");
    let ring = |version| model(version, &several).channels(Ring).unwrap();
    let old = ring("2.19.4");
    assert_eq!((old.count, old.network_gbps, old.network_class), (8, 45.0, PathClass::Pxn));
    let h100 = model("2.27.7", &several);
    let new = ring("2.27.7");
    assert_eq!((new.count, new.network_gbps, new.network_class), (8, 48.0, PathClass::Pix));
    // Heads carry their own channel twice: (8 + 1) x 40 = 360; the cards could do 48.
    let nvls = h100.channels(NvlsTree).unwrap();
    assert_eq!((nvls.count, nvls.node_gbps, nvls.network_gbps), (8, 40.0, 48.0));
    // 8 x 25 GB/s behind PCIe 4 x16 (24), two GPUs and two cards at a switch.
    let a100 = model("2.20.5", &nodes("hgx-a100", 2, "ib-hdr-8"));
    let ring = a100.channels(Ring).unwrap();
    assert_eq!((f64::from(ring.count) * ring.network_gbps, ring.network_class), (192.0, PathClass::Pix));
}

/// Of versions older than all recorded choices.
#[test]
fn points_computed_by_hand_in_older_versions() {
    let mib = MIB as f64;
    // 2.8 on DGX-1: 6 x 21 = 126; LL a quarter, 31.5; LL128 6 x 16.9 = 101.4 < 0.92 x 126; tree 0.92 x 126 = 115.92.
    let dgx1 = of("2.8.4", "dgx1-v100");
    let all_reduce = |model: &Model, algorithm, protocol| pair(model, "all_reduce", MIB, algorithm, protocol).time_ps;
    assert_eq!(all_reduce(&dgx1, Ring, Ll), ps(3.6 + 14.0 * 0.47 + mib / (1000.0 * (126.0 / 4.0 * 8.0 / 14.0))));
    assert_eq!(all_reduce(&dgx1, Ring, Ll128), ps(10.0 + 14.0 * 1.9 + mib / (1000.0 * (101.4 * 8.0 / 14.0))));
    assert_eq!(all_reduce(&dgx1, Tree, Simple), ps(14.0 * 28.0 + mib / (1000.0 * (115.92 / 2.0 * 0.5))));
    assert_eq!(
        pair(&dgx1, "all_gather", MIB, Ring, Ll).time_ps,
        ps(3.6 + 7.0 * 0.47 + mib / (1000.0 * (39.0 * 8.0 / 7.0)))
    );
    // 2.12 cuts A100 at 235: 12 x 22 = 264.
    let a100 = of("2.12.12", "hgx-a100");
    assert_eq!(all_reduce(&a100, Ring, Simple), ps(8.4 + 14.0 * 3.4 + mib / (1000.0 * (235.0 * 8.0 / 14.0))));
}

/// What NCCL printed: `nbytes Bytes -> Algo a proto p time us`, or its tuning table.
#[test]
fn estimates_are_what_nccl_printed() {
    // 8 x H100, NVIDIA/nccl#1595, NCCL_PROTO=Simple, rings: "805306368 Bytes -> Algo 1 proto 2 time 3970.683594".
    let ring = pair(&of("2.20.5", "hgx-h100"), "all_reduce", 805_306_368, Ring, Simple);
    let us = ring.time_ps.unwrap() as f64 / 1e6;
    assert!((us / 3970.683594 - 1.0).abs() < 1e-6, "{us}");

    // 3 nodes of 8 H100, eight cards of 200 Gbit/s, Intel: NVIDIA/nccl#1453. What it prints is 2.21's or 2.22's.
    let h100 = model("2.21.5", &nodes("hgx-h100", 3, "ib-hdr-8"));
    let ring = h100.channels(Ring).unwrap();
    assert_eq!((ring.count, ring.network_gbps), (8, 24.0));
    for (nbytes, algorithm, protocol, printed) in [
        (128, Tree, Ll, 25.214764),
        (64 * KIB, Tree, Ll, 37.798233),
        (128 * KIB, Tree, Ll128, 51.603912),
        (256 * KIB, Tree, Ll128, 54.707825),
        (8 * GIB, Ring, Simple, 86069.968750),
    ] {
        let choice = h100.choice(&ALL_REDUCE, nbytes).unwrap();
        assert_eq!((choice.algorithm, choice.protocol), (algorithm, protocol), "{nbytes}");
        let us = choice.time_ps.unwrap() as f64 / 1e6;
        assert!((us / printed - 1.0).abs() < 1e-6, "{nbytes}: {us}, printed {printed}");
    }

    // 2 and 3 of 8 x B200: "the generic Ring/LL128 model predicts 640 GB/s", for 3 "about 480": NVIDIA/nccl#2343.
    for (name, algbw_gbps) in [("hgx-b200[0-1]", 640.0), ("hgx-b200[0-2]", 480.0)] {
        let ring = pair(&of("2.30.7", name), "all_reduce", GIB, Ring, Ll128);
        assert!((ring.bandwidth_gbps - algbw_gbps).abs() < 1e-9, "{name}: {ring:?}");
    }
}

/// The whole table of NCCL 2.29.7 between two nodes of one RTX 5090 over sockets, to the one digit that it prints. Source: a
/// public log of experiments with default tuning (project nccl-eBPF; GitHub file index id 53490473059).
#[test]
fn a_printed_tuning_table_is_met_to_its_last_digit() {
    // Two cards of 10 Gbit/s each.
    let mut fabric = nodes("rtx5090-2-staged[0]", 2, "ib-ndr-2");
    let (name, title, family, source) = ("ethernet-10".to_owned(), String::new(), LinkFamily::Network, String::new());
    let medium =
        Medium { name, title, family, lane_gbps: 1.25, efficiency: 1.0, latency_ns: 0, nvls_chunk_kib: None, source };
    let medium: &Medium = Box::leak(Box::new(medium));
    fabric
        .links
        .iter_mut()
        .filter(|link| link.medium.family == LinkFamily::Network)
        .for_each(|link| link.medium = medium);
    let model = model("2.29.7", &fabric);
    for (name, algorithm, protocol, latency_us, algbw_gbps) in [
        ("broadcast", Ring, Ll, 9.3, 1.2),
        ("broadcast", Ring, Simple, 22.4, 2.4),
        ("reduce", Ring, Ll, 9.3, 1.2),
        ("reduce", Ring, Simple, 22.4, 2.4),
        ("all_gather", Ring, Ll, 11.6, 2.4),
        ("all_gather", Ring, Simple, 22.4, 4.8),
        ("all_gather", Pat, Simple, 17.6, 3.6),
        ("reduce_scatter", Ring, Ll, 11.6, 2.4),
        ("reduce_scatter", Pat, Simple, 17.6, 3.6),
        ("all_reduce", Tree, Ll, 16.8, 0.5),
        ("all_reduce", Tree, Simple, 36.4, 1.9),
        ("all_reduce", Ring, Ll, 16.6, 1.2),
        ("all_reduce", Ring, Simple, 36.4, 2.4),
    ] {
        // 1 GiB: trees keep all of their bandwidth; the plateau of large rings is not in the table.
        let found = pair(&model, name, GIB, algorithm, protocol);
        let plateau = if (name, algorithm, protocol) == ("all_reduce", Ring, Simple) { 1.4 } else { 1.0 };
        let round = |value: f64| (value * 10.0).round() / 10.0;
        let shown = (round(found.latency_us / plateau), round(found.bandwidth_gbps));
        assert_eq!(shown, (latency_us, algbw_gbps), "{name} {algorithm:?} {protocol:?}");
        assert!(pair(&model, name, GIB, algorithm, Ll128).time_ps.is_none(), "LL128 has no bandwidth in the table");
    }
    // Its choices for broadcast: LL to 16 KiB, Simple from 32 KiB.
    for (nbytes, protocol) in [(KIB, Ll), (8 * KIB, Ll), (16 * KIB, Ll), (32 * KIB, Simple), (64 * MIB, Simple)] {
        assert_eq!(model.choice(&BROADCAST, nbytes).unwrap().protocol, protocol, "{nbytes}");
    }
}

/// By src/tuning of 2.31.0a7: each algorithm has formulas of its own.
#[test]
fn formulas_by_algorithm_count_what_passes_between_nodes() {
    let nodes = nodes("hgx-h100", 2, "ib-ndr-8");
    let (old, new) = (model("2.30.7", &nodes), model("2.31.2", &nodes));
    // Rings count the speed of a channel between nodes, trees the least of both speeds, times 0.92 x 0.5.
    let gbps = |algorithm| pair(&new, "all_reduce", GIB, algorithm, Simple).bandwidth_gbps;
    let (ring, tree) = (new.channels(Ring).unwrap(), new.channels(Tree).unwrap());
    let by_ring = f64::from(ring.count) * ring.network_gbps * 16.0 / 30.0;
    assert!((gbps(Ring) / by_ring - 1.0).abs() < 1e-9);
    let by_tree = f64::from(tree.count) * tree.node_gbps.min(tree.network_gbps) * 0.92 / 2.0;
    assert!(gbps(Tree) <= by_tree * (1.0 + 1e-9));
    // Hops of a broadcast over NVLink, not over the network: 3.4 or n x 4 instead of 14 or n x 14.
    let lat = |model: &Model, name| pair(model, name, GIB, Ring, Simple).latency_us;
    assert!(lat(&new, "broadcast") < lat(&old, "broadcast") / 3.0);
    // With one GPU per node a ring keeps its own latency: LL 2.7 instead of the tree's 5.
    let alone = self::nodes("hgx-h100[0]", 4, "ib-ndr-1");
    let us = |version| pair(&model(version, &alone), "all_gather", GIB, Ring, Ll).latency_us;
    assert!((us("2.30.7") - us("2.31.2") - 3.0 * (5.0 - 2.7)).abs() < 1e-9);
    // Gathers by NVLS on one node are divided by their steps: 8 / 7.
    let nvls = |version| pair(&of(version, "hgx-h100"), "all_gather", GIB, Nvls, Simple).bandwidth_gbps;
    assert!((nvls("2.31.2") / nvls("2.30.7") - 8.0 / 7.0).abs() < 1e-9);
    // A ring of 12 GB/s and less has the threads of others: twice the bytes for each channel.
    let slow = |version| pair(&of(version, "pcie3-8-p2p"), "all_reduce", 32 * KIB, Ring, Simple).channels;
    assert_eq!((slow("2.30.7"), slow("2.31.2")), (2, 1));
    // 24 GB/s between sockets of AMD are more than the least speed of the search, 18: there is a ring.
    assert!(of("2.30.7", "rtx5090-8-p2p").is_last_resort() && !of("2.31.2", "rtx5090-8-p2p").is_last_resort());
    assert_eq!(Model::newest(), "2.30.7", "the text of 2.31.2 itself was not read");
}

#[test]
fn nvls_needs_more_than_two_gpus_and_one_gpu_needs_no_time() {
    assert_eq!(of("2.27.7", "hgx-h100[0-1]").channels(Nvls), None);
    assert_eq!(of("2.27.7", "hgx-a100").channels(Nvls), None);
    assert_eq!(of("2.27.7", "hgx-h100[3]").choice(&ALL_REDUCE, GIB).unwrap().time_ps, Some(0));
}

/// Every machine of NVIDIA's has a choice in every version, two of them in the newest; those of others say why not.
#[test]
fn every_preset_has_a_model_or_a_reason() {
    for fabric in presets() {
        for version in Model::versions() {
            let is_newest = Some(&version) == Model::versions().last();
            let pair = is_newest.then(|| cluster(fabric, 2, network("ib-ndr-4").unwrap()).unwrap());
            for fabric in [fabric].into_iter().chain(&pair) {
                match Model::of(version, fabric) {
                    Ok(model) => {
                        let choice = model.choice(&ALL_REDUCE, MIB).unwrap();
                        // Blackwell's list of speeds ends at 18 GB/s, NCCL counts 16 between AMD's sockets: it finds no
                        // ring and takes its last resort, one channel of 0.1, as logs show (`search.rs`). Since 2.31.2 it counts 24.
                        // Between Sapphire Rapids' sockets NCCL counts 10 before 2.26.2, 22 since.
                        let place = |wanted: &str| Model::versions().iter().position(|&known| known == wanted);
                        let is_between = |first, end| place(version) >= place(first) && place(version) < place(end);
                        let is_lost = match fabric.name.as_str() {
                            _ if fabric.nodes() > 1 => false,
                            name if name.contains("-8-cx8") => is_between("2.25.1", "2.26.2"),
                            name => {
                                let of_amd = ["rtx5090-8", "rtxpro6000-server-8", "rtx6000d-8"];
                                is_between("2.25.1", "2.31.2") && of_amd.iter().any(|of| name.starts_with(of))
                            }
                        };
                        assert_eq!(model.is_last_resort(), is_lost, "{} {version} {choice:?}", fabric.name);
                    }
                    // No source says for what processor NCCL takes that of GB10.
                    Err(error) => {
                        let is_unknown = fabric.gpu.sm.is_none() || fabric.name.starts_with("gb10-1");
                        assert!(is_unknown, "{} {version}: {error}", fabric.name);
                    }
                }
            }
        }
    }
}

#[test]
fn time_grows_with_bytes_but_for_the_trees_table() {
    let alone = ["hgx-h100", "hgx-b200", "hgx-a100-4", "dgx1-v100"].map(|name| preset(name).unwrap());
    let several = [2, 4].map(|count| nodes("hgx-h100", count, "ib-ndr-8"));
    for fabric in alone.into_iter().chain(several) {
        for version in Model::versions() {
            let model = model(version, &fabric);
            for collective in [&ALL_REDUCE, &ALL_GATHER, &REDUCE_SCATTER, &BROADCAST] {
                let mut last: Vec<Option<u64>> = vec![Some(0); 15];
                for power in 6..=36 {
                    let now: Vec<_> = model.candidates(collective, 1 << power).unwrap();
                    for (candidate, last) in now.iter().zip(&mut last) {
                        if !matches!(candidate.algorithm, Tree | NvlsTree) {
                            assert!(
                                candidate.time_ps >= *last || candidate.time_ps.is_none(),
                                "{version} {candidate:?}"
                            );
                        }
                        assert_eq!(candidate.time_ps.is_none(), candidate.why_disabled.is_some());
                        *last = candidate.time_ps;
                    }
                    assert!(model.choice(collective, 1 << power).unwrap().time_ps < Some(u64::MAX));
                }
            }
        }
    }
}

#[test]
fn the_same_input_gives_the_same_model() {
    for fabric in [preset("dgx1-v100").unwrap(), nodes("hgx-h100", 3, "ib-ndr-8")] {
        assert_eq!(model("2.30.7", &fabric), model("2.30.7", &fabric));
    }
}

#[test]
fn what_nccl_has_no_model_of_is_refused_with_the_reason() {
    let h100 = preset("hgx-h100").unwrap();
    let message = |error: Error| error.to_string();
    let refused = model("2.30.7", &h100).choice(&ALL_TO_ALL, MIB).unwrap_err();
    assert!(message(refused).contains("no cost model of all_to_all"));
    assert!(message(Model::of("2.4.8", &h100).unwrap_err()).contains("2.8.4"));
    let mut uneven = nodes("hgx-h100", 2, "ib-ndr-8");
    let last = uneven.devices.iter().rposition(|device| device.kind == DeviceKind::Gpu).unwrap();
    uneven.devices[last].kind = DeviceKind::Memory;
    assert!(message(Model::of("2.30.7", &uneven).unwrap_err()).contains("nodes alike"));
    let mut odd = preset("pcie3-8-p2p").unwrap();
    let sockets: Vec<usize> = odd.of_kind(DeviceKind::Socket).collect();
    let medium = odd.links.iter().find(|link| link.medium.family == LinkFamily::Socket).unwrap().medium;
    let numalink: &Medium = Box::leak(Box::new(Medium { name: "numalink".to_owned(), ..medium.clone() }));
    odd.links.iter_mut().filter(|link| sockets.contains(&link.from)).for_each(|link| {
        if link.medium.family == LinkFamily::Socket {
            link.medium = numalink;
        }
    });
    assert!(message(Model::of("2.20.5", &odd).unwrap_err()).contains("numalink"));
    let amd = preset("mi300x-8").unwrap();
    assert!(message(Model::of("2.20.5", &amd).unwrap_err()).contains("NVIDIA"));
}

#[test]
fn a_gpu_over_c2c_is_near_its_card_since_2_27_and_relays_since_2_28() {
    // Four GH200 per node, a card at each: rings of 24 GB/s in every version, and trees over C2C and PXN.
    let several = nodes("gh200-4", 4, "slingshot-4");
    let seen = |version, algorithm| {
        let channels = model(version, &several).channels(algorithm).unwrap();
        (f64::from(channels.count) * channels.network_gbps, channels.network_class)
    };
    assert_eq!(seen("2.18.5", Ring), (96.0, PathClass::Phb));
    assert_eq!(seen("2.26.5", Ring), (96.0, PathClass::Phb));
    assert_eq!(seen("2.27.3", Ring), (96.0, PathClass::P2c));
    assert_eq!(seen("2.30.7", Ring), (96.0, PathClass::Pxn));
}

#[test]
fn choices_of_fifteen_versions_are_those_of_nccls_own_code() {
    let mut models = BTreeMap::new();
    let mut compared = 0;
    for line in include_str!("../../../data/nccl-choices/choices.csv").lines().skip(1) {
        let [machine, version, collective, nbytes, algorithm, protocol, us] = line.split(',').collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        let model = models.entry((machine, version)).or_insert_with(|| of(version, machine));
        let collective = COLLECTIVES.iter().find(|known| known.name == collective).unwrap();
        let found = model.choice(collective, nbytes.parse().unwrap()).unwrap();
        assert_eq!((found.algorithm.name(), found.protocol.name()), (algorithm, protocol), "{line}: {found:?}");
        let ratio = found.time_ps.unwrap() as f64 / 1e6 / us.parse::<f64>().unwrap();
        assert!((ratio - 1.0).abs() < 0.005, "{line}: {found:?}");
        compared += 1;
    }
    assert!(compared > 1000, "{compared} rows");
}

#[test]
fn a_version_keeps_the_features_of_its_minor_version() {
    // NVLS begins with 2.17.1; PyTorch 2.1 has 2.18.1.
    for (version, has_nvls) in
        [("2.16.5", false), ("2.17.1", true), ("2.18.1", true), ("2.18.3", true), ("2.18.6", true)]
    {
        let chosen = of(version, "hgx-h100").choice(&ALL_REDUCE, GIB).unwrap();
        assert_eq!(chosen.algorithm == Nvls, has_nvls, "{version}: {chosen:?}");
    }
}

#[test]
fn nvls_trees_have_one_more_size_than_trees() {
    // From 512 MiB to 1 GiB the factor of NVLS trees is 0.9 since 2.29.2, on x86; that of trees is 1.
    let b200 = model("2.30.7", &nodes("hgx-b200", 2, "ib-ndr-8"));
    let per_byte = |algorithm, nbytes| pair(&b200, "all_reduce", nbytes, algorithm, Simple).bandwidth_gbps;
    assert!((per_byte(NvlsTree, 768 * MIB) / per_byte(NvlsTree, 2 * GIB) - 0.9).abs() < 1e-9);
    assert_eq!(per_byte(Tree, 768 * MIB), per_byte(Tree, 2 * GIB));
}
