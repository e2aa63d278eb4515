//! How flows that go on at once share links: max-min fair.
//!
//! ```text
//! while a flow has no rate
//!     level = the least, over links, of what is left of the link / the weights of its flows without a rate
//!     every flow without a rate on a link with that share gets the level, and takes it from its links
//! ```
//!
//! No flow could be faster without making one slower that is not faster than itself. All flows of one level are served
//! together, and what they take from a link is added up as whole weights first: no order of links or flows shows in the
//! result. Source: progressive filling, Bertsekas and Gallager, Data Networks, 1992, section 6.5. Cost: rounds x (links +
//! flows without a rate); a round settles at least one link.

use crate::units::Rate;

/// A link that a flow crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub(crate) link: u32,
    /// The share of the link that the flow takes for each unit of its rate.
    pub(crate) weight: u64,
}

/// A flow that shares links with others.
pub(crate) trait Flow {
    /// Returns the links of the flow by number, each once.
    fn crossings(&self) -> &[Crossing];

    /// Returns a rate that the flow never exceeds; infinite if only links limit it.
    fn cap(&self) -> f64 {
        f64::INFINITY
    }
}

/// A link during a filling.
#[derive(Clone, Copy, Default)]
struct Level {
    left: f64,
    /// The weights of its flows without a rate.
    waiting: f64,
    /// The weights of the flows that get their rate in this round.
    taken: f64,
    /// The share of each flow without a rate; infinite if there is none.
    offered: f64,
}

/// A progressive filling, which can be done again with other flows over the same links.
pub(crate) struct Filling {
    levels: Vec<Level>,
    /// The links of the flows.
    links: Vec<u32>,
}

impl Level {
    fn offer(&mut self) {
        self.offered = if self.waiting > 0.0 { self.left / self.waiting } else { f64::INFINITY };
    }

    /// Takes from the link what the flows of this round need.
    fn take(&mut self, rate: f64) {
        let left = self.left - rate * self.taken;
        self.left = if left > 0.0 { left } else { 0.0 };
        self.waiting -= self.taken;
        self.taken = 0.0;
        self.offer();
    }
}

impl Filling {
    pub(crate) fn new(links: usize) -> Self {
        Self { levels: vec![Level::default(); links], links: Vec::new() }
    }

    /// Finds the rate of each flow of `waiting`, which is empty afterwards. `serve` gets a flow, its rate, and the link that
    /// limits it: the first of the most crowded; none if that is its cap. A flow without links or cap gets no rate.
    pub(crate) fn fill<'f, T: Copy, F: Flow + 'f>(
        &mut self,
        waiting: &mut Vec<T>,
        flow: impl Fn(T) -> &'f F,
        capacity: impl Fn(u32) -> f64,
        mut serve: impl FnMut(T, f64, Option<u32>),
    ) {
        self.start(waiting.iter().map(|&one| flow(one).crossings()), capacity);
        let capped = waiting.iter().any(|&one| flow(one).cap().is_finite());
        while !waiting.is_empty() {
            let levels = &mut self.levels;
            let offered = self.links.iter().map(|&link| levels[link as usize].offered);
            let offered = offered.fold(f64::INFINITY, |a, b| if b < a { b } else { a });
            let cap = if capped {
                waiting.iter().map(|&one| flow(one).cap()).fold(f64::INFINITY, f64::min)
            } else {
                f64::INFINITY
            };
            let rate = offered.min(cap);
            if rate == f64::INFINITY {
                break;
            }
            waiting.retain(|&one| {
                let flow = flow(one);
                let limit = flow.crossings().iter().find(|crossing| levels[crossing.link as usize].offered == rate);
                let limit = limit.filter(|_| offered < cap);
                if limit.is_none() && flow.cap() != rate {
                    return true;
                }
                for crossing in flow.crossings() {
                    levels[crossing.link as usize].taken += crossing.weight as f64;
                }
                serve(one, rate, limit.map(|crossing| crossing.link));
                false
            });
            for &link in &self.links {
                let level = &mut levels[link as usize];
                if level.taken > 0.0 {
                    level.take(rate);
                }
            }
        }
        waiting.clear();
    }

    /// Starts with links without transfers.
    fn start<'f>(&mut self, flows: impl Iterator<Item = &'f [Crossing]>, capacity: impl Fn(u32) -> f64) {
        for &link in &self.links {
            self.levels[link as usize].waiting = 0.0;
        }
        self.links.clear();
        for crossing in flows.flatten() {
            let level = &mut self.levels[crossing.link as usize];
            if level.waiting == 0.0 {
                self.links.push(crossing.link);
                level.left = capacity(crossing.link);
            }
            level.waiting += crossing.weight as f64;
        }
        for &link in &self.links {
            self.levels[link as usize].offer();
        }
    }
}

/// Flows that are equal: the links that they cross, each with the number of flows that cross it.
struct Class(Vec<Crossing>);

impl Flow for Class {
    fn crossings(&self) -> &[Crossing] {
        &self.0
    }
}

/// Returns the rate of each flow; `routes` has the links that each crosses, `capacities` the rate of every link. A flow that
/// crosses no link gets `Rate(u64::MAX)`. A link crossed twice by a route is crossed by two flows' worth.
pub fn share(routes: &[&[usize]], capacities: &[Rate]) -> Vec<Rate> {
    let crossed = |route: &&[usize]| route.iter().map(|&link| (link, 1)).collect();
    share_among_classes(routes.iter().map(crossed).collect(), capacities)
}

/// Returns the rate of each flow of several classes of equal flows: `classes` has the links that the flows of a class cross,
/// each with the number of these flows that cross it.
pub(crate) fn share_among_classes(classes: Vec<Vec<(usize, u64)>>, capacities: &[Rate]) -> Vec<Rate> {
    let class = |mut crossed: Vec<(usize, u64)>| {
        crossed.sort_unstable();
        let alike = crossed.chunk_by(|a, b| a.0 == b.0);
        let crossing =
            |of: &[(usize, u64)]| Crossing { link: of[0].0 as u32, weight: of.iter().map(|one| one.1).sum() };
        Class(alike.map(crossing).filter(|crossing| crossing.weight > 0).collect())
    };
    let classes: Vec<Class> = classes.into_iter().map(class).collect();
    let mut rates = vec![Rate(u64::MAX); classes.len()];
    Filling::new(capacities.len()).fill(
        &mut (0..classes.len()).collect(),
        |at| &classes[at],
        |link| capacities[link as usize].0 as f64,
        |at, rate, _| rates[at] = Rate(rate as u64),
    );
    rates
}

#[cfg(test)]
mod tests {
    use super::share;
    use crate::units::Rate;

    #[test]
    fn who_is_held_up_elsewhere_leaves_the_rest_to_the_others() {
        // Link 0 of 10 carries all three; link 1 of 2 the first only.
        let rates = share(&[&[0, 1], &[0], &[0]], &[Rate(10), Rate(2)]);
        assert_eq!(rates, [Rate(2), Rate(4), Rate(4)]);
    }

    #[test]
    fn a_link_crossed_twice_is_shared_by_both_crossings() {
        assert_eq!(share(&[&[0, 0]], &[Rate(10)]), [Rate(5)]);
        assert_eq!(share(&[&[]], &[]), [Rate(u64::MAX)]);
    }
}
