//! Model servers: layouts of a model, their cache of keys and values, and the times that requests see.
//!
//! ```text
//! model × layout × precision ─batch─▶ iteration: a WorkStep on one stream ─price─▶ seconds by part
//!                                        │
//!                                        └─ some sizes ─▶ IterationTimes ─arrivals─▶ TTFT, TPOT, tokens per second
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`software`] | how a server runs a model: rows of `data/model_servers.toml` |
//! | [`precision`] | formats of weights: bytes, and the precision of products |
//! | [`layout`] | how requests and a model are divided among GPUs |
//! | `iteration` | what one rank does in an iteration |
//! | [`recorded`] | iterations of the server itself, in their place |
//! | [`speculation`] | tokens that are drafted ahead |
//! | `drafting` | the model that drafts |
//! | `cache` | weights, and the tokens for which the rest has room |
//! | `times` | seconds of any iteration, from some that were priced |
//! | `scheduler` | requests and iterations in virtual time |
//! | [`price`] | the answer |
//!
//! An iteration is a step as a dry run records it (`nvcoll dryrun --serve`): the same operations, prices and reports. The operations
//! of a planned one follow from the model, those of a recorded one from the server itself.
//!
//! **What is not here.** Disaggregated prefill, cached prefixes, preemption: a request is admitted when the cache has room for all of it.

mod batch;
mod cache;
mod drafting;
mod iteration;
pub mod layout;
pub mod precision;
pub mod price;
pub mod recorded;
mod scheduler;
pub mod software;
pub mod speculation;
mod times;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::Model;
pub use batch::IterationBatch;
use layout::ServingLayout;
use precision::Precision;
use recorded::RecordedServer;
use software::ModelServer;
use speculation::Speculation;

/// What a server of models is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServingRequest {
    /// The model.
    pub model: Model,
    /// The server.
    pub software: ModelServer,
    /// The layout.
    pub layout: ServingLayout,
    /// The format of weights.
    #[serde(default)]
    pub precision: Precision,
    /// Bytes of an element of the cache: 2, or 1 for 8 bits.
    #[serde(default = "two")]
    pub cache_bytes: f64,
    /// What clients send.
    pub load: ClientLoad,
    /// Tokens that are drafted ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculation: Option<Speculation>,
    /// What the server itself did in a dry run. None: its iterations are planned.
    #[serde(default, skip_serializing)]
    pub recorded: Option<RecordedServer>,
}

const fn two() -> f64 {
    2.0
}

/// What clients send: requests of about equal lengths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientLoad {
    /// Tokens of a prompt, mean.
    pub input: f64,
    /// Tokens of an answer, mean.
    pub output: f64,
    /// Requests that are under way at once, over all copies: a client sends its next when one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Requests per second, at random times (Poisson), instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The part by which lengths differ from the mean, up and down, evenly.
    #[serde(default = "tenth")]
    pub spread: f64,
}

const fn tenth() -> f64 {
    0.1
}

/// The most tokens of a prompt or an answer. Chosen: more than any model reads.
const MOST_TOKENS: f64 = 1e8;

/// The most requests at once, or in a second. Chosen.
const MOST_REQUESTS: f64 = 1e6;

impl ServingRequest {
    /// Refuses what no server does.
    ///
    /// # Errors
    /// [`Error::Model`], [`Error::Layout`], [`Error::Request`] with what is wrong.
    pub fn check(&self) -> Result<()> {
        self.model.check()?;
        self.layout.check(&self.model)?;
        self.software.check()?;
        if !self.model.kinds().keys().any(|kind| kind.attends()) {
            let reason = "no layer of it has a cache: servers of models without attention are not known".to_owned();
            return Err(Error::Model { name: self.model.name.clone(), reason });
        }
        self.speculation.as_ref().map_or(Ok(()), Speculation::check)?;
        if let Some(draft) = self.draft() {
            draft.model.check()?;
            draft.layout.check(&draft.model)?;
        }
        let ClientLoad { input, output, concurrency, rate, spread } = self.load;
        let refuse = |what: String| Err(Error::Request(what));
        if self.precision == Precision::Mxfp4 && self.model.experts.is_none() {
            return refuse(format!("mxfp4 is a format of experts, and {} is dense: choose another", self.model.name));
        }
        if !(1.0..=MOST_TOKENS).contains(&input) || !(1.0..=MOST_TOKENS).contains(&output) {
            return refuse(format!(
                "prompts of {input} tokens and answers of {output}: 1 to {MOST_TOKENS:e} were expected"
            ));
        }
        let ((Some(number), None) | (None, Some(number))) = (concurrency, rate) else {
            return refuse("pass the requests that are under way at once, or those in a second".to_owned());
        };
        if !(number > 0.0 && number <= MOST_REQUESTS && (0.0..=1.0).contains(&spread)) {
            return refuse(format!(
                "{number} requests whose lengths differ by {spread}: above 0 to {MOST_REQUESTS:e}, and 0 to 1 were expected"
            ));
        }
        if ![1.0, 2.0].contains(&self.cache_bytes) {
            return refuse(format!("a cache of {} bytes for an element: 1 or 2 were expected", self.cache_bytes));
        }
        Ok(())
    }
}
