//! The environment variables that change NCCL's choice, or the times of sends and of NVLS.
//!
//! ```text
//! (NCCL_ALGO, allreduce:tree,ring;broadcast:ring) ─┐
//! (NCCL_MAX_CTAS, 8)                               ├─▶ NcclSettings ─▶ Model::with_settings   the choice
//! (NCCL_P2P_NET_CHUNKSIZE, 524288)                 ┘               └─▶ Predictor::of          the time
//! ```
//!
//! NCCL ignores unknown names and most wrong values: it reads `4M` as 4 bytes. nvcoll raises an error for each, and for a variable
//! that the version does not read.
//!
//! **Sources.** github.com/NVIDIA/nccl, all tags from v2.8.4-1 to v2.30.7-1: the lists, src/graph/tuning.cc (`parseList`); what
//! they leave, src/graph/tuning.cc and src/enqueue.cc ([`AlgoRule`]); numbers, src/misc/param.cc; levels, src/graph/paths.cc
//! (`ncclGetLevel`); channels, src/graph/connect.cc and src/init.cc; NVLS, src/transport/nvls.cc.
//!
//! **What is not here.** Every other variable, among them NCCL_NTHREADS, which changes no choice; files (NCCL_CONF_FILE,
//! NCCL_GRAPH_FILE).

use std::collections::BTreeMap;

use super::names::{AlgoRule, Function, NcclAlgorithm, PathClass, Protocol};
use crate::error::{Error, Result};
use crate::tables;

/// The settings of a run of NCCL. None, or [`CrossNic::IfFaster`], where the environment does not have the variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NcclSettings {
    /// The variables that were given, and whether they have another value than their default.
    given: BTreeMap<&'static str, bool>,
    algorithms: Option<AllowList<NcclAlgorithm>>,
    protocols: Option<AllowList<Protocol>>,
    /// NCCL_NVLS_ENABLE: whether NVLS may be used.
    pub nvls: Option<bool>,
    /// NCCL_NVLS_NCHANNELS: the channels of NVLS.
    pub nvls_channels: Option<u32>,
    /// NCCL_NVLS_CHUNKSIZE: the largest chunk of NVLS.
    pub nvls_chunk_bytes: Option<u64>,
    /// NCCL_CROSS_NIC.
    pub cross_nic: CrossNic,
    /// NCCL_MIN_CTAS, NCCL_MAX_CTAS: bounds of the channels of every algorithm.
    pub min_ctas: Option<u32>,
    /// See `min_ctas`.
    pub max_ctas: Option<u32>,
    /// NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS: bounds of the channels of rings and trees.
    pub min_channels: Option<u32>,
    /// See `min_channels`.
    pub max_channels: Option<u32>,
    /// NCCL_BUFFSIZE: the buffer of a channel under Simple, eight times the step of a transfer.
    pub buffer_bytes: Option<u64>,
    /// NCCL_P2P_NET_CHUNKSIZE: the chunk of a send to another node.
    pub p2p_net_chunk_bytes: Option<u64>,
    /// NCCL_P2P_NVL_CHUNKSIZE: the chunk of a send over NVLink.
    pub p2p_nvl_chunk_bytes: Option<u64>,
    /// NCCL_P2P_PCI_CHUNKSIZE: the chunk of a send inside a node without NVLink.
    pub p2p_pci_chunk_bytes: Option<u64>,
    /// NCCL_MIN_P2P_NCHANNELS, NCCL_MAX_P2P_NCHANNELS: bounds of the channels of all sends.
    pub min_p2p_channels: Option<u32>,
    /// See `min_p2p_channels`.
    pub max_p2p_channels: Option<u32>,
    /// NCCL_NCHANNELS_PER_NET_PEER: the channels of the sends to a peer in another node.
    pub channels_per_net_peer: Option<u32>,
    /// NCCL_P2P_LEVEL: the furthest path on which GPUs reach each other's memory; [`PathClass::Local`] by NCCL_P2P_DISABLE=1.
    pub p2p_level: Option<PathClass>,
    /// NCCL_NET_GDR_LEVEL: the furthest path between a GPU and a network card that reaches its memory.
    pub gdr_level: Option<PathClass>,
    /// NCCL_PXN_DISABLE: whether GPUs send to the network by their own path only.
    pub is_pxn_disabled: bool,
}

/// The network cards by which a channel leaves a node: NCCL_CROSS_NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CrossNic {
    /// 0: the card by which it came.
    Never,
    /// 1: any card.
    Always,
    /// 2: another card where that is faster.
    #[default]
    IfFaster,
}

/// A variable that is known.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The first version of NCCL that reads it, not before 2.8.4.
    pub since: [u32; 3],
    /// Its values.
    pub values: &'static str,
    /// Its default, if that is one number for all versions and machines.
    pub default: Option<u64>,
    /// What it changes.
    pub changes: &'static str,
    set: fn(&mut NcclSettings, &'static str, &str) -> Result<()>,
}

/// Makes the setter of a field that is a whole number from 1.
macro_rules! number {
    ($field:ident) => {
        |settings, name, text| {
            settings.$field = Some(whole(name, text)?);
            Ok(())
        }
    };
}

/// Makes the setter of a field that is a number of bytes from `least` on.
macro_rules! bytes {
    ($field:ident, $least:expr) => {
        |settings, name, text| {
            let value = whole(name, text)?;
            if value < $least {
                return Err(wrong(name, format!("`{text}` is too short: pass {} bytes or more", $least)));
            }
            settings.$field = Some(value);
            Ok(())
        }
    };
}

const FIRST: [u32; 3] = [2, 8, 4];
const COUNT: &str = "a whole number from 1";
const LEVEL_NAMES: &str = "LOC, NVL, NVB, PIX, PXB, PHB, SYS; 0 to 5";
const CHUNK: &str = "bytes, from 16384";
const BUFFER: &str = "bytes, from 131072";

/// Chosen: the least bytes of a chunk, and of a buffer of eight of them. Shorter ones cost more than the closed forms know.
const LEAST_CHUNK: u64 = 16 << 10;
const LEAST_BUFFER: u64 = 8 * LEAST_CHUNK;

/// Every variable that is known.
#[rustfmt::skip] // one row per variable
pub const VARIABLES: [Variable; 21] = [
    Variable { name: "NCCL_ALGO", since: FIRST, values: "`tree,ring`; `^ring`; `allreduce:tree;broadcast:ring`", default: None, changes: "the algorithms among which NCCL chooses", set: set_algorithms },
    Variable { name: "NCCL_PROTO", since: FIRST, values: "`ll,simple`; `^ll128`; `allreduce:ll`", default: None, changes: "the protocols among which NCCL chooses", set: set_protocols },
    Variable { name: "NCCL_NVLS_ENABLE", since: [2, 17, 1], values: "0, 1, 2", default: Some(2), changes: "0: no NVLS and no NVLSTree", set: set_nvls },
    Variable { name: "NCCL_NVLS_NCHANNELS", since: [2, 17, 1], values: COUNT, default: None, changes: "the channels of NVLS", set: number!(nvls_channels) },
    Variable { name: "NCCL_NVLS_CHUNKSIZE", since: [2, 21, 5], values: CHUNK, default: None, changes: "the largest chunk of NVLS", set: bytes!(nvls_chunk_bytes, LEAST_CHUNK) },
    Variable { name: "NCCL_CROSS_NIC", since: FIRST, values: "0, 1, 2", default: Some(2), changes: "the network cards by which a channel leaves a node", set: set_cross_nic },
    Variable { name: "NCCL_MIN_CTAS", since: [2, 17, 1], values: COUNT, default: None, changes: "the minimum channels", set: number!(min_ctas) },
    Variable { name: "NCCL_MAX_CTAS", since: [2, 17, 1], values: COUNT, default: None, changes: "the maximum channels", set: number!(max_ctas) },
    Variable { name: "NCCL_MIN_NCHANNELS", since: FIRST, values: COUNT, default: None, changes: "the minimum channels of rings and trees", set: number!(min_channels) },
    Variable { name: "NCCL_MAX_NCHANNELS", since: FIRST, values: COUNT, default: None, changes: "the maximum channels of rings and trees", set: number!(max_channels) },
    Variable { name: "NCCL_BUFFSIZE", since: FIRST, values: BUFFER, default: None, changes: "the buffer of a channel under Simple", set: bytes!(buffer_bytes, LEAST_BUFFER) },
    Variable { name: "NCCL_P2P_NET_CHUNKSIZE", since: [2, 14, 3], values: CHUNK, default: Some(131072), changes: "the chunk of a send to another node", set: bytes!(p2p_net_chunk_bytes, LEAST_CHUNK) },
    Variable { name: "NCCL_P2P_NVL_CHUNKSIZE", since: [2, 16, 2], values: CHUNK, default: Some(524288), changes: "the chunk of a send over NVLink", set: bytes!(p2p_nvl_chunk_bytes, LEAST_CHUNK) },
    Variable { name: "NCCL_P2P_PCI_CHUNKSIZE", since: [2, 16, 2], values: CHUNK, default: Some(131072), changes: "the chunk of a send over PCIe", set: bytes!(p2p_pci_chunk_bytes, LEAST_CHUNK) },
    Variable { name: "NCCL_MIN_P2P_NCHANNELS", since: FIRST, values: COUNT, default: Some(1), changes: "the minimum channels of sends", set: number!(min_p2p_channels) },
    Variable { name: "NCCL_MAX_P2P_NCHANNELS", since: FIRST, values: COUNT, default: None, changes: "the maximum channels of sends", set: number!(max_p2p_channels) },
    Variable { name: "NCCL_NCHANNELS_PER_NET_PEER", since: [2, 12, 7], values: COUNT, default: None, changes: "the channels of sends to one peer in another node", set: number!(channels_per_net_peer) },
    Variable { name: "NCCL_P2P_LEVEL", since: FIRST, values: LEVEL_NAMES, default: None, changes: "the longest path with peer access", set: set_p2p_level },
    Variable { name: "NCCL_P2P_DISABLE", since: FIRST, values: "0, 1", default: Some(0), changes: "1: all traffic between GPUs passes host memory", set: set_p2p_disable },
    Variable { name: "NCCL_NET_GDR_LEVEL", since: FIRST, values: LEVEL_NAMES, default: None, changes: "the longest path between a GPU and a network card that uses GPUDirect RDMA; LOC: none", set: set_gdr_level },
    Variable { name: "NCCL_PXN_DISABLE", since: [2, 12, 7], values: "0, 1", default: Some(0), changes: "1: no GPU sends over the network card of another", set: set_pxn },
];

/// Every level of NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL. The numbers from 0 are old names of those in `OLD_LEVELS`.
const LEVELS: [(&str, PathClass); 7] = [
    ("LOC", PathClass::Local),
    ("NVL", PathClass::Nvl),
    ("NVB", PathClass::Nvb),
    ("PIX", PathClass::Pix),
    ("PXB", PathClass::Pxb),
    ("PHB", PathClass::Phb),
    ("SYS", PathClass::Sys),
];
const OLD_LEVELS: [PathClass; 6] =
    [PathClass::Local, PathClass::Pix, PathClass::Pxb, PathClass::Phb, PathClass::Sys, PathClass::Sys];

impl NcclSettings {
    /// Reads variables: names and values as in the environment. The last value of a name holds.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a name that is not known, or an algorithm, protocol or collective that NCCL does not have;
    /// [`Error::Setting`] for a value that NCCL would not read as it stands.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut settings = Self::default();
        let mut disables_p2p = false;
        for (name, value) in variables {
            let found = tables::named("setting of NCCL", name, &VARIABLES, |variable| variable.name)?;
            (found.set)(&mut settings, found.name, value)?;
            if found.name == "NCCL_P2P_DISABLE" {
                disables_p2p = unsigned(value) == Some(1);
            }
            settings.given.insert(found.name, found.default.is_none() || unsigned(value) != found.default);
        }
        // It outranks the level.
        if disables_p2p {
            settings.p2p_level = Some(PathClass::Local);
        }
        Ok(settings)
    }

    /// Returns the names of the variables that were given, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.given.keys().copied()
    }

    /// Says whether a variable was given with another value than its default.
    pub fn differs(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|&differs| differs)
    }

    /// Checks that a version reads every variable.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn check(&self, tag: &str, version: &[u32]) -> Result<()> {
        let given = VARIABLES.iter().filter(|variable| self.given.contains_key(variable.name));
        for variable in given {
            if *version < variable.since[..] {
                let since = variable.since.map(|number| number.to_string()).join(".");
                return Err(wrong(variable.name, format!("NCCL {tag} does not read it: NCCL has it since {since}")));
            }
        }
        let of_function = self.algorithms.as_ref().is_some_and(|list| list.is_by_function);
        if (of_function || self.protocols.as_ref().is_some_and(|list| list.is_by_function)) && *version < [2, 24][..] {
            let name = if of_function { "NCCL_ALGO" } else { "NCCL_PROTO" };
            return Err(wrong(name, format!("NCCL {tag} has no list for one collective: NCCL has them since 2.24")));
        }
        Ok(())
    }

    /// Returns the channels of rings and trees. NCCL would lay `channels` by itself, and at most `most`.
    pub fn ring_channels(&self, channels: u32, most: u32) -> u32 {
        let upper = self.max_channels.unwrap_or(most).min(self.max_ctas.unwrap_or(most)).min(most);
        let least_ctas = self.min_ctas.unwrap_or(1).min(self.max_ctas.unwrap_or(most));
        channels.min(upper).max(self.min_channels.unwrap_or(1).max(least_ctas).min(most))
    }

    /// Returns the channels of NVLS. The version has `channels`, and at most `most`.
    pub fn channels_of_nvls(&self, channels: u32, most: u32) -> u32 {
        let upper = self.max_ctas.unwrap_or(most).min(most);
        self.nvls_channels.unwrap_or(channels).min(upper).max(self.min_ctas.unwrap_or(1).min(upper))
    }

    /// Says whether the lists leave a protocol to a collective; none if they do not say.
    pub(super) fn allows_protocol(&self, function: Function, protocol: Protocol) -> Option<bool> {
        self.protocols.as_ref()?.allows(function, protocol)
    }

    /// Says whether the lists leave an algorithm to a collective, on `nodes` nodes.
    pub(super) fn allows_algorithm(
        &self,
        rule: AlgoRule,
        function: Function,
        algorithm: NcclAlgorithm,
        nodes: u32,
    ) -> bool {
        let is_named = |other| self.algorithms.as_ref().is_none_or(|list| list.allows(function, other).unwrap_or(true));
        let is_of_all_reduce = function == Function::AllReduce;
        if rule <= AlgoRule::AllReduceOnly && !is_of_all_reduce {
            return true;
        }
        if matches!(rule, AlgoRule::RingStaysBesideNvls | AlgoRule::RingStays)
            && !is_of_all_reduce
            && algorithm == NcclAlgorithm::Ring
        {
            return true;
        }
        // Who names only what the machine cannot do gets rings and trees.
        let is_basic = |one: NcclAlgorithm| matches!(one, NcclAlgorithm::Ring | NcclAlgorithm::Tree);
        let counts = |one: NcclAlgorithm| match one {
            NcclAlgorithm::Nvls => rule > AlgoRule::RingStaysBesideNvls && nodes == 1,
            NcclAlgorithm::NvlsTree => rule > AlgoRule::RingStaysBesideNvls && nodes > 1,
            one => is_basic(one),
        };
        let falls_back = rule < AlgoRule::ByFunction && is_basic(algorithm);
        is_named(algorithm) || falls_back && !NcclAlgorithm::ALL.into_iter().any(|one| counts(one) && is_named(one))
    }
}

/// The elements that NCCL_ALGO or NCCL_PROTO leave to each function; none for a function that they do not name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AllowList<T> {
    allowed: [Option<Vec<T>>; Function::ALL.len()],
    /// Whether a list names its function.
    is_by_function: bool,
}

impl<T: Copy + PartialEq> AllowList<T> {
    /// Reads `tree,ring`, `^ring` or `ring;allreduce:tree;broadcast:^ring`. `named` finds an element of `all`; none of one that
    /// NCCL has and the model has not.
    fn of(variable: &'static str, text: &str, all: &[T], named: impl Fn(&str) -> Result<Option<T>>) -> Result<Self> {
        let mut list = Self { allowed: Default::default(), is_by_function: false };
        for (number, entry) in text.split(';').enumerate() {
            let (function, elements) = match entry.split_once(':') {
                Some((function, elements)) => (Some(function_named(function)?), elements),
                None if number == 0 => (None, entry),
                None => return Err(wrong(variable, format!("`{entry}` needs a collective: allreduce:{entry}"))),
            };
            let (is_without, elements) =
                elements.strip_prefix('^').map_or((false, elements), |elements| (true, elements));
            let listed = elements.split(',').map(&named).collect::<Result<Vec<_>>>()?;
            let is_allowed = |one: &&T| listed.contains(&Some(**one)) != is_without;
            let allowed: Vec<T> = all.iter().filter(is_allowed).copied().collect();
            list.is_by_function |= function.is_some();
            for of in Function::ALL.into_iter().filter(|of| function.is_none_or(|function| function == *of)) {
                list.allowed[of as usize] = Some(allowed.clone());
            }
        }
        Ok(list)
    }

    fn allows(&self, function: Function, element: T) -> Option<bool> {
        self.allowed[function as usize].as_ref().map(|allowed| allowed.contains(&element))
    }
}

/// The algorithms of NCCL that the model does not have: SHARP's.
const COLLNET: [&str; 3] = ["CollNetDirect", "CollNetChain", "CollNet"];

fn set_algorithms(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    let named = |one: &str| match COLLNET.iter().any(|known| known.eq_ignore_ascii_case(one)) {
        true => Ok(None),
        false => NcclAlgorithm::named(one).map(Some),
    };
    settings.algorithms = Some(AllowList::of(name, text, &NcclAlgorithm::ALL, named)?);
    Ok(())
}

fn set_protocols(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    let named = |one: &str| Protocol::named(one).map(Some);
    settings.protocols = Some(AllowList::of(name, text, &Protocol::ALL, named)?);
    Ok(())
}

fn set_nvls(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    settings.nvls = Some(one_of(name, text, 2)? > 0);
    Ok(())
}

fn set_cross_nic(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    let all = [CrossNic::Never, CrossNic::Always, CrossNic::IfFaster];
    settings.cross_nic = all[one_of(name, text, 2)? as usize];
    Ok(())
}

fn set_p2p_level(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    settings.p2p_level = Some(level(name, text)?);
    Ok(())
}

fn set_gdr_level(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    settings.gdr_level = Some(level(name, text)?);
    Ok(())
}

fn level(name: &'static str, text: &str) -> Result<PathClass> {
    let named = LEVELS.iter().find(|(level, _)| *level == text).map(|(_, class)| *class);
    let old = || OLD_LEVELS.get(text.parse::<usize>().ok()?).copied();
    let names = LEVELS.map(|(level, _)| level).join(", ");
    named.or_else(old).ok_or_else(|| wrong(name, format!("`{text}` is no level: pass one of {names}")))
}

fn set_p2p_disable(_: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    one_of(name, text, 1).map(|_| ())
}

fn set_pxn(settings: &mut NcclSettings, name: &'static str, text: &str) -> Result<()> {
    settings.is_pxn_disabled = one_of(name, text, 1)? == 1;
    Ok(())
}

fn wrong(variable: &'static str, message: String) -> Error {
    Error::Setting { variable, message }
}

fn function_named(name: &str) -> Result<Function> {
    let plain = |function: Function| function.collective().name.replace('_', "");
    let found = Function::ALL.into_iter().find(|&function| plain(function).eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::Unknown {
        kind: "collective of NCCL",
        name: name.to_owned(),
        known: Function::ALL.map(plain).join(", "),
    })
}

/// Reads a whole number from 0 as C does: decimal, hexadecimal after `0x`, octal after `0`.
fn unsigned(text: &str) -> Option<u64> {
    let is_plain = text.starts_with(|first: char| first.is_ascii_digit());
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok().filter(|_| is_plain && !digits.starts_with('+'))
}

fn whole<T: TryFrom<u64>>(variable: &'static str, text: &str) -> Result<T> {
    let number = unsigned(text).filter(|&number| number > 0).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| wrong(variable, format!("`{text}` is no whole number from 1, without a unit")))
}

/// Reads a whole number from 0 to `last`.
fn one_of(variable: &'static str, text: &str, last: u64) -> Result<u64> {
    let known = (0..=last).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let number = unsigned(text).filter(|&number| number <= last);
    number.ok_or_else(|| wrong(variable, format!("`{text}` is no value of it: pass one of {known}")))
}
