//! The split of layers over the chunks of stages.
//!
//! Chunk c of stage r is chunk c p + r of the model. The embedding belongs to the first chunk and the head to the last.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a split makes even.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// The layers; the first chunks have one more if the number does not divide.
    Layers,
    /// The layers with embedding and head; embedding and head count as a layer each (Megatron-Core's `account_for_embedding_in_pipeline_split` and
    /// `account_for_loss_in_pipeline_split`).
    LayersAndEnds,
    /// The cost, where the head costs this number of layers: the slowest chunk gets the lowest possible cost (nanotron).
    Cost {
        /// The cost of the head in layers.
        head: f64,
    },
}

/// Returns the layers of each chunk of each stage: `[stage][chunk]`.
///
/// # Errors
/// [`Error::Layout`] if there are fewer layers than chunks.
pub fn split(layers: u32, stages: u32, chunks: u32, balance: Balance) -> Result<Vec<Vec<u32>>> {
    let parts = stages.saturating_mul(chunks);
    let ends = if balance == Balance::LayersAndEnds { 2 } else { 0 };
    if parts == 0 || parts > layers + ends {
        return Err(Error::layout(format!(
            "{layers} layers on {stages} stages of {chunks} chunks: each chunk needs a layer, use fewer stages or chunks"
        )));
    }
    let mut counts = match balance {
        Balance::Layers => even(layers, parts),
        Balance::LayersAndEnds => even(layers + 2, parts),
        Balance::Cost { head } => by_cost(layers, parts, head)?,
    };
    if balance == Balance::LayersAndEnds {
        counts[0] -= 1;
        counts[parts as usize - 1] -= 1;
    }
    let of_stage = |stage: u32| (0..chunks).map(|chunk| counts[(chunk * stages + stage) as usize]).collect();
    Ok((0..stages).map(of_stage).collect())
}

fn even(layers: u32, parts: u32) -> Vec<u32> {
    (0..parts).map(|part| layers / parts + u32::from(part < layers % parts)).collect()
}

/// Tries every number of layers beside the head. Of equally good ones it takes the largest, which leaves the others the least.
fn by_cost(layers: u32, parts: u32, head: f64) -> Result<Vec<u32>> {
    if !(head.is_finite() && head >= 0.0) {
        return Err(Error::layout(format!("a head that costs {head} layers: 0 or more were expected")));
    }
    let others = parts - 1;
    if others == 0 {
        return Ok(vec![layers]);
    }
    let slowest = |last: u32| (f64::from(last) + head).max(f64::from((layers - last).div_ceil(others)));
    let last = (0..=layers - others).rev().min_by(|one, other| slowest(*one).total_cmp(&slowest(*other)));
    let last = last.expect("there is a number to try");
    Ok([even(layers - last, others), vec![last]].concat())
}
