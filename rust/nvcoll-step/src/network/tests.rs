use nvcoll_fabric::machines::preset;
use nvcoll_fabric::nccl::NcclSettings;
use nvcoll_fabric::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};
use proptest::prelude::*;

use super::{Group, MeasuredBandwidth, Network};
use crate::error::Error;

fn network(name: &str) -> Network {
    let machine = preset(name).unwrap();
    Network::of(&machine, None, &NcclSettings::default(), machine.world_size()).unwrap()
}

fn group(size: u32, stride: u32) -> Group {
    Group::even(size, stride)
}

fn runs(size: u32, stride: u32, runs: u32, apart: u32) -> Group {
    Group { size, stride, runs, apart }
}

fn us(predictor: &Predictor, pattern: Pattern, nbytes: u64) -> f64 {
    let call = CollectiveCall { pattern, launch: Launch::Framework, forced: AlgorithmFilter::default() };
    predictor.us(&call, &predictor.weigh(&call, nbytes).unwrap())
}

#[test]
fn prices_are_the_predictions_of_the_ranks_of_the_first_group() {
    let machine = preset("hgx-h100x4+ib-ndr-8").unwrap();
    let network = network("hgx-h100x4+ib-ndr-8");
    for (of, ranks) in [(group(8, 1), (0..8).collect::<Vec<u32>>()), (group(32, 1), (0..32).collect())] {
        let predictor = Predictor::of(&machine.among(&ranks).unwrap(), None).unwrap();
        for pattern in Pattern::ALL {
            for nbytes in [4096, 4096 << 8, 4096 << 20] {
                let (found, expected) =
                    (network.seconds(pattern, nbytes as f64, of).unwrap(), us(&predictor, pattern, nbytes) * 1e-6);
                assert!((found / expected - 1.0).abs() < 1e-12, "{} {nbytes} {of:?}", pattern.name());
            }
            let (most, twice) = (4096.0 * f64::from(1 << 20), 8192.0 * f64::from(1 << 20));
            let seconds = |nbytes| network.seconds(pattern, nbytes, of).unwrap();
            assert!((seconds(twice) / seconds(most) - 2.0).abs() < 1e-12 && seconds(1.0) == seconds(4096.0));
        }
    }
}

#[test]
fn between_sizes_of_the_grid_prices_err_by_a_few_percent() {
    let machine = preset("hgx-h100x8+ib-ndr-8").unwrap();
    let (network, predictor) = (network("hgx-h100x8+ib-ndr-8"), Predictor::of(&machine, None).unwrap());
    for pattern in [Pattern::AllReduce, Pattern::AllGather, Pattern::ReduceScatter, Pattern::AllToAll] {
        let sizes = (0..80).map(|nth| (f64::from(1 << 20) * 2.0_f64.powf(f64::from(nth) / 8.0)) as u64);
        let errors: Vec<f64> = sizes
            .map(|nbytes| {
                let found = network.seconds(pattern, nbytes as f64, group(64, 1)).unwrap() * 1e6;
                (found / us(&predictor, pattern, nbytes) - 1.0).abs()
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.08, "{}: {mean:.3} on average", pattern.name());
    }
}

#[test]
fn a_group_of_one_rank_and_no_bytes_take_no_time() {
    let network = network("hgx-h100");
    assert_eq!(network.seconds(Pattern::AllReduce, 1e9, group(1, 1)).unwrap(), 0.0);
    assert_eq!(network.seconds(Pattern::AllReduce, 0.0, group(8, 1)).unwrap(), 0.0);
}

#[test]
fn shapes_say_how_groups_lie() {
    for (name, of, domain, expected, siblings) in [
        ("hgx-h100x16+ib-ndr-8", group(8, 1), 8, "8 GPUs of one node", 1),
        ("hgx-h100x16+ib-ndr-8", group(16, 8), 8, "one GPU each of 16 nodes", 8),
        ("hgx-h100x16+ib-ndr-8", group(64, 2), 8, "4 GPUs each of 16 nodes", 2),
        ("hgx-h100x16+ib-ndr-8", group(4, 32), 8, "one GPU each of 4 nodes", 8),
        ("hgx-h100x3+ib-ndr-8", group(12, 1), 8, "4 GPUs each of 3 nodes, for groups that lie unevenly", 2),
        ("hgx-h100x3+ib-ndr-8", group(4, 6), 8, "one GPU each of 3 nodes, for groups that lie unevenly", 6),
        ("gb200-nvl72x8+ib-ndr-4", group(64, 1), 72, "8 GPUs each of 8 nodes, for groups that lie unevenly", 2),
        ("gb200-nvl72x8+ib-ndr-4", group(8, 72), 72, "one GPU each of 8 nodes", 72),
        ("gb200-64x8+ib-ndr-4", group(64, 8), 64, "8 GPUs each of 8 nodes", 8),
        ("rtx4090-4-staged", group(2, 2), 4, "2 GPUs of one node", 1),
        ("hgx-h100x16+ib-ndr-8", runs(16, 1, 2, 64), 8, "8 GPUs each of 2 nodes", 1),
        ("hgx-h100x16+ib-ndr-8", runs(6, 1, 3, 8), 8, "2 GPUs each of 3 nodes", 4),
        ("hgx-h100x16+ib-ndr-8", runs(4, 1, 2, 4), 8, "4 GPUs of one node", 1),
        ("hgx-h100x16+ib-ndr-8", runs(8, 4, 4, 32), 8, "2 GPUs each of 4 nodes", 4),
    ] {
        let network = network(name);
        let shape = network.shape(of).unwrap();
        let found = (network.domain(), shape.to_string(), shape.siblings);
        assert_eq!(found, (domain, expected.to_owned(), siblings), "{of:?} of {name}");
        assert!(network.seconds(Pattern::AllReduce, 1e6, of).unwrap() > 0.0);
    }
}

#[test]
fn a_step_may_use_some_ranks_of_a_machine() {
    let machine = preset("hgx-h100x16+ib-ndr-8").unwrap();
    let of = |gpus| Network::of(&machine, None, &NcclSettings::default(), gpus);
    let (few, all) = (of(32).unwrap(), of(128).unwrap());
    assert_eq!((few.domain(), few.gpus(), of(4).unwrap().domain()), (8, 32, 8));
    let seconds = |network: &Network| network.seconds(Pattern::AllGather, 1e8, group(4, 8)).unwrap();
    assert_eq!(seconds(&few), seconds(&all));
    for gpus in [0, 129] {
        let error = of(gpus).unwrap_err();
        assert!(
            matches!(&error, Error::Layout(text) if text.contains("pass a layout of 1 to 128, or a machine of ")),
            "{error}"
        );
    }
}

#[test]
fn groups_that_share_the_cards_of_a_node_take_the_time_of_all_their_bytes() {
    // Four cards of 12.5 GB/s for eight groups: each group alone would have one of them.
    let network = network("hgx-a100x16+ib-edr-4");
    let (nbytes, of) = (1e9, group(16, 8));
    let bytes = 15.0 / 16.0 * nbytes * 8.0;
    let found = network.seconds(Pattern::AllGather, nbytes, of).unwrap();
    assert!((found / (bytes / (0.85 * 50e9)) - 1.0).abs() < 1e-9, "{found}");
    let both = network.seconds(Pattern::AllReduce, nbytes, of).unwrap();
    assert!((both / (2.0 * found) - 1.0).abs() < 1e-9, "{both}");
}

#[test]
fn no_price_is_below_what_the_owner_measured() {
    let row = |nodes: &[u32], rates: &[f64]| MeasuredBandwidth {
        collectives: vec!["all_gather".to_owned(), "reduce_scatter".to_owned()],
        nodes: nodes.to_vec(),
        busbw_gbps: rates.to_vec(),
    };
    let plain = network("hgx-h100x8+efa-100-32");
    let measured = network("hgx-h100x8+efa-100-32").with_measured(&[row(&[2, 8], &[100.0, 10.0])]).unwrap();
    let seconds = |of: &Network, pattern, nodes: u32| of.seconds(pattern, 1e9, group(8 * nodes, 1)).unwrap();
    for (nodes, gbps) in [(2, 100.0), (4, 55.0), (8, 10.0)] {
        let ranks = f64::from(8 * nodes);
        let found = seconds(&measured, Pattern::AllGather, nodes);
        assert!((found / ((ranks - 1.0) / ranks / gbps) - 1.0).abs() < 1e-9, "{nodes} nodes: {found}");
        assert!(found > seconds(&plain, Pattern::AllGather, nodes));
        assert_eq!(seconds(&measured, Pattern::AllReduce, nodes), seconds(&plain, Pattern::AllReduce, nodes));
    }
    assert_eq!(seconds(&measured, Pattern::AllGather, 1), seconds(&plain, Pattern::AllGather, 1));
    let slow = network("hgx-h100x8+efa-100-32").with_measured(&[row(&[1], &[1.0])]).unwrap();
    assert!(seconds(&slow, Pattern::AllGather, 1) > 10.0 * seconds(&plain, Pattern::AllGather, 1));
    for (nodes, rates) in [(&[2, 2][..], &[1.0, 1.0][..]), (&[], &[]), (&[0], &[1.0]), (&[2], &[0.0]), (&[2], &[])] {
        let error = network("hgx-h100").with_measured(&[row(nodes, rates)]).unwrap_err();
        assert!(error.to_string().contains("pass ascending numbers of nodes"), "{error}");
    }
    let unknown = MeasuredBandwidth { collectives: vec!["gossip".to_owned()], ..row(&[2], &[1.0]) };
    assert!(matches!(network("hgx-h100").with_measured(&[unknown]), Err(Error::Fabric(_))));
}

#[test]
fn groups_and_bytes_that_are_none_are_refused() {
    let network = network("hgx-h100");
    for of in [group(0, 1), group(2, 0), group(16, 1), group(2, 8), group(u32::MAX, u32::MAX)] {
        let error = network.seconds(Pattern::AllReduce, 1.0, of).unwrap_err();
        assert!(matches!(&error, Error::Layout(text) if text.contains("do not fit on 8 GPUs")), "{error}");
        assert!(network.shape(of).is_err());
    }
    for nbytes in [-1.0, f64::NAN, f64::INFINITY] {
        let error = network.seconds(Pattern::AllReduce, nbytes, group(8, 1)).unwrap_err();
        assert!(matches!(&error, Error::Step(text) if text.contains("pass a number from 0 on")), "{error}");
    }
}

#[test]
fn two_threads_get_the_same_prices_as_one() {
    let (shared, alone) = (network("hgx-h100x8+ib-ndr-8"), network("hgx-h100x8+ib-ndr-8"));
    let groups = [group(8, 1), group(8, 8), group(64, 1), group(16, 4)];
    let prices = |of: &Network| groups.map(|group| of.seconds(Pattern::ReduceScatter, 3e7, group).unwrap());
    let (first, second) = std::thread::scope(|scope| {
        let threads = [scope.spawn(|| prices(&shared)), scope.spawn(|| prices(&shared))];
        let [first, second] = threads.map(|thread| thread.join().unwrap());
        (first, second)
    });
    assert_eq!((first, second), (prices(&alone), prices(&alone)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn more_bytes_take_no_less_time_where_nccl_predicts_so(a in 12.0..36.0_f64, b in 12.0..36.0_f64, tensor in 0_u32..4) {
        static NETWORK: std::sync::LazyLock<Network> = std::sync::LazyLock::new(|| network("hgx-h100x4+ib-ndr-8"));
        let (less, more) = (2.0_f64.powf(a.min(b)), 2.0_f64.powf(a.max(b)));
        for (pattern, of) in [(Pattern::AllGather, group(4, 8)), (Pattern::AllReduce, group(8, 1)), (Pattern::SendRecv, group(32 >> tensor, 1 << tensor))] {
            let seconds = |nbytes| NETWORK.seconds(pattern, nbytes, of).unwrap();
            prop_assert!(seconds(less) <= seconds(more) * (1.0 + 1e-12), "{} {of:?} {less} {more}", pattern.name());
        }
    }

    #[test]
    fn every_group_that_fits_has_a_price(size in 2_u32..24, stride in 1_u32..24) {
        static NETWORK: std::sync::LazyLock<Network> = std::sync::LazyLock::new(|| network("hgx-h100x4+ib-ndr-8"));
        let of = group(size, stride);
        if size * stride > 32 {
            prop_assert!(NETWORK.shape(of).is_err());
        } else {
            let shape = NETWORK.shape(of).unwrap();
            prop_assert!(shape.local * shape.nodes <= size && (!shape.is_even || shape.local * shape.nodes == size));
            prop_assert!(NETWORK.seconds(Pattern::AllGather, 1e6, of).unwrap() > 0.0);
        }
    }
    #[test]
    fn groups_of_runs_share_out_all_ranks(length in 1_u32..5, stride in 1_u32..5, count in 1_u32..5, gap in 1_u32..4) {
        let of = runs(length * count, stride, count, if count == 1 { 0 } else { length * stride * gap });
        prop_assert!(of.is_sound());
        let block = length * stride * if count == 1 { 1 } else { gap * count };
        let mut found: Vec<u32> = Vec::new();
        for first in (0..block).filter(|&rank| of.first(rank) == rank) {
            let ranks: Vec<u32> = of.ranks(first).collect();
            prop_assert!(ranks.iter().all(|&rank| of.first(rank) == first && of.fits(rank, block)));
            let held: Vec<u32> = (0..2 * block).filter(|&rank| of.holds(first, rank)).collect();
            prop_assert_eq!(&held, &ranks);
            found.extend(ranks);
        }
        found.sort_unstable();
        prop_assert_eq!(found, (0..block).collect::<Vec<_>>());
    }
}
