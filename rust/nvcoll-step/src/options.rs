//! Layouts in the short words of the field, as people type them and files say them; the layouts of a sweep, and those next to one.
//!
//! ```text
//! words ──layout──▶ Layout ──plan──▶ WorkStep
//!   └──candidates──▶ layouts of a sweep: all combinations of the words that are open, within what people use
//! Layout ──neighbours──▶ layouts in which one thing differs; data parallelism takes the GPUs that are left
//! ```
//!
//! A sweep tries tensor parallelism over two nodes at most, context parallelism down to 4,096 tokens a rank, at most ten chunks that divide
//! the layers.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layout::{Dtype, Layout, Order, Recompute, Sharding};
use crate::model::Model;
use crate::pipeline::Schedule;
use crate::planner::Request;
use crate::recipe::Recipe;
use crate::software::Software;

/// Tokens per context-parallel rank below which no more of them are tried. Chosen.
const LONG: u64 = 4096;

/// The most chunks of a stage that are tried. Chosen.
const CHUNKS: u32 = 10;

/// The most stages that are tried. Chosen.
const STAGES: u32 = 64;

/// The most layouts of a sweep. Chosen: half a minute.
const MOST_TRIED: usize = 20_000;

/// What is planned, its layout in words.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanInput {
    /// The model.
    pub model: Model,
    /// The software.
    pub software: Software,
    /// The layout.
    pub options: LayoutOptions,
}

/// A layout in words. What is absent has its default, or is open in a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayoutOptions {
    /// Tensor-parallel ranks; 1.
    pub tp: Option<u32>,
    /// Stages of the pipeline; 1.
    pub pp: Option<u32>,
    /// Chunks of each stage; 1.
    pub vp: Option<u32>,
    /// Context-parallel ranks; 1.
    pub cp: Option<u32>,
    /// Expert-parallel ranks; 1.
    pub ep: Option<u32>,
    /// Data-parallel ranks; what the others leave.
    pub dp: Option<u32>,
    /// The stage of ZeRO: what is sharded, by its place in [`Sharding`]; 1.
    pub zero: Option<usize>,
    /// The ranks among which it is sharded; all.
    pub shard_ranks: Option<u32>,
    /// Sequences of a micro-batch; 1.
    pub micro_batch: Option<u32>,
    /// Sequences of a step; 256.
    pub global_batch: Option<u32>,
    /// Tokens of a sequence; default: the model's.
    pub sequence: Option<u64>,
    /// What is computed again; none.
    pub recompute: Option<RecomputeOption>,
    /// The precision; bf16.
    pub dtype: Option<Dtype>,
    /// The schedule; 1f1b, or interleaved with chunks.
    pub schedule: Option<Schedule>,
    /// The order of ranks.
    pub order: Option<Order>,
    /// Whether tensor-parallel ranks divide sequences; what the software does.
    pub sequence_parallel: Option<bool>,
    /// What is trained, and where its state is kept.
    #[serde(flatten)]
    pub recipe: Recipe,
}

/// What is computed again: `none`, `selective`, `full`, or parts of a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecomputeOption {
    /// By its name.
    Named(String),
    /// By parts.
    Parts(Recompute),
}

/// What is sharded, by stage of ZeRO (arXiv 1910.02054).
const ZERO: [Sharding; 4] = [Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters];

/// The names of what is computed again.
const RECOMPUTE: [(&str, Recompute); 3] =
    [("none", Recompute::NONE), ("selective", Recompute::SELECTIVE), ("full", Recompute::FULL)];

impl RecomputeOption {
    fn of(parts: Recompute) -> Self {
        let named = RECOMPUTE.into_iter().find(|&(_, known)| known == parts);
        named.map_or(Self::Parts(parts), |(name, _)| Self::Named(name.to_owned()))
    }

    fn parts(&self) -> Result<Recompute> {
        match self {
            Self::Parts(parts) => Ok(*parts),
            Self::Named(name) => {
                RECOMPUTE.into_iter().find(|(known, _)| known == name).map(|(_, parts)| parts).ok_or_else(|| {
                    Error::Unknown {
                        kind: "recomputation",
                        name: name.clone(),
                        known: RECOMPUTE.map(|(name, _)| name).join(", "),
                    }
                })
            }
        }
    }
}

impl PlanInput {
    /// Returns the request for a number of GPUs, where NVLink joins `domain` GPUs.
    ///
    /// # Errors
    /// Those of [`LayoutOptions::layout`].
    pub fn request(&self, gpus: u32, domain: u32) -> Result<Request> {
        let layout = self.options.layout(gpus, &self.model, &self.software)?;
        Ok(Request { model: self.model.clone(), layout, software: self.software.clone(), domain })
    }

    /// Returns the requests of a sweep: all combinations of the words that are open. The rules of layouts need not hold for all of them.
    ///
    /// # Errors
    /// [`Error::Layout`] if they are too many; the errors of [`LayoutOptions::layout`].
    pub fn candidates(&self, gpus: u32, domain: u32) -> Result<Vec<Request>> {
        let Self { model, options, .. } = self;
        let sequence = options.sequence.unwrap_or(model.sequence);
        let experts = model.experts.map_or(1, |one| one.count);
        let powers = |most: u32| (0..32).map(|power| 1_u32 << power).take_while(move |&size| size <= most);
        let mut all = vec![options.clone()];
        vary(&mut all, |one| &mut one.tp, powers(2 * domain).filter(|&size| model.heads.is_multiple_of(size.into())));
        vary(&mut all, |one| &mut one.pp, (1..=model.layers.min(STAGES)).filter(|&size| gpus.is_multiple_of(size)));
        vary(&mut all, |one| &mut one.vp, 1..=CHUNKS);
        vary(&mut all, |one| &mut one.cp, powers(16).filter(|&size| size == 1 || sequence / u64::from(size) >= LONG));
        vary(&mut all, |one| &mut one.ep, powers(64).filter(|&size| experts.is_multiple_of(size.into())));
        vary(&mut all, |one| &mut one.micro_batch, [1, 2, 4, 8]);
        vary(&mut all, |one| &mut one.recompute, RECOMPUTE.map(|(name, _)| RecomputeOption::Named(name.to_owned())));
        all.retain(|one| one.can_be(gpus, model.layers));
        if all.len() > MOST_TRIED {
            return Err(Error::Request(format!(
                "{} layouts are more than {MOST_TRIED}: fix one of tp, pp, cp, ep, micro_batch",
                all.len()
            )));
        }
        all.into_iter().map(|options| Self { options, ..self.clone() }.request(gpus, domain)).collect()
    }
}

/// Makes a variant for each value of an option, unless the option is given.
fn vary<T: Clone>(
    all: &mut Vec<LayoutOptions>,
    word: fn(&mut LayoutOptions) -> &mut Option<T>,
    values: impl IntoIterator<Item = T>,
) {
    let values: Vec<T> = values.into_iter().collect();
    if word(&mut all[0]).is_none() {
        let with = |one: &LayoutOptions, value: &T| {
            let mut made = one.clone();
            *word(&mut made) = Some(value.clone());
            made
        };
        *all = all.iter().flat_map(|one| values.iter().map(|value| with(one, value)).collect::<Vec<_>>()).collect();
    }
}

impl LayoutOptions {
    /// Returns the layout of a number of GPUs.
    ///
    /// # Errors
    /// [`Error::Layout`] if the sizes leave no whole number of data-parallel ranks, or there is no such stage of ZeRO; [`Error::Unknown`] for
    /// a name of what is computed again. The planner checks the rules of layouts.
    pub fn layout(&self, gpus: u32, model: &Model, software: &Software) -> Result<Layout> {
        let [tp, pp, vp, cp, ep, micro_batch] =
            [self.tp, self.pp, self.vp, self.cp, self.ep, self.micro_batch].map(|size| size.unwrap_or(1));
        let others = [tp, pp, cp].iter().map(|&size| u128::from(size)).product::<u128>();
        let data = match self.dp {
            Some(data) => data,
            None if others > 0 && u128::from(gpus).is_multiple_of(others) => (u128::from(gpus) / others) as u32,
            None => {
                let parts = format!("TP {tp} x PP {pp} x CP {cp} = {others}");
                return Err(Error::layout(format!("{parts} does not divide {gpus} GPUs")));
            }
        };
        let zero = self.zero.unwrap_or(1);
        let sharding =
            *ZERO.get(zero).ok_or_else(|| Error::layout(format!("there is no ZeRO {zero}: pass 0, 1, 2 or 3")))?;
        let schedule = if vp > 1 { Schedule::Interleaved } else { Schedule::OneFOneB };
        Ok(Layout {
            gpus,
            tensor: tp,
            sequence_parallel: self.sequence_parallel.unwrap_or(software.sequence_parallel) && tp > 1,
            stages: pp,
            chunks: vp,
            schedule: self.schedule.unwrap_or(schedule),
            context: cp,
            expert: ep,
            data,
            sharding,
            shard_ranks: self.shard_ranks.filter(|_| zero > 0),
            micro_batch,
            global_batch: self.global_batch.unwrap_or(GLOBAL_BATCH),
            sequence: self.sequence.unwrap_or(model.sequence),
            recompute: self.recompute.as_ref().map_or(Ok(Recompute::NONE), RecomputeOption::parts)?,
            dtype: self.dtype.unwrap_or_default(),
            order: self.order.unwrap_or_default(),
            recipe: self.recipe.clone(),
        })
    }

    /// Says whether a combination keeps the simple rules, so that the planner need not refuse it.
    fn can_be(&self, gpus: u32, layers: u32) -> bool {
        let sizes = [self.tp, self.pp, self.cp, self.vp, self.ep, self.micro_batch];
        let [tp, pp, cp, vp, ep, micro_batch] = sizes.map(|size| u128::from(size.unwrap_or(1)));
        let (gpus, others) = (u128::from(gpus), tp * pp * cp);
        let divides = |chunks: u128| [0, 2].iter().any(|ends| (u128::from(layers) + ends).is_multiple_of(chunks));
        if !gpus.is_multiple_of(others) || (vp > 1 && (pp == 1 || !divides(pp * vp))) {
            return false;
        }
        let dp = gpus / others;
        let (each, batch) = (dp * micro_batch, u128::from(self.global_batch.unwrap_or(GLOBAL_BATCH)));
        let has_ranks = self.dp.is_none_or(|given| u128::from(given) == dp);
        let has_chunks = vp > 1 || self.schedule != Some(Schedule::Interleaved);
        if batch == 0 || !batch.is_multiple_of(each) || !(dp * cp * tp).is_multiple_of(ep) || !has_ranks || !has_chunks
        {
            return false;
        }
        let micro_batches = batch / each;
        (vp == 1 || micro_batches.is_multiple_of(pp)) && micro_batches >= pp.min(2)
    }
}

/// The sequences of a step by default. Chosen: 2 million tokens of 8,192.
const GLOBAL_BATCH: u32 = 256;

impl From<&Layout> for LayoutOptions {
    /// Returns the words of a layout.
    fn from(layout: &Layout) -> Self {
        Self {
            tp: Some(layout.tensor),
            pp: Some(layout.stages),
            vp: Some(layout.chunks),
            cp: Some(layout.context),
            ep: Some(layout.expert),
            dp: Some(layout.data),
            zero: Some(layout.sharding as usize),
            shard_ranks: layout.shard_ranks,
            micro_batch: Some(layout.micro_batch),
            global_batch: Some(layout.global_batch),
            sequence: Some(layout.sequence),
            recompute: Some(RecomputeOption::of(layout.recompute)),
            dtype: Some(layout.dtype),
            schedule: Some(layout.schedule),
            order: Some(layout.order),
            sequence_parallel: Some(layout.sequence_parallel),
            recipe: layout.recipe.clone(),
        }
    }
}

impl Display for Layout {
    /// Writes the short words of the field, as `TP 8  PP 4  DP 16  micro-batch 1`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sizes =
            [("TP", self.tensor), ("PP", self.stages), ("VP", self.chunks), ("CP", self.context), ("EP", self.expert)];
        for (name, size) in sizes.into_iter().filter(|&(_, size)| size > 1) {
            write!(f, "{name} {size}  ")?;
        }
        write!(f, "DP {}", self.data)?;
        if self.sharding != Sharding::None {
            write!(f, "  ZeRO {}", self.sharding as usize)?;
        }
        write!(f, "  micro-batch {}", self.micro_batch)?;
        match RecomputeOption::of(self.recompute) {
            RecomputeOption::Named(name) if name == "none" => (),
            RecomputeOption::Named(name) => write!(f, "  recompute {name}")?,
            RecomputeOption::Parts(_) => write!(f, "  recompute some")?,
        }
        write!(f, "{}", self.recipe)
    }
}

impl Layout {
    /// Returns the layouts next to this one: a size doubled or halved, other chunks, recomputation or sharding, the batch kept.
    pub fn neighbours(&self) -> Vec<Self> {
        let all = self.resized().into_iter().chain(self.otherwise());
        all.filter_map(Self::whole).filter(|one| one != self).collect()
    }

    fn resized(&self) -> Vec<Self> {
        let words: [fn(&mut Self) -> &mut u32; 5] = [
            |one| &mut one.tensor,
            |one| &mut one.stages,
            |one| &mut one.context,
            |one| &mut one.expert,
            |one| &mut one.micro_batch,
        ];
        let mut found = Vec::new();
        for word in words {
            let (mut doubled, mut halved) = (self.clone(), self.clone());
            *word(&mut doubled) *= 2;
            found.push(doubled);
            let size = word(&mut halved);
            if size.is_multiple_of(2) {
                *size /= 2;
                found.push(halved);
            }
        }
        if self.tensor.is_multiple_of(2) {
            found.push(Self { tensor: self.tensor / 2, stages: 2 * self.stages, ..self.clone() });
        }
        if self.stages.is_multiple_of(2) {
            found.push(Self { tensor: 2 * self.tensor, stages: self.stages / 2, ..self.clone() });
        }
        found
    }

    fn otherwise(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for chunks in [1, 2, 4].into_iter().filter(|&chunks| self.stages > 1 && chunks != self.chunks) {
            let schedule = if chunks == 1 { Schedule::OneFOneB } else { Schedule::Interleaved };
            found.push(Self { chunks, schedule, ..self.clone() });
        }
        found.extend(RECOMPUTE.map(|(_, recompute)| Self { recompute, ..self.clone() }));
        if self.stages == 1 {
            let shards = [Sharding::Parameters, Sharding::Optimizer];
            found.extend(shards.map(|sharding| Self { sharding, ..self.clone() }));
        }
        found
    }

    /// Gives data parallelism the GPUs that the other sizes leave; None if they leave no whole number.
    fn whole(mut self) -> Option<Self> {
        let others = self.tensor * self.stages * self.context;
        if self.stages == 1 {
            (self.chunks, self.schedule) = (1, Schedule::OneFOneB);
        }
        self.data = self.gpus.is_multiple_of(others).then(|| self.gpus / others)?;
        self.shard_ranks = self.shard_ranks.map(|ranks| ranks.min(self.data));
        Some(self)
    }
}
