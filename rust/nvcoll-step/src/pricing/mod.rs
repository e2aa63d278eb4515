//! The time of a step on a machine: one entry, two clocks, one result.
//!
//! ```text
//! layers ──closed forms, pipeline──┐
//!                                  ├─▶ seconds by part ─▶ report: interval, MFU, memory
//! streams ──virtual time───────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`report`] | the result |
//! | `traffic`, `block`, `once`, `layers` | the clock of layers |
//! | `streams` | the clock of streams |
//! | `trust` | the interval |
//!
//! One clock cannot serve both: layers on streams would be priced in minutes where a sweep has seconds, and closed forms know no events. Tests
//! hold them together: planned steps that are unrolled into streams take the same time within 5 %, but for reductions that hide behind the backward pass.

mod block;
mod layers;
mod once;
pub mod report;
mod streams;
mod traffic;
mod trust;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compute::{Compute, Device};
use crate::constants::Constants;
use crate::error::{Error, Result};
use crate::memory::{Fit, MemoryTable, RankMemory, GIB, RAM_BUFFERS};
use crate::network::Network;
use crate::parts::{TimePart, TimeParts};
use crate::pipeline::Timeline;
use crate::step::layers::Role;
use crate::step::streams::Streams;
use crate::step::{Form, WorkStep};
pub use report::{BlockPrice, CollectivePrice, LinePrice, RolePrice, StepReport};
pub use streams::{RankTimeline, StreamsTimeline};
pub(crate) use trust::Interval;

/// What prices steps: a machine, its GPUs, and constants.
#[derive(Debug, Clone, Copy)]
pub struct Pricer<'m> {
    /// The machine.
    pub network: &'m Network,
    /// What its GPUs compute.
    pub device: &'m Device,
    /// The constants.
    pub constants: &'m Constants,
    /// Whether the pipeline of layers runs in virtual time; else its closed form is taken, for sweeps.
    pub is_exact: bool,
}

/// The times of a step by either clock.
struct Timed {
    seconds: f64,
    parts: TimeParts,
    roles: Vec<RolePrice>,
    blocks: BTreeMap<String, BlockPrice>,
    collectives: Vec<CollectivePrice>,
    lines: Vec<LinePrice>,
    /// None: the layers of a plan have it.
    host: Option<HostPrice>,
}

/// The factor within which the processors of seven of eight published eager sources lie: `tools/training/host_judge.py`.
const SPREAD: f64 = 1.6;

/// The processor of a step on streams.
struct HostPrice {
    /// Seconds that it takes to issue the step.
    issue_s: f64,
    /// The factor by which another processor may be faster or slower.
    spread: f64,
}

impl HostPrice {
    /// Returns the step with a faster and with a slower processor, in times of the prediction.
    fn ends(&self, seconds: f64, idle_s: f64) -> [f64; 2] {
        let slow = (self.issue_s * self.spread).max(seconds + idle_s * (self.spread - 1.0));
        [1.0 - idle_s / seconds * (1.0 - 1.0 / self.spread), (slow / seconds).max(1.0)]
    }
}

/// A step in virtual time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepTimeline {
    /// The pipeline of layers: the seconds of a send that nothing hides, and its spans.
    Pipeline(f64, Timeline),
    /// The operations of each rank on its streams.
    Streams(StreamsTimeline),
}

impl<'m> Pricer<'m> {
    pub(crate) fn compute(&self) -> Compute<'m> {
        Compute { device: self.device, constants: self.constants }
    }

    /// Prices a step.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU lacks a precision of the step; [`Error::Fabric`] if the machine cannot run one of its collectives;
    /// [`Error::Layout`] if it has too few GPUs; [`Error::Deadlock`] if ranks wait for each other for ever.
    pub fn price(&self, step: &WorkStep) -> Result<StepReport> {
        self.check_size(step)?;
        let timed = match &step.form {
            Form::Layers(layers) => self.timed_layers(step, layers)?,
            Form::Streams(streams) => self.timed_streams(step, streams)?,
        };
        self.report(step, timed)
    }

    /// Returns the seconds of a step alone.
    ///
    /// # Errors
    /// Those of [`Pricer::price`].
    pub fn seconds(&self, step: &WorkStep) -> Result<f64> {
        self.check_size(step)?;
        match &step.form {
            Form::Layers(layers) => Ok(self.layer_times(step, layers)?.parts.total()),
            Form::Streams(streams) => self.run_streams(step, streams)?.seconds(),
        }
    }

    /// Runs a step in virtual time.
    ///
    /// # Errors
    /// Those of [`Pricer::price`]; [`Error::Layout`] if there are too many passes of a pipeline to list.
    pub fn timeline(&self, step: &WorkStep) -> Result<StepTimeline> {
        self.check_size(step)?;
        match &step.form {
            Form::Layers(layers) => {
                self.pipeline_timeline(step, layers).map(|(send_s, run)| StepTimeline::Pipeline(send_s, run))
            }
            Form::Streams(streams) => self.streams_timeline(step, streams).map(StepTimeline::Streams),
        }
    }

    fn check_size(&self, step: &WorkStep) -> Result<()> {
        self.check_gpus(step.gpus)
    }

    /// Refuses what takes more GPUs than the machine has.
    pub(crate) fn check_gpus(&self, takes: u32) -> Result<()> {
        let has = self.network.gpus();
        if takes > has {
            return Err(Error::layout(format!(
                "it takes {takes} GPUs and the machine has {has}: take a larger machine"
            )));
        }
        Ok(())
    }

    fn report(&self, step: &WorkStep, timed: Timed) -> Result<StepReport> {
        let Timed { seconds, parts, roles, blocks, collectives, lines, host } = timed;
        let ([mut low, mut high], extrapolated) = self.trust(step)?;
        let idle_s = parts.seconds(TimePart::Host);
        let of_layers = HostPrice { issue_s: 0.0, spread: SPREAD };
        let ends = host.as_ref().unwrap_or(&of_layers).ends(seconds, idle_s);
        if ends != [1.0; 2] {
            low = (-low.ln().hypot(ends[0].ln())).exp();
            high = high.ln().hypot(ends[1].ln()).exp();
        }
        let memory = step.memory(self.device.context);
        let (flops, flops_of) = match (step.model_flops, step.streams()) {
            (Some(flops), _) => (Some(flops), "model"),
            (None, streams) => (streams.map(Streams::flops), "recorded"),
        };
        let gpus = f64::from(step.gpus);
        let tflops = flops.filter(|&flops| flops > 0.0).map(|flops| flops / seconds / gpus / 1e12);
        let peak = self.device.peak(step.dtype)?;
        let ram_gib = step.ram_gib(self.network.ranks_of_host);
        let host_ram_gib = self.network.machine.ram_gib;
        let has = host_ram_gib.map_or([0.0, f64::INFINITY], |gib| gib.map(f64::from));
        let ram_fit = ram_gib.map(|needed| Fit::of(needed, has));
        Ok(StepReport {
            step: step.name.clone(),
            gpus: step.gpus,
            seconds,
            low_s: seconds * low,
            high_s: seconds * high,
            extrapolated,
            tokens_per_second: step.tokens.map(|tokens| tokens / seconds / gpus),
            mfu: tflops.map(|tflops| tflops * 1e12 / peak),
            tflops,
            flops_of: flops_of.to_owned(),
            parts,
            roles,
            blocks,
            collectives,
            lines,
            issue_s: host.map(|host| host.issue_s),
            memory_gib: memory.iter().map(|one| one.bytes() / GIB).reduce(f64::max),
            gpu_memory_gib: self.device.memory / GIB,
            fit: memory.iter().map(|one| one.fit(self.device.memory)).chain(ram_fit).max(),
            memory: (!memory.is_empty()).then_some(memory),
            ram_gib,
            host_ram_gib,
            ram_fit,
        })
    }
}

impl WorkStep {
    /// Returns the least and the most GiB that wait in the RAM of the fullest host, on which are at most `ranks` ranks of any stages.
    fn ram_gib(&self, ranks: u32) -> Option<[f64; 2]> {
        let waiting = |role: &Role| match role.memory {
            Some(RankMemory::Sum { waiting, .. }) => vec![waiting; role.stages.len()],
            _ => Vec::new(),
        };
        let stages: Vec<f64> = self.layers()?.roles.iter().flat_map(waiting).collect();
        let mean = stages.iter().sum::<f64>() / stages.len() as f64;
        let most = RAM_BUFFERS * stages.iter().copied().fold(0.0, f64::max);
        (most > 0.0).then(|| [mean, most].map(|bytes| bytes / GIB * f64::from(ranks.min(self.gpus))))
    }

    /// Returns the memory of each role that is known, on GPUs whose CUDA context takes `context` bytes.
    fn memory(&self, context: f64) -> Vec<MemoryTable> {
        let of =
            |(name, memory): (&String, &Option<RankMemory>)| Some(memory.as_ref()?.table(name, self.gpus, context));
        match &self.form {
            Form::Layers(layers) => layers.roles.iter().map(|role| (&role.name, &role.memory)).filter_map(of).collect(),
            Form::Streams(streams) => {
                streams.ranks.iter().map(|rank| (&rank.name, &rank.memory)).filter_map(of).collect()
            }
        }
    }
}
