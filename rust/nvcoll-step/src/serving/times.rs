//! Seconds of any iteration, from some that were priced.
//!
//! ```text
//! iteration = rows: between two priced numbers of tokens + attention: closed form of what each sequence has in the cache
//! ```
//!
//! A schedule of requests has thousands of iterations, and all but attention depends on the number of tokens alone.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use nvcoll_fabric::predict::Server;

use super::iteration::{Iteration, IterationBatch};
use super::ServingRequest;
use crate::error::Result;
use crate::model::Layer;
use crate::pricing::Pricer;
use crate::step::work::StepOp;

/// The priced numbers of tokens for each doubling. Chosen: products of few rows change by steps of tiles.
const PER_DOUBLING: f64 = 2.0;

/// The times of the iterations of a server.
pub(super) struct IterationTimes<'r> {
    pricer: &'r Pricer<'r>,
    request: &'r ServingRequest,
    own: Option<Server>,
    kinds: BTreeMap<Layer, u32>,
    draft: Option<(ServingRequest, BTreeMap<Layer, u32>)>,
    checked: f64,
    generating: Vec<OnceCell<f64>>,
    reading: Vec<OnceCell<f64>>,
    /// Seconds of the processor to launch an iteration that reads prompts.
    launching: f64,
}

impl<'r> IterationTimes<'r> {
    pub(super) fn new(pricer: &'r Pricer<'r>, request: &'r ServingRequest, own: Option<Server>) -> Self {
        let checked = request.checked_tokens();
        let most = (request.software.chunk + request.software.sequences * checked).log2() * PER_DOUBLING;
        let cells = || vec![OnceCell::new(); most.ceil() as usize + 2];
        let kinds = request.model.kinds();
        let draft = request.draft().map(|one| {
            let kinds = one.model.kinds();
            (one, kinds)
        });
        let (generating, reading) = (cells(), cells());
        let mut times = Self { pricer, request, own, kinds, draft, checked, generating, reading, launching: 0.0 };
        let batch = IterationBatch { prompts: 1.0, tokens: 1.0, pairs: 1.0, ..IterationBatch::default() };
        times.launching = times.iteration(batch).launches() * request.software.launch_us * 1e-6;
        times
    }

    /// Returns an iteration.
    pub(super) fn iteration(&self, batch: IterationBatch) -> Iteration<'_> {
        Iteration {
            request: self.request,
            compute: self.pricer.compute(),
            own: self.own,
            batch,
            kinds: &self.kinds,
            draft: self.draft.as_ref(),
        }
    }

    /// Returns the seconds of an iteration.
    pub(super) fn seconds(&self, batch: IterationBatch) -> Result<f64> {
        let rows = batch.rows().max(1.0);
        let place = (rows.log2() * PER_DOUBLING).min(self.reading.len() as f64 - 2.0);
        let at = place.floor() as usize;
        let [low, high] = [at, at + 1].map(|at| f64::exp2(at as f64 / PER_DOUBLING));
        let of = |at: usize| self.priced(at, batch.tokens > 0.0);
        let share = (rows - low) / (high - low);
        let linear = of(at)? * (1.0 - share) + of(at + 1)? * share;
        let seconds = linear + self.attention_s(batch)?;
        Ok(if batch.tokens > 0.0 { seconds.max(self.launching) } else { seconds })
    }

    /// Returns the seconds of an iteration of a priced number of tokens, without attention.
    fn priced(&self, at: usize, is_reading: bool) -> Result<f64> {
        let known = if is_reading { &self.reading } else { &self.generating };
        if let Some(&seconds) = known[at].get() {
            return Ok(seconds);
        }
        let rows = f64::exp2(at as f64 / PER_DOUBLING);
        let batch = match is_reading {
            true => IterationBatch { prompts: 1.0, tokens: rows, pairs: rows, ..IterationBatch::default() },
            false => {
                let decodes = rows / self.checked;
                IterationBatch { decodes, checked: self.checked, cached: decodes, ..IterationBatch::default() }
            }
        };
        let step = self.iteration(batch).step("iteration", None);
        let seconds = self.pricer.seconds(&step)? - self.attention_s(batch)?;
        Ok(*known[at].get_or_init(|| seconds))
    }

    fn attention_s(&self, batch: IterationBatch) -> Result<f64> {
        let compute = self.pricer.compute();
        let seconds = |op: &StepOp| Ok(op.count * (compute.kernel_s(&op.work)? + compute.graph_s(&op.work)));
        self.iteration(batch).all_attention().iter().map(seconds).sum()
    }
}
