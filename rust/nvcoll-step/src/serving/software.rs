//! Model servers: how each runs a model, one row of `data/model_servers.toml` for each.

use std::sync::LazyLock;

use nvcoll_fabric::predict::Server;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tables;

/// How a model server runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelServer {
    /// Its name, which is also the name of its rule for an all_reduce.
    pub name: Server,
    /// What it is, with versions.
    pub title: String,
    /// Microseconds of the processor between two iterations that nothing hides.
    pub iteration_us: f64,
    /// The same for each sequence of an iteration.
    pub sequence_us: f64,
    /// The part of an answer for which a request that is admitted takes room in the cache: 1 if it never has to wait again.
    pub reserved: f64,
    /// Milliseconds of a request before it waits for the scheduler, and of its first token on the way back.
    pub frontend_ms: f64,
    /// Microseconds of the processor for each launch of an iteration that reads prompts, which no CUDA graph launches.
    pub launch_us: f64,
    /// Iterations for which prompts wait for others, so that one iteration reads them.
    pub wait_iterations: f64,
    /// Tokens of an iteration at most.
    pub chunk: f64,
    /// Whether prompts are read in iterations that also decode; else decoding waits.
    pub mixes: bool,
    /// Whether its all_reduce adds the residual and normalises, in one kernel.
    pub fuses_norms: bool,
    /// Sequences of an iteration at most, on each attention copy.
    pub sequences: f64,
    /// The part of the GPU's memory that it takes.
    pub utilization: f64,
    /// Where the fields are from.
    #[serde(default)]
    pub source: String,
}

/// The most of any field. Chosen.
const MOST: f64 = 1e7;

static SERVERS: LazyLock<Vec<ModelServer>> =
    LazyLock::new(|| tables::rows(include_str!("../data/model_servers.toml"), "server"));

impl ModelServer {
    /// Returns the servers that are known.
    pub fn all() -> &'static [Self] {
        &SERVERS
    }

    /// Refuses fields that no server has.
    ///
    /// # Errors
    /// [`Error::Request`] with the field that is wrong.
    pub(super) fn check(&self) -> Result<()> {
        let Self { iteration_us, sequence_us, frontend_ms, launch_us, wait_iterations, chunk, sequences, .. } = *self;
        let fields = [
            ("iteration_us", iteration_us, 0.0, MOST),
            ("sequence_us", sequence_us, 0.0, MOST),
            ("frontend_ms", frontend_ms, 0.0, MOST),
            ("launch_us", launch_us, 0.0, MOST),
            ("wait_iterations", wait_iterations, 0.0, MOST),
            ("chunk", chunk, 1.0, MOST),
            ("sequences", sequences, 1.0, MOST),
            ("reserved", self.reserved, 0.0, 1.0),
            ("utilization", self.utilization, 0.01, 1.0),
        ];
        match fields.into_iter().find(|(_, value, least, most)| !(*least..=*most).contains(value)) {
            Some((name, value, least, most)) => {
                Err(Error::Request(format!("`{name}` of the server is {value}: {least} to {most} was expected")))
            }
            None => Ok(()),
        }
    }

    /// Finds a server.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`], with all names.
    pub fn named(name: &str) -> Result<&'static Self> {
        tables::named("server", name, Self::all(), |one| one.name.name())
    }
}
