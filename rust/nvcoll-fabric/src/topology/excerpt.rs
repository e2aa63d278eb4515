//! An excerpt of a large cluster: three of its equal nodes stand for all of them.
//!
//! What is said of a pair of nodes, the classes of paths inside a node and to its network cards, and the links that one node
//! sends over, are the same in the excerpt. Predictions and NCCL's model ask for nothing else; the number of nodes and ranks
//! they take from the whole. So their work does not depend on the number of nodes, but for one look at each link, which
//! finds out that the nodes are alike. What joins groups of nodes is asked of the whole (`predict/bottleneck.rs`).

use crate::hardware::Fabric;
use crate::topology::equal_nodes::EqualNodes;

/// The nodes that an excerpt keeps: a first, its neighbour, and a last that is neither.
const KEPT_NODES: usize = 3;

impl Fabric {
    /// Returns the excerpt that stands for this cluster; none for three nodes or fewer, and for nodes that are not alike.
    pub(crate) fn excerpt(&self) -> Option<Fabric> {
        let equal_nodes = EqualNodes::in_groups(self).filter(|equal_nodes| equal_nodes.nodes > KEPT_NODES)?;
        Some(equal_nodes.first(self, KEPT_NODES))
    }
}

/// Counts work in tests: searches for routes, and edges of flows.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local! {
        static DONE: Cell<usize> = const { Cell::new(0) };
    }

    /// Adds work.
    pub(crate) fn add(work: usize) {
        DONE.set(DONE.get() + work);
    }

    /// Returns the work that something does.
    pub(crate) fn of(something: impl FnOnce()) -> usize {
        let before = DONE.get();
        something();
        DONE.get() - before
    }
}

#[cfg(test)]
mod tests {
    use super::work;
    use crate::hardware::Fabric;
    use crate::machines::preset;
    use crate::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};
    use crate::topology::cluster::{cluster, network};

    fn of(node: &str, nodes: u32, by: &str) -> Fabric {
        cluster(&preset(node).unwrap(), nodes, network(by).unwrap()).unwrap()
    }

    /// The same machine with nodes that do not look alike: the last node lists two of its links in another order.
    fn without_excerpt(fabric: &Fabric) -> Fabric {
        let mut whole = fabric.clone();
        let last = whole.links.len() - 1;
        whole.links.swap(last, last - 2);
        assert_eq!(whole.excerpt(), None, "{}", fabric.name);
        whole
    }

    #[test]
    fn predictions_and_lower_bounds_of_an_excerpt_are_those_of_the_whole() {
        for (node, by) in [
            ("hgx-h100", "ib-ndr-8"),
            ("hgx-h100", "ib-ndr-1"),
            ("hgx-a100-4", "ib-hdr-4"),
            ("dgx1-v100", "ib-edr-4"),
            ("rtx4090-4-staged", "ib-ndr-1"),
            ("rtx4090-4-p2p", "roce-200-1"),
            ("h100-pcie-1", "roce-400-1"),
            ("gb200-8", "roce-400-4"),
        ] {
            for nodes in [4, 5] {
                let fabric = of(node, nodes, by);
                assert!(fabric.excerpt().is_some(), "{}", fabric.name);
                let whole = without_excerpt(&fabric);
                for pattern in Pattern::ALL {
                    let floor = pattern.floor(&fabric).unwrap();
                    assert_eq!(floor, pattern.floor(&whole).unwrap(), "{} of {}", pattern.name(), fabric.name);
                    let call =
                        CollectiveCall { pattern, launch: Launch::ProcessPerGpu, forced: AlgorithmFilter::default() };
                    let predicted = |fabric: &Fabric| {
                        let predictor = Predictor::of(fabric, None).unwrap();
                        predictor.predict(&call, &predictor.weigh(&call, 1 << 26).unwrap(), &floor)
                    };
                    assert_eq!(predicted(&fabric), predicted(&whole), "{} of {}", pattern.name(), fabric.name);
                }
                assert_eq!(fabric.evidence(), whole.evidence(), "{}", fabric.name);
            }
        }
    }

    #[test]
    fn five_hundred_times_the_nodes_are_no_more_than_twice_the_work() {
        for (node, by) in [("hgx-h100", "ib-ndr-8"), ("rtx4090-4-staged", "ib-ndr-1"), ("dgx1-v100", "ib-edr-4")] {
            let all = |nodes: u32| {
                let fabric = of(node, nodes, by);
                work::of(|| {
                    let predictor = Predictor::of(&fabric, None).unwrap();
                    assert!(predictor.nodes() == nodes && fabric.evidence() == fabric.evidence());
                    for pattern in Pattern::ALL {
                        pattern.floor(&fabric).unwrap();
                    }
                })
            };
            let (few, many) = (all(8), all(4096));
            assert!(few > 0 && many < 2 * few, "{node}: {few} {many}");
        }
    }
}
