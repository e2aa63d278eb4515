//! Networks between nodes: what a node has of one, and the switches above.
//!
//! ```toml
//! name = "fat-tree-2to1"
//! title = "2-level fat tree on rails, 2:1"
//! source = "..."
//! medium = "ib-ndr"             a shipped medium: rate, efficiency, latency, and the software that `predict` assumes
//! port_gbit = 300               another rate of a port; also `efficiency`, `latency_ns`
//! nics = 8                      network cards per node, or per tray of a rack
//! ports = 1                     per card
//! host_medium = "pcie5"         behind a card
//! host_lanes = 16
//! ecmp = "static"               parallel switches are devices of their own, and a flow takes one; otherwise all share evenly
//!
//! [[tiers]]                     from the cards up; without any, a switch for each rail and a non-blocking spine
//! rails = true                  card k of every node at switch k; otherwise all cards of a node at one switch
//! children = 16                 nodes below one group of switches; in further tiers, groups of the tier below
//! uplinks = 8                   links from one switch up, or `oversubscription = 2`; default: no oversubscription
//!
//! [[tiers]]
//! switches = 4                  parallel switches of a group; on each rail, if `rails`
//! ```
//!
//! A tier joins its children by switches above them, by a `mesh` (links between every two) or by a `torus` (links along
//! `dims`). These and their order describe the networks that people build:
//!
//! | network | tiers |
//! |---|---|
//! | fat tree | switches, switches, switches |
//! | rail-only | switches with rails, and nothing above |
//! | dragonfly | switches, mesh, mesh |
//! | dragonfly+ | switches, switches, mesh |
//! | torus | switches, torus |
//!
//! Sources: Leiserson, 1985 (fat tree); Kim et al., 2008 (dragonfly); Shpiner et al., 2017 (dragonfly+); Wang et al., 2023
//! (rail-only). `switches.rs` builds the switches. Not modelled: adaptive routing, SHARP, switches that drop packets.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::hardware::media::{self, LinkFamily, Medium};
use crate::tables;
use crate::units::Rate;

/// A network between nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What it is called, as `ib-ndr-8`: medium and NICs per node.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// The medium of a port.
    #[serde(serialize_with = "media::by_name")]
    pub medium: &'static Medium,
    /// The rate of a port in Gbit/s, where it is not the medium's.
    pub port_gbit: Option<f64>,
    /// The part of it that a long transfer reaches, where it is not the medium's.
    pub efficiency: Option<f64>,
    /// The nanoseconds until the first byte is across a port's link, where they are not the medium's.
    pub latency_ns: Option<u64>,
    /// How many ports a NIC has.
    #[serde(default = "one")]
    pub ports: u32,
    /// How many NICs a node has, or a tray of a rack.
    pub nics: u32,
    /// The PCIe generation behind a NIC, as a medium.
    #[serde(serialize_with = "media::by_name")]
    pub host_medium: &'static Medium,
    /// Its lanes.
    pub host_lanes: u32,
    /// Whether NICs reach the memory of GPUs; otherwise what they send is staged.
    #[serde(default = "yes")]
    pub gpu_direct: bool,
    /// How flows are spread over parallel switches.
    #[serde(default)]
    pub ecmp: Ecmp,
    /// What joins the cards, from them up.
    #[serde(default = "rails_and_spine")]
    pub tiers: Vec<Tier>,
    /// Where the numbers are from.
    pub source: String,
}

/// How flows are spread over parallel switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecmp {
    /// Every flow over all of them, evenly: packets are sprayed. Parallel switches are one device with their number of chips.
    #[default]
    Ideal,
    /// Every flow over one of them, chosen by a hash of its two GPUs.
    Static,
}

/// A tier of a network: it joins nodes, or groups of the tier below, to larger groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// What its switches are called. Default: rail or leaf, spine, core, top.
    pub name: Option<String>,
    /// By what its children are joined.
    pub joins: JoinedBy,
    /// Whether each rail has switches of its own.
    pub rails: bool,
    /// How many nodes, or groups of the tier below, make a group. Without it, all.
    pub children: Option<u32>,
    /// The number of parallel switches of a group. Default: 1.
    pub switches: Option<u32>,
    /// The number of links from one switch to the tier above.
    pub uplinks: Option<u32>,
    /// Instead of `uplinks`: the rate down from a switch over the rate up. Default: 1.
    pub oversubscription: Option<f64>,
    /// The number of links between two neighbours of a mesh or torus. Default: 1.
    pub links: Option<u32>,
    /// The lengths of the dimensions of a torus.
    pub dims: Vec<u32>,
    /// The rate of a link up, or between neighbours, in Gbit/s. Default: the rate of a port.
    pub link_gbit: Option<f64>,
    /// The latency of such a link in nanoseconds. Default: the latency of a port's link.
    pub latency_ns: Option<u64>,
}

/// By what a tier joins its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// By switches above them.
    #[default]
    Switches,
    /// By links between every two.
    Mesh,
    /// By links to the neighbours in each dimension, closed to rings.
    Torus,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// The network of an empty description: a switch for each rail, and a non-blocking spine.
pub(crate) fn rails_and_spine() -> Vec<Tier> {
    let rails = Tier { name: Some("rail".to_owned()), rails: true, ..Tier::default() };
    vec![rails, Tier { name: Some("spine".to_owned()), ..Tier::default() }]
}

impl Network {
    /// Reads a description in TOML; `origin` is what to call it in errors.
    ///
    /// # Errors
    /// [`Error::Description`] with the line or the field that is wrong.
    pub fn from_text(text: &str, origin: &str) -> Result<Self> {
        let network: Self = tables::read(text, origin)?;
        network.check().map_err(|error| match error {
            Error::Description { message, .. } => Error::Description { origin: origin.to_owned(), message },
            other => other,
        })?;
        Ok(network)
    }

    /// Returns what all NICs of a node send together, at line rate.
    pub fn line_rate(&self) -> Rate {
        Rate::from_gbps(self.port().lane_gbps * f64::from(self.ports * self.nics))
    }

    /// Returns the medium of a port.
    pub(crate) fn port(&self) -> &'static Medium {
        media::altered(self.medium, self.port_gbit, self.efficiency, self.latency_ns)
    }

    /// Returns the medium of the links up from a tier, or between its children.
    pub(crate) fn link_of(&self, tier: &Tier) -> &'static Medium {
        media::altered(self.port(), tier.link_gbit, None, tier.latency_ns)
    }

    pub(crate) fn wrong(&self, field: &str, message: &str) -> Error {
        Error::Description { origin: self.name.clone(), message: format!("{field}: {message}") }
    }

    /// Checks each field by itself, and the tiers against each other.
    ///
    /// # Errors
    /// [`Error::Description`] with the field.
    pub(crate) fn check(&self) -> Result<()> {
        let (host, medium) = (self.host_medium, self.medium);
        if !matches!(host.family, LinkFamily::Pcie | LinkFamily::C2c) {
            return Err(self.wrong("host_medium", &format!("{} joins no card to a host: pcie5 does", host.name)));
        }
        if medium.family != LinkFamily::Network {
            return Err(self.wrong("medium", &format!("{} is no medium of networks", medium.name)));
        }
        self.within("nics", Some(self.nics), 1..=MOST_OF_A_NODE)?;
        self.within("ports", Some(self.ports), 1..=MOST_OF_A_NODE)?;
        self.within("host_lanes", Some(self.host_lanes), 1..=MOST_OF_A_NODE)?;
        self.within("port_gbit", self.port_gbit, LEAST..=MOST_GBIT)?;
        self.within("efficiency", self.efficiency, LEAST..=1.0)?;
        self.within("latency_ns", self.latency_ns, 0..=MOST_NS)?;
        if self.tiers.is_empty() {
            return Err(self.wrong("tiers", "there is none: nodes hang at the switches of the first"));
        }
        self.tiers.iter().enumerate().try_for_each(|(nth, tier)| self.check_tier(nth, tier))
    }

    fn check_tier(&self, nth: usize, tier: &Tier) -> Result<()> {
        let named = |field: &str| format!("tiers[{nth}].{field}");
        let refused = |field: &str, is_there: bool, message: &str| match is_there {
            true => Err(self.wrong(&named(field), message)),
            false => Ok(()),
        };
        self.within(&named("children"), tier.children, 1..=MOST_CHILDREN)?;
        self.within(&named("switches"), tier.switches, 1..=MOST_CHILDREN)?;
        self.within(&named("uplinks"), tier.uplinks, 1..=MOST_CHILDREN)?;
        self.within(&named("links"), tier.links, 1..=MOST_CHILDREN)?;
        self.within(&named("oversubscription"), tier.oversubscription, LEAST..=MOST_GBIT)?;
        self.within(&named("link_gbit"), tier.link_gbit, LEAST..=MOST_GBIT)?;
        self.within(&named("latency_ns"), tier.latency_ns, 0..=MOST_NS)?;
        let is_first = nth == 0;
        let by_switches = tier.joins == JoinedBy::Switches;
        refused("joins", is_first && !by_switches, "nodes hang at switches: the first tier joins by switches")?;
        refused("switches", is_first && tier.switches.is_some(), "a node hangs at one switch of the first tier")?;
        refused("switches", !by_switches && tier.switches.is_some(), "a mesh or torus has no switches of its own")?;
        refused("rails", !by_switches && tier.rails, "a mesh or torus joins the switches below it, rail by rail")?;
        refused("rails", tier.rails && !is_first && !self.has_rails(nth), "the tier below has joined the rails")?;
        refused(
            "links",
            by_switches && tier.links.is_some(),
            "for a mesh or torus; links to the tier above are uplinks",
        )?;
        refused(
            "dims",
            (tier.joins == JoinedBy::Torus) == tier.dims.is_empty(),
            "a torus has dimensions, nothing else",
        )?;
        for &length in &tier.dims {
            self.within(&named("dims"), Some(length), 1..=MOST_CHILDREN)?;
        }
        let product = tier.dims.iter().fold(1u32, |product, &length| product.saturating_mul(length));
        refused("dims", product > MOST_CHILDREN, &format!("more than {MOST_CHILDREN} children"))?;
        refused(
            "children",
            !tier.dims.is_empty() && tier.children.is_some(),
            "the dims of a torus give its number of children",
        )?;
        let is_up = tier.uplinks.is_some() || tier.oversubscription.is_some();
        let field = if tier.uplinks.is_some() { "uplinks" } else { "oversubscription" };
        let above = self.tiers.get(nth + 1);
        refused(field, is_up && above.is_none(), "there is no tier above the last")?;
        let is_above_by_links = above.is_some_and(|above| above.joins != JoinedBy::Switches);
        refused(field, is_up && is_above_by_links, "the tier above joins by links of its own: give it `links`")?;
        refused(
            "oversubscription",
            tier.uplinks.is_some() && tier.oversubscription.is_some(),
            "give this or uplinks, not both",
        )?;
        refused(
            "children",
            tier.children.is_none() && by_switches && above.is_some_and(|above| above.joins != JoinedBy::Switches),
            "how many make a group: the tier above joins groups",
        )
    }

    /// Says whether the tier below still has a switch for each rail.
    fn has_rails(&self, nth: usize) -> bool {
        let mut by_switches = self.tiers[..nth].iter().filter(|tier| tier.joins == JoinedBy::Switches);
        by_switches.next_back().is_some_and(|tier| tier.rails)
    }

    /// Checks that a value, if there is one, lies in a range.
    fn within<T: PartialOrd + Display>(&self, field: &str, value: Option<T>, range: RangeInclusive<T>) -> Result<()> {
        match value.filter(|value| !range.contains(value)) {
            Some(value) => {
                Err(self.wrong(field, &format!("{value}: it must be from {} to {}", range.start(), range.end())))
            }
            None => Ok(()),
        }
    }
}

/// Chosen: more cards, ports or lanes than any node has.
const MOST_OF_A_NODE: u32 = 1024;

/// Chosen: the limit of the GPUs of a cluster.
const MOST_CHILDREN: u32 = 1 << 17;

/// Chosen: more than any port will carry, and less than any.
const MOST_GBIT: f64 = 1e6;
const LEAST: f64 = 1e-3;

/// Chosen: a second.
const MOST_NS: u64 = 1_000_000_000;

/// Returns every network that is shipped.
pub fn networks() -> &'static [Network] {
    static TABLE: LazyLock<Vec<Network>> = LazyLock::new(|| tables::rows(include_str!("networks.toml"), "network"));
    &TABLE
}

/// Finds a network by name.
///
/// # Errors
/// [`Error::Unknown`].
pub fn network(name: &str) -> Result<&'static Network> {
    tables::named("network", name, networks(), |network| &network.name)
}
