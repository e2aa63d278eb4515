//! Nodes that were read from a file become clusters, with the cards that they have.

use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::import::FORMATS;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::topology::cluster::{cluster, network};
use nvcoll_fabric::topology::route::RouteKind;
use nvcoll_fabric::Fabric;

/// Two sockets, each with two GPUs; behind the switch of each GPU a card, and a card for storage on each socket, listed
/// first. Made for this test.
const NODE: &str = "\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3\tNIC4\tNIC5\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\tNODE\tSYS\tPIX\tNODE\tSYS\tSYS\t0-55\t0
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tSYS\tNODE\tPIX\tSYS\tSYS\t0-55\t0
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tNODE\tSYS\tSYS\tPIX\tNODE\t56-111\t1
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tNODE\tSYS\tSYS\tNODE\tPIX\t56-111\t1
";

fn node() -> Fabric {
    Fabric::from_text(NODE, Some("h100-sxm"), "node.txt").unwrap()
}

#[test]
fn a_node_with_cards_keeps_those_that_are_near_its_gpus() {
    let four = cluster(&node(), 3, network("ib-ndr-4").unwrap()).unwrap();
    assert_eq!((four.world_size(), four.nodes()), (12, 3));
    assert_eq!(four.of_kind(DeviceKind::Nic).count(), 12, "the cards for storage are left out");
    for gpu in 0..4 {
        let route = four.route(gpu, gpu + 4).unwrap();
        let passed: Vec<&str> =
            route.links.iter().map(|&link| four.devices[four.links[link].to].name.as_str()).collect();
        assert_eq!(route.kind, RouteKind::Network);
        assert!(passed.contains(&format!("rail{gpu}").as_str()) && passed.len() == 6, "{gpu}: {passed:?}");
    }
}

#[test]
fn cards_of_the_speed_of_the_network_come_first_and_another_speed_is_said() {
    // Beside each GPU a card for storage, and behind another switch one for the network.
    let pci =
        |bus: &str, inside: &str| format!(r#"<pci busid="{bus}" class="0x060400" link_width="16">{inside}</pci>"#);
    let card = |mbits: u32| {
        let port = format!(r#"<nic><net name="mlx5_0" speed="{mbits}"/></nic>"#);
        format!(r#"<pci busid="c{mbits}" class="0x020700" link_width="16">{port}</pci>"#)
    };
    let gpu = |n: u32| format!(r#"<pci busid="{n}" class="0x030200"/>{}"#, card(100_000));
    let seats: String = (0..4).map(|n| pci("s", &gpu(n)) + &pci("n", &card(400_000))).collect();
    let text = format!(r#"<system><cpu numaid="0">{seats}</cpu></system>"#);
    let node = Fabric::from_text(&text, Some("l40s"), "node.xml").unwrap();
    let speeds: Vec<_> = node.of_kind(DeviceKind::Nic).filter_map(|nic| node.devices[nic].port_mbits).collect();
    assert_eq!(speeds, [100_000, 400_000].repeat(4));
    let differs = |by: &str| {
        let pair = cluster(&node, 2, network(by).unwrap()).unwrap();
        pair.sources.iter().filter(|source| source.contains("network cards of")).cloned().collect::<Vec<_>>()
    };
    assert!(differs("ib-ndr-4").is_empty() && differs("efa-100-4").is_empty());
    assert_eq!(differs("ib-xdr-4"), ["network cards of node.xml have 100 Gbit/s, not the 800 of ib-xdr-4"]);
    let pair = cluster(&node, 2, network("ib-ndr-4").unwrap()).unwrap();
    let seat = |nic: &str| pair.links.iter().find(|link| link.to == pair.device(nic).unwrap()).unwrap().from;
    assert_ne!(seat("n0.nic0"), pair.links.iter().find(|link| link.from == pair.gpus()[0]).unwrap().to);
}

#[test]
fn each_tray_of_a_rack_has_the_cards_of_a_node() {
    let gpu = |n: u32| {
        let inside = r#"<nvlink target="s" count="18" tclass="0x068000"/><c2c bw="1" count="1"/>"#;
        format!(r#"<pci busid="{n}" class="0x030200"><gpu sm="100">{inside}</gpu></pci>"#)
    };
    let card = r#"<pci busid="c" class="0x020700"><nic><net name="mlx5_0" speed="400000"/></nic></pci>"#;
    let cpu = |host: u32, n: u32| {
        let head = format!(r#"<cpu host_hash="{host}" numaid="{n}" arch="arm64">"#);
        format!("{head}{}{}{card}{card}</cpu>", gpu(2 * n), gpu(2 * n + 1))
    };
    let hosts: String = (0..2).map(|host| cpu(host, 0) + &cpu(host, 1)).collect();
    let rack = Fabric::from_text(&format!("<system>{hosts}</system>"), None, "rack.xml").unwrap();
    let two = cluster(&rack, 2, network("roce-400-4").unwrap()).unwrap();
    let board = preset("gb200-8x2+roce-400-4").unwrap();
    assert_eq!(two.of_kind(DeviceKind::Nic).count(), board.of_kind(DeviceKind::Nic).count());
    assert_eq!(two.alone().unwrap(), board.alone().unwrap());
}

#[test]
fn too_few_cards_and_a_network_that_is_there_already_are_refused() {
    let error = cluster(&node(), 2, network("ib-ndr-8").unwrap()).unwrap_err().to_string();
    assert!(error.contains("the node has 6 network cards, the network 8 per node"), "{error}");
    let pair = preset("hgx-h100x2+ib-ndr-8").unwrap();
    let error = cluster(&pair, 2, network("ib-ndr-8").unwrap()).unwrap_err().to_string();
    assert!(error.contains("has a network already"), "{error}");
}

#[test]
fn every_format_reads_its_own_text_and_the_unknown_is_told_of_all() {
    let amd = "Link Type between two GPUs\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n";
    let texts = [
        ("rocm-smi --showtopo", amd),
        ("nvidia-smi topo -m", NODE),
        ("NCCL's topology in XML", "<graphs/>"),
        ("a description in TOML", "gpu = 3"),
    ];
    for (name, text) in texts {
        let format = FORMATS.iter().find(|format| format.name == name).unwrap();
        let gpu = format.takes_gpu().then_some(if text == amd { "mi210" } else { "h100-sxm" });
        match Fabric::from_text(text, gpu, "text") {
            Ok(fabric) => assert!(fabric.sources[0].starts_with(name), "{:?}", fabric.sources),
            Err(error) => assert!(!error.to_string().contains("no format"), "{error}"),
        }
        if gpu.is_none() {
            let error = Fabric::from_text(text, Some("h100-sxm"), "text").unwrap_err().to_string();
            assert!(error.contains("leave `gpu` out"), "{error}");
        }
        let alike = FORMATS.iter().filter(|other| other.ending == format.ending);
        assert!(alike.into_iter().all(|other| other.takes_gpu() == format.takes_gpu()), "{name}");
    }
    assert_eq!(texts.len(), FORMATS.len(), "a format has no text here");
    let error = Fabric::from_text("GPU memory is full", None, "text").unwrap_err().to_string();
    assert!(FORMATS.iter().all(|format| error.contains(format.name)), "{error}");
}
