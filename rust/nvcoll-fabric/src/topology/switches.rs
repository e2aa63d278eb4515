//! The switches of a network: tier after tier, from the cards up.
//!
//! ```text
//! nodes ─▶ groups of the first tier ─▶ groups of the second ─▶ … ─▶ one group           a group has planes: one for each
//!          leaf0 leaf1 …               spine0 spine1 …              core                rail, or one for all rails
//! ```
//!
//! The top of a plane are its switches that take links from above. Links up are the links of a full group, as a network is
//! built; so a group that is not full has more of them for each node. The links of a mesh or torus are dealt out to the tops
//! of a child in turn, as in a dragonfly, whose routers have a few links each to other groups. A tier of switches above a
//! single switch is left out.

use std::collections::{BTreeMap, HashSet};

use crate::error::Result;
use crate::hardware::media::Medium;
use crate::hardware::network::{Ecmp, JoinedBy, Network, Tier};
use crate::hardware::{Device, DeviceKind, Fabric};

/// Chosen: more links than a network with the largest number of nodes.
const MOST_LINKS: u64 = 1 << 20;

/// What joins the nodes of a cluster.
pub(crate) struct Joined {
    /// For each node and rail, the switch at which its cards hang.
    pub(crate) leaves: Vec<Vec<usize>>,
    /// Whether bytes reach every rail from every other over switches.
    pub(crate) has_joined_rails: bool,
}

/// A group of nodes that switches join.
struct SwitchGroup {
    /// For each plane, the switches that take links from above.
    tops: Vec<Vec<usize>>,
    /// Gbit/s that such a switch has down, of a full group.
    down_gbit: f64,
}

impl Fabric {
    /// Adds the switches and their links to a fabric that has no devices yet. A node has `trays` times the cards of the
    /// network.
    ///
    /// # Errors
    /// [`crate::Error::Description`] with the field that is wrong.
    pub(crate) fn add_switches(&mut self, network: &Network, nodes: u32, trays: u32) -> Result<Joined> {
        let (first, rest) = network.tiers.split_first().expect("checked: there is a tier");
        let gbit = network.port().lane_gbps * 8.0;
        let planes = if first.rails { network.nics } else { 1 };
        let children = first.children.unwrap_or(nodes);
        let ports = f64::from(trays) * f64::from(network.ports) * f64::from(network.nics / planes);
        let down_gbit = f64::from(children) * ports * gbit;
        let count = nodes.div_ceil(children);
        let groups: Vec<SwitchGroup> = (0..count)
            .map(|group| {
                let name = |plane: u32| name_of(first, 0, [(group, count), (plane, planes), (0, 1)]);
                let tops = (0..planes).map(|plane| vec![self.add_switch(name(plane), 1)]).collect();
                SwitchGroup { tops, down_gbit }
            })
            .collect();
        let leaf = |node: u32, rail: u32| groups[(node / children) as usize].tops[(rail % planes) as usize][0];
        let leaves = (0..nodes).map(|node| (0..network.nics).map(|rail| leaf(node, rail)).collect()).collect();
        let mut top = groups;
        for (nth, tier) in rest.iter().enumerate().map(|(nth, tier)| (nth + 1, tier)) {
            let is_one = top.len() == 1 && top[0].tops.len() == 1 && top[0].tops[0].len() == 1;
            if !(is_one && tier.joins == JoinedBy::Switches) {
                top = match tier.joins {
                    JoinedBy::Switches => self.add_tier(network, nth, top)?,
                    JoinedBy::Mesh => self.join_all(network, nth, top)?,
                    JoinedBy::Torus => self.join_neighbours(network, nth, top)?,
                };
            }
        }
        if top.len() > 1 {
            let held = network.tiers.iter().fold(1u64, |held, tier| {
                let children = tier.children.or_else(|| tier.dims.iter().copied().reduce(|all, length| all * length));
                held.saturating_mul(children.map_or(1, u64::from))
            });
            let message = format!("they hold {held} nodes, not {nodes}: raise `children`, or add a tier");
            return Err(network.wrong("tiers", &message));
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.devices.iter().find(|switch| !names.insert(&switch.name)) {
            let message = format!("two switches are called {}: name the switches of each tier", twice.name);
            return Err(network.wrong("tiers", &message));
        }
        Ok(Joined { leaves, has_joined_rails: top[0].tops.len() == 1 })
    }

    /// Says whether it has more switches than a shipped network: more than leaves that one spine joins, or leaves
    /// with less rate to it than to the cards.
    pub(crate) fn has_tiers(&self) -> bool {
        let is_switch = |at: usize| self.devices[at].kind == DeviceKind::NetworkSwitch;
        let mut rates: BTreeMap<usize, (u64, u64)> =
            self.of_kind(DeviceKind::NetworkSwitch).map(|at| (at, (0, 0))).collect();
        for link in self.links.iter().filter(|link| is_switch(link.from)) {
            let (up, down) = rates.entry(link.from).or_default();
            *(if is_switch(link.to) { up } else { down }) += link.rate().0;
        }
        let spines = rates.values().filter(|(_, down)| *down == 0).count();
        rates.len() > 1 && (spines != 1 || rates.values().any(|(up, down)| *down > 0 && up < down))
    }

    fn add_switch(&mut self, name: String, chips: u32) -> usize {
        self.devices.push(Device { chips, ..Device::new(name, DeviceKind::NetworkSwitch, None) });
        self.devices.len() - 1
    }

    /// Adds a tier of switches above groups.
    fn add_tier(&mut self, network: &Network, nth: usize, below: Vec<SwitchGroup>) -> Result<Vec<SwitchGroup>> {
        let (tier, under) = (&network.tiers[nth], &network.tiers[nth - 1]);
        let medium = network.link_of(under);
        let uplinks = uplinks(network, nth - 1, below[0].down_gbit, medium)?;
        let chips = tier.switches.unwrap_or(1);
        let parallel = if network.ecmp == Ecmp::Static { chips } else { 1 };
        if !uplinks.is_multiple_of(parallel) {
            let message = format!("{uplinks} links of a switch are not shared evenly by {parallel} switches above");
            return Err(network.wrong(&format!("tiers[{nth}].switches"), &message));
        }
        let planes = if tier.rails { below[0].tops.len() } else { 1 };
        let children = tier.children.map_or(below.len(), |children| children as usize);
        let tops = below[0].tops.len() / planes * below[0].tops[0].len();
        let down_gbit = (children * tops) as f64 * f64::from(uplinks) * medium.lane_gbps * 8.0 / f64::from(parallel);
        limited(network, nth, below.len() as u64 * (tops * planes) as u64 * u64::from(parallel))?;
        let count = below.len().div_ceil(children) as u32;
        let mut groups: Vec<SwitchGroup> = Vec::with_capacity(count as usize);
        for group in 0..count {
            let mut switch_of = |plane: usize, nth_switch: u32| {
                let places = [(group, count), (plane as u32, planes as u32), (nth_switch, parallel)];
                self.add_switch(name_of(tier, nth, places), chips / parallel)
            };
            let tops = (0..planes).map(|plane| (0..parallel).map(|nth| switch_of(plane, nth)).collect()).collect();
            groups.push(SwitchGroup { tops, down_gbit });
        }
        for (position, child) in below.iter().enumerate() {
            for (plane, switches) in child.tops.iter().enumerate() {
                for &switch in switches {
                    for &above in &groups[position / children].tops[plane % planes] {
                        self.join(switch, above, medium, uplinks / parallel);
                    }
                }
            }
        }
        Ok(groups)
    }

    /// Joins every two children of a group.
    fn join_all(&mut self, network: &Network, nth: usize, below: Vec<SwitchGroup>) -> Result<Vec<SwitchGroup>> {
        let tier = &network.tiers[nth];
        let full = tier.children.map_or(below.len(), |children| children as usize);
        let links = tier.links.unwrap_or(1) as usize;
        let pairs = |members: &[SwitchGroup]| (members.len() * (members.len() - 1) / 2) as u64;
        limited(network, nth, below.chunks(full).map(pairs).sum::<u64>() * links as u64 * below[0].tops.len() as u64)?;
        let neighbours = |members: usize| {
            let pairs = (0..members).flat_map(move |a| (a + 1..members).map(move |b| (a, b)));
            // The nearest in one direction has the first links of a child, as its ports are numbered.
            pairs.map(|(a, b)| (a, b, b - a - 1, full - (b - a) - 1)).collect()
        };
        self.join_by_links(network, nth, below, full, neighbours)
    }

    /// Joins the children of a group to their neighbours along each dimension.
    fn join_neighbours(&mut self, network: &Network, nth: usize, below: Vec<SwitchGroup>) -> Result<Vec<SwitchGroup>> {
        let dims: Vec<usize> = network.tiers[nth].dims.iter().map(|&length| length as usize).collect();
        let full = dims.iter().product();
        if !below.len().is_multiple_of(full) {
            let shape = dims.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
            let message = format!("a torus of {shape} has {full} children, and there are {}", below.len());
            return Err(network.wrong(&format!("tiers[{nth}].dims"), &message));
        }
        let links = u64::from(network.tiers[nth].links.unwrap_or(1));
        limited(network, nth, (below.len() * dims.len() * below[0].tops.len()) as u64 * links)?;
        let neighbours = |members: usize| {
            let mut found = Vec::new();
            let mut stride = 1;
            for (dim, &length) in dims.iter().enumerate() {
                for member in 0..members {
                    let at = member / stride % length;
                    let is_closing = at + 1 == length;
                    // A ring of two has one link, not two between the same ends.
                    if length > 1 && !(is_closing && length == 2) {
                        let next = if is_closing { member - at * stride } else { member + stride };
                        found.push((member, next, 2 * dim, 2 * dim + 1));
                    }
                }
                stride *= length;
            }
            found
        };
        self.join_by_links(network, nth, below, full, neighbours)
    }

    /// Joins children of a group by links of their own. `neighbours` has two children, and for each the place of their
    /// links among its own.
    fn join_by_links(
        &mut self,
        network: &Network,
        nth: usize,
        below: Vec<SwitchGroup>,
        full: usize,
        neighbours: impl Fn(usize) -> Vec<(usize, usize, usize, usize)>,
    ) -> Result<Vec<SwitchGroup>> {
        let tier = &network.tiers[nth];
        let (medium, links) = (network.link_of(tier), tier.links.unwrap_or(1) as usize);
        let mut groups = Vec::new();
        for members in below.chunks(full) {
            let planes = members[0].tops.len();
            let mut lanes: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            for (a, b, of_a, of_b) in neighbours(members.len()) {
                for plane in 0..planes {
                    for link in 0..links {
                        let end = |member: usize, place: usize| {
                            let tops = &members[member].tops[plane];
                            tops[(place * links + link) % tops.len()]
                        };
                        *lanes.entry((end(a, of_a), end(b, of_b))).or_default() += 1;
                    }
                }
            }
            lanes.into_iter().for_each(|((a, b), lanes)| self.join(a, b, medium, lanes));
            let all = |plane: usize| members.iter().flat_map(|member| member.tops[plane].clone()).collect();
            groups.push(SwitchGroup { tops: (0..planes).map(all).collect(), down_gbit: members[0].down_gbit });
        }
        Ok(groups)
    }
}

/// Returns the number of links from a switch of a tier to the tier above.
fn uplinks(network: &Network, nth: usize, down_gbit: f64, medium: &Medium) -> Result<u32> {
    let tier = &network.tiers[nth];
    if let Some(uplinks) = tier.uplinks {
        return Ok(uplinks);
    }
    let links = down_gbit / tier.oversubscription.unwrap_or(1.0) / (medium.lane_gbps * 8.0);
    let whole = links.round();
    if whole < 1.0 || whole > f64::from(u32::MAX) || (links - whole).abs() > 1e-6 * whole {
        let message = format!("it makes {links:.3} links of a switch to the tier above: give `uplinks`");
        return Err(network.wrong(&format!("tiers[{nth}].oversubscription"), &message));
    }
    Ok(whole as u32)
}

fn limited(network: &Network, nth: usize, links: u64) -> Result<()> {
    match links > MOST_LINKS {
        true => Err(network.wrong(&format!("tiers[{nth}]"), &format!("it has {links} links: at most {MOST_LINKS}"))),
        false => Ok(()),
    }
}

/// Names a switch by its tier and its places among groups, planes and parallel switches.
fn name_of(tier: &Tier, nth: usize, places: [(u32, u32); 3]) -> String {
    let usual = match nth {
        0 if tier.rails => "rail",
        0 => "leaf",
        1 => "spine",
        2 => "core",
        _ => "top",
    };
    let shown: Vec<String> =
        places.iter().filter(|(_, count)| *count > 1).map(|(place, _)| place.to_string()).collect();
    // The one rail of a node with one card is numbered, too.
    let is_rail = nth == 0 && tier.rails && shown.is_empty();
    format!("{}{}", tier.name.as_deref().unwrap_or(usual), if is_rail { "0".to_owned() } else { shown.join("-") })
}
