//! Nodes that were read from a file become clusters, with the cards that they have.

use nvcoll_fabric::cluster::{cluster, network};
use nvcoll_fabric::hardware::DeviceKind;
use nvcoll_fabric::import::FORMATS;
use nvcoll_fabric::preset::preset;
use nvcoll_fabric::route::RouteKind;
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
fn too_few_cards_and_a_network_that_is_there_already_are_refused() {
    let error = cluster(&node(), 2, network("ib-ndr-8").unwrap()).unwrap_err().to_string();
    assert!(error.contains("the node has 6 network cards, the network 8 per node"), "{error}");
    let pair = preset("hgx-h100x2+ib-ndr-8").unwrap();
    let error = cluster(&pair, 2, network("ib-ndr-8").unwrap()).unwrap_err().to_string();
    assert!(error.contains("has a network already"), "{error}");
}

#[test]
fn every_format_reads_its_own_text_and_the_unknown_is_told_of_all() {
    let texts = [(".txt", NODE), (".xml", "<graphs/>"), (".toml", "gpu = 3")];
    for (ending, text) in texts {
        let format = FORMATS.iter().find(|format| format.ending == ending).unwrap();
        let gpu = format.needs_gpu().then_some("h100-sxm");
        if let Err(error) = Fabric::from_text(text, gpu, "text") {
            assert!(!error.to_string().contains("no format"), "{error}");
        }
        let other = if gpu.is_some() { None } else { Some("h100-sxm") };
        let error = Fabric::from_text(text, other, "text").unwrap_err().to_string();
        assert!(error.contains("gpu"), "{error}");
    }
    assert_eq!(texts.len(), FORMATS.len(), "a format has no text here");
    let error = Fabric::from_text("GPU memory is full", None, "text").unwrap_err().to_string();
    assert!(FORMATS.iter().all(|format| error.contains(format.name)), "{error}");
}
