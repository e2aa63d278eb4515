//! How requests and a model are divided among the GPUs of a server.
//!
//! ```text
//! GPUs = copies x stages x tensor      copies: servers of their own; attention copies share experts, and the tensor ranks among them
//! ```

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::matrices::LayerDivision;
use crate::model::Model;

/// How requests and a model are divided among GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServingLayout {
    /// Ranks that divide a layer.
    #[serde(default = "one")]
    pub tensor: u32,
    /// Stages of a pipeline.
    #[serde(default = "one")]
    pub stages: u32,
    /// Parts into which the experts of a layer are divided, whole experts each; the other ranks divide the width of an expert.
    #[serde(default = "one")]
    pub expert: u32,
    /// Groups among the tensor ranks that each attend to requests of their own (data-parallel attention).
    #[serde(default = "one")]
    pub attention_copies: u32,
    /// Servers.
    #[serde(default = "one")]
    pub copies: u32,
}

const fn one() -> u32 {
    1
}

impl ServingLayout {
    /// Returns the number of GPUs.
    pub const fn gpus(&self) -> u32 {
        self.copies * self.engine()
    }

    /// Returns the GPUs of one server.
    pub const fn engine(&self) -> u32 {
        self.stages * self.tensor
    }

    /// Returns the ranks that divide the attention of a layer.
    pub const fn attention(&self) -> u32 {
        self.tensor / self.attention_copies
    }

    /// Refuses a layout that no server has.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let Self { tensor, stages, expert, attention_copies, copies } = *self;
        let refuse = |rule: String| Err(Error::layout(rule));
        let sizes = [
            ("TP", tensor),
            ("PP", stages),
            ("EP", expert),
            ("attention copies", attention_copies),
            ("copies", copies),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=1 << 14).contains(size)) {
            return refuse(format!("{name} is {size}: 1 to 16384 was expected"));
        }
        if !tensor.is_multiple_of(attention_copies) || !tensor.is_multiple_of(expert) {
            return refuse(format!("{attention_copies} attention copies and EP {expert} must divide TP {tensor}"));
        }
        let attention = u64::from(self.attention());
        if !model.heads.is_multiple_of(attention) {
            return refuse(format!(
                "{attention} ranks must divide the {} attention heads of {}",
                model.heads, model.name
            ));
        }
        if let Some(one) = model.recurrent.filter(|one| !one.value_heads.is_multiple_of(attention)) {
            return refuse(format!(
                "{attention} ranks must divide the {} heads of states of {}",
                one.value_heads, model.name
            ));
        }
        let kv_heads = model.kv_heads;
        if model.mla.is_none() && !kv_heads.is_multiple_of(attention) && !attention.is_multiple_of(kv_heads) {
            return refuse(format!("{attention} ranks and {kv_heads} heads of keys must divide one another"));
        }
        if stages > model.layers {
            return refuse(format!("PP {stages} is more than the {} layers of {}", model.layers, model.name));
        }
        match model.experts {
            None if expert > 1 || attention_copies > 1 => {
                refuse(format!("expert parallelism and attention copies need experts, and {} is dense", model.name))
            }
            Some(one) if one.count % u64::from(expert) != 0 => {
                refuse(format!("EP {expert} must divide the {} experts of {}", one.count, model.name))
            }
            Some(_) => Ok(()),
            None if !model.ffn.is_multiple_of(tensor.into()) => {
                refuse(format!("TP {tensor} must divide the MLP's width of {}", model.ffn))
            }
            None => Ok(()),
        }
    }

    /// Returns among how many ranks the parts of a layer are divided.
    pub(super) fn division(&self, model: &Model) -> LayerDivision {
        let (attention, tensor, expert) = (f64::from(self.attention()), f64::from(self.tensor), f64::from(self.expert));
        let kv_heads = attention.min(model.kv_heads as f64);
        let mlp = if self.attention_copies > 1 { attention } else { tensor };
        LayerDivision { heads: attention, kv_heads, mlp, experts: expert, expert_width: tensor / expert }
    }
}

impl Display for ServingLayout {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "TP {}", self.tensor)?;
        let parts =
            [("PP", self.stages), ("EP", self.expert), ("DP attention", self.attention_copies), ("x", self.copies)];
        parts.iter().filter(|(_, size)| *size > 1).try_for_each(|(name, size)| write!(to, ", {name} {size}"))
    }
}
