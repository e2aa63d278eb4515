//! What the collectives and sends of a step cost, and how much of each nothing hides.
//!
//! A collective costs what the network says, times two constants: collectives inside steps, and all-to-alls. What hides behind one pass
//! is in `block` and `once`; here is the part that does not depend on the length of a pass.

use nvcoll_fabric::predict::{Pattern, Server};

use super::{CollectivePrice, Pricer};
use crate::error::Result;
use crate::network::Group;
use crate::step::layers::{Hides, Layers};
use crate::step::work::{StepOp, StepWork};
use crate::step::WorkStep;

/// The number of GPUs for which the contention of collectives was fitted: a node of eight.
const NEARBY: u32 = 8;

impl Pricer<'_> {
    /// Seconds of all repetitions of an operation that is no collective.
    pub(super) fn seconds_of(&self, op: &StepOp) -> Result<f64> {
        Ok(op.count * self.compute().seconds(&op.work)?)
    }

    /// Seconds of all repetitions of a collective, if nothing hid it.
    pub(super) fn collective(&self, step: &WorkStep, op: &StepOp) -> Result<f64> {
        Ok(op.count * self.one(step, op)?)
    }

    /// Seconds of one collective.
    fn one(&self, step: &WorkStep, op: &StepOp) -> Result<f64> {
        let StepWork::Collective { pattern, bytes, group, once_per_node, server } = &op.work else {
            return Ok(0.0);
        };
        let group = step.groups[group].ranks;
        let bytes = match once_per_node {
            None => *bytes,
            Some(experts) => bytes * self.distinct_nodes(group, *experts)?,
        };
        self.call(*server, *pattern, bytes, group)
    }

    /// Seconds of a call of NCCL inside a step, or of a server's kernel: the constants are of the former.
    pub(super) fn call(&self, server: Option<Server>, pattern: Pattern, bytes: f64, group: Group) -> Result<f64> {
        let constants = self.constants;
        let factor = match (server, pattern) {
            (Some(_), _) => 1.0,
            (None, Pattern::AllToAll) => constants.network * constants.all_to_all,
            (None, _) => constants.network,
        };
        Ok(factor * self.network.seconds_as(server, pattern, bytes, group)?)
    }

    /// The part of a token's copies that leave, if it goes to each node once: distinct nodes of its experts, in its experts.
    fn distinct_nodes(&self, group: Group, experts: f64) -> Result<f64> {
        let nodes = f64::from(self.network.shape(group)?.nodes);
        if nodes <= 1.0 {
            return Ok(1.0);
        }
        Ok((nodes * (1.0 - (1.0 - 1.0 / nodes).powf(experts)) / experts).min(1.0))
    }

    /// Seconds of a collective if its ranks were on one node: while its kernels move at the speed of NVLink, they slow computing.
    pub(super) fn nearby(&self, step: &WorkStep, op: &StepOp) -> Result<f64> {
        let StepWork::Collective { pattern, bytes, .. } = op.work else {
            return Ok(0.0);
        };
        Ok(op.count * self.nearby_seconds(pattern, bytes, step.gpus)?)
    }

    /// The same of one call.
    pub(super) fn nearby_seconds(&self, pattern: Pattern, bytes: f64, gpus: u32) -> Result<f64> {
        let size = self.network.domain().min(NEARBY).min(gpus);
        self.network.seconds(pattern, bytes, Group::even(size, 1))
    }

    /// The part of a collective that nothing hides, where that does not depend on the length of a pass.
    pub(super) fn exposed(&self, hides: Hides) -> f64 {
        match hides {
            Hides::Tiles => self.constants.tiles_exposed,
            Hides::OtherMicroBatch => self.constants.experts_exposed,
            Hides::Half => self.constants.half_exposed,
            _ => 1.0,
        }
    }

    /// Seconds of a send between stages: what the sender waits in each slot, and what the receiver waits for.
    ///
    /// A send that the software overlaps, and each send of a pipeline of one chunk, is a latency that virtual time hides where it can.
    /// Interleaved stages without overlap send and receive between their passes (Megatron-LM's `overlap_p2p_comm`), so both wait.
    pub(super) fn send(&self, step: &WorkStep, layers: &Layers) -> Result<[f64; 2]> {
        let Some(layer) = &layers.pipeline.send else { return Ok([0.0; 2]) };
        let seconds = self.collective(step, &layer.op)?;
        Ok(if layer.hides != Hides::Nothing || layers.pipeline.chunks == 1 { [0.0, seconds] } else { [seconds, 0.0] })
    }

    pub(super) fn collectives(&self, step: &WorkStep, layers: &Layers) -> Result<Vec<CollectivePrice>> {
        let blocks = layers.blocks.iter().flat_map(|(name, block)| {
            [("forward", &block.forward), ("backward", &block.backward)]
                .map(|(pass, ops)| (name.as_str(), pass, ops.as_slice()))
        });
        let once = layers.roles.iter().map(|role| (role.name.as_str(), "once", role.once.as_slice()));
        let send = layers.pipeline.send.as_slice();
        let mut found = Vec::new();
        for (of, pass, ops) in blocks.chain(once).chain([("pipeline", "pipeline", send)]) {
            for layer in ops {
                let op = &layer.op;
                let StepWork::Collective { bytes, group, .. } = &op.work else { continue };
                let ranks = step.groups[group].ranks;
                if ranks.size < 2 {
                    continue;
                }
                found.push(CollectivePrice {
                    of: of.to_owned(),
                    pass: pass.to_owned(),
                    name: op.name.clone(),
                    group: group.clone(),
                    ranks: self.network.shape(ranks)?.to_string(),
                    count: op.count,
                    bytes: *bytes,
                    seconds: self.one(step, op)?,
                    hides: Some(layer.hides),
                    exposed_s: None,
                });
            }
        }
        Ok(found)
    }
}
