//! How long a training step takes on a machine.
//!
//! ```text
//! ops ─compute, network─▶ blocks ─runs─▶ chunks of stages ─pipeline─▶ micro-batches ─+ once─▶ seconds, parts, memory, interval
//! ```
//!
//! Every number is a closed form, but for the pipeline, which may run in virtual time. The parts are those of the slowest stage, and sum up
//! to the time of the step.

mod block;
mod once;
pub mod parts;
mod recorded;
mod traffic;
mod trust;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compute::{Compute, Device};
use crate::constants::Constants;
use crate::error::{Error, Result};
use crate::memory::{Fit, Part as MemoryPart, GIB};
use crate::network::Network;
use crate::pipeline::{self, Pipeline, Timeline};
use crate::training_step::{Block, Role, Stages, TrainingStep};
use block::BlockTime;
use parts::{Part, Parts};
pub use recorded::{LinePrice, RankTimeline, RecordedTimeline};
pub use traffic::CollectivePrice;

/// What prices steps: a machine, its GPUs, and constants.
#[derive(Debug, Clone, Copy)]
pub struct Pricer<'m> {
    /// The machine.
    pub network: &'m Network,
    /// What its GPUs compute.
    pub device: &'m Device,
    /// The constants.
    pub constants: &'m Constants,
    /// Whether the pipeline runs in virtual time; else its closed form is taken, for sweeps.
    pub is_exact: bool,
}

/// The price of a step.
#[derive(Debug, Clone, Serialize)]
pub struct StepPrice {
    /// Seconds of the step.
    pub seconds: f64,
    /// The lower end of the 90 % interval, in seconds.
    pub low_s: f64,
    /// The upper end of the 90 % interval, in seconds.
    pub high_s: f64,
    /// Why the interval is wider than that of the class, if it is.
    pub extrapolated: Vec<String>,
    /// Tokens per second and GPU.
    pub tokens_per_second: f64,
    /// The FLOPs of the model over the dense peak of the step's precision.
    pub mfu: f64,
    /// FLOP/s per GPU of the model, in units of 10^12.
    pub tflops: f64,
    /// Which FLOPs `mfu` and `tflops` count: `model`, or `recorded` ones if the step does not say those of its model.
    pub flops_of: &'static str,
    /// Seconds of the slowest stage by part; they sum up to `seconds`.
    pub parts: Parts,
    /// Each role.
    pub roles: Vec<RolePrice>,
    /// Each block: seconds of one micro-batch.
    pub blocks: BTreeMap<String, BlockPrice>,
    /// Each collective with its price.
    pub collectives: Vec<CollectivePrice>,
    /// Lines of the script for which the GPU waits, most first; none of a planned step.
    pub lines: Vec<LinePrice>,
    /// The memory of the fullest role in GB of 2^30 bytes, as nvidia-smi and PyTorch count.
    pub memory_gb: f64,
    /// What programs get of the GPU's memory, in the same GB.
    pub gpu_memory_gb: f64,
    /// Whether the step fits.
    pub fit: Fit,
}

/// The price of what the ranks of a role do.
#[derive(Debug, Clone, Serialize)]
pub struct RolePrice {
    /// The name of the role.
    pub name: String,
    /// Its stages.
    pub stages: Vec<u32>,
    /// Seconds of the forward pass of one micro-batch, by chunk.
    pub forward_s: Vec<f64>,
    /// Seconds of the backward pass of one micro-batch, by chunk.
    pub backward_s: Vec<f64>,
    /// Seconds of what happens once.
    pub once_s: f64,
    /// Its memory in GB of 2^30 bytes.
    pub memory_gb: f64,
    /// The parts of its memory, in bytes.
    pub memory: Vec<MemoryPart>,
}

/// The price of a block.
#[derive(Debug, Clone, Serialize)]
pub struct BlockPrice {
    /// Seconds of the forward pass by part.
    pub forward: Parts,
    /// Seconds of the backward pass by part.
    pub backward: Parts,
}

/// The most forward passes that a timeline lists. Chosen: about 100 MB of spans.
const MOST_PASSES: u64 = 1 << 20;

/// The times of a step, before they are reported.
struct Timed<'s> {
    blocks: BTreeMap<&'s str, BlockTime>,
    roles: Vec<RoleTime>,
    once: Vec<Parts>,
    parts: Parts,
}

/// What a stage waits for: seconds of one micro-batch.
struct RoleTime {
    chunks: Vec<[Parts; 2]>,
    weights: Vec<f64>,
}

impl RoleTime {
    fn all(&self) -> Parts {
        let mut all = Parts::default();
        self.chunks.iter().flatten().for_each(|&parts| all += parts);
        all
    }

    fn pass(&self, index: usize) -> f64 {
        self.chunks.iter().map(|passes| passes[index].total()).sum::<f64>() / self.chunks.len() as f64
    }
}

impl<'m> Pricer<'m> {
    fn compute(&self) -> Compute<'m> {
        Compute { device: self.device, constants: self.constants }
    }

    /// Prices a step.
    ///
    /// # Errors
    /// [`crate::Error::Gpu`] if the GPU lacks a precision of the step; [`crate::Error::Fabric`] if the machine cannot run one of its
    /// collectives, or has too few GPUs.
    pub fn price(&self, step: &TrainingStep) -> Result<StepPrice> {
        if let Some(recorded) = &step.recorded {
            return self.price_recorded(step, recorded);
        }
        let timed = self.timed(step)?;
        self.report(step, &timed)
    }

    /// Returns the seconds of a step alone.
    ///
    /// # Errors
    /// Those of [`Pricer::price`].
    pub fn seconds(&self, step: &TrainingStep) -> Result<f64> {
        match &step.recorded {
            Some(recorded) => self.seconds_recorded(step, recorded),
            None => Ok(self.timed(step)?.parts.total()),
        }
    }

    /// Runs the pipeline of a step in virtual time: the seconds of a send that nothing hides, and the timeline with spans.
    ///
    /// # Errors
    /// Those of [`Pricer::price`]; [`Error::Layout`] if there are too many passes to list.
    pub fn timeline(&self, step: &TrainingStep) -> Result<(f64, Timeline)> {
        let pipeline = self.stages(step)?.2;
        let Stages { stages, chunks, micro_batches, .. } = step.pipeline;
        let passes = u64::from(stages) * u64::from(chunks) * u64::from(micro_batches);
        if passes > MOST_PASSES {
            let found = format!("a timeline of {passes} micro-batches on chunks is too long to list");
            return Err(Error::layout(format!("{found}: up to {MOST_PASSES} were expected, take fewer micro-batches")));
        }
        Ok((pipeline.send, pipeline.run_with_spans()))
    }

    fn stages<'s>(&self, step: &'s TrainingStep) -> Result<(BTreeMap<&'s str, BlockTime>, Vec<RoleTime>, Pipeline)> {
        if step.recorded.is_some() {
            return Err(Error::Step("it was recorded: it has no pipeline".to_owned()));
        }
        self.check_size(step)?;
        let block = |(name, block): (&'s String, &Block)| Ok((name.as_str(), self.block(step, block)?));
        let blocks = step.blocks.iter().map(block).collect::<Result<BTreeMap<_, _>>>()?;
        let [sender, receiver] = self.send(step)?;
        let roles: Vec<RoleTime> = step.roles.iter().map(|role| role_time(role, &blocks, sender)).collect();
        let pipeline = self.pipeline_of(step, &roles, receiver);
        pipeline.check()?;
        Ok((blocks, roles, pipeline))
    }

    /// Refuses a step that takes more GPUs than the machine has.
    fn check_size(&self, step: &TrainingStep) -> Result<()> {
        let (takes, has) = (step.gpus, self.network.gpus());
        if takes > has {
            return Err(Error::layout(format!(
                "it takes {takes} GPUs and the machine has {has}: take a larger machine"
            )));
        }
        Ok(())
    }

    fn timed<'s>(&self, step: &'s TrainingStep) -> Result<Timed<'s>> {
        let (blocks, roles, pipeline) = self.stages(step)?;
        let run = |pipeline: &Pipeline| if self.is_exact { pipeline.run().step } else { pipeline.closed_form() };
        let makespan = run(&pipeline);
        let waits = if pipeline.send > 0.0 { makespan - run(&Pipeline { send: 0.0, ..pipeline.clone() }) } else { 0.0 };
        let once = self.once_of_roles(step, &roles)?;
        let mut parts = self.parts(step, &roles, &once, makespan);
        parts.add(Part::Sends, waits.max(0.0));
        parts.add(Part::Bubble, -waits.max(0.0));
        let seconds = parts.total();
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(Error::Step(format!("its operations take {seconds} s: a time above 0 was expected")));
        }
        Ok(Timed { blocks, roles, once, parts })
    }

    /// Seconds of one micro-batch on each chunk of each stage.
    fn pipeline_of(&self, step: &TrainingStep, roles: &[RoleTime], send: f64) -> Pipeline {
        let of_role = |role: &RoleTime| -> Vec<pipeline::Chunk> {
            let chunks = role.chunks.iter().zip(&role.weights);
            let chunk = |([forward, backward], &weight): (&[Parts; 2], &f64)| {
                let (forward, backward) = (forward.total(), backward.total());
                pipeline::Chunk { forward, backward: (backward - weight).max(0.0), weight }
            };
            chunks.map(chunk).collect()
        };
        let mut stages = vec![Vec::new(); step.pipeline.stages as usize];
        for (role, time) in step.roles.iter().zip(roles) {
            let chunks = of_role(time);
            role.stages.iter().for_each(|&stage| stages[stage as usize].clone_from(&chunks));
        }
        Pipeline::new(step.pipeline.schedule, stages, step.pipeline.micro_batches, send)
    }

    fn once_of_roles(&self, step: &TrainingStep, roles: &[RoleTime]) -> Result<Vec<Parts>> {
        let passes = roles.iter().map(|role| [role.pass(0), role.pass(1)]);
        step.roles.iter().zip(passes).map(|(role, passes)| self.once(step, &role.once, passes)).collect()
    }

    fn parts(&self, step: &TrainingStep, roles: &[RoleTime], once: &[Parts], makespan: f64) -> Parts {
        let micro_batches = f64::from(step.pipeline.micro_batches);
        let longest = |all: &mut dyn Iterator<Item = Parts>| {
            all.max_by(|one, other| one.total().total_cmp(&other.total())).expect("a step has a role")
        };
        let mut parts = longest(&mut roles.iter().map(RoleTime::all)) * micro_batches;
        parts.add(Part::Bubble, (makespan - parts.total()).max(0.0));
        parts += longest(&mut once.iter().copied());
        let slots = micro_batches + f64::from(step.pipeline.stages - 1);
        parts.add(Part::Stall, step.pipeline.stall_s * slots);
        parts
    }

    fn report(&self, step: &TrainingStep, timed: &Timed<'_>) -> Result<StepPrice> {
        let Timed { blocks, roles, once, parts } = timed;
        let seconds = parts.total();
        let ([low, high], extrapolated) = self.trust(step)?;
        let roles: Vec<RolePrice> =
            step.roles.iter().zip(roles).zip(once).map(|((role, time), once)| role_price(role, time, once)).collect();
        let memory_gb = roles.iter().map(|role| role.memory_gb).fold(0.0, f64::max);
        let tflops = step.model_flops / seconds / f64::from(step.gpus) / 1e12;
        Ok(StepPrice {
            seconds,
            low_s: seconds * low,
            high_s: seconds * high,
            extrapolated,
            tokens_per_second: step.tokens / seconds / f64::from(step.gpus),
            mfu: tflops * 1e12 / self.device.peak(step.dtype)?,
            tflops,
            flops_of: "model",
            parts: *parts,
            roles,
            blocks: blocks
                .iter()
                .map(|(name, time)| (name.to_string(), BlockPrice { forward: time.forward, backward: time.backward }))
                .collect(),
            collectives: self.collectives(step)?,
            lines: Vec::new(),
            memory_gb,
            gpu_memory_gb: self.device.memory / GIB,
            fit: Fit::of(memory_gb * GIB, self.device.memory),
        })
    }
}

fn role_time(role: &Role, blocks: &BTreeMap<&str, BlockTime>, send: f64) -> RoleTime {
    let mut time = RoleTime { chunks: Vec::new(), weights: Vec::new() };
    for runs in &role.chunks {
        let (mut forward, mut backward, mut weights) =
            (Parts::of(Part::Sends, send), Parts::of(Part::Sends, send), 0.0);
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

fn role_price(role: &Role, time: &RoleTime, once: &Parts) -> RolePrice {
    let pass = |index: usize| time.chunks.iter().map(|passes| passes[index].total()).collect();
    RolePrice {
        name: role.name.clone(),
        stages: role.stages.clone(),
        forward_s: pass(0),
        backward_s: pass(1),
        once_s: once.total(),
        memory_gb: role.memory.bytes() / GIB,
        memory: role.memory.parts(),
    }
}
