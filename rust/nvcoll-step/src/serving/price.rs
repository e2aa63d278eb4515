//! What requests see of a server on a machine, and why.

use std::sync::LazyLock;

use nvcoll_fabric::predict::{Pattern, Server};
use serde::{Deserialize, Serialize};

use super::batch::IterationBatch;
use super::scheduler::{self, Served, ServerRoom};
use super::times::IterationTimes;
use super::{ClientLoad, ServingRequest};
use crate::error::{Error, Result};
use crate::memory::GIB;
use crate::network::Group;
use crate::pricing::{Interval, Pricer, StepReport};
use crate::step::WorkStep;
use crate::tables;

/// What requests see of a server on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServingReport {
    /// The number of GPUs.
    pub gpus: u32,
    /// Tokens for which the cache of one server has room, and its GiB on a GPU.
    pub cache_tokens: f64,
    /// The same in GiB, of a GPU.
    pub cache_gib: f64,
    /// GiB of weights on a GPU.
    pub weights_gib: f64,
    /// Requests of the mean length for which all servers have room at once.
    pub at_once: f64,
    /// Mean seconds until the first token of a request.
    pub ttft_s: f64,
    /// Mean seconds of each token after it.
    pub tpot_s: f64,
    /// Generated tokens per second and GPU.
    pub tokens_per_second: f64,
    /// The ends of the 90 % intervals of the three.
    pub ttft_90: [f64; 2],
    /// See `ttft_90`.
    pub tpot_90: [f64; 2],
    /// See `ttft_90`.
    pub tokens_per_second_90: [f64; 2],
    /// Sequences that a server generates at once, mean over time.
    pub batch: f64,
    /// An iteration that generates a token of as many sequences.
    pub decode: StepReport,
    /// An iteration that reads a prompt, or a chunk of one.
    pub prefill: StepReport,
    /// What limits the tokens per second, in words.
    pub limit: String,
    /// Whether requests come faster than they are served: the first token then comes later and later.
    pub is_saturated: bool,
    /// What the answer assumes, and why its interval is wider than usual.
    pub notes: Vec<String>,
}

static INTERVALS: LazyLock<Vec<Interval>> =
    LazyLock::new(|| tables::rows(include_str!("../data/serving_intervals.toml"), "interval"));

/// The models of GPUs of data/serving.
const PUBLISHED: [&str; 3] = ["h100-sxm", "h200", "b200"];

/// The times that an interval is wider on other GPUs, on the logarithmic scale. Chosen, as for steps of training.
const WIDER: f64 = 1.5;

/// Returns the ends of the 90 % interval of a value, wider by a power.
///
/// # Panics
/// If the table that is shipped lacks the class.
fn interval(class: &str, value: f64, wider: f64) -> [f64; 2] {
    let row = tables::named("interval", class, &INTERVALS, |one| &one.class).expect("a test prices each class");
    [row.low, row.high].map(|end| value * end.powf(wider))
}

impl Pricer<'_> {
    /// Answers for a server.
    ///
    /// # Errors
    /// [`crate::Error::Layout`] if the layout breaks a rule, or the machine has fewer GPUs; [`crate::Error::Gpu`] if the weights have no room,
    /// or the GPU lacks a precision.
    pub fn serve(&self, request: &ServingRequest) -> Result<ServingReport> {
        request.check()?;
        self.check_gpus(request.layout.gpus())?;
        let ServingRequest { software, layout, load, recorded, .. } = request;
        recorded.as_ref().map_or(Ok(()), |one| one.check(layout, &self.device.name))?;
        let cache = request.cache(self.device)?;
        let (own, note) = self.own(request)?;
        let times = IterationTimes::new(self, request, own);
        let (servers, copies) = (f64::from(layout.copies * layout.stages), f64::from(layout.attention_copies));
        let part = ClientLoad {
            concurrency: load.concurrency.map(|all| all / servers),
            rate: load.rate.map(|all| all / servers),
            ..*load
        };
        let room = ServerRoom {
            tokens: cache.tokens * copies / f64::from(layout.stages),
            checked: request.checked_tokens(),
            added: request.added_tokens(),
            sequences: software.sequences * copies,
            chunk: software.chunk,
            copies,
            reserved: software.reserved,
            wait: software.wait_iterations,
            state: cache.state_tokens,
        };
        let longest = cache.state_tokens + (1.0 + load.spread) * (load.input + load.output);
        if room.tokens < longest {
            let (model, title, tokens) = (&request.model.name, &self.device.title, room.tokens);
            return Err(Error::Gpu(format!(
                "{layout} of {model} on {title} has room for {tokens:.0} tokens of cache: a request has up to {longest:.0}"
            )));
        }
        let served = scheduler::run(&times, part, room, software.mixes)?;
        let Served { decodes, cached, is_saturated, .. } = served;
        let (decodes_of_copy, cached) = (decodes.max(1.0) / copies, cached / copies);
        let batch =
            IterationBatch { decodes: decodes_of_copy, checked: room.checked, cached, ..IterationBatch::default() };
        let decode = times.report(batch, "a token", cache.memory())?;
        let tokens = load.input.min(software.chunk);
        let reading =
            IterationBatch { prompts: 1.0, tokens, pairs: tokens * (tokens + 1.0) / 2.0, ..IterationBatch::default() };
        let prefill = times.report(reading, "a prompt", cache.memory())?;
        let at_once =
            (room.tokens / (room.state + load.input + software.reserved * load.output)).floor().min(room.sequences)
                * servers;
        // A server has whole requests: if there are fewer requests than servers, some have none.
        let busy = servers * part.concurrency.map_or(1.0, |one| one / one.max(1.0).round());
        let tokens_per_second = served.tokens_per_second * busy / f64::from(layout.gpus());
        let ttft_s = served.ttft_s + software.frontend_ms * 1e-3;
        let asked = load.concurrency.unwrap_or(0.0);
        let (longest, seconds) = decode.parts.longest(|_| true);
        let limit = match is_saturated {
            true => "requests come faster than they are served".to_owned(),
            false if at_once < asked => format!("the cache has room for {at_once:.0} of {asked:.0} requests at once"),
            false => format!("{longest}, {:.0} % of a token", 100.0 * seconds / decode.seconds),
        };
        let is_published = PUBLISHED.contains(&self.device.name.as_str());
        let is_drafted = room.checked > 1.0;
        let wider = if is_published && !is_drafted { 1.0 } else { WIDER };
        let unlike = (!is_published).then(|| format!("no rows of servers on {} were published", self.device.title));
        let drafted = is_drafted.then(|| {
            format!("{:.2} tokens of a sequence in an iteration; no row with drafts is in the fit", room.added)
        });
        Ok(ServingReport {
            gpus: layout.gpus(),
            cache_tokens: cache.tokens * copies,
            cache_gib: cache.bytes / GIB,
            weights_gib: cache.weights / GIB,
            at_once,
            ttft_s,
            tpot_s: served.tpot_s,
            tokens_per_second,
            ttft_90: interval("first token", ttft_s, wider),
            tpot_90: interval("token", served.tpot_s, wider),
            tokens_per_second_90: interval("tokens per second", tokens_per_second, wider),
            batch: decodes,
            decode,
            prefill,
            limit,
            is_saturated,
            notes: unlike.into_iter().chain(drafted).chain(note).collect(),
        })
    }

    /// Returns an iteration of a server: what a dry run of the server records.
    ///
    /// # Errors
    /// Those of [`ServingRequest::check`].
    pub fn iteration(&self, request: &ServingRequest, batch: IterationBatch) -> Result<WorkStep> {
        request.check()?;
        let (own, _) = self.own(request)?;
        Ok(IterationTimes::new(self, request, own).iteration(batch).step("an iteration", None))
    }

    /// Returns the server whose own kernels run an all_reduce here; none if NCCL's times are taken instead, and why.
    fn own(&self, request: &ServingRequest) -> Result<(Option<Server>, Option<String>)> {
        let (server, ranks) = (request.software.name, request.layout.attention());
        let group = Group::even(ranks, 1);
        match self.network.seconds_as(Some(server), Pattern::AllReduce, 1024.0, group) {
            Ok(_) => Ok((Some(server), None)),
            Err(error @ Error::Fabric(_)) => Ok((None, Some(format!("all_reduce takes the time of NCCL: {error}")))),
            Err(error) => Err(error),
        }
    }
}
