//! Networks of one's own: their switches, routes and rates, lower bounds, predictions, and what is refused.

use std::collections::HashSet;

use nvcoll_core::collective::{ALL_REDUCE, ALL_TO_ALL};
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Path;
use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Prediction, Predictor};
use nvcoll_fabric::simulate::{protocol, simulate, Settings};
use nvcoll_fabric::topology::cluster::{cluster, network, Network};
use nvcoll_fabric::topology::route::RouteKind;
use nvcoll_fabric::units::Rate;
use nvcoll_fabric::{Error, Fabric};
use proptest::prelude::*;

mod common;
use common::{partition, runs_above_the_floor, schedule};

/// One port of 400 Gbit/s for each GPU of an HGX H100, at its full rate.
const CARDS: &str = r#"
name = "mine"
title = "made for a test"
source = "made for a test"
medium = "ib-ndr"
efficiency = 1.0
nics = 8
host_medium = "pcie5"
host_lanes = 16
"#;

fn described(tiers: &str) -> Result<Network, Error> {
    Network::from_text(&format!("{CARDS}{tiers}"), "mine.toml")
}

fn joined(node: &str, nodes: u32, tiers: &str) -> Fabric {
    cluster(&preset(node).unwrap(), nodes, &described(tiers).unwrap()).unwrap()
}

const POD: &str = "[[tiers]]\nchildren = 2\n[[tiers]]\nchildren = 2\n";

/// Two nodes at a leaf, two leaves in a pod, four pods at a core with a quarter of the rate.
fn fat_tree() -> Fabric {
    joined("hgx-h100", 16, &format!("{POD}oversubscription = 4\n[[tiers]]\nchildren = 4\n"))
}

fn passed(fabric: &Fabric, from: u32, to: u32) -> Vec<String> {
    let route = fabric.route(from, to).unwrap();
    let names = route.links.iter().map(|&link| fabric.devices[fabric.links[link].to].name.clone());
    names.filter(|name| fabric.devices[fabric.device(name).unwrap()].kind == DeviceKind::NetworkSwitch).collect()
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found}, not {expected}");
}

#[test]
fn a_route_climbs_as_far_as_it_must() {
    let tree = fat_tree();
    assert_eq!(passed(&tree, 0, 8), ["leaf0"]);
    assert_eq!(passed(&tree, 0, 16), ["leaf0", "spine0", "leaf1"]);
    assert_eq!(passed(&tree, 0, 127), ["leaf0", "spine0", "core", "spine3", "leaf7"]);
}

#[test]
fn across_pods_of_a_4_to_1_tree_a_gpu_sends_a_quarter_of_its_card() {
    let tree = fat_tree();
    let at_once = tree.at_once().unwrap();
    // 32 GPUs of a pod send to 96 others over 32 x 50 / 4 GB/s.
    close(at_once[0][127].unwrap().gbps(), 50.0 / 4.0 / 96.0);
    // In its pod a GPU has the rest of the PCIe of its card for 24 others: 0.77 of 63.008 GB/s.
    close(at_once[0][16].unwrap().gbps(), (48.516_16 - 12.5) / 24.0);
    close(tree.cut(&(0..32).collect::<Vec<_>>()).gbps(), 400.0);
    let wide = joined("hgx-h100", 16, &format!("{POD}[[tiers]]\n"));
    close(wide.at_once().unwrap()[0][127].unwrap().gbps(), wide.at_once().unwrap()[0][16].unwrap().gbps());
}

#[test]
fn the_bound_of_all_to_all_is_the_narrow_tier() {
    let algbw = fat_tree().floor(&ALL_TO_ALL).unwrap().algbw.unwrap();
    // Of S from each of 32 GPUs, 96/128 leave the pod over 400 GB/s.
    close(algbw.gbps(), 400.0 / (32.0 * 96.0 / 128.0));
    let wide = joined("hgx-h100", 16, &format!("{POD}[[tiers]]\n")).floor(&ALL_TO_ALL).unwrap().algbw.unwrap();
    close(wide.gbps(), 50.0 / (120.0 / 128.0));
}

#[test]
fn a_shipped_network_is_one_whose_tiers_are_rails_and_a_spine() {
    let node = preset("hgx-h100").unwrap();
    let shipped = cluster(&node, 5, network("ib-ndr-8").unwrap()).unwrap();
    let same = described("[[tiers]]\nrails = true\n[[tiers]]\n").unwrap();
    let same = Network { efficiency: None, ..same };
    let mine = cluster(&node, 5, &same).unwrap();
    assert_eq!((&mine.devices, &mine.links), (&shipped.devices, &shipped.links));
    assert_eq!(mine.floor(&ALL_REDUCE), shipped.floor(&ALL_REDUCE));
}

#[test]
fn rails_alone_are_reached_over_the_gpu_beside_them() {
    let rails = joined("hgx-h100", 4, "[[tiers]]\nrails = true\nchildren = 64\n");
    assert!(rails.abilities.forwards);
    let route = rails.route(0, 9).unwrap();
    assert_eq!(route.kind, RouteKind::Network);
    let names: Vec<&str> = route.links.iter().map(|&link| rails.devices[rails.links[link].to].name.as_str()).collect();
    assert_eq!(names, ["n0.nvswitch", "n0.gpu1", "n0.pcie1", "n0.nic1", "rail1", "n1.nic1", "n1.pcie1", "n1.gpu1"]);
    assert_eq!(passed(&rails, 3, 11), ["rail3"]);
    // Each rail carries all that is for it: from 8 GPUs of a node to 3 others.
    close(rails.at_once().unwrap()[0][9].unwrap().gbps(), 48.516_16 / 24.0);
}

#[test]
fn static_ecmp_hashes_a_flow_onto_one_spine_and_ideal_spreading_does_not() {
    let tiers = "[[tiers]]\nchildren = 1\n[[tiers]]\nswitches = 8\n";
    let hashed = joined("hgx-h100", 4, &format!("ecmp = \"static\"\n{tiers}"));
    let even = joined("hgx-h100", 4, tiers);
    let spines: HashSet<String> = (8..32).map(|to| passed(&hashed, 0, to)[1].clone()).collect();
    assert!(spines.len() > 4, "{spines:?}");
    assert_eq!(passed(&hashed, 0, 8), passed(&hashed, 0, 8));
    assert_eq!(passed(&even, 0, 8), ["leaf0", "spine", "leaf1"]);
    assert_eq!(even.devices[even.device("spine").unwrap()].chips, 8);
    let least = |fabric: &Fabric| fabric.at_once().unwrap().into_iter().flatten().flatten().min().unwrap();
    assert!(least(&hashed) < least(&even));
    assert_eq!(hashed.floor(&ALL_TO_ALL).unwrap().algbw, even.floor(&ALL_TO_ALL).unwrap().algbw);
}

#[test]
fn a_torus_is_crossed_by_the_fewest_links() {
    let torus = joined("hgx-h100", 12, "[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"torus\"\ndims = [4, 3]\n");
    let switches = |to: u32| passed(&torus, 0, 8 * to).len() - 1;
    // Node k is at (k mod 4, k / 4); rings are closed.
    let expected: Vec<u32> = (1..12u32).map(|to| (to % 4).min(4 - to % 4) + (to / 4).min(3 - to / 4)).collect();
    assert_eq!(
        (1..12).map(switches).collect::<Vec<_>>(),
        expected.iter().map(|&hops| hops as usize).collect::<Vec<_>>()
    );
    // Four links of one lane leave a switch.
    close(torus.cut(&(0..8).collect::<Vec<_>>()).gbps(), 200.0);
}

#[test]
fn every_two_groups_of_a_dragonfly_are_joined() {
    let tiers = "[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"mesh\"\nchildren = 3\n[[tiers]]\njoins = \"mesh\"\n";
    let dragonfly = joined("hgx-h100", 12, tiers);
    assert_eq!(passed(&dragonfly, 0, 8), ["leaf0", "leaf1"]);
    // Of 4 groups of 3 routers each router has one link to another group: at most local, global, local.
    assert!((0..12).all(|to| passed(&dragonfly, 0, 8 * to).len() <= 4));
    let group: Vec<u32> = (0..24).collect();
    close(dragonfly.cut(&group).gbps(), 150.0);
    let from_router = |at: usize| {
        let is_switch = |at: usize| dragonfly.devices[at].kind == DeviceKind::NetworkSwitch;
        dragonfly.links.iter().filter(|link| link.from == at && is_switch(link.to)).count()
    };
    assert!(dragonfly.of_kind(DeviceKind::NetworkSwitch).all(|at| from_router(at) == 3), "two local, one global");
}

#[test]
fn no_simulated_time_is_below_the_lower_bound() {
    const NBYTES: usize = 1 << 20;
    let torus = "[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"torus\"\ndims = [3, 2]\n";
    let shapes = [
        joined("hgx-a100-4", 8, &format!("{POD}oversubscription = 4\n[[tiers]]\n")),
        joined("hgx-h100", 4, "[[tiers]]\nrails = true\n"),
        joined("hgx-a100-4", 6, torus),
        joined("hgx-h100", 4, "ecmp = \"static\"\n[[tiers]]\nchildren = 1\n[[tiers]]\nswitches = 4\n"),
    ];
    for fabric in shapes {
        assert!(runs_above_the_floor(&fabric, NBYTES, NBYTES as u64) > 10, "{}", fabric.name);
    }
}

/// The all_to_all of 128 MiB is simulated and predicted to be held up by the same tier.
#[test]
fn a_prediction_names_the_tier_that_holds_it_up() {
    let tree = fat_tree();
    let found = predicted(&tree, Pattern::AllToAll, 1 << 30);
    assert!(found.bottleneck.contains("the narrowest cut of the network"), "{}", found.bottleneck);
    assert!(found.trust.contains("not validated"), "{}", found.trust);
    let wide = joined("hgx-h100", 16, &format!("{POD}[[tiers]]\n"));
    let other = predicted(&wide, Pattern::AllToAll, 1 << 30);
    assert!(other.bottleneck.starts_with("network cards"), "{}", other.bottleneck);
    // 96 of 120 flows out of a node are held to a quarter of the card.
    let ratio = found.us / other.us;
    assert!(ratio > 2.5 && ratio < 3.5, "{ratio}");
    // A ring leaves a pod once, over the cards of one node of four.
    let ring = |fabric: &Fabric| predicted(fabric, Pattern::AllReduce, 1 << 30);
    assert!((ring(&tree).us / ring(&wide).us - 1.0).abs() < 1e-9);
}

#[test]
fn a_leaf_for_each_node_with_half_the_links_up_holds_up_a_ring() {
    let tiers = |part: u32| format!("[[tiers]]\nchildren = 1\noversubscription = {part}\n[[tiers]]\n");
    let (half, whole) = (joined("hgx-h100", 8, &tiers(2)), joined("hgx-h100", 8, &tiers(1)));
    let all_reduce = |fabric: &Fabric| predicted(fabric, Pattern::AllReduce, 1 << 30);
    let found = all_reduce(&half);
    assert!(found.bottleneck.contains("leaf"), "{}", found.bottleneck);
    assert!(found.trust.starts_with("not validated"), "{}", found.trust);
    let ratio = found.us / all_reduce(&whole).us;
    assert!(ratio > 1.8 && ratio < 2.2, "{ratio}");
}

#[test]
fn what_is_not_predicted_is_said() {
    let hashed = joined("hgx-h100", 4, "ecmp = \"static\"\n[[tiers]]\nchildren = 1\n[[tiers]]\nswitches = 8\n");
    let trust = predicted(&hashed, Pattern::AllReduce, 1 << 26).trust;
    assert!(trust.starts_with("not validated") && trust.contains("simulate"), "{trust}");
    let slow = joined("hgx-h100", 2, "port_gbit = 300\n[[tiers]]\n".trim_start());
    let trust = predicted(&slow, Pattern::AllReduce, 1 << 26).trust;
    assert!(trust.contains("ib-300"), "{trust}");
    assert_eq!(slow.evidence().to_string(), "not validated");
}

fn predicted(fabric: &Fabric, pattern: Pattern, nbytes: u64) -> Prediction {
    let call = CollectiveCall { pattern, launch: Launch::ProcessPerGpu, forced: AlgorithmFilter::default() };
    let predictor = Predictor::of(fabric, None).unwrap();
    let weighed = predictor.weigh(&call, nbytes).unwrap();
    predictor.predict(&call, &weighed, &pattern.floor(fabric).unwrap())
}

#[test]
fn nodes_of_a_group_stand_for_each_other() {
    let tiers = "[[tiers]]\nchildren = 16\noversubscription = 2\n[[tiers]]\nchildren = 32\n";
    let many = joined("hgx-h100", 512, tiers);
    assert_eq!(many.world_size(), 4096);
    for pattern in Pattern::ALL {
        assert!(pattern.floor(&many).unwrap().algbw.unwrap() > Rate(0));
    }
    // 16 nodes of 8 GPUs send 3968/4096 of what they have over half of 16 x 400 GB/s.
    let leaf = |fabric: &Fabric| fabric.floor(&ALL_TO_ALL).unwrap().algbw.unwrap().gbps();
    close(leaf(&many), 3200.0 / (128.0 * 3968.0 / 4096.0));
    let pods = "[[tiers]]\nchildren = 16\n[[tiers]]\nchildren = 8\noversubscription = 8\n[[tiers]]\n";
    let pods = joined("hgx-h100", 512, pods);
    close(leaf(&pods), 6400.0 / (1024.0 * 3072.0 / 4096.0));
    let held_up = predicted(&pods, Pattern::AllToAll, 1 << 30).bottleneck;
    assert!(held_up.starts_with("the narrowest cut of the network"), "{held_up}");
    assert!(predicted(&many, Pattern::AllToAll, 1 << 30).us > predicted(&many, Pattern::AllReduce, 1 << 20).us);
}

#[test]
fn gpus_that_forward_reach_each_other_over_others() {
    let text = include_str!("../../../examples/networks/gpu-torus.toml");
    let torus = Fabric::from_text(text, None, "gpu-torus.toml").unwrap();
    assert!(torus.abilities.forwards);
    assert_eq!(torus.route(0, 1).unwrap().links.len(), 1);
    assert_eq!(torus.route(0, 10).unwrap().links.len(), 4, "two steps in each dimension");
    let still = Fabric::from_text(&text.replace("forwards = true", "forwards = false"), None, "still").unwrap();
    assert!(matches!(still.route(0, 10), Err(Error::NoPath { .. })));
    assert!(torus.at_once().unwrap()[0][1] > None);
    assert!(predicted(&torus, Pattern::AllReduce, 1 << 30).trust.contains("simulate"));
    let schedule = schedule(&ALL_REDUCE, "ring", 16, Path::Mapped);
    let settings = Settings::new(protocol::named("ideal").unwrap(), 1 << 20);
    let run = simulate(&schedule, &partition(&schedule, 1 << 20), DType::U8, &torus, &settings).unwrap();
    assert!(run.total_ps() >= torus.floor(&ALL_REDUCE).unwrap().time(1 << 20));
}

#[test]
fn what_is_no_network_is_refused_with_its_field() {
    let refused = |tiers: &str, part: &str| match described(tiers) {
        Err(Error::Description { origin, message }) => {
            assert!(origin == "mine.toml" && message.contains(part), "{message}");
        }
        other => panic!("{tiers}: {other:?}"),
    };
    let mesh = "[[tiers]]\nchildren = 2\n[[tiers]]\njoins = \"mesh\"\n";
    for (tiers, part) in [
        ("tiers = []", "tiers: there is none"),
        ("[[tiers]]\nchildren = 0", "tiers[0].children: 0"),
        ("[[tiers]]\nshape = 3", "unknown field `shape`"),
        ("[[tiers]]\n[[tiers]]\njoins = \"ring\"", "unknown variant `ring`"),
        ("[[tiers]]\njoins = \"mesh\"", "tiers[0].joins"),
        ("[[tiers]]\nuplinks = 4", "tiers[0].uplinks: there is no tier above"),
        ("[[tiers]]\nuplinks = 4\noversubscription = 2\n[[tiers]]", "not both"),
        ("[[tiers]]\noversubscription = -1\n[[tiers]]", "tiers[0].oversubscription: -1"),
        ("[[tiers]]\n[[tiers]]\nrails = true", "tiers[1].rails: the tier below has joined the rails"),
        ("[[tiers]]\nswitches = 2", "tiers[0].switches"),
        ("[[tiers]]\ndims = [2]", "tiers[0].dims"),
        ("[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"torus\"", "tiers[1].dims"),
        ("[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"torus\"\ndims = [0]", "tiers[1].dims: 0"),
        ("[[tiers]]\n[[tiers]]\njoins = \"mesh\"", "tiers[0].children"),
        (&mesh.replace("children = 2", "children = 2\nuplinks = 3"), "tiers[0].uplinks: the tier above joins by links"),
        ("port_gbit = 0\n[[tiers]]", "port_gbit: 0"),
        ("port_gbit = nan\n[[tiers]]", "port_gbit"),
        ("efficiency = 1e-9\n[[tiers]]", "duplicate key"),
        ("latency_ns = 5_000_000_000\n[[tiers]]", "latency_ns: 5000000000"),
        ("latency_ns = -5\n[[tiers]]", "line"),
        ("speed = 5\n[[tiers]]", "unknown field `speed`"),
    ] {
        refused(tiers, part);
    }
    let parse = |text: &str| Network::from_text(text, "mine.toml");
    assert!(matches!(parse(&CARDS.replace("ib-ndr", "ib-zdr")), Err(Error::Description { .. })));
    let with = |from: &str, to: &str| parse(&CARDS.replace(from, to)).unwrap_err().to_string();
    assert!(with("ib-ndr", "nvlink4").contains("medium: nvlink4 is no medium of networks"));
    assert!(with("pcie5", "nvlink4").contains("host_medium"));
    assert!(with("nics = 8", "nics = 0").contains("nics: 0"));
    assert!(with("nics = 8", "").contains("missing field `nics`"));
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let refused = |nodes: u32, tiers: &str| {
        let made = cluster(&preset("hgx-h100").unwrap(), nodes, &described(tiers).unwrap());
        made.unwrap_err().to_string()
    };
    let held = refused(9, &format!("{POD}[[tiers]]\nchildren = 2\n"));
    assert!(held.contains("tiers: they hold 8 nodes, not 9"), "{held}");
    let torus = "[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"torus\"\ndims = [4, 2]\n";
    assert!(refused(7, torus).contains("tiers[1].dims: a torus of 4 x 2 has 8 children, and there are 7"));
    let uneven = refused(4, "[[tiers]]\nchildren = 1\noversubscription = 3\n[[tiers]]\n");
    assert!(uneven.contains("tiers[0].oversubscription"), "{uneven}");
    let shared = "ecmp = \"static\"\n[[tiers]]\nchildren = 1\n[[tiers]]\nswitches = 3\n";
    assert!(refused(4, shared).contains("tiers[1].switches: 8 links"));
    let many = "[[tiers]]\nchildren = 1\n[[tiers]]\njoins = \"mesh\"\nlinks = 1000\n";
    assert!(refused(100, many).contains("tiers[1]: it has"));
    let named = "[[tiers]]\nname = \"a\"\nchildren = 1\n[[tiers]]\nname = \"a\"\nchildren = 2\n[[tiers]]\n";
    assert!(refused(4, named).contains("two switches are called a0"));
}

fn tier() -> impl Strategy<Value = String> {
    let value = |field: &'static str, most: u32| {
        prop::option::weighted(0.4, 0..most)
            .prop_map(move |value| value.map_or(String::new(), |value| format!("{field} = {value}\n")))
    };
    let joins = prop::sample::select(vec!["", "", "", "joins = \"mesh\"\n", "joins = \"torus\"\ndims = [2, 2]\n"]);
    let rails = prop::sample::select(vec!["", "rails = true\n"]);
    (
        joins,
        rails,
        value("children", 5),
        value("switches", 4),
        value("uplinks", 9),
        value("oversubscription", 4),
        value("links", 3),
    )
        .prop_map(|(joins, rails, a, b, c, d, e)| format!("[[tiers]]\n{joins}{rails}{a}{b}{c}{d}{e}"))
}

proptest! {
    #[test]
    fn any_description_joins_all_nodes_or_is_an_error(
        tiers in prop::collection::vec(tier(), 1..4), nodes in 1u32..9, is_static: bool,
    ) {
        let text = format!("{}{}", if is_static { "ecmp = \"static\"\n" } else { "" }, tiers.concat());
        let made = described(&text).and_then(|found| cluster(&preset("hgx-a100-4").unwrap(), nodes, &found));
        if let Ok(all) = made {
            let last = all.world_size() - 1;
            prop_assert!(all.route(0, last).is_ok() && all.route(last, 1).is_ok());
            let floor = all.floor(&ALL_TO_ALL).unwrap();
            prop_assert!(floor.algbw > Some(Rate(0)) && floor.latency > 0);
        }
    }
}
