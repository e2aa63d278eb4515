//! Pairs alone and at once, cuts, and clusters.

use std::collections::BTreeSet;

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::preset::presets;
use nvcoll_fabric::topology::cluster::{cluster, network, networks};
use nvcoll_fabric::topology::route::RouteKind;
use nvcoll_fabric::Error;
use proptest::prelude::*;

#[test]
fn everybody_at_once_shares_the_port_of_a_switch_but_not_the_links_of_a_mesh() {
    let board = preset("hgx-h100").unwrap();
    let (alone, at_once) = (board.alone().unwrap(), board.at_once().unwrap());
    assert_eq!(alone[0][1].unwrap().gbps(), 369.0);
    assert_eq!(at_once[0][1].unwrap().0, 369_000_000_000 / 7);
    assert_eq!(at_once[3][3], None);
    let mesh = preset("hgx-a100-4").unwrap();
    assert_eq!(mesh.alone().unwrap(), mesh.at_once().unwrap());
}

#[test]
fn a_staged_pair_alone_is_slower_than_its_narrowest_link_only_where_it_crosses_one_twice() {
    let staged = preset("rtx4090-2-staged").unwrap().alone().unwrap()[0][1].unwrap();
    let peers = preset("rtx4090-2-p2p").unwrap().alone().unwrap()[0][1].unwrap();
    assert_eq!(staged, peers, "alone, memory is wider than PCIe");
}

#[test]
fn half_of_a_board_sends_what_its_ports_let_through() {
    let board = preset("hgx-h100").unwrap();
    // Four ports of NVLink, and the socket link for what goes over PCIe.
    let nvlink = 4 * 369_000_000_000u64;
    let cut = board.cut(&[0, 1, 2, 3]).0;
    assert!(cut >= nvlink && cut < nvlink + 200_000_000_000, "{cut}");
    assert_eq!(preset("dgx1-v100").unwrap().cut(&[0]).0 / 1_000_000_000, (150.0f64 * 0.83 + 12.13) as u64);
}

#[test]
fn nodes_are_joined_by_rails() {
    let node = preset("hgx-h100").unwrap();
    let all = cluster(&node, 4, network("ib-ndr-8").unwrap()).unwrap();
    assert_eq!((all.world_size(), all.nodes()), (32, 4));
    let own_rail = all.route(0, 8).unwrap();
    let other_rail = all.route(0, 9).unwrap();
    assert_eq!((own_rail.kind, other_rail.kind), (RouteKind::Network, RouteKind::Network));
    assert_eq!(own_rail.links.len() + 2, other_rail.links.len(), "from one rail to another over the spine");
    assert_eq!(all.route(0, 1).unwrap().kind, RouteKind::Nvlink);
    assert_eq!(all.of_kind(DeviceKind::Nic).count(), 32);
}

#[test]
fn gpus_that_share_a_switch_or_socket_use_a_card_each() {
    for (name, by) in
        [("hgx-a100", "ib-hdr-8"), ("dgx1-v100", "ib-edr-4"), ("hgx-h100", "ib-ndr-8"), ("gb200-8", "roce-400-4")]
    {
        let by = network(by).unwrap();
        let pair = cluster(&preset(name).unwrap(), 2, by).unwrap();
        let card = |gpu: u32| {
            let links = pair.route(gpu, gpu + pair.world_size() / 2).unwrap().links;
            links
                .into_iter()
                .map(|link| pair.links[link].to)
                .find(|&at| pair.devices[at].kind == DeviceKind::Nic)
                .unwrap()
        };
        let used: BTreeSet<usize> = (0..pair.world_size() / 2).map(card).collect();
        assert_eq!(used.len() as u32, pair.of_kind(DeviceKind::Nic).count() as u32 / 2, "{name}");
    }
}

#[test]
fn every_tray_of_a_rack_has_cards_of_its_own() {
    let by = network("roce-400-4").unwrap();
    let pair = cluster(&preset("gb200-64").unwrap(), 2, by).unwrap();
    assert_eq!((pair.nodes(), pair.of_kind(DeviceKind::Nic).count()), (2, 2 * 16 * 4));
    for gpu in [0, 5, 63] {
        let route = pair.route(gpu, 64 + gpu).unwrap();
        // GPU, socket, card, rail, card, socket, GPU.
        assert_eq!((route.kind, route.links.len()), (RouteKind::Network, 6));
        let card = &pair.devices[pair.links[route.links[1]].to].name;
        assert_eq!(card.strip_prefix("n0.nic").unwrap().parse::<u32>().unwrap() / 4, gpu / 4, "of its own tray");
    }
    let rack: Vec<u32> = (0..64).collect();
    assert_eq!(pair.cut(&rack).gbps(), 64.0 * 50.0 * 0.96);
    let three = cluster(&preset("gb300-nvl72[0,4,70]").unwrap(), 2, by).unwrap();
    assert_eq!(three.of_kind(DeviceKind::Nic).count(), 2 * 3 * 4, "each GPU is on a tray of its own");
}

#[test]
fn what_is_no_cluster_is_refused() {
    let node = preset("hgx-h100").unwrap();
    let ndr = network("ib-ndr-8").unwrap();
    let pair = cluster(&node, 2, ndr).unwrap();
    for wrong in [cluster(&node, 0, ndr), cluster(&node, 1 << 20, ndr), cluster(&pair, 2, ndr)] {
        assert!(matches!(wrong, Err(Error::Description { .. })));
    }
    assert!(matches!(network("token-ring"), Err(Error::Unknown { .. })));
}

#[test]
fn every_network_joins_two_nodes_of_every_box() {
    for network in networks() {
        for node in presets().iter().filter(|node| node.world_size() <= 8) {
            let all = cluster(node, 2, network).unwrap();
            let route = all.route(0, node.world_size()).unwrap();
            assert_eq!(route.kind, RouteKind::Network, "{}", all.name);
        }
    }
}

proptest! {
    #[test]
    fn no_pair_is_faster_when_everybody_sends(which in 0..presets().len()) {
        let fabric = &presets()[which];
        prop_assume!(fabric.world_size() <= 16);
        let (alone, at_once) = (fabric.alone().unwrap(), fabric.at_once().unwrap());
        for (a, b) in alone.iter().flatten().zip(at_once.iter().flatten()) {
            prop_assert!(b <= a);
        }
    }
}
