//! NCCL's environment variables: what they leave of its choice, by version, and what is refused.

use nvcoll_core::collective::{Collective, ALL_GATHER, ALL_REDUCE, BROADCAST};
use nvcoll_fabric::hardware::network::Network;
use nvcoll_fabric::machines::preset;
use nvcoll_fabric::nccl::{Candidate, Model, NcclAlgorithm, NcclSettings, PathClass, Protocol, VARIABLES};
use nvcoll_fabric::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Prediction, Predictor};
use nvcoll_fabric::topology::cluster::{cluster, network};
use nvcoll_fabric::{Error, Fabric, Result};

use NcclAlgorithm::{Nvls, NvlsTree, Pat, Ring, Tree};
use Protocol::{Ll, Ll128, Simple};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NEWEST: &str = "2.30.7";

/// Reads `NAME=VALUE NAME=VALUE`.
fn read(text: &str) -> Result<NcclSettings> {
    NcclSettings::of(text.split_whitespace().map(|one| one.split_once('=').unwrap()))
}

fn nodes(name: &str, count: u32, by: &str) -> Fabric {
    cluster(&preset(name).unwrap(), count, network(by).unwrap()).unwrap()
}

fn model(version: &str, fabric: &Fabric, text: &str) -> Model {
    Model::with_settings(version, fabric, &read(text).unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn pair(candidate: Candidate) -> (NcclAlgorithm, Protocol) {
    (candidate.algorithm, candidate.protocol)
}

/// The choice of a version on eight H100.
fn chosen(version: &str, text: &str, collective: &Collective, nbytes: u64) -> (NcclAlgorithm, Protocol) {
    pair(model(version, &preset("hgx-h100").unwrap(), text).choice(collective, nbytes).unwrap())
}

/// The algorithms that are considered, each once.
fn considered(model: &Model, collective: &Collective) -> Vec<NcclAlgorithm> {
    let candidates = model.candidates(collective, MIB).unwrap();
    let mut found: Vec<_> = candidates.iter().filter(|c| c.time_ps.is_some()).map(|c| c.algorithm).collect();
    found.dedup();
    found
}

fn predicted(fabric: &Fabric, text: &str, pattern: Pattern, nbytes: u64) -> Result<Prediction> {
    let settings = read(text)?;
    let predictor = Predictor::with_settings(fabric, None, &settings)?;
    let call = CollectiveCall { pattern, launch: Launch::ProcessPerGpu, forced: AlgorithmFilter::default() };
    let floor = pattern.floor(Predictor::seen(fabric, &settings)?.as_ref())?;
    Ok(predictor.predict(&call, &predictor.weigh(&call, nbytes)?, &floor))
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_name_that_is_not_known_is_an_error_that_lists_the_known_ones() {
    let error = read("NCCL_ALG0=Tree").unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("did you mean NCCL_ALGO?"), "{error}");
    for variable in &VARIABLES {
        assert!(error.to_string().contains(variable.name), "{}", variable.name);
    }
    assert!(read("NCCL_NTHREADS=256").is_err());
}

#[test]
fn a_value_that_nccl_would_not_read_as_it_stands_is_an_error() {
    for wrong in [
        "NCCL_ALGO=",
        "NCCL_ALGO=^",
        "NCCL_ALGO=trees",
        "NCCL_ALGO=tree;ring",
        "NCCL_ALGO=allreduce:tree:ring",
        "NCCL_ALGO=alltoall:ring",
        "NCCL_PROTO=LL256",
        "NCCL_NVLS_ENABLE=3",
        "NCCL_NVLS_ENABLE=yes",
        "NCCL_CROSS_NIC=-1",
        "NCCL_MAX_CTAS=0",
        "NCCL_MIN_CTAS=-2",
        "NCCL_MIN_NCHANNELS=two",
        "NCCL_MAX_NCHANNELS=99999999999",
        "NCCL_BUFFSIZE=4M",
        "NCCL_BUFFSIZE=+4",
        "NCCL_P2P_NET_CHUNKSIZE=0x",
        "NCCL_P2P_LEVEL=nvl",
        "NCCL_P2P_LEVEL=6",
        "NCCL_NET_GDR_LEVEL=pix",
        "NCCL_P2P_DISABLE=2",
        "NCCL_PXN_DISABLE=true",
    ] {
        let error = read(wrong).unwrap_err();
        assert!(matches!(error, Error::Unknown { .. } | Error::Setting { .. }), "{wrong}: {error}");
    }
    assert_eq!(refused(read("NCCL_BUFFSIZE=4M")), "NCCL_BUFFSIZE: `4M` is no whole number from 1, without a unit");
}

#[test]
fn numbers_are_read_as_c_reads_them_and_the_last_value_of_a_name_holds() {
    let settings = read("NCCL_BUFFSIZE=0x400000 NCCL_MIN_CTAS=010 NCCL_MAX_CTAS=4 NCCL_MAX_CTAS=32").unwrap();
    assert_eq!(settings.buffer_bytes, Some(4 * MIB));
    assert_eq!((settings.min_ctas, settings.max_ctas), (Some(8), Some(32)));
    assert_eq!(settings.names().collect::<Vec<_>>(), ["NCCL_BUFFSIZE", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS"]);
    assert_eq!(settings, read("NCCL_MAX_CTAS=32 NCCL_MIN_CTAS=8 NCCL_BUFFSIZE=4194304").unwrap());
}

#[test]
fn every_variable_that_is_a_number_has_a_field() {
    let settings = read(
        "NCCL_P2P_NET_CHUNKSIZE=16384 NCCL_P2P_NVL_CHUNKSIZE=16385 NCCL_P2P_PCI_CHUNKSIZE=16386 \
         NCCL_NVLS_CHUNKSIZE=16387 NCCL_NVLS_NCHANNELS=5 \
         NCCL_MIN_P2P_NCHANNELS=6 NCCL_MAX_P2P_NCHANNELS=7 NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_NCHANNELS=9 \
         NCCL_MAX_NCHANNELS=10",
    )
    .unwrap();
    let bytes = [
        settings.p2p_net_chunk_bytes,
        settings.p2p_nvl_chunk_bytes,
        settings.p2p_pci_chunk_bytes,
        settings.nvls_chunk_bytes,
    ];
    assert_eq!(bytes, [16384, 16385, 16386, 16387].map(Some));
    let counts = [
        settings.nvls_channels,
        settings.min_p2p_channels,
        settings.max_p2p_channels,
        settings.channels_per_net_peer,
        settings.min_channels,
        settings.max_channels,
    ];
    assert_eq!(counts, [5, 6, 7, 8, 9, 10].map(Some));
}

#[test]
fn chunks_and_buffers_that_are_too_short_are_refused() {
    for text in
        ["NCCL_P2P_NVL_CHUNKSIZE=1", "NCCL_P2P_NET_CHUNKSIZE=16383", "NCCL_NVLS_CHUNKSIZE=100", "NCCL_BUFFSIZE=131071"]
    {
        assert!(refused(read(text)).contains("is too short: pass "), "{text}");
    }
}

#[test]
fn a_version_that_does_not_read_a_variable_yet_refuses_it() {
    let board = preset("hgx-h100").unwrap();
    let with = |version: &str, text: &str| Model::with_settings(version, &board, &read(text).unwrap());
    assert_eq!(
        refused(with("2.16.5", "NCCL_MAX_CTAS=8")),
        "NCCL_MAX_CTAS: NCCL v2.16.5-1 does not read it: NCCL has it since 2.17.1"
    );
    assert!(refused(with("2.23.4", "NCCL_ALGO=allreduce:tree")).contains("since 2.24"));
    assert!(refused(with("2.23.4", "NCCL_PROTO=ll;allreduce:ll128")).contains("NCCL_PROTO"));
    for variable in &VARIABLES {
        let value = if matches!(variable.name, "NCCL_ALGO") {
            "ring"
        } else if variable.name == "NCCL_PROTO" {
            "ll"
        } else if variable.values.starts_with("bytes") {
            "131072"
        } else {
            "1"
        };
        let text = format!("{}={value}", variable.name);
        assert!(with("2.30.7", &text).is_ok(), "{text}");
        let is_old = variable.since == [2, 8, 4];
        assert_eq!(with("2.8.4", &text).is_ok(), is_old, "{text}");
        let since = variable.since.map(|number| number.to_string()).join(".");
        assert!(with(&since, &text).is_ok(), "{text} {since}");
    }
}

#[test]
fn lists_leave_what_they_name_or_all_else() {
    assert_eq!(chosen(NEWEST, "", &ALL_REDUCE, GIB), (Nvls, Simple));
    for text in
        ["NCCL_ALGO=Ring", "NCCL_ALGO=ring", "NCCL_ALGO=^NVLS,tree,CollNetDirect", "NCCL_ALGO=collnetchain,RING"]
    {
        assert_eq!(chosen(NEWEST, text, &ALL_REDUCE, GIB).0, Ring, "{text}");
    }
    assert_eq!(chosen(NEWEST, "NCCL_PROTO=ll", &ALL_REDUCE, GIB).1, Ll);
    assert_eq!(chosen(NEWEST, "NCCL_PROTO=^ll,simple", &ALL_REDUCE, KIB).1, Ll128);
    assert_eq!(chosen(NEWEST, "NCCL_ALGO=tree NCCL_PROTO=Simple", &ALL_REDUCE, KIB), (Tree, Simple));
    let board = preset("hgx-h100").unwrap();
    let whole = Model::of(NEWEST, &board).unwrap().candidates(&ALL_REDUCE, MIB).unwrap();
    let left = model(NEWEST, &board, "NCCL_ALGO=ring").candidates(&ALL_REDUCE, MIB).unwrap();
    for (one, other) in whole.iter().zip(&left) {
        let expected = if one.algorithm == Ring { one.time_ps } else { None };
        assert_eq!(other.time_ps, expected, "{other:?}");
    }
}

#[test]
fn a_list_may_be_of_one_collective_since_2_24() {
    let text = "NCCL_ALGO=ring;allreduce:tree,nvls;ALLGATHER:^ring";
    let board = preset("hgx-h100").unwrap();
    let found = model(NEWEST, &board, text);
    assert_eq!(considered(&found, &ALL_REDUCE), [Tree, Nvls]);
    assert_eq!(considered(&found, &ALL_GATHER), [Nvls]);
    assert_eq!(considered(&found, &BROADCAST), [Ring]);
    // A collective that no list names keeps everything.
    let found = model(NEWEST, &board, "NCCL_ALGO=broadcast:ring NCCL_PROTO=broadcast:ll");
    assert_eq!(found.choice(&ALL_REDUCE, GIB), Model::of(NEWEST, &board).unwrap().choice(&ALL_REDUCE, GIB));
    assert_eq!(pair(found.choice(&BROADCAST, GIB).unwrap()), (Ring, Ll));
}

#[test]
fn what_nccl_does_where_the_list_leaves_nothing_depends_on_the_version() {
    // To 2.16 the list is of all_reduce; to 2.18 the others keep rings; to 2.23 they get them back; then they fail.
    for version in ["2.8.4", "2.16.5", "2.17.1", "2.18.5", "2.19.4", "2.23.4"] {
        assert_eq!(chosen(version, "NCCL_ALGO=tree", &BROADCAST, MIB).0, Ring, "{version}");
    }
    let board = preset("hgx-h100").unwrap();
    for version in ["2.24.3", NEWEST] {
        let error = refused(model(version, &board, "NCCL_ALGO=tree").choice(&BROADCAST, MIB));
        assert!(error.contains("NCCL_ALGO leaves none"), "{error}");
    }
    // Who names only what the machine cannot do gets rings and trees up to 2.23.
    for version in ["2.12.12", "2.18.5", "2.23.4"] {
        assert_eq!(considered(&model(version, &board, "NCCL_ALGO=collnet"), &ALL_REDUCE), [Tree, Ring], "{version}");
    }
    assert!(model("2.24.3", &board, "NCCL_ALGO=collnetdirect").choice(&ALL_REDUCE, MIB).is_err());
    assert_eq!(considered(&model("2.17.1", &board, "NCCL_ALGO=nvls"), &ALL_REDUCE), [Tree, Ring, Nvls]);
    assert_eq!(considered(&model("2.18.5", &board, "NCCL_ALGO=nvls"), &ALL_REDUCE), [Nvls]);
    let two = nodes("hgx-h100", 2, "ib-ndr-8");
    assert_eq!(considered(&model("2.23.4", &two, "NCCL_ALGO=nvls"), &ALL_REDUCE), [Tree, Ring]);
    assert_eq!(considered(&model("2.23.4", &two, "NCCL_ALGO=nvlstree"), &ALL_REDUCE), [NvlsTree]);
    // Rings as a backup: with every protocol up to 2.21, with the remaining protocols from 2.22 on.
    let a100 = preset("hgx-a100").unwrap();
    let text = "NCCL_ALGO=nvls NCCL_PROTO=ll";
    let protocols = |version| {
        let candidates = model(version, &a100, text).candidates(&ALL_REDUCE, MIB).unwrap();
        candidates.into_iter().filter(|c| c.time_ps.is_some()).map(pair).collect::<Vec<_>>()
    };
    assert_eq!(protocols("2.21.5"), [(Ring, Ll), (Ring, Ll128), (Ring, Simple)]);
    assert_eq!(protocols("2.23.4"), [(Ring, Ll)]);
    assert!(protocols("2.18.5").is_empty() && protocols("2.24.3").is_empty());
}

#[test]
fn who_names_ll128_gets_it_where_nccl_does_not_take_it_by_itself() {
    let board = preset("pcie5-4-p2p").unwrap();
    assert!(model(NEWEST, &board, "")
        .candidates(&ALL_REDUCE, MIB)
        .unwrap()
        .iter()
        .all(|c| { c.protocol != Ll128 || c.time_ps.is_none() }));
    for text in ["NCCL_PROTO=ll128", "NCCL_PROTO=^ll"] {
        let found = model(NEWEST, &board, text);
        let has =
            found.candidates(&ALL_REDUCE, MIB).unwrap().iter().any(|c| c.protocol == Ll128 && c.time_ps.is_some());
        assert!(has, "{text}");
    }
}

#[test]
fn nvls_can_be_turned_off() {
    let board = preset("hgx-h100").unwrap();
    let off = model(NEWEST, &board, "NCCL_NVLS_ENABLE=0");
    assert_eq!(considered(&off, &ALL_REDUCE), [Tree, Ring]);
    let why =
        off.candidates(&ALL_REDUCE, GIB).unwrap().into_iter().find(|c| c.algorithm == Nvls && c.protocol == Simple);
    assert_eq!(why.unwrap().why_disabled, Some("NCCL_NVLS_ENABLE turns it off"));
    assert!(off.channels(Nvls).is_none());
    for on in ["NCCL_NVLS_ENABLE=1", "NCCL_NVLS_ENABLE=2"] {
        assert_eq!(chosen(NEWEST, on, &ALL_REDUCE, GIB).0, Nvls);
    }
    let found = predicted(&board, "NCCL_NVLS_ENABLE=0", Pattern::AllReduce, GIB).unwrap();
    let with = predicted(&board, "", Pattern::AllReduce, GIB).unwrap();
    assert_eq!((found.algorithm, with.algorithm), ("Ring", "NVLS"));
    assert!(found.floor_us > 1.4 * with.floor_us, "without the switch the bound is that of rings");
}

#[test]
fn channels_are_bounded_as_nccl_bounds_them() {
    let board = preset("hgx-h100").unwrap();
    for (text, channels, of_nvls) in [
        ("", 24, 16),
        ("NCCL_MAX_CTAS=8", 8, 8),
        ("NCCL_MIN_CTAS=32", 32, 32),
        ("NCCL_MAX_NCHANNELS=4", 4, 16),
        ("NCCL_MIN_NCHANNELS=40", 40, 16),
        ("NCCL_MIN_CTAS=32 NCCL_MAX_CTAS=8", 8, 8),
        ("NCCL_MIN_NCHANNELS=32 NCCL_MAX_CTAS=8", 32, 8),
        ("NCCL_MIN_CTAS=1000", 64, 64),
        ("NCCL_NVLS_NCHANNELS=4", 24, 4),
        ("NCCL_NVLS_NCHANNELS=20 NCCL_MAX_CTAS=12", 12, 12),
    ] {
        let found = model(NEWEST, &board, text);
        assert_eq!((found.ring_channels(), found.nvls_channels()), ((channels, 24), (of_nvls, 16)), "{text}");
        assert_eq!(found.used_channels(Ring, Simple, GIB), channels, "{text}");
        assert_eq!(found.used_channels(Nvls, Simple, GIB), of_nvls, "{text}");
    }
    // The bandwidth of NCCL's model is that of the search, which the bounds do not change.
    assert_eq!(chosen(NEWEST, "NCCL_MAX_CTAS=1", &ALL_REDUCE, GIB), (Nvls, Simple));
}

#[test]
fn peer_access_below_a_level_leaves_nvlink_unused() {
    let board = preset("hgx-h100").unwrap();
    for text in
        ["NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=LOC", "NCCL_P2P_LEVEL=0", "NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=SYS"]
    {
        let found = model(NEWEST, &board, text);
        let ring = found.channels(Ring).unwrap();
        assert!(ring.class >= PathClass::Phb && f64::from(ring.count) * ring.node_gbps < 60.0, "{text}: {ring:?}");
        // NVLS is no peer access, and NCCL keeps it.
        assert_eq!(found.choice(&ALL_REDUCE, GIB).unwrap().algorithm, Nvls);
    }
    for text in ["NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=NVL", "NCCL_P2P_LEVEL=SYS"] {
        let found = model(NEWEST, &board, text);
        assert_eq!(found.channels(Ring), Model::of(NEWEST, &board).unwrap().channels(Ring), "{text}");
    }
}

#[test]
fn a_prediction_without_peer_access_is_host_staged() {
    let board = preset("hgx-h100").unwrap();
    let error = refused(predicted(&board, "NCCL_P2P_DISABLE=1", Pattern::AllReduce, GIB));
    assert!(error.contains("NCCL_NVLS_ENABLE=0"), "{error}");
    let staged = predicted(&board, "NCCL_P2P_DISABLE=1 NCCL_NVLS_ENABLE=0", Pattern::AllReduce, GIB).unwrap();
    let whole = predicted(&board, "NCCL_NVLS_ENABLE=0", Pattern::AllReduce, GIB).unwrap();
    assert!(staged.us > 5.0 * whole.us, "{staged:?}");
    assert!(staged.trust.contains("validated"), "{}", staged.trust);
    assert_eq!(
        predicted(&board, "NCCL_P2P_LEVEL=NVL", Pattern::AllReduce, GIB),
        predicted(&board, "", Pattern::AllReduce, GIB)
    );
    // PCIe: all pairs on one level, or on several.
    let (card, mixed) = (preset("pcie3-2-p2p").unwrap(), preset("pcie3-8-p2p").unwrap());
    let time = |fabric: &Fabric, text: &str| predicted(fabric, text, Pattern::AllGather, GIB).map(|found| found.us);
    assert_eq!(time(&card, "NCCL_P2P_LEVEL=SYS"), time(&card, ""));
    assert!(time(&card, "NCCL_P2P_DISABLE=1").unwrap() > time(&card, "").unwrap());
    assert!(refused(time(&mixed, "NCCL_P2P_LEVEL=PIX")).contains("some pairs"));
    assert_eq!(time(&mixed, "NCCL_P2P_LEVEL=SYS"), time(&mixed, ""));
    assert!(refused(predicted(&preset("dgx1-v100").unwrap(), "NCCL_P2P_LEVEL=NVL", Pattern::AllReduce, MIB))
        .contains("some GPUs"));
}

/// `ncclTopoCheckGdr` and `ncclTopoComputePaths` of src/graph/paths.cc: what is beyond the level passes the processor.
#[test]
fn without_gpudirect_rdma_traffic_passes_host_memory() {
    let hgx = nodes("hgx-a100", 2, "ib-hdr-8");
    let ring = |text: &str| model(NEWEST, &hgx, text).channels(Ring).unwrap();
    assert!(ring("").network_class <= PathClass::Pxn);
    for text in ["NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_GDR_LEVEL=0", "NCCL_NET_GDR_LEVEL=NVB"] {
        let staged = ring(text);
        assert!(staged.network_class >= PathClass::Phb, "{text}: {staged:?}");
        // Two GPUs and two cards send over each of four links of 24 GB/s to a socket.
        let gbps = f64::from(staged.count) * staged.network_gbps;
        assert!(gbps <= 4.0 * 24.0 / 2.0, "{text}: {staged:?}");
    }
    for text in ["NCCL_NET_GDR_LEVEL=PIX", "NCCL_NET_GDR_LEVEL=PXB", "NCCL_NET_GDR_LEVEL=SYS"] {
        assert_eq!(ring(text), ring(""), "{text}");
        assert_eq!(predicted(&hgx, text, Pattern::AllReduce, GIB), predicted(&hgx, "", Pattern::AllReduce, GIB));
    }
    // 180 GB/s with and 10 GB/s without on such nodes (NVIDIA/nccl#1676).
    let staged = predicted(&hgx, "NCCL_NET_GDR_LEVEL=LOC", Pattern::AllReduce, GIB).unwrap();
    let direct = predicted(&hgx, "", Pattern::AllReduce, GIB).unwrap();
    assert!(staged.us > 4.0 * direct.us && staged.trust.starts_with("not validated"), "{staged:?}");
    // A network whose cards never reach GPUs is the same.
    let by_host = Network { gpu_direct: false, ..network("ib-hdr-8").unwrap().clone() };
    let by_host = cluster(&preset("hgx-a100").unwrap(), 2, &by_host).unwrap();
    assert_eq!(predicted(&by_host, "", Pattern::AllReduce, GIB).unwrap().us, staged.us);
    // One A100 and one card at a socket: 24 GB/s with, 16 GB/s without (NVIDIA/nccl#412).
    let card = preset("pcie4-2-p2p[0]x2+ib-hdr-1").unwrap();
    let busbw = |text: &str| GIB as f64 / predicted(&card, text, Pattern::AllReduce, GIB).unwrap().us / 1e3;
    assert!((14.0..18.0).contains(&busbw("NCCL_NET_GDR_LEVEL=LOC")) && busbw("") > 20.0);
    // C2C is no bottleneck: 96 GB/s with, 80 GB/s without (NVIDIA/nccl#1579).
    let grace = preset("gh200-4[0]x2+slingshot-4").unwrap();
    let us = |text: &str| predicted(&grace, text, Pattern::AllReduce, GIB).unwrap().us;
    assert!(us("NCCL_NET_GDR_LEVEL=LOC") < 1.2 * us(""));
}

#[test]
fn crossing_and_pxn_change_the_channels_over_several_nodes() {
    let cube = nodes("dgx1-p100", 2, "ib-hdr-4");
    let channels = |version: &str, text: &str| model(version, &cube, text).channels(Ring).unwrap().count;
    // 2.18 crosses only where that is much faster.
    for (version, never, always, own) in [("2.18.5", 7, 8, 7), ("2.21.5", 7, 8, 8), (NEWEST, 7, 8, 8)] {
        let found =
            ["NCCL_CROSS_NIC=0", "NCCL_CROSS_NIC=1", "NCCL_CROSS_NIC=2", ""].map(|text| channels(version, text));
        assert_eq!(found, [never, always, own, own], "{version}");
    }
    let tree = |text: &str| model(NEWEST, &cube, text).channels(Tree).unwrap().network_class;
    assert_eq!((tree(""), tree("NCCL_PXN_DISABLE=0")), (PathClass::Pxn, PathClass::Pxn));
    assert!(tree("NCCL_PXN_DISABLE=1") != PathClass::Pxn);
}

#[test]
fn what_the_closed_forms_do_not_know_is_refused_and_never_ignored() {
    let board = preset("hgx-h100").unwrap();
    let two = nodes("hgx-h100", 2, "ib-ndr-8");
    for (fabric, pattern, text) in [
        (&board, Pattern::AllReduce, "NCCL_NVLS_NCHANNELS=8"),
        (&board, Pattern::AllReduce, "NCCL_MAX_CTAS=8"),
        (&board, Pattern::Broadcast, "NCCL_MAX_NCHANNELS=8"),
        (&board, Pattern::Broadcast, "NCCL_BUFFSIZE=1048576"),
        (&two, Pattern::AllToAll, "NCCL_PXN_DISABLE=1"),
    ] {
        let error = predicted(fabric, text, pattern, GIB).unwrap_err();
        assert!(matches!(error, Error::Setting { variable, .. } if text.starts_with(variable)), "{text}: {error}");
    }
    // What changes nothing is no reason to refuse.
    let same = |text: &str, pattern| {
        assert_eq!(predicted(&board, text, pattern, GIB), predicted(&board, "", pattern, GIB), "{text}")
    };
    same("NCCL_P2P_NET_CHUNKSIZE=524288 NCCL_BUFFSIZE=8388608 NCCL_NVLS_NCHANNELS=16", Pattern::AllReduce);
    same("NCCL_ALGO=ring NCCL_PROTO=ll NCCL_NVLS_CHUNKSIZE=65536", Pattern::AllToAll);
    same("NCCL_CROSS_NIC=2 NCCL_PXN_DISABLE=0 NCCL_P2P_DISABLE=0 NCCL_P2P_NVL_CHUNKSIZE=524288", Pattern::AllToAll);
    same("NCCL_NVLS_CHUNKSIZE=65536 NCCL_MAX_CTAS=32", Pattern::Broadcast);
    let more = predicted(&board, "NCCL_MIN_CTAS=32", Pattern::Broadcast, 16 * KIB).unwrap();
    assert!(more.us >= predicted(&board, "", Pattern::Broadcast, 16 * KIB).unwrap().us);
    // RCCL's choice is not known, nor that of a last resort.
    let amd = refused(predicted(&preset("mi300x-8").unwrap(), "NCCL_ALGO=ring", Pattern::AllReduce, GIB));
    assert!(amd.contains("NCCL_ALGO: NCCL's choice on mi300x-8 is not known"), "{amd}");
}

#[test]
fn channels_and_chunks_of_sends_and_of_the_switch_change_their_time() {
    let (board, two) = (preset("hgx-b200").unwrap(), nodes("hgx-h100", 2, "ib-ndr-8"));
    let us = |fabric: &Fabric, text: &str, pattern| predicted(fabric, text, pattern, 64 * MIB).unwrap().us;
    // 8 of 32 channels instead of 4; all of them at once where a part may be short.
    let sent = ["", "NCCL_P2P_NVL_CHUNKSIZE=262144", "NCCL_MAX_P2P_NCHANNELS=2"]
        .map(|text| predicted(&board, text, Pattern::SendRecv, 64 * MIB).unwrap());
    assert_eq!([0, 1, 2].map(|at| sent[at].channels), [Some(4), Some(8), Some(2)]);
    assert!(sent[1].us < sent[0].us && sent[0].us < sent[2].us);
    // A chunk is no longer than an eighth of the buffer.
    assert_eq!(us(&board, "NCCL_P2P_NVL_CHUNKSIZE=1048576", Pattern::SendRecv), sent[0].us);
    assert_eq!(us(&board, "NCCL_BUFFSIZE=2097152", Pattern::SendRecv), sent[1].us);
    assert!(us(&two, "NCCL_NCHANNELS_PER_NET_PEER=1", Pattern::SendRecv) > us(&two, "", Pattern::SendRecv));
    let folded = |text: &str| predicted(&board, text, Pattern::AllReduce, 8 * GIB).unwrap().us;
    assert!(folded("NCCL_NVLS_CHUNKSIZE=524288") < folded("") && folded("") < folded("NCCL_NVLS_CHUNKSIZE=65536"));
}

#[test]
fn a_prediction_follows_the_lists() {
    let two = nodes("hgx-h100", 2, "ib-ndr-8");
    let found = |text| predicted(&two, text, Pattern::AllReduce, 64 * MIB).unwrap();
    let (free, ring, tree) = (found(""), found("NCCL_ALGO=ring"), found("NCCL_ALGO=allreduce:tree NCCL_PROTO=simple"));
    assert_eq!((ring.algorithm, tree.algorithm, tree.protocol), ("Ring", "Tree", "Simple"));
    assert_ne!(free.algorithm, "Ring");
    assert!(free.nccl_us < ring.nccl_us);
    let error = refused(predicted(&preset("hgx-h100").unwrap(), "NCCL_ALGO=nvls", Pattern::AllGather, MIB));
    assert!(error.contains("NCCL takes NVLS for all_gather"), "{error}");
    let error = refused(predicted(&two, "NCCL_ALGO=nvls", Pattern::AllReduce, MIB));
    assert!(error.contains("NCCL_ALGO leaves none"), "{error}");
    assert_eq!(considered(&model(NEWEST, &nodes("hgx-h100[0]", 4, "ib-ndr-8"), "NCCL_ALGO=pat"), &ALL_GATHER), [Pat]);
}
