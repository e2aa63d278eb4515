//! Iterations that a dry run of the server recorded (`nvcoll dryrun --serve`), in the place of planned ones.
//!
//! ```text
//! planned:  iteration of any batch from the model                            ┐
//! recorded: iterations of some numbers of tokens, as the server made them   ─┴▶ IterationTimes ─▶ all that follows
//! ```
//!
//! A recorded iteration has attention over some tokens in the cache. What other batches take more is the planned attention of both.

use serde::{Deserialize, Serialize};

use super::batch::IterationBatch;
use super::layout::ServingLayout;
use crate::error::{Error, Result};
use crate::step::WorkStep;

/// An iteration that a server made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedIteration {
    /// Its sequences.
    pub batch: IterationBatch,
    /// What its ranks did.
    pub step: WorkStep,
}

/// What a server did in a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedServer {
    /// Tokens for which its cache has room, as it counts them.
    pub cache_tokens: f64,
    /// Bytes of the cache on a GPU.
    pub cache_bytes: f64,
    /// Its iterations.
    pub iterations: Vec<RecordedIteration>,
}

impl RecordedServer {
    /// Returns the iterations that read prompts, or those that do not, fewest tokens first.
    pub(super) fn of_kind(&self, is_reading: bool) -> Vec<&RecordedIteration> {
        let mut found: Vec<_> = self.iterations.iter().filter(|one| (one.batch.tokens > 0.0) == is_reading).collect();
        found.sort_by(|one, other| one.batch.rows().total_cmp(&other.batch.rows()));
        found.dedup_by(|one, other| one.batch.rows() == other.batch.rows());
        found
    }

    /// Refuses what does not answer for a layout on a GPU.
    pub(super) fn check(&self, layout: &ServingLayout, gpu: &str) -> Result<()> {
        let refuse = |what: String| Err(Error::Request(what));
        for one in &self.iterations {
            one.step.check()?;
            let was = one.step.streams().map_or("", |streams| &streams.gpu);
            if was != gpu {
                return refuse(format!("the server was recorded on {was}, not on {gpu}: record it there"));
            }
            if one.step.gpus != layout.tensor
                || layout.tensor != layout.engine()
                || layout.attention_copies * layout.expert > 1
            {
                return refuse(format!("the server was recorded with TP {}, not with {layout}", one.step.gpus));
            }
        }
        if [true, false].into_iter().any(|is_reading| self.of_kind(is_reading).len() < 2) {
            return refuse(
                "iterations of two numbers of tokens of either kind were expected: record them again".to_owned(),
            );
        }
        Ok(())
    }
}
