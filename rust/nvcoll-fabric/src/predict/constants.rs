//! The constants of the closed forms: the rows of `constants.toml`, and the same values as fields.
//!
//! The name of a row is the path of a field: `hop_us.ll.pcie` is `PhysicalEffects::hop_us.ll.pcie`. A row without a field, or a
//! field without a row, is an error when the table is read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::machine::{Interconnect, NetworkStack};
use crate::error::{Error, Result};
use crate::hardware::gpus::Generation;
use crate::nccl::Protocol;
use crate::tables;

nvcoll_core::names! {
    /// How a number is known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Provenance {
        /// Its source says it.
        Cited = "cited",
        /// It was fitted to rows of the table of measurements.
        Fitted = "fitted",
        /// Neither: a guess.
        Chosen = "chosen",
    }
}

/// A row of `constants.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// What it is called, as `hop_us.ll.nvlink`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// In what: `us`, `GB/s`, `part`, `KiB`, `loops`, `power`.
    pub unit: String,
    /// How it is known.
    pub kind: Provenance,
    /// The least of its values with a family of systems left out.
    pub low: f64,
    /// The greatest of them.
    pub high: f64,
    /// Where it is from: a document, or the systems whose rows fix it.
    pub source: String,
}

/// Returns the rows of the table.
pub fn all() -> &'static [Constant] {
    static TABLE: LazyLock<Vec<Constant>> = LazyLock::new(|| tables::rows(include_str!("constants.toml"), "constant"));
    &TABLE
}

/// The generations with constants of their own. A GPU of AMD has the generation of NVIDIA's GPUs of the same years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Age {
    Volta,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
}

impl Age {
    pub(super) const fn of(generation: Generation) -> Self {
        match generation {
            Generation::Kepler | Generation::Pascal | Generation::Volta | Generation::Turing => Self::Volta,
            Generation::Ampere | Generation::Cdna2 => Self::Ampere,
            Generation::Ada => Self::Ada,
            Generation::Hopper | Generation::Cdna3 | Generation::Cdna4 => Self::Hopper,
            Generation::Blackwell => Self::Blackwell,
        }
    }
}

/// A value for each generation, or for those where the effect shows.
pub(super) type ByAge = BTreeMap<Age, f64>;

/// Returns the value of a generation: the one of the newest generation in the table up to it.
pub(super) fn of_age(values: &ByAge, age: Age) -> Option<f64> {
    values.range(..=age).next_back().map(|(_, &value)| value)
}

/// A value for each network software where the effect shows.
pub(super) type ByStack = BTreeMap<NetworkStack, f64>;

/// A value that may depend on the generation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum PerAge {
    All(f64),
    Each(ByAge),
}

/// The parts of their line rate that links reach.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Efficiencies {
    pub(super) pcie: f64,
    /// By the name of the medium; media that are not here have their own.
    #[serde(flatten)]
    pub(super) media: BTreeMap<String, f64>,
}

/// The parts of PCIe's line rate that transfers through host memory reach.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StagedParts {
    pub(super) both_ways: f64,
    pub(super) one_way: f64,
}

/// A value for each protocol.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByProtocol<T> {
    pub(super) ll: T,
    pub(super) ll128: T,
    pub(super) simple: T,
}

impl ByProtocol<f64> {
    pub(super) fn of(&self, protocol: Protocol) -> f64 {
        match protocol {
            Protocol::Ll => self.ll,
            Protocol::Ll128 => self.ll128,
            Protocol::Simple => self.simple,
        }
    }
}

/// The microseconds of a hop by what it crosses; none where the protocol is not used.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HopEffects {
    nvlink: PerAge,
    pcie: Option<f64>,
    staged: Option<f64>,
    pub(super) network: f64,
}

impl HopEffects {
    /// Returns the microseconds of a hop inside a node; zero where the protocol is not used.
    pub(super) fn inside(&self, interconnect: Interconnect, age: Age) -> f64 {
        match (interconnect, &self.nvlink) {
            (Interconnect::Nvlink, PerAge::All(us)) => *us,
            (Interconnect::Nvlink, PerAge::Each(by_age)) => of_age(by_age, age).unwrap_or(0.0),
            (Interconnect::Peer, _) => self.pcie.unwrap_or(0.0),
            (Interconnect::Staged, _) => self.staged.unwrap_or(0.0),
        }
    }
}

/// The effects of NVLS.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NvlsEffects {
    pub(super) hopper: f64,
    pub(super) blackwell: f64,
    pub(super) chunk_us: f64,
    pub(super) fill_loops: f64,
    pub(super) start_us: ByAge,
}

/// The effects of the step of a ring that sends nothing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastStepEffects {
    /// The GB/s of a channel that copies inside its GPU: three operands of that rate.
    pub(super) channel_gbps: ByAge,
    /// The operands of the step where GPUs write to their peers, and where they read from them.
    pub(super) write: Operands,
    pub(super) read: Operands,
}

/// The operands of the step of a ring that sends nothing, in bytes that pass memory per byte of the step.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Operands {
    pub(super) all_reduce: f64,
    pub(super) all_gather: f64,
    pub(super) reduce_scatter: f64,
}

/// The effects of channels that begin in step: the part of the time that is lost, up to a number of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RampEffects {
    pub(super) us: f64,
    pub(super) part: f64,
}

/// The effects of sends over NVLink.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendEffects {
    /// The microseconds by which a block of sends starts later than one of a ring.
    pub(super) start_us: ByAge,
    pub(super) channel_gbps: ByAge,
    pub(super) ll_channel_gbps: ByAge,
    /// The microseconds in which the first chunk is stored.
    pub(super) chunk_us: ByAge,
    /// The part of a ring's rate that sends reach.
    pub(super) part: ByAge,
}

/// The effects of the way in which a program launches calls.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchEffects {
    pub(super) single_process_us: f64,
    pub(super) per_gpu_us: f64,
    pub(super) per_peer_us: f64,
    pub(super) framework_us: f64,
}

/// The effects of the network between nodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkEffects {
    /// The parts of the cards' line rate that rings, trees and sends reach.
    pub(super) ring: f64,
    pub(super) tree: f64,
    pub(super) sends: f64,
    /// The part of its rate that the switch keeps under a tree over nodes.
    pub(super) nvlstree: f64,
    /// The loops of the switch that are in flight at each level of a tree over nodes.
    pub(super) nvlstree_loops: f64,
    /// The part of half a GPU's rate that trees inside a node reach.
    pub(super) tree_inner: f64,
    pub(super) tree_chunk_kib: f64,
    pub(super) tree_ll_gbps: f64,
    /// The GB/s that a channel of a ring reaches with LL over the network.
    pub(super) ring_ll_channel_gbps: f64,
    /// The microseconds that rings with Simple need until they run at full rate.
    pub(super) ring_startup_us: f64,
    /// The GB/s of a channel of sends.
    pub(super) channel_gbps: f64,
    /// The microseconds in which a GPU's proxy sends to one peer, and receives from it.
    pub(super) message_us: f64,
    pub(super) hop_us: ByStack,
    pub(super) rendezvous_us: ByStack,
    pub(super) long_rendezvous_us: ByStack,
}

/// The values of the table by physical effect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PhysicalEffects {
    pub(super) efficiency: Efficiencies,
    pub(super) staged: StagedParts,
    pub(super) start_us: ByAge,
    pub(super) spread_us: ByAge,
    pub(super) channel_us: ByAge,
    pub(super) startup_us: ByAge,
    pub(super) ll_gbps: ByAge,
    pub(super) ll_channel_gbps: ByAge,
    pub(super) ll128_channel_gbps: ByAge,
    pub(super) last_step: LastStepEffects,
    pub(super) ramp: RampEffects,
    pub(super) send: SendEffects,
    pub(super) hop_us: ByProtocol<HopEffects>,
    pub(super) nvls: NvlsEffects,
    pub(super) launch: LaunchEffects,
    pub(super) network: NetworkEffects,
}

/// A value for every row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Constants {
    by_name: BTreeMap<&'static str, f64>,
    pub(super) effects: PhysicalEffects,
}

impl Constants {
    /// Returns the values of the table.
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<Constants> = LazyLock::new(|| {
            Constants::of(all().iter().map(|constant| (constant.name.as_str(), constant.value)).collect())
        });
        SHIPPED.clone()
    }

    fn of(by_name: BTreeMap<&'static str, f64>) -> Self {
        let effects = nested(&by_name).try_into().expect("a test reads the table that is shipped");
        Self { by_name, effects }
    }

    /// Returns the values with some replaced: what a fit tries.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a name that the table lacks; [`Error::Description`] for a value that is no positive number.
    pub fn with<'a>(mut self, values: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self> {
        for (name, value) in values {
            let Some(place) = self.by_name.get_mut(name) else {
                let known = self.by_name.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(Error::Unknown { kind: "constant", name: name.to_owned(), known });
            };
            if !(value.is_finite() && value > 0.0) {
                let message = format!("{name} is {value}: pass a number above zero");
                return Err(Error::Description { origin: "constants".to_owned(), message });
            }
            *place = value;
        }
        Ok(Self::of(self.by_name))
    }
}

/// Returns values as tables in tables: a dot in a name leads to the next.
fn nested(by_name: &BTreeMap<&'static str, f64>) -> toml::Table {
    let mut tables = toml::Table::new();
    for (name, &value) in by_name {
        let (mut table, mut rest) = (&mut tables, *name);
        while let Some((outer, inner)) = rest.split_once('.') {
            let below = table.entry(outer).or_insert_with(|| toml::Table::new().into());
            (table, rest) = (below.as_table_mut().expect("no name is the beginning of another"), inner);
        }
        table.insert(rest.to_owned(), value.into());
    }
    tables
}
