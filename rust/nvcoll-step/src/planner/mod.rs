//! The planner: from model, layout and software to the training step.
//!
//! ```text
//! model ──layers──▶ blocks ──┐
//! layout ─stages──▶ runs ────┼──▶ WorkStep
//! software ─once──▶ gradients, parameters, optimizer
//! ```
//!
//! The planner knows of the machine only how many GPUs NVLink joins: what frameworks do differently over nodes depends on it. It knows no
//! times.

mod adapters;
mod keep;
mod layers;
mod once;
mod request;
mod stages;

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::model::{Layer, Mixer, Mlp};
use crate::network::Group;
use crate::pipeline::Schedule;
use crate::step::layers::{BlockRun, Hides, LayerBlock, LayerOp, Layers, Role, Stages};
use crate::step::work::{StepOp, StepWork};
use crate::step::{Form, GroupKind, RankGroup, WorkStep, SCHEMA};
use layers::{collective, LayerSizes};
use nvcoll_fabric::predict::Pattern;
use request::StageParameters;

pub use request::Request;

impl Request {
    /// Plans the step.
    ///
    /// # Errors
    /// [`Error::Model`] if the model is none; [`Error::Layout`] with the rule that the layout breaks.
    pub fn plan(&self) -> Result<WorkStep> {
        self.check()?;
        let layout = &self.layout;
        let split = stages::split(self)?;
        let tokens = f64::from(layout.global_batch) * layout.sequence as f64 * layout.recipe.filled.unwrap_or(1.0);
        let step = WorkStep {
            schema: SCHEMA.to_owned(),
            name: format!("{} on {} GPUs with {}", self.model.name, layout.gpus, self.software.name),
            gpus: layout.gpus,
            tokens: Some(tokens),
            model_flops: Some(tokens * self.flops_per_token()),
            dtype: layout.dtype,
            groups: layout.groups().into_iter().map(|(name, ranks)| (name.to_owned(), group(name, ranks))).collect(),
            form: Form::Layers(Layers {
                software: Some(self.software.name.clone()),
                blocks: self.blocks(),
                pipeline: self.pipeline(),
                roles: self.roles(&split),
            }),
        };
        step.check()?;
        Ok(step)
    }

    fn check(&self) -> Result<()> {
        self.model.check()?;
        self.software.check()?;
        self.layout.check(&self.model)?;
        self.check_adapters()?;
        if self.domain == 0 {
            return Err(Error::layout("a machine joins at least one GPU"));
        }
        Ok(())
    }

    fn blocks(&self) -> BTreeMap<String, LayerBlock> {
        let mut blocks: BTreeMap<String, LayerBlock> =
            self.kinds().into_iter().map(|kind| (name_of(kind), LayerSizes::of(self, kind).block())).collect();
        let ends = LayerSizes::of(self, self.model.layer(0));
        blocks.insert("embedding".to_owned(), layers::embedding(&ends));
        blocks.insert("head".to_owned(), layers::head(&ends));
        if self.layout.recipe.mtp.is_some() {
            blocks.insert(PREDICTION.to_owned(), layers::prediction(&ends));
        }
        blocks
    }

    fn pipeline(&self) -> Stages {
        let (layout, software) = (&self.layout, &self.software);
        let stalls = |stall: &&crate::software::Stall| layout.gpus >= stall.gpus && layout.stages >= stall.stages;
        let directions = if layout.schedule == Schedule::DualPipe { 2 } else { 1 };
        Stages {
            stages: layout.stages,
            chunks: layout.chunks * directions,
            schedule: layout.schedule,
            micro_batches: layout.micro_batches() / directions,
            send: (layout.stages > 1).then(|| self.send()),
            stall_s: software.stall.as_ref().filter(stalls).map_or(0.0, |stall| stall.seconds),
        }
    }

    /// What a stage sends to the next: the residual stream of a micro-batch.
    fn send(&self) -> LayerOp {
        let sizes = LayerSizes::of(self, self.model.layer(0));
        let divided = if self.software.splits_sends { f64::from(self.layout.tensor) } else { sizes.divided() };
        let hides = if self.software.overlaps_sends { Hides::OtherMicroBatch } else { Hides::Nothing };
        collective(Pattern::SendRecv, sizes.stream_bytes() / divided, "pp", hides)
    }

    /// One role for the stages that run the same blocks and keep the same parameters.
    fn roles(&self, split: &[Vec<stages::StageChunk>]) -> Vec<Role> {
        let mut roles: Vec<(&Vec<stages::StageChunk>, Vec<u32>)> = Vec::new();
        for (stage, chunks) in split.iter().enumerate() {
            match roles.iter_mut().find(|(known, _)| *known == chunks) {
                Some((_, stages)) => stages.push(stage as u32),
                None => roles.push((chunks, vec![stage as u32])),
            }
        }
        roles.into_iter().map(|(chunks, stages)| self.role(chunks, stages)).collect()
    }

    fn role(&self, chunks: &[stages::StageChunk], stages: Vec<u32>) -> Role {
        let runs = |chunk: &stages::StageChunk| {
            let layers = chunk.layers.iter().map(|&(kind, repeat)| BlockRun { block: name_of(kind), repeat });
            let end = |repeat: u32, block: &str| (repeat > 0).then(|| BlockRun { block: block.to_owned(), repeat });
            let heads = if chunk.head { 1 + chunk.predicting } else { 0 };
            let ends = end(chunk.predicting, PREDICTION).into_iter().chain(end(heads, "head"));
            end(u32::from(chunk.embedding), "embedding").into_iter().chain(layers).chain(ends).collect()
        };
        let parameters = self.parameters(chunks);
        Role {
            name: stages::name(&stages, self.layout.stages),
            chunks: chunks.iter().map(runs).collect(),
            once: self.once(&parameters, chunks),
            memory: Some(self.memory(&parameters, chunks, &stages)),
            stages,
        }
    }

    /// Parameters of a stage on one rank.
    fn parameters(&self, chunks: &[stages::StageChunk]) -> StageParameters {
        let mut found = StageParameters::default();
        for &(kind, repeat) in chunks.iter().flat_map(|chunk| &chunk.layers) {
            let sizes = LayerSizes::of(self, kind);
            let (dense, experts) = sizes.parameters();
            let (trained_dense, trained_experts) = sizes.trained();
            found.dense += dense * f64::from(repeat);
            found.experts += experts * f64::from(repeat);
            found.trained.0 += trained_dense * f64::from(repeat);
            found.trained.1 += trained_experts * f64::from(repeat);
            found.layers += f64::from(repeat);
        }
        let shared = self.model.tied && self.layout.stages == 1;
        let tensor = f64::from(self.layout.tensor);
        let copied = |one: &stages::StageChunk| one.predicting > 0 && self.layout.stages > 1 && !self.model.tied;
        let of_chunk = |one: &stages::StageChunk| {
            u32::from(one.embedding) + u32::from(one.head && !shared) + u32::from(copied(one))
        };
        let matrices: u32 = chunks.iter().map(of_chunk).sum();
        found.ends = self.model.embedding_parameters() / tensor * f64::from(matrices);
        let freezes = self.layout.recipe.frozen.is_some() && !self.model.tied;
        let frozen: u32 = chunks.iter().map(|one| u32::from(one.embedding && freezes)).sum();
        if !self.is_adapted() {
            found.trained_ends = found.ends - self.model.embedding_parameters() / tensor * f64::from(frozen);
        }
        let projections = chunks.iter().map(|one| f64::from(one.predicting)).sum::<f64>();
        let projected = projections * 2.0 * (self.model.hidden * self.model.hidden) as f64 / tensor;
        (found.dense, found.trained.0) = (found.dense + projected, found.trained.0 + projected);
        found
    }
}

/// The name of the block that is before each layer of multi-token prediction.
const PREDICTION: &str = "multi-token prediction";

fn group(name: &str, ranks: Group) -> RankGroup {
    RankGroup { kind: GroupKind::named(name), ranks }
}

fn name_of(kind: Layer) -> String {
    let mlp = match kind.mlp {
        Mlp::Experts => "expert layer",
        Mlp::Dense => "dense layer",
        Mlp::None => "layer without MLP",
    };
    let mixer = match kind.mixer {
        Mixer::Attention => "",
        Mixer::Window => " with window",
        Mixer::State => " with state",
        Mixer::None => " without attention",
    };
    format!("{}{mlp}{mixer}", if kind.is_frozen { "frozen " } else { "" })
}

fn stall(name: &str, seconds: f64) -> StepOp {
    StepOp::once(name, StepWork::Stall { seconds })
}
