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

use super::batch::IterationBatch;
use super::iteration::Iteration;
use super::recorded::RecordedIteration;
use super::ServingRequest;
use crate::error::Result;
use crate::memory::RankMemory;
use crate::model::Layer;
use crate::parts::TimePart;
use crate::pricing::{Pricer, StepReport};
use crate::step::work::StepOp;

/// The priced numbers of tokens for each doubling. Chosen: products of few rows change by steps of tiles.
const PER_DOUBLING: f64 = 2.0;

/// A number of tokens that is priced.
struct Point<'r> {
    rows: f64,
    /// The iteration, if it was recorded; else it is planned.
    recorded: Option<&'r RecordedIteration>,
    seconds: OnceCell<f64>,
}

/// The times of the iterations of a server.
pub(super) struct IterationTimes<'r> {
    pricer: &'r Pricer<'r>,
    request: &'r ServingRequest,
    own: Option<Server>,
    kinds: BTreeMap<Layer, u32>,
    draft: Option<(ServingRequest, BTreeMap<Layer, u32>)>,
    checked: f64,
    generating: Vec<Point<'r>>,
    reading: Vec<Point<'r>>,
    /// Seconds of the processor to launch an iteration that reads prompts.
    launching: f64,
}

impl<'r> IterationTimes<'r> {
    pub(super) fn new(pricer: &'r Pricer<'r>, request: &'r ServingRequest, own: Option<Server>) -> Self {
        let checked = request.checked_tokens();
        let most = (request.software.chunk + request.software.sequences * checked).log2() * PER_DOUBLING;
        let point = |rows, recorded| Point { rows, recorded, seconds: OnceCell::new() };
        let points = |is_reading| match &request.recorded {
            Some(server) => {
                server.of_kind(is_reading).into_iter().map(|one| point(one.batch.rows(), Some(one))).collect()
            }
            None => (0..most.ceil() as usize + 2).map(|at| point(f64::exp2(at as f64 / PER_DOUBLING), None)).collect(),
        };
        let kinds = request.model.kinds();
        let draft = request.draft().map(|one| {
            let kinds = one.model.kinds();
            (one, kinds)
        });
        let (generating, reading): (Vec<_>, Vec<_>) = (points(false), points(true));
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

    /// Prices an iteration: of recorded ones that with the nearest number of tokens, with the attention and the scheduler of this one.
    pub(super) fn report(&self, batch: IterationBatch, name: &str, memory: RankMemory) -> Result<StepReport> {
        let far = |one: &&Point<'_>| (one.rows / batch.rows()).ln().abs();
        let nearest = self.points(batch).iter().min_by(|one, other| far(one).total_cmp(&far(other)));
        let Some(recorded) = nearest.and_then(|one| one.recorded) else {
            return self.pricer.price(&self.iteration(batch).step(name, Some(memory)));
        };
        let mut found = self.pricer.price(&recorded.step)?;
        let attention = self.attention_s(batch)? - self.attention_s(recorded.batch)?;
        for (part, seconds) in [(TimePart::Attention, attention), (TimePart::Host, self.iteration(batch).scheduler_s())]
        {
            found.parts.add(part, seconds);
            found.seconds += seconds;
        }
        Ok(found)
    }

    fn points(&self, batch: IterationBatch) -> &[Point<'r>] {
        if batch.tokens > 0.0 {
            &self.reading
        } else {
            &self.generating
        }
    }

    /// Returns the seconds of an iteration.
    pub(super) fn seconds(&self, batch: IterationBatch) -> Result<f64> {
        let (rows, points) = (batch.rows().max(1.0), self.points(batch));
        let next = points.partition_point(|one| one.rows <= rows).clamp(1, points.len() - 1);
        let (low, high) = (&points[next - 1], &points[next]);
        let share = ((rows - low.rows) / (high.rows - low.rows)).max(0.0);
        let of = |point| self.priced(point, batch.tokens > 0.0);
        let linear = of(low)? * (1.0 - share) + of(high)? * share;
        let seconds = linear + self.attention_s(batch)?;
        Ok(if batch.tokens > 0.0 && low.recorded.is_none() { seconds.max(self.launching) } else { seconds })
    }

    /// Returns the seconds of an iteration of a priced number of tokens, without attention.
    fn priced(&self, point: &Point<'_>, is_reading: bool) -> Result<f64> {
        if let Some(&seconds) = point.seconds.get() {
            return Ok(seconds);
        }
        let rows = point.rows;
        let planned = match is_reading {
            true => IterationBatch { prompts: 1.0, tokens: rows, pairs: rows, ..IterationBatch::default() },
            false => {
                let decodes = rows / self.checked;
                IterationBatch { decodes, checked: self.checked, cached: decodes, ..IterationBatch::default() }
            }
        };
        let batch = point.recorded.map_or(planned, |one| one.batch);
        let all = match point.recorded {
            Some(one) => self.pricer.seconds(&one.step)? + self.iteration(batch).scheduler_s(),
            None => self.pricer.seconds(&self.iteration(batch).step("iteration", None))?,
        };
        let seconds = all - self.attention_s(batch)?;
        Ok(*point.seconds.get_or_init(|| seconds))
    }

    fn attention_s(&self, batch: IterationBatch) -> Result<f64> {
        let compute = self.pricer.compute();
        let seconds = |op: &StepOp| Ok(op.count * (compute.seconds(&op.work)? + compute.graph_s(&op.work)));
        self.iteration(batch).all_attention().iter().map(seconds).sum()
    }
}
