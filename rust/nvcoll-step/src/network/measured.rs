//! Bus bandwidths that the owner of a machine measured: the time that a price does not undercut.
//!
//! Where a cluster does not reach what its parts could, its owner knows by how much. What was lost is a matter of one group: of
//! latencies and limits of flows, not of cards that are full. So groups that share cards each have the bandwidth.

use nvcoll_fabric::predict::Pattern;
use serde::{Deserialize, Serialize};

use super::seats::Shape;
use crate::error::{Error, Result};

/// Bus bandwidths of collectives on a machine, for some numbers of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredBandwidth {
    /// The collectives, as `all_gather`.
    pub collectives: Vec<String>,
    /// Numbers of nodes, ascending.
    pub nodes: Vec<u32>,
    /// The bus bandwidth of each, in GB/s as nccl-tests prints it.
    pub busbw_gbps: Vec<f64>,
}

/// The rows of a machine by collective.
#[derive(Debug, Default)]
pub(super) struct Bandwidths([Option<MeasuredBandwidth>; Pattern::ALL.len()]);

impl Bandwidths {
    /// Reads rows.
    ///
    /// # Errors
    /// [`Error::Step`] for a row that is none, [`Error::Fabric`] for an unknown collective.
    pub(super) fn of(rows: &[MeasuredBandwidth]) -> Result<Self> {
        let mut all = Self::default();
        for row in rows {
            let (nodes, rates) = (&row.nodes, &row.busbw_gbps);
            let ascend = nodes.first().is_some_and(|&first| first > 0) && nodes.windows(2).all(|two| two[0] < two[1]);
            let are_rates = rates.iter().all(|rate| rate.is_finite() && *rate > 0.0);
            if nodes.len() != rates.len() || !ascend || !are_rates {
                let message = "pass ascending numbers of nodes from 1 on, and as many bandwidths above 0";
                return Err(Error::Step(format!("measured bandwidths {rates:?} of {nodes:?} nodes: {message}")));
            }
            for name in &row.collectives {
                all.0[Pattern::named(name)? as usize] = Some(row.clone());
            }
        }
        Ok(all)
    }

    /// Returns the seconds of a call at the measured bandwidth; 0 if none was measured. Bandwidths between nodes say nothing of one.
    pub(super) fn seconds(&self, pattern: Pattern, nbytes: f64, shape: Shape) -> f64 {
        let row = self.0[pattern as usize].as_ref().filter(|row| shape.nodes > 1 || row.nodes[0] == 1);
        row.map_or(0.0, |row| nbytes * pattern.bus_factor(shape.local * shape.nodes) / (row.gbps(shape.nodes) * 1e9))
    }
}

impl MeasuredBandwidth {
    /// Interpolates on the logarithm of the number of nodes; the first and the last value hold beyond.
    fn gbps(&self, nodes: u32) -> f64 {
        let after = self.nodes.partition_point(|&known| known < nodes);
        let (last, at) = (self.nodes.len() - 1, |place: usize| f64::from(self.nodes[place]).log2());
        if after == 0 || after > last {
            return self.busbw_gbps[after.min(last)];
        }
        let part = (f64::from(nodes).log2() - at(after - 1)) / (at(after) - at(after - 1));
        self.busbw_gbps[after - 1] * (1.0 - part) + self.busbw_gbps[after] * part
    }
}
