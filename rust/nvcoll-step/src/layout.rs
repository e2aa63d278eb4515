//! The layout of a step: how a batch and a model are divided among GPUs, and the rules that a layout must keep.
//!
//! Ranks are numbered as in Megatron-LM: tensor-parallel ranks are neighbours, then context-parallel, then data-parallel ranks, then
//! stages. [`Order`] changes that. Experts are spread over ranks that are neighbours across tensor, context and data parallelism.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::{Layer, Mlp, Model};
use crate::network::Group;
use crate::pipeline::Schedule;
use crate::recipe::Recipe;

/// How a step is divided among GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The number of GPUs: `tensor * context * data * stages`.
    pub gpus: u32,
    /// Tensor-parallel ranks.
    #[serde(default = "one")]
    pub tensor: u32,
    /// Whether norms and residuals are divided among the tensor-parallel ranks, too.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// Stages of the pipeline.
    #[serde(default = "one")]
    pub stages: u32,
    /// Chunks of layers on each stage: 1, or more if the pipeline is interleaved.
    #[serde(default = "one")]
    pub chunks: u32,
    /// The order in which stages work on micro-batches.
    #[serde(default = "one_forward_one_backward")]
    pub schedule: Schedule,
    /// Context-parallel ranks.
    #[serde(default = "one")]
    pub context: u32,
    /// Expert-parallel ranks.
    #[serde(default = "one")]
    pub expert: u32,
    /// Data-parallel ranks.
    pub data: u32,
    /// What data-parallel ranks shard instead of each keeping a copy.
    #[serde(default)]
    pub sharding: Sharding,
    /// The data- and context-parallel ranks among which it is sharded, if not all: HSDP, or a sharded optimizer within a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_ranks: Option<u32>,
    /// Sequences of a micro-batch on one rank.
    pub micro_batch: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// What the backward pass computes again.
    #[serde(default)]
    pub recompute: Recompute,
    /// The precision of GEMMs.
    #[serde(default)]
    pub dtype: Dtype,
    /// Which parallelism is innermost.
    #[serde(default)]
    pub order: Order,
    /// What is trained, and where its state is kept.
    #[serde(default, skip_serializing_if = "Recipe::is_default")]
    pub recipe: Recipe,
}

/// What data-parallel ranks shard: the stages of ZeRO (arXiv 1910.02054).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// Nothing: DDP.
    #[default]
    None,
    /// The optimizer's state: ZeRO 1, the distributed optimizer of Megatron-Core.
    Optimizer,
    /// Gradients, too: ZeRO 2.
    Gradients,
    /// Parameters, too: ZeRO 3, FSDP.
    Parameters,
}

/// The parts of the forward pass of a layer that the backward pass computes again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recompute {
    /// The part of its GEMMs, 0 to 1.
    pub gemm: f64,
    /// The part of its attention, 0 to 1.
    pub attention: f64,
    /// The part of its element-wise work, 0 to 1.
    pub elementwise: f64,
}

impl Recompute {
    /// Nothing.
    pub const NONE: Self = Self { gemm: 0.0, attention: 0.0, elementwise: 0.0 };
    /// The attention alone (arXiv 2205.05198).
    pub const SELECTIVE: Self = Self { gemm: 0.0, attention: 1.0, elementwise: 0.0 };
    /// Whole layers, collectives of tensor parallelism included.
    pub const FULL: Self = Self { gemm: 1.0, attention: 1.0, elementwise: 1.0 };

    /// Says whether whole layers are computed again, so that only their inputs are kept.
    pub fn is_full(&self) -> bool {
        self.gemm >= 0.999
    }
}

nvcoll_core::names! {
    /// The precision of GEMMs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Dtype {
        /// bfloat16.
        #[default]
        Bf16 = "bf16",
        /// IEEE half precision.
        Fp16 = "fp16",
        /// 8 bits: E4M3 and E5M2.
        Fp8 = "fp8",
        /// Integers of 8 bits.
        Int8 = "int8",
        /// 4 bits with a scale for 16 elements (NVFP4).
        Fp4 = "fp4",
        /// IEEE single precision, in tensor cores as TF32.
        Tf32 = "tf32",
        /// IEEE single precision, without tensor cores.
        Fp32 = "fp32",
        /// IEEE double precision, without tensor cores.
        Fp64 = "fp64",
    }
}

impl Dtype {
    /// Returns the bytes of an element of a GEMM's input; scales included for 4 bits.
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 | Self::Int8 | Self::Fp4 => 1.0,
            Self::Tf32 | Self::Fp32 => 4.0,
            Self::Fp64 => 8.0,
        }
    }

    /// Says whether inputs of GEMMs are cast to 8 bits or fewer.
    pub const fn is_narrow(self) -> bool {
        matches!(self, Self::Fp8 | Self::Fp4)
    }
}

/// Which parallelism is innermost, from neighbours to the farthest ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Megatron-LM's: tensor, context, data, stages.
    #[default]
    #[serde(rename = "tp-cp-dp-pp")]
    StagesOutermost,
    /// Stages before data: the ranks of a pipeline are near each other.
    #[serde(rename = "tp-cp-pp-dp")]
    DataOutermost,
}

const fn one_forward_one_backward() -> Schedule {
    Schedule::OneFOneB
}

const fn one() -> u32 {
    1
}

impl Layout {
    /// Returns the layout in which each rank has whole layers.
    pub(crate) fn undivided(&self) -> Self {
        Self { tensor: 1, expert: 1, ..self.clone() }
    }

    /// Returns the tokens to which attention of a sequence is confined: those of a document, if it is packed.
    pub(crate) fn document(&self) -> u64 {
        self.recipe.document.map_or(self.sequence, |tokens| tokens.min(self.sequence))
    }

    /// Returns the micro-batches of a step on each rank.
    pub fn micro_batches(&self) -> u32 {
        let each = u64::from(self.micro_batch) * u64::from(self.data);
        (u64::from(self.global_batch) / each.max(1)) as u32
    }

    /// Returns the ranks that reduce the gradients of dense parameters: data- and context-parallel ones.
    pub fn replicas(&self) -> u32 {
        self.data * self.context
    }

    /// Returns the ranks that reduce the gradients of one expert.
    pub fn expert_replicas(&self) -> u32 {
        (self.replicas() * self.tensor / self.expert).max(1)
    }

    /// Returns what is sharded: nothing, if the only rank would have all shards.
    pub fn sharded(&self) -> Sharding {
        if self.replicas() * self.tensor == 1 {
            Sharding::None
        } else {
            self.sharding
        }
    }

    /// Returns the ranks among which parameters, gradients or optimizer are sharded.
    pub fn shards(&self) -> u32 {
        match self.sharding {
            Sharding::None => 1,
            _ => self.shard_ranks.unwrap_or(self.replicas()).min(self.replicas()).max(1),
        }
    }

    /// Returns the ranks among which parameters, gradients or optimizer of one expert are sharded.
    pub fn expert_shards(&self) -> u32 {
        match self.sharding {
            Sharding::None => 1,
            Sharding::Parameters if self.expert == 1 => self.shards(),
            _ => self.expert_replicas(),
        }
    }

    /// Returns the groups of ranks by name: `tp`, `cp`, `ep`, `dp`, `shard`, `copies` of shards, `edp` of experts, `pp`. Groups whose
    /// ranks are not evenly apart are missing: [`Layout::check`] refuses layouts that need one.
    pub fn groups(&self) -> Vec<(&'static str, Group)> {
        let next_stage = match self.order {
            Order::StagesOutermost => self.tensor * self.replicas(),
            Order::DataOutermost => self.tensor * self.context,
        };
        let of_stage = self.groups_of_stage().into_iter();
        let mut groups: Vec<_> = of_stage.filter_map(|(name, of)| Some((name, self.placed(of)?))).collect();
        groups.push(("pp", Group::even(self.stages.min(2), next_stage)));
        groups
    }

    /// Returns the groups among the ranks of one stage, which are numbered on their own here.
    fn groups_of_stage(&self) -> [(&'static str, Group); 7] {
        let (tensor, shards) = (self.tensor, self.shards());
        [
            ("tp", Group::even(tensor, 1)),
            ("cp", Group::even(self.context, tensor)),
            ("dp", Group::even(self.replicas(), tensor)),
            ("shard", Group::even(shards, tensor)),
            ("copies", Group::even(self.replicas() / shards, tensor * shards)),
            ("ep", Group::even(self.expert, 1)),
            ("edp", Group::even(self.expert_replicas(), self.expert)),
        ]
    }

    /// Returns where a group of one stage is among all ranks, if its ranks are evenly apart there.
    fn placed(&self, group: Group) -> Option<Group> {
        let Group { size, stride, .. } = group;
        let near = self.tensor * self.context;
        match self.order {
            _ if self.stages == 1 || size == 1 => Some(group),
            Order::StagesOutermost => Some(group),
            Order::DataOutermost if near.is_multiple_of(size * stride) => Some(group),
            Order::DataOutermost if stride.is_multiple_of(near) => Some(Group::even(size, stride * self.stages)),
            Order::DataOutermost => None,
        }
    }

    /// Refuses a layout that breaks a rule, with the rule.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub fn check(&self, model: &Model) -> Result<()> {
        self.check_sizes()?;
        self.check_batch()?;
        self.check_model(model)?;
        self.check_stages(model)?;
        self.check_sharding()?;
        self.check_order(model)?;
        self.recipe.check(self.micro_batches())
    }

    fn check_order(&self, model: &Model) -> Result<()> {
        let is_needed = |name: &str| model.experts.is_some() || !name.starts_with('e');
        let groups = self.groups_of_stage();
        match groups.into_iter().find(|&(name, of)| is_needed(name) && of.size > 1 && self.placed(of).is_none()) {
            None => Ok(()),
            Some((name, _)) => Err(Error::layout(format!(
                "in the order tp-cp-pp-dp, the ranks of its group `{name}` are not evenly apart: take CP 1, and with experts EP = TP, \
                 or the order tp-cp-dp-pp"
            ))),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let Self { gpus, tensor, stages, context, data, expert, chunks, micro_batch, .. } = *self;
        const MOST: u32 = 1 << 20;
        let sizes = [gpus, tensor, stages, context, data, expert, chunks, micro_batch, self.global_batch];
        if sizes.iter().any(|size| !(1..=MOST).contains(size)) || !(1..=u64::from(u32::MAX)).contains(&self.sequence) {
            return Err(Error::layout(format!(
                "every size must be from 1 to {MOST}, and a sequence below 2^32 tokens"
            )));
        }
        let parts = [self.recompute.gemm, self.recompute.attention, self.recompute.elementwise];
        if parts.iter().any(|part| !(0.0..=1.0).contains(part)) {
            return Err(Error::layout("the parts that are computed again must be from 0 to 1"));
        }
        let ranks = [tensor, stages, context, data].iter().map(|&size| u128::from(size)).product::<u128>();
        if ranks != u128::from(gpus) {
            let parts = format!("TP {tensor} x CP {context} x DP {data} x PP {stages} = {ranks}");
            return Err(Error::layout(format!("{parts} ranks, but there are {gpus} GPUs")));
        }
        let others = self.replicas() * tensor;
        if !others.is_multiple_of(expert) {
            return Err(Error::layout(format!(
                "EP {expert} must divide TP x CP x DP = {others}: experts are spread over the ranks of one stage"
            )));
        }
        Ok(())
    }

    fn check_batch(&self) -> Result<()> {
        if matches!(self.dtype, Dtype::Fp32 | Dtype::Fp64 | Dtype::Int8) {
            let name = self.dtype.name();
            return Err(Error::layout(format!(
                "models do not train with products in {name}: take bf16, fp16, fp8, fp4 or tf32"
            )));
        }
        let (batch, each) = (self.global_batch, u64::from(self.micro_batch) * u64::from(self.data));
        if u64::from(batch) % each != 0 {
            return Err(Error::layout(format!(
                "the global batch of {batch} sequences must be a multiple of micro-batch x DP = {} x {} = {each}",
                self.micro_batch, self.data
            )));
        }
        let parts = u64::from(self.context) * if self.context > 1 { 2 } else { 1 };
        if !self.sequence.is_multiple_of(parts) {
            return Err(Error::layout(format!(
                "the sequence of {} tokens must be a multiple of 2 x CP = {parts}: each rank has an early and a late part",
                self.sequence
            )));
        }
        Ok(())
    }

    fn check_model(&self, model: &Model) -> Result<()> {
        if self.recipe.frozen.is_some_and(|layers| layers >= model.layers) {
            return Err(Error::layout(format!("at least one of {} layers is trained: freeze fewer", model.layers)));
        }
        let tensor = u64::from(self.tensor);
        if !model.heads.is_multiple_of(tensor) {
            let heads = model.heads;
            return Err(Error::layout(format!(
                "TP {tensor} must divide the {heads} attention heads of {}",
                model.name
            )));
        }
        if let Some(one) = model.recurrent.filter(|one| !one.key_heads.is_multiple_of(tensor)) {
            return Err(Error::layout(format!(
                "TP {tensor} must divide the {} key heads, or groups, of states of {}",
                one.key_heads, model.name
            )));
        }
        let is_dense = |kind: &Layer| kind.mlp == Mlp::Dense;
        if model.kinds().keys().any(is_dense) && !model.ffn.is_multiple_of(tensor) {
            return Err(Error::layout(format!("TP {tensor} must divide the MLP's width of {}", model.ffn)));
        }
        match model.experts {
            None if self.expert > 1 => {
                Err(Error::layout(format!("EP {} needs experts, and {} is dense", self.expert, model.name)))
            }
            Some(one) if one.count % u64::from(self.expert) != 0 => {
                Err(Error::layout(format!("EP {} must divide the {} experts", self.expert, one.count)))
            }
            _ => Ok(()),
        }
    }

    fn check_stages(&self, model: &Model) -> Result<()> {
        let (parts, layers) = (u64::from(self.stages) * u64::from(self.chunks), model.layers);
        if parts > u64::from(layers) + 2 {
            return Err(Error::layout(format!(
                "{} has {layers} layers, too few for {parts} chunks of stages",
                model.name
            )));
        }
        if self.chunks > 1 && self.stages == 1 {
            return Err(Error::layout(format!("{} chunks need a pipeline, and PP is 1", self.chunks)));
        }
        if self.chunks > 1 && self.schedule != Schedule::Interleaved {
            return Err(Error::layout(format!("{} chunks need the interleaved schedule", self.chunks)));
        }
        let halves = 2 * self.stages;
        let is_whole = self.stages.is_multiple_of(2) && self.micro_batches().is_multiple_of(2);
        if self.schedule == Schedule::DualPipe && (!is_whole || self.micro_batches() < halves) {
            return Err(Error::layout(format!(
                "dualpipe needs even numbers of stages ({}) and micro-batches ({}), and {halves} micro-batches or more",
                self.stages,
                self.micro_batches()
            )));
        }
        if self.schedule == Schedule::Interleaved && self.chunks == 1 {
            return Err(Error::layout("the interleaved schedule needs at least two chunks on each stage"));
        }
        if self.chunks > 1 && !self.micro_batches().is_multiple_of(self.stages) {
            return Err(Error::layout(format!(
                "the interleaved schedule needs micro-batches ({}) in multiples of the stages ({})",
                self.micro_batches(),
                self.stages
            )));
        }
        Ok(())
    }

    fn check_sharding(&self) -> Result<()> {
        let replicas = self.replicas();
        match self.shard_ranks {
            Some(ranks) if self.sharding == Sharding::None => {
                Err(Error::layout(format!("it shards over {ranks} ranks, but says not what")))
            }
            Some(ranks) if ranks == 0 || !replicas.is_multiple_of(ranks.min(replicas)) => {
                Err(Error::layout(format!("shards over {ranks} ranks must divide the {replicas} replicas")))
            }
            _ => Ok(()),
        }
    }
}
