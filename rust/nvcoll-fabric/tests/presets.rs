//! The shipped tables and machines: each can be read, names itself, says where its numbers are from, and joins its GPUs.

use nvcoll_fabric::hardware::{gpus, media};
use nvcoll_fabric::preset::{preset, PRESETS};
use nvcoll_fabric::route::RouteKind;

#[test]
fn every_row_has_a_source_and_numbers_that_can_be() {
    for medium in media::all() {
        assert!(!medium.source.is_empty() && medium.lane_gbps > 0.0, "{}", medium.name);
        assert!(medium.efficiency > 0.0 && medium.efficiency <= 1.0, "{}", medium.name);
    }
    for gpu in gpus::all() {
        assert!(!gpu.source.is_empty() && gpu.memory_gbps > 0.0, "{}", gpu.name);
    }
}

#[test]
fn every_preset_is_called_what_its_file_is_called_and_joins_all_gpus() {
    for (name, _) in PRESETS {
        let fabric = preset(name).unwrap();
        assert_eq!(&fabric.name, name);
        assert!(!fabric.sources.is_empty(), "{name}");
        for from in 0..fabric.world_size() {
            for to in 0..fabric.world_size() {
                let route = fabric.route(from, to).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(route.kind == RouteKind::Local, from == to, "{name}");
            }
        }
    }
}

#[test]
fn staging_crosses_pcie_and_memory_twice() {
    let fabric = preset("rtx4090-4-staged").unwrap();
    let route = fabric.route(0, 1).unwrap();
    assert_eq!((route.kind, route.links.len()), (RouteKind::Staged, 4));
}
