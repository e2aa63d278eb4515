//! The state of transfers relative to now, and moving that state to a later time. Skipping repeated tiles needs both.

use super::{Fluid, Transfer};
use crate::units::Ps;

impl Transfer {
    /// Tells what decides how it goes on, until `visit` says no.
    pub(super) fn state(&self, now: Ps, records: bool, visit: &mut impl FnMut(u64) -> bool) -> bool {
        if !self.is_active {
            return visit(u64::MAX);
        }
        let limit = u64::from(self.limit.link) << 32 | u64::from(self.limit.users);
        visit(self.path.into())
            && visit(self.ends - now)
            && visit(now - self.since)
            && visit(self.left.to_bits())
            && visit(self.rate.to_bits())
            && (!records || visit(limit))
    }
}

impl Fluid<'_> {
    /// Returns how long each link was in use until now.
    pub(super) fn used_until(&self, now: Ps) -> Vec<Ps> {
        let used = |link: &super::SharedLink| link.busy + if link.transfers > 0 { now - link.busy_since } else { 0 };
        self.links.iter().map(used).collect()
    }

    /// Lets all transfers go on that much later. Rates stay, and so does what fillings have found out about them.
    pub(super) fn postpone_all(&mut self, by: Ps, more: &[Ps]) {
        for flow in &mut self.flows {
            for time in [&mut flow.since, &mut flow.ends, &mut flow.noted] {
                *time = time.saturating_add(by);
            }
        }
        for bundle in &mut self.bundles {
            bundle.first_end = bundle.first_end.saturating_add(by);
        }
        for island in &mut self.islands {
            island.next_end = island.next_end.saturating_add(by);
        }
        for (link, more) in self.links.iter_mut().zip(more) {
            link.busy_since += by;
            link.busy += more;
        }
    }
}
