//! The clock of layers: closed forms, but for the pipeline, which may run in virtual time.
//!
//! ```text
//! ops ─compute, network─▶ blocks ─runs─▶ chunks of stages ─pipeline─▶ micro-batches ─+ once─▶ seconds by part
//! ```
//!
//! Parts are the parts of the slowest stage.

use std::collections::BTreeMap;

use super::block::BlockTime;
use super::report::{BlockPrice, RolePrice};
use super::{Pricer, Timed};
use crate::error::{Error, Result};
use crate::parts::{TimePart, TimeParts};
use crate::pipeline::{self, Pipeline, Timeline};
use crate::step::layers::{LayerBlock, Layers, Role, Stages};
use crate::step::WorkStep;

/// The most forward passes that a timeline lists. Chosen: about 100 MB of spans.
const MOST_PASSES: u64 = 1 << 20;

/// The times of layers.
pub(super) struct LayerTimes<'s> {
    blocks: BTreeMap<&'s str, BlockTime>,
    roles: Vec<RoleTime>,
    once: Vec<TimeParts>,
    pub(super) parts: TimeParts,
}

/// What a stage waits for: seconds of one micro-batch.
struct RoleTime {
    chunks: Vec<[TimeParts; 2]>,
    weights: Vec<f64>,
}

impl RoleTime {
    fn all(&self) -> TimeParts {
        let mut all = TimeParts::default();
        self.chunks.iter().flatten().for_each(|&parts| all += parts);
        all
    }

    fn pass(&self, index: usize) -> f64 {
        self.chunks.iter().map(|passes| passes[index].total()).sum::<f64>() / self.chunks.len() as f64
    }
}

impl Pricer<'_> {
    /// Returns the times of layers as a report needs them.
    pub(super) fn timed_layers(&self, step: &WorkStep, layers: &Layers) -> Result<Timed> {
        let LayerTimes { blocks, roles, once, parts } = self.layer_times(step, layers)?;
        let of_block = |(name, time): (&str, BlockTime)| {
            (name.to_owned(), BlockPrice { forward: time.forward, backward: time.backward })
        };
        let roles = layers.roles.iter().zip(&roles).zip(&once);
        Ok(Timed {
            seconds: parts.total(),
            parts,
            roles: roles.map(|((role, time), once)| role_price(role, time, once)).collect(),
            blocks: blocks.into_iter().map(of_block).collect(),
            collectives: self.collectives(step, layers)?,
            lines: Vec::new(),
            host: None,
        })
    }

    /// Runs the pipeline in virtual time: the seconds of a send that nothing hides, and the timeline with spans.
    pub(super) fn pipeline_timeline(&self, step: &WorkStep, layers: &Layers) -> Result<(f64, Timeline)> {
        let pipeline = self.stages(step, layers)?.2;
        if pipeline.schedule == pipeline::Schedule::DualPipe {
            return Err(Error::layout("dualpipe has no timeline: choose another schedule"));
        }
        let Stages { stages, chunks, micro_batches, .. } = layers.pipeline;
        let passes = u64::from(stages) * u64::from(chunks) * u64::from(micro_batches);
        if passes > MOST_PASSES {
            let found = format!("a timeline of {passes} micro-batches on chunks is too long to list");
            return Err(Error::layout(format!("{found}: up to {MOST_PASSES} were expected, take fewer micro-batches")));
        }
        Ok((pipeline.send, pipeline.run_with_spans()))
    }

    fn stages<'s>(
        &self,
        step: &'s WorkStep,
        layers: &'s Layers,
    ) -> Result<(BTreeMap<&'s str, BlockTime>, Vec<RoleTime>, Pipeline)> {
        let block = |(name, block): (&'s String, &LayerBlock)| Ok((name.as_str(), self.block(step, block)?));
        let blocks = layers.blocks.iter().map(block).collect::<Result<BTreeMap<_, _>>>()?;
        let [sender, receiver] = self.send(step, layers)?;
        let roles: Vec<RoleTime> = layers.roles.iter().map(|role| role_time(role, &blocks, sender)).collect();
        let pipeline = pipeline_of(layers, &roles, receiver);
        pipeline.check()?;
        Ok((blocks, roles, pipeline))
    }

    pub(super) fn layer_times<'s>(&self, step: &'s WorkStep, layers: &'s Layers) -> Result<LayerTimes<'s>> {
        let (blocks, roles, pipeline) = self.stages(step, layers)?;
        let run = |pipeline: &Pipeline| if self.is_exact { pipeline.exact() } else { pipeline.closed_form() };
        let makespan = run(&pipeline);
        let waits = if pipeline.send > 0.0 { makespan - run(&Pipeline { send: 0.0, ..pipeline.clone() }) } else { 0.0 };
        let once = self.once_of_roles(step, layers, &roles)?;
        let mut parts = parts_of(layers, &roles, &once, makespan);
        parts.add(TimePart::Sends, waits.max(0.0));
        parts.add(TimePart::Bubble, -waits.max(0.0));
        let seconds = parts.total();
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(Error::Step(format!("its operations take {seconds} s: a time above 0 was expected")));
        }
        Ok(LayerTimes { blocks, roles, once, parts })
    }

    fn once_of_roles(&self, step: &WorkStep, layers: &Layers, roles: &[RoleTime]) -> Result<Vec<TimeParts>> {
        let passes = roles.iter().map(|role| [role.pass(0), role.pass(1)]);
        layers.roles.iter().zip(passes).map(|(role, passes)| self.once(step, &role.once, passes)).collect()
    }
}

/// Seconds of one micro-batch on each chunk of each stage.
fn pipeline_of(layers: &Layers, roles: &[RoleTime], send: f64) -> Pipeline {
    let of_role = |role: &RoleTime| -> Vec<pipeline::Chunk> {
        let chunks = role.chunks.iter().zip(&role.weights);
        let chunk = |([forward, backward], &weight): (&[TimeParts; 2], &f64)| {
            let (forward, backward) = (forward.total(), backward.total());
            pipeline::Chunk { forward, backward: (backward - weight).max(0.0), weight }
        };
        chunks.map(chunk).collect()
    };
    let mut stages = vec![Vec::new(); layers.pipeline.stages as usize];
    for (role, time) in layers.roles.iter().zip(roles) {
        let chunks = of_role(time);
        role.stages.iter().for_each(|&stage| stages[stage as usize].clone_from(&chunks));
    }
    Pipeline::new(layers.pipeline.schedule, stages, layers.pipeline.micro_batches, send)
}

/// Returns the parts of the slowest stage.
fn parts_of(layers: &Layers, roles: &[RoleTime], once: &[TimeParts], makespan: f64) -> TimeParts {
    let micro_batches = f64::from(layers.pipeline.micro_batches);
    let longest = |all: &mut dyn Iterator<Item = TimeParts>| {
        all.max_by(|one, other| one.total().total_cmp(&other.total())).expect("a step has a role")
    };
    let mut parts = longest(&mut roles.iter().map(RoleTime::all)) * micro_batches;
    parts.add(TimePart::Bubble, (makespan - parts.total()).max(0.0));
    parts += longest(&mut once.iter().copied());
    let slots = micro_batches + f64::from(layers.pipeline.stages - 1);
    parts.add(TimePart::Stall, layers.pipeline.stall_s * slots);
    parts
}

fn role_time(role: &Role, blocks: &BTreeMap<&str, BlockTime>, send: f64) -> RoleTime {
    let mut time = RoleTime { chunks: Vec::new(), weights: Vec::new() };
    for runs in &role.chunks {
        let (mut forward, mut backward, mut weights) =
            (TimeParts::of(TimePart::Sends, send), TimeParts::of(TimePart::Sends, send), 0.0);
        for run in runs {
            let (block, repeat) = (&blocks[run.block.as_str()], f64::from(run.repeat));
            forward += block.forward * repeat;
            backward += block.backward * repeat;
            weights += block.weights * repeat;
        }
        time.chunks.push([forward, backward]);
        time.weights.push(weights);
    }
    time
}

fn role_price(role: &Role, time: &RoleTime, once: &TimeParts) -> RolePrice {
    let pass = |index: usize| time.chunks.iter().map(|passes| passes[index].total()).collect();
    RolePrice {
        name: role.name.clone(),
        stages: role.stages.clone(),
        forward_s: pass(0),
        backward_s: pass(1),
        once_s: once.total(),
    }
}
