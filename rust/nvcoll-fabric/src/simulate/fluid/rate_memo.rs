//! Rates by what is on its way, where the same transfers meet again and again: a schedule over many tiles on a machine
//! of few paths.
//!
//! ```text
//! paths with transfers, and how many each ─▶ a sum of hashes ─▶ rates and limits of all, as they were filled then
//! ```
//!
//! Rates depend on nothing else, so what the table says is what a filling would find, to the bit. A set is looked up by a
//! hash and believed if every path has as many transfers as then. While there is a table no island is kept, and the
//! earliest end of all transfers is on the agenda. Where most sets are new the table is given up.

use super::{Bundle, Fluid, LEAST_KEPT, NONE};
use crate::simulate::agenda::Agenda;
use crate::simulate::hashing::{fast_map, FastMap};
use crate::simulate::paths::TransferPaths;
use crate::simulate::sharing::{event, Limit, ENDS};
use crate::units::Ps;

/// With more paths there is no table: each look costs as much as paths have transfers. Chosen.
const MOST_PATHS: usize = 512;

/// How many rates a table has before it is begun anew. Chosen: a megabyte.
const MOST_RATES: usize = 1 << 15;

/// After so many looks most must have found something. Chosen: half of them, after what a few tiles take.
const LOOKS: u32 = 1024;

/// What a path had in a set.
struct RecordedRate {
    path: u32,
    members: u32,
    rate: f64,
    limit: Limit,
}

/// A memo of the rates of sets of transfers, and the set that is under way.
pub(super) struct RateMemo {
    /// Paths with transfers, and for each path where it is there.
    active: Vec<u32>,
    places: Vec<u32>,
    /// The sum of the hashes of paths, each as often as it has transfers.
    key: u64,
    /// Whether transfers have begun or ended since rates were given.
    pub(super) is_stale: bool,
    /// Whether transfers have met: else each has put its own end on the agenda.
    have_met: bool,
    sets: FastMap<u64, (u32, u32)>,
    given: Vec<RecordedRate>,
    looks: u32,
    found: u32,
}

impl RateMemo {
    /// Starts with nothing on its way; none where there are too many paths.
    pub(super) fn new(paths: &TransferPaths) -> Option<Self> {
        (paths.all.len() <= MOST_PATHS).then(|| Self {
            active: Vec::new(),
            places: vec![0; paths.all.len()],
            key: 0,
            is_stale: false,
            have_met: false,
            sets: fast_map([]),
            given: Vec::new(),
            looks: 0,
            found: 0,
        })
    }

    /// A path has one transfer more.
    pub(super) fn join(&mut self, path: u32, bundle: &Bundle) {
        self.key = self.key.wrapping_add(hash_of(path));
        if bundle.members == 1 {
            self.places[path as usize] = self.active.len() as u32;
            self.active.push(path);
        }
    }

    /// A path has one transfer less.
    pub(super) fn part(&mut self, path: u32, bundle: &Bundle) {
        self.key = self.key.wrapping_sub(hash_of(path));
        self.is_stale |= self.have_met;
        if bundle.members == 0 {
            let place = self.places[path as usize] as usize;
            self.active.swap_remove(place);
            if let Some(&moved) = self.active.get(place) {
                self.places[moved as usize] = place as u32;
            }
            self.have_met &= !self.active.is_empty();
        }
    }

    /// A transfer begins or ends where others are.
    pub(super) fn meet(&mut self) {
        (self.is_stale, self.have_met) = (true, true);
    }

    fn find(&self, bundles: &[Bundle]) -> Option<std::ops::Range<usize>> {
        let &(first, end) = self.sets.get(&self.key)?;
        let set = first as usize..end as usize;
        let is_there = |given: &RecordedRate| bundles[given.path as usize].members == given.members;
        (set.len() == self.active.len() && self.given[set.clone()].iter().all(is_there)).then_some(set)
    }

    fn store(&mut self, bundles: &[Bundle]) {
        if self.given.len() > MOST_RATES {
            self.given.clear();
            self.sets.clear();
        }
        let first = self.given.len() as u32;
        self.given.extend(self.active.iter().map(|&path| {
            let Bundle { members, rate, limit, .. } = bundles[path as usize];
            RecordedRate { path, members, rate, limit }
        }));
        self.sets.insert(self.key, (first, self.given.len() as u32));
    }

    fn is_worth_it(&self) -> bool {
        self.looks < LOOKS || self.found > self.looks / 2
    }
}

/// A number without pattern for each path: the finalizer of splitmix64 (Steele, Lea, Flood 2014).
fn hash_of(path: u32) -> u64 {
    let mut hash = u64::from(path).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

impl Fluid<'_> {
    /// Settles by a table that is stale: adds the transfers that end now, or gives all their rates if none does.
    pub(super) fn settle_by_table(&mut self, mut memo: RateMemo, now: Ps, ended: &mut Vec<u32>, agenda: &mut Agenda) {
        for &path in &memo.active {
            self.add_ended_on(path, now, ended);
        }
        if ended.is_empty() {
            memo.is_stale = false;
            self.assign_all(&mut memo, now, agenda);
            if !memo.is_worth_it() {
                self.least_kept = LEAST_KEPT;
                return self.change_all(&memo.active);
            }
        }
        self.memo = Some(memo);
    }

    fn assign_all(&mut self, memo: &mut RateMemo, now: Ps, agenda: &mut Agenda) {
        memo.looks += 1;
        if let Some(set) = memo.find(&self.bundles) {
            memo.found += 1;
            for &RecordedRate { path, rate, limit, .. } in &memo.given[set] {
                let bundle = &self.bundles[path as usize];
                if bundle.rate != rate || bundle.has_new || self.records && bundle.limit != limit {
                    self.set_rate(path, rate, limit, now);
                }
            }
        } else {
            self.change_all(&memo.active);
            self.settle_links(now, &mut Vec::new(), agenda);
            memo.store(&self.bundles);
        }
        self.note_first_of(&memo.active, agenda);
    }

    fn change_all(&mut self, paths: &[u32]) {
        for &path in paths {
            if let Some(crossing) = self.paths.shared(path).first() {
                self.change(crossing.link);
            }
        }
    }

    fn note_first_of(&mut self, paths: &[u32], agenda: &mut Agenda) {
        let mut first = (Ps::MAX, NONE);
        for &path in paths {
            let bundle = &self.bundles[path as usize];
            if bundle.first_end < first.0 {
                first = (bundle.first_end, bundle.first);
            }
        }
        if let Some(flow) = self.flows.get_mut(first.1 as usize) {
            if flow.noted != flow.ends {
                flow.noted = flow.ends;
                agenda.push(flow.ends, event(first.1, ENDS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::partition::Partition;
    use proptest::prelude::*;

    use super::Fluid;
    use crate::preset::preset;
    use crate::simulate::run::{Execution, RunOutcome};
    use crate::simulate::{protocol, AtSwitch, Detail, Ratio, Settings, Simulation};

    fn run(simulation: &Simulation, has_table: bool) -> RunOutcome {
        let mut fluid = Fluid::new(&simulation.paths, simulation.flat.queues(), true);
        if !has_table {
            (fluid.memo, fluid.least_kept) = (None, super::LEAST_KEPT);
        }
        Execution::run(simulation, fluid, &mut || false).ok().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn rates_of_the_table_are_those_of_a_filling(
            algorithm in any::<prop::sample::Index>(), n in 2u32..9, form in any::<prop::sample::Index>(), tiles in 1usize..100,
            more in 0usize..17, slow in 1u32..3, starts in prop::collection::vec(0u64..9_000_000, 8),
            name in prop::sample::select(vec!["hgx-a100", "dgx1-v100", "rtx4090-8-staged", "hgx-h100", "mi300x-8"]),
        ) {
            let algorithm = ALGORITHMS[algorithm.index(ALGORITHMS.len())];
            let forms: Vec<_> = algorithm.collective.forms(n).collect();
            let (roles, aliasing) = forms[form.index(forms.len())];
            let schedule = build(algorithm.collective, algorithm.name, roles, aliasing).unwrap();
            let settings = Settings {
                at_switch: AtSwitch::Ignore,
                detail: Detail::Path,
                starts_ps: starts[..n as usize].to_vec(),
                slowdowns: (0..n).map(|rank| Ratio::new(if rank == 1 { slow } else { 1 }, 1)).collect(),
                ..Settings::new(protocol::named("simple").unwrap(), 40_000)
            };
            let counts = Counts::Even(tiles * 10_000 * schedule.chunks_per_part as usize + more);
            let partition = Partition::new(counts.of_parts(schedule.collective, roles), schedule.chunks_per_part);
            let mut simulation =
                Simulation::new(&schedule, &partition, DType::F32, &preset(name).unwrap(), &settings).unwrap();
            simulation.repeats = false;
            let (known, plain) = (run(&simulation, true), run(&simulation, false));
            prop_assert_eq!((&known.ends, &known.busy, &known.moved), (&plain.ends, &plain.busy, &plain.moved));
            let (known, plain) = (known.record.unwrap(), plain.record.unwrap());
            prop_assert_eq!((&known.ready, &known.done, &known.limit), (&plain.ready, &plain.done, &plain.limit));
        }
    }
}
