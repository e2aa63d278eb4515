//! The most that flows from one place of a network to another, and the cut that lets no more through.
//!
//! Source: Dinic, 1970; the cut is what the last search for a way still reaches (Ford and Fulkerson, 1956). Whole numbers only.

use std::collections::VecDeque;

/// More than any link; a sum of several still fits.
pub(crate) const UNBOUNDED: u64 = u64::MAX >> 24;

/// A network of edges with capacities.
#[derive(Clone)]
pub(crate) struct MaxFlow {
    /// For each edge: where it ends, what is left of it; the edge back is at the position xor 1.
    edges: Vec<(usize, u64)>,
    leaving: Vec<Vec<usize>>,
}

/// The largest flow, and the cut that limits it.
pub(crate) struct MinimumCut {
    pub(crate) value: u64,
    /// For each place, whether it is on the source's side of the narrowest cut.
    pub(crate) is_inside: Vec<bool>,
}

impl MaxFlow {
    pub(crate) fn new(places: usize) -> Self {
        Self { edges: Vec::new(), leaving: vec![Vec::new(); places] }
    }

    pub(crate) fn add(&mut self, from: usize, to: usize, capacity: u64) {
        for (start, end, left) in [(from, to, capacity), (to, from, 0)] {
            self.leaving[start].push(self.edges.len());
            self.edges.push((end, left));
        }
    }

    pub(crate) fn between(mut self, source: usize, sink: usize) -> MinimumCut {
        #[cfg(test)]
        crate::topology::excerpt::work::add(self.edges.len() / 2);
        let mut value = 0;
        loop {
            let levels = self.levels(source);
            if levels[sink] == u32::MAX {
                return MinimumCut { value, is_inside: levels.iter().map(|&level| level != u32::MAX).collect() };
            }
            let mut next = vec![0; self.leaving.len()];
            loop {
                let pushed = self.push(source, sink, u64::MAX, &levels, &mut next);
                if pushed == 0 {
                    break;
                }
                value += pushed;
            }
        }
    }

    fn levels(&self, source: usize) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.leaving.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for &edge in &self.leaving[at] {
                let (to, left) = self.edges[edge];
                if left > 0 && levels[to] == u32::MAX {
                    levels[to] = levels[at] + 1;
                    queue.push_back(to);
                }
            }
        }
        levels
    }

    fn push(&mut self, at: usize, sink: usize, most: u64, levels: &[u32], next: &mut [usize]) -> u64 {
        if at == sink {
            return most;
        }
        while let Some(&edge) = self.leaving[at].get(next[at]) {
            let (to, left) = self.edges[edge];
            if left > 0 && levels[to] == levels[at] + 1 {
                let pushed = self.push(to, sink, most.min(left), levels, next);
                if pushed > 0 {
                    self.edges[edge].1 -= pushed;
                    self.edges[edge ^ 1].1 += pushed;
                    return pushed;
                }
            }
            next[at] += 1;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::MaxFlow;

    #[test]
    fn the_narrowest_cut_holds_the_flow() {
        let mut flow = MaxFlow::new(4);
        for (from, to, capacity) in [(0, 1, 3), (0, 2, 2), (1, 2, 5), (1, 3, 2), (2, 3, 2)] {
            flow.add(from, to, capacity);
        }
        let most = flow.between(0, 3);
        assert_eq!(most.value, 4);
        assert_eq!(most.is_inside, [true, true, true, false]);
    }
}
