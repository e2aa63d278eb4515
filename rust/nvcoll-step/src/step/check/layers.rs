//! Checks of layers: roles and stages, blocks that exist, operations that layers have.

use super::{refuse, wrong};
use crate::error::Result;
use crate::memory::RankMemory;
use crate::step::layers::{Hides, LayerBlock, LayerOp, Layers, Role};
use crate::step::work::StepWork;
use crate::step::{WorkStep, MOST};

impl WorkStep {
    pub(super) fn check_layers(&self, layers: &Layers) -> Result<()> {
        layers.check_stages()?;
        layers.roles.iter().try_for_each(|role| layers.check_role(role))?;
        layers.check_numbers()?;
        layers.ops().try_for_each(|op| match self.wrong_op(&op.op).or_else(|| misplaced(op)) {
            None => Ok(()),
            Some(found) => refuse(format!("`{}` {found}", op.op.name)),
        })
    }
}

/// Returns why layers have no such operation.
fn misplaced(op: &LayerOp) -> Option<String> {
    match &op.op.work {
        work if work.is_order() => {
            Some("orders streams, which layers do not have: `hides` says what runs beside it".to_owned())
        }
        StepWork::Message { .. } => {
            Some("is a message between two ranks: layers have `send` of the pipeline, or a collective".to_owned())
        }
        StepWork::Collective { .. } => None,
        StepWork::Copy { .. } if op.hides == Hides::OtherLayer => None,
        _ if op.hides != Hides::Nothing => Some("is no collective, and `hides`: only collectives do".to_owned()),
        _ => None,
    }
}

impl Layers {
    fn check_stages(&self) -> Result<()> {
        let mut stages: Vec<u32> = self.roles.iter().flat_map(|role| role.stages.iter().copied()).collect();
        stages.sort_unstable();
        let count = self.pipeline.stages;
        if stages.is_empty() || !stages.iter().copied().eq(0..count) {
            let found = stages
                .windows(2)
                .find(|two| two[0] + 1 != two[1])
                .map_or(String::new(), |two| format!(", and {} comes before {} in their order", two[0], two[1]));
            return refuse(format!("its roles have {} stages{found}: each of {count} was expected once", stages.len()));
        }
        Ok(())
    }

    fn check_role(&self, role: &Role) -> Result<()> {
        let refuse = |reason: String| refuse(format!("role `{}` {reason}", role.name));
        if role.stages.is_empty() {
            return refuse("stands for no stage: one or more were expected".to_owned());
        }
        if role.chunks.len() != self.pipeline.chunks as usize {
            return refuse(format!("has {} chunks, {} were expected", role.chunks.len(), self.pipeline.chunks));
        }
        if let Some(run) = role.chunks.iter().flatten().find(|run| !self.blocks.contains_key(&run.block)) {
            return refuse(format!("runs the block `{}`, which does not exist", run.block));
        }
        Ok(())
    }

    /// Refuses numbers outside operations that are none.
    fn check_numbers(&self) -> Result<()> {
        let of_memory = |role: &Role| role.memory.as_ref().map_or_else(Vec::new, RankMemory::numbers);
        if let Some(number) = wrong(self.roles.iter().flat_map(of_memory).chain([self.pipeline.stall_s])) {
            return refuse(format!("its memory or stall has the number {number:?}: 0 to {MOST:e} was expected"));
        }
        let again = |block: &LayerBlock| [block.recompute.gemm, block.recompute.attention, block.recompute.elementwise];
        match self.blocks.values().flat_map(again).find(|part| !(0.0..=1.0).contains(part)) {
            None => Ok(()),
            Some(part) => refuse(format!("a block computes the part {part} again: 0 to 1 was expected")),
        }
    }
}
