//! How the layers of a model are split over stages and chunks.
//!
//! | rule | when |
//! |---|---|
//! | equal numbers | the chunks divide the layers |
//! | embedding and head count as a layer each | the chunks divide the layers and these two: Llama 3.1 405B, zero-bubble |
//! | by cost, the head counted in layers | the software balances its stages |
//! | the remainder goes to the first stages | otherwise |

use super::request::Request;
use crate::error::Result;
use crate::model::{Layer, Model};
use crate::pipeline::{self, Balance, Schedule};

/// The part of a model that one chunk of a stage has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StageChunk {
    /// Its layers: kinds in the order of the model, with their number.
    pub(super) layers: Vec<(Layer, u32)>,
    /// Whether it begins with the embedding.
    pub(super) embedding: bool,
    /// Whether it ends with the head.
    pub(super) head: bool,
    /// Its layers of multi-token prediction, which are among the layers.
    pub(super) predicting: u32,
}

/// Splits the layers: the chunks of each stage, with DualPipe those of its mirror image, too.
///
/// # Errors
/// [`crate::Error::Layout`] if there are fewer layers than chunks.
pub(super) fn split(request: &Request) -> Result<Vec<Vec<StageChunk>>> {
    let (stages, chunks) = (request.layout.stages, request.layout.chunks);
    let counts = pipeline::split(request.model.layers, stages, chunks, balance(request))?;
    let mut found = vec![Vec::new(); stages as usize];
    let mut first = 0;
    for chunk in 0..chunks {
        for stage in 0..stages {
            let count = counts[stage as usize][chunk as usize];
            let (embedding, head) = (stage + chunk == 0, (stage + 1, chunk + 1) == (stages, chunks));
            let predicting = if head { request.layout.recipe.mtp.unwrap_or(0) } else { 0 };
            let layers = kinds(request, first, count, predicting);
            found[stage as usize].push(StageChunk { layers, embedding, head, predicting });
            first += count;
        }
    }
    if request.layout.schedule == Schedule::DualPipe {
        let mirrored: Vec<_> = found.iter().rev().cloned().collect();
        found.iter_mut().zip(mirrored).for_each(|(chunks, other)| chunks.extend(other));
    }
    Ok(found)
}

/// The kinds of some layers, with their number: kinds that alternate are counted together. Layers of multi-token prediction are as the last.
fn kinds(request: &Request, first: u32, count: u32, predicting: u32) -> Vec<(Layer, u32)> {
    let mut found: Vec<(Layer, u32)> = Vec::new();
    let more = (0..predicting).map(|_| request.model.layers - 1);
    for kind in (first..first + count).chain(more).map(|index| request.layer(index)) {
        match found.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, number)) => *number += 1,
            None => found.push((kind, 1)),
        }
    }
    found
}

/// What the split of a request makes even.
fn balance(request: &Request) -> Balance {
    let (layers, parts) = (request.model.layers, request.layout.stages * request.layout.chunks);
    match () {
        () if request.software.balances_stages && parts > 1 => Balance::Cost { head: head_in_layers(&request.model) },
        () if layers % parts != 0 && (layers + 2) % parts == 0 => Balance::LayersAndEnds,
        () => Balance::Layers,
    }
}

/// The cost of the head in layers, by the parameters with which a token is multiplied.
fn head_in_layers(model: &Model) -> f64 {
    let layer = model.layer_parameters(model.layer(model.layers - 1));
    model.embedding_parameters() / (layer.dense + layer.experts)
}

/// The name of a role that stands for some stages.
pub(super) fn name(stages: &[u32], all: u32) -> String {
    match stages {
        _ if all == 1 => "all ranks".to_owned(),
        [stage] if *stage == 0 => "first stage".to_owned(),
        [stage] if stage + 1 == all => "last stage".to_owned(),
        [stage] => format!("stage {stage}"),
        [first, .., last] if last - first + 1 == stages.len() as u32 => format!("stages {first} to {last}"),
        [first, ..] => format!("{} stages from stage {first}", stages.len()),
        [] => "no stage".to_owned(),
    }
}
