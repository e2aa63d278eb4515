//! The shipped tables and machines: each can be read, says where its numbers are from, and joins its GPUs.

use std::collections::BTreeSet;

use nvcoll_fabric::hardware::gpus::{self, Generation};
use nvcoll_fabric::hardware::media::{self, LinkFamily};
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::preset::presets;
use nvcoll_fabric::topology::cluster::{cluster, network};
use nvcoll_fabric::topology::route::RouteKind;
use nvcoll_fabric::Error;

#[test]
fn every_row_has_a_name_of_its_own_a_source_and_numbers_that_can_be() {
    for medium in media::all() {
        assert!(!medium.source.is_empty() && medium.lane_gbps > 0.0, "{}", medium.name);
        assert!(medium.efficiency > 0.0 && medium.efficiency <= 1.0, "{}", medium.name);
    }
    for gpu in gpus::all() {
        assert!(!gpu.source.is_empty() && gpu.memory_gbps > 0.0, "{}", gpu.name);
    }
    for gpu in gpus::all() {
        assert_eq!(gpu.nvlink.is_some(), gpu.nvlinks > 0, "{}", gpu.name);
    }
    let names: Vec<_> = media::all().iter().map(|medium| &medium.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn texts_name_one_model_each() {
    let mut known = BTreeSet::new();
    for gpu in gpus::all().iter().filter(|gpu| gpu.variant_of.is_none()) {
        let by = &gpu.known_by;
        assert!(!by.pci.is_empty() && !by.names.is_empty(), "{}", gpu.name);
        assert_eq!(by.gfx.is_some(), gpu.sm.is_none(), "{}: AMD's have an instruction set", gpu.name);
        let vendor = if gpu.sm.is_some() { "10de:" } else { "1002:" };
        assert!(by.pci.iter().all(|id| id.starts_with(vendor) && id.len() == 9), "{}", gpu.name);
        for name in by.pci.iter().chain(&by.names) {
            assert!(known.insert(name.to_ascii_lowercase()), "{name} names two models");
        }
        assert!(gpu.c2c.iter().all(|medium| medium.family == LinkFamily::C2c), "{}", gpu.name);
        assert!(gpu.full_board.is_none_or(|all| all > 1 && gpu.nvlinks > 0 && !gpu.needs_bridge), "{}", gpu.name);
    }
}

#[test]
fn variants_differ_from_their_model_in_memory_and_power_only() {
    for variant in gpus::all() {
        let Some(base) = &variant.variant_of else { continue };
        let base = gpus::named(base).unwrap();
        let plain = gpus::Gpu {
            name: base.name.clone(),
            title: base.title.clone(),
            memory_gbps: base.memory_gbps,
            variant_of: None,
            known_by: base.known_by.clone(),
            source: base.source.clone(),
            compute: base.compute.clone(),
            ..variant.clone()
        };
        assert_eq!((&plain, &gpus::KnownBy::default()), (base, &variant.known_by), "{}", variant.name);
        let [rates, of_base] = [variant, base].map(|gpu| {
            let one = gpu.compute.as_ref().unwrap();
            (one.sms, one.fp16, one.bf16, one.fp8, one.fp4)
        });
        assert_eq!(rates, of_base, "{}", variant.name);
    }
}

#[test]
fn what_a_gpu_computes_is_twice_as_fast_in_half_of_the_bits() {
    for gpu in gpus::all() {
        let Some(one) = &gpu.compute else { continue };
        assert!(one.sms >= 10 && one.memory_gb >= 8.0 && (50.0..2000.0).contains(&one.watts), "{}", gpu.name);
        assert!((0.91..1.006).contains(&(one.usable_gib / one.memory_gb)), "{}", gpu.name);
        let fp16 = one.fp16.unwrap_or_else(|| panic!("{} computes in fp16", gpu.name));
        assert!(one.bf16.is_none_or(|bf16| bf16 == fp16 || gpu.name == "mi100"), "{}", gpu.name);
        assert_eq!(one.bf16.is_some(), gpu.sm.is_none_or(|sm| sm >= 80), "{}: bf16 since Ampere", gpu.name);
        let is_recent = gpu.generation >= Generation::Ada && gpu.generation != Generation::Cdna2;
        assert_eq!(one.fp8.is_some(), is_recent, "{}", gpu.name);
        assert!(one.fp8.is_none_or(|fp8| (1.98..2.05).contains(&(fp8 / fp16))), "{}", gpu.name);
        assert!(one.fp4.is_none_or(|fp4| fp4 / one.fp8.unwrap() >= 1.99), "{}", gpu.name);
    }
}

#[test]
fn every_preset_has_a_name_of_its_own_and_joins_all_its_gpus() {
    let mut names = BTreeSet::new();
    for fabric in presets() {
        assert!(names.insert(&fabric.name), "{}", fabric.name);
        assert!(!fabric.sources.is_empty(), "{}", fabric.name);
        for from in 0..fabric.world_size() {
            for to in 0..fabric.world_size() {
                let route = fabric.route(from, to).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(route.kind == RouteKind::Local, from == to, "{}", fabric.name);
            }
        }
    }
}

#[test]
fn staging_crosses_pcie_and_memory_twice() {
    let route = preset("rtx4090-4-staged").unwrap().route(0, 1).unwrap();
    assert_eq!((route.kind, route.links.len()), (RouteKind::Staged, 4));
    let peers = preset("rtx4090-4-p2p").unwrap().route(0, 1).unwrap();
    assert_eq!((peers.kind, peers.links.len()), (RouteKind::Peer, 2));
}

#[test]
fn some_of_the_gpus_are_ranks_in_the_order_given() {
    let four = preset("dgx1-v100[0,3,2,1]").unwrap();
    assert_eq!(four.world_size(), 4);
    assert_eq!(four.devices[1].name, "gpu3");
    for wrong in ["dgx1-v100[8]", "dgx1-v100[0,0]", "dgx1-v100[]", "dgx1-v100[3-1]", "dgx1-v100[0-99999999]"] {
        assert!(matches!(preset(wrong), Err(Error::Description { .. })), "{wrong}");
    }
    assert!(matches!(preset("dgx3"), Err(Error::Unknown { .. })));
    assert_eq!(preset("hgx-h100[0-3]").unwrap().title, format!("4 of ({})", preset("hgx-h100").unwrap().title));
}

#[test]
fn nodes_and_their_network_are_a_name() {
    let made = cluster(&preset("hgx-h100[0-3]").unwrap(), 2, network("ib-ndr-8").unwrap()).unwrap();
    assert_eq!(preset("hgx-h100[0-3]x2+ib-ndr-8").unwrap(), made);
    assert_eq!(preset("HGX-H100[0-3]x2+IB-NDR-8").unwrap(), made);
    for wrong in ["hgx-h100+ib-ndr-8", "hgx-h100x+ib-ndr-8", "hgx-h100x0+ib-ndr-8", "hgx-h100x-1+ib-ndr-8"] {
        assert!(matches!(preset(wrong), Err(Error::Description { .. })), "{wrong}");
    }
    for wrong in ["hgx-h900x2+ib-ndr-8", "hgx-h100x2+pigeon", "+"] {
        assert!(preset(wrong).is_err(), "{wrong}");
    }
    let error = preset("HGX-H100x2").unwrap_err().to_string();
    assert!(error.contains("have a network between them: pass one, as hgx-h100x2+"), "{error}");
}

#[test]
fn the_nearest_names_are_offered() {
    for (wrong, nearest) in [("hgx-h1000", "hgx-h100"), ("HGX-B2000", "hgx-b200"), ("dgxx2", "dgx2")] {
        let error = preset(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("choose from {nearest} (")) && error.len() < 300, "{error}");
    }
}
