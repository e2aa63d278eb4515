//! What a run is given besides a schedule and a fabric.

use super::damage::Damage;
use super::fitted_costs::FittedCosts;
use super::protocol::StepCosts;
use super::ratio::Ratio;
use crate::error::{Error, Result};
use crate::tables;
use crate::units::Ps;

/// What becomes of a step `at switch` where no switch can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtSwitch {
    /// It is an error, which names an algorithm that does without.
    Refuse,
    /// It is done by its rank, point to point.
    Ignore,
}

impl AtSwitch {
    /// Finds what becomes of steps at a switch by name.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        let all = [("refuse", AtSwitch::Refuse), ("ignore", AtSwitch::Ignore)];
        tables::named("treatment of steps at a switch", name, all, |one| one.0).map(|(_, found)| found)
    }
}

/// What a run is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The cost constants of its steps.
    pub protocol: StepCosts,
    /// Bytes of a chunk that one tile moves.
    pub slice_bytes: u64,
    /// What becomes of steps that ask for a switch.
    pub at_switch: AtSwitch,
    /// Whether a span for every step and tile is kept.
    pub spans: bool,
    /// For each rank, when it enters the call; empty: all at 0.
    pub starts_ps: Vec<Ps>,
    /// For each rank, the time of its steps as a multiple of the time on a healthy GPU with the links to
    /// themselves; at least one. Empty: all are healthy.
    pub slowdowns: Vec<Ratio>,
    /// Links that are slower than they should be, or cut.
    pub damages: Vec<Damage>,
    /// What was fitted to measurements, in place of the fabric's own rates and latencies.
    pub fitted: Option<FittedCosts>,
}

impl Settings {
    /// Returns settings of a healthy machine on which all ranks enter at once. A tile has `slice_bytes` of each chunk.
    pub fn new(protocol: &StepCosts, slice_bytes: u64) -> Self {
        Self {
            protocol: protocol.clone(),
            slice_bytes,
            at_switch: AtSwitch::Refuse,
            spans: false,
            starts_ps: Vec::new(),
            slowdowns: Vec::new(),
            damages: Vec::new(),
            fitted: None,
        }
    }

    /// Checks that the settings fit a fabric and a number of ranks.
    ///
    /// # Errors
    /// [`Error::Unable`] for settings of another number of ranks or another fabric, and a slowdown below one.
    pub(super) fn check(&self, fabric: &str, links: usize, world_size: u32) -> Result<()> {
        let unable = |message: String| Err(Error::Unable { fabric: fabric.to_owned(), message });
        for (what, len) in [("start times", self.starts_ps.len()), ("slowdowns", self.slowdowns.len())] {
            if len > 0 && len != world_size as usize {
                return unable(format!("there are {len} {what} for {world_size} ranks: give one for each, or none"));
            }
        }
        if let Some(slowdown) = self.slowdowns.iter().find(|slowdown| slowdown.num < slowdown.den) {
            return unable(format!("a slowdown of {}/{} is no slowdown: give 1 or more", slowdown.num, slowdown.den));
        }
        match self.fitted.as_ref().map(|fitted| fitted.rates.len()) {
            Some(rates) if rates != links => {
                unable(format!("there are {rates} fitted rates for {links} links: give one for each"))
            }
            _ => Ok(()),
        }
    }

    /// Says whether all that decides routes and capacities of links is the same.
    pub(super) fn has_links_of(&self, other: &Self) -> bool {
        let rates = |settings: &Self| settings.fitted.as_ref().map(|fitted| fitted.rates.clone());
        self.at_switch == other.at_switch && self.damages == other.damages && rates(self) == rates(other)
    }

    /// Says whether a step costs the same, on the same links.
    pub(super) fn has_costs_of(&self, other: &Self) -> bool {
        let fitted = |settings: &Self| settings.fitted.as_ref().map(|fitted| (fitted.hops, fitted.switch_wire));
        self.protocol == other.protocol && self.slowdowns == other.slowdowns && fitted(self) == fitted(other)
    }
}
