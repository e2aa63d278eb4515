//! A machine with a change: what would it be with other links, or other network cards?
//!
//! | change | the machine with it |
//! |---|---|
//! | `nvlink x2`, `network x0.5`, `pcie x2` | the rate of all links of the family is multiplied by the factor |
//! | `nics 4` | nodes, or trays of a rack, with four network cards, spread over their GPUs |
//! | `pcie` | no NVLink: GPUs of a node reach each other over PCIe |
//! | `lanes 8` | slots of GPUs with eight lanes of PCIe |
//! | `gpu a100-sxm-40gb` | another model of GPU with the same links |
//! | `socket epyc x3` | other links between sockets, where a text does not say which they are |
//! | `ram 1024` | hosts, which are nodes or trays of a rack, with 1024 GiB of RAM |
//!
//! All else stays: wider NVLink does not widen the cards, and faster cards do not widen the PCIe behind them. Links inside a node get
//! more lanes, of the same efficiency and latency, and NCCL's model counts more links. Ports of a network get another rate.
//! Source: ours.

use crate::error::{Error, Result};
use crate::hardware::gpus::{self, Gpu};
use crate::hardware::media::{self, LinkFamily, Medium};
use crate::hardware::network::Network;
use crate::hardware::origin::Change;
use crate::hardware::{Abilities, DeviceKind, Fabric, Link};
use crate::topology::cluster::cluster;

impl Fabric {
    /// Returns the machine with a change; its title says what is instead of what.
    ///
    /// # Errors
    /// [`Error::Unable`] for a change that the machine cannot have.
    pub fn changed(&self, change: &Change) -> Result<Fabric> {
        let (mut changed, message) = match *change {
            Change::Pcie => self.over_pcie()?,
            Change::Nics(nics) => self.with_cards(nics)?,
            Change::Lanes(lanes) => self.with_lanes(lanes)?,
            Change::Wider(family, times) => self.widened(family, times)?,
            Change::Model(gpu) => self.with_model(gpu)?,
            Change::Sockets(medium, links) => self.with_sockets(medium, links)?,
            Change::Ram(gib) => (Fabric { ram_gib: Some([gib; 2]), ..self.clone() }, format!("{gib} GiB of RAM")),
        };
        changed.name = format!("{} with {change}", self.name);
        changed.title = format!("{}, with {message}", self.title);
        changed.origin.clone_from(&self.origin);
        changed.origin.changes.push(*change);
        Ok(changed)
    }

    /// Returns the machine with several changes, one after the other.
    ///
    /// # Errors
    /// [`Error::Unable`] for a change that the machine cannot have.
    pub fn with_changes(self, changes: &[Change]) -> Result<Fabric> {
        changes.iter().try_fold(self, |changed, change| changed.changed(change))
    }

    /// Returns the cluster with another number of the same nodes, or one node without the network.
    ///
    /// # Errors
    /// [`Error::Unable`] if the machine is no cluster; the errors of [`cluster`].
    pub fn with_nodes(&self, nodes: u32) -> Result<Fabric> {
        let (node, network) = self.parts()?;
        let is_of_network = |change: &Change| matches!(change, Change::Nics(_) | Change::Wider(LinkFamily::Network, _));
        let changes = self.origin.changes.iter().filter(|change| nodes > 1 || !is_of_network(change));
        let plain = if nodes == 1 { node.clone() } else { cluster(node, nodes, network)? };
        plain.with_changes(&changes.copied().collect::<Vec<_>>())
    }

    /// Returns the node and the network of a cluster.
    ///
    /// # Errors
    /// [`Error::Unable`] if it is none.
    pub(crate) fn parts(&self) -> Result<&(Fabric, Network)> {
        let none = "its nodes and its network are not known: pass a cluster, as hgx-h100x2+ib-ndr-8";
        self.origin.cluster.as_deref().ok_or_else(|| unable(self, none.to_owned()))
    }

    /// Returns the number of network cards of each node, or tray, of a cluster.
    pub fn cards(&self) -> Option<u32> {
        let changed = |change: &Change| if let Change::Nics(nics) = change { Some(*nics) } else { None };
        let (_, network) = self.origin.cluster.as_deref()?;
        Some(self.origin.changes.iter().rev().find_map(changed).unwrap_or(network.nics))
    }

    fn with_model(&self, gpu: &'static Gpu) -> Result<(Fabric, String)> {
        let is_alone = self.world_size() == 1;
        let is_joined = self.links.iter().any(|link| link.medium.family.joins_gpus());
        // Of cards without bridges their PCIe is all that counts.
        let counts = |gpu: &Gpu| !is_alone && (is_joined || gpu.has_soldered_nvlinks());
        let nvlinks = |gpu: &Gpu| counts(gpu).then_some((gpu.nvlink, gpu.nvlinks, gpu.needs_bridge));
        let links = |gpu: &Gpu| (nvlinks(gpu), gpu.pcie, gpu.pcie_lanes, gpu.c2c);
        if links(gpu) != links(self.gpu) {
            let alike = gpus::all().iter().filter(|other| links(other) == links(self.gpu));
            let alike = alike.map(|other| other.name.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!("a {} has other links than its {}: choose from {alike}", gpu.title, self.gpu.title);
            return Err(unable(self, message));
        }
        Ok((Fabric { gpu, ..self.clone() }, format!("{} instead of {}", gpu.title, self.gpu.title)))
    }

    fn with_lanes(&self, lanes: u32) -> Result<(Fabric, String)> {
        let is_slot = |link: &Link| {
            let is_gpu = |at: usize| self.devices[at].kind == DeviceKind::Gpu;
            link.medium.family == LinkFamily::Pcie && (is_gpu(link.from) || is_gpu(link.to))
        };
        let mut changed = self.clone();
        let mut slots = changed.links.iter_mut().filter(|link| is_slot(link)).peekable();
        let had = slots.peek().map(|link| (link.lanes, link.medium));
        let (had, medium) = had.ok_or_else(|| unable(self, "its GPUs have no slots of PCIe".to_owned()))?;
        slots.for_each(|link| link.lanes = lanes);
        Ok((changed, format!("{lanes} x {} instead of {had} for each GPU", medium.title)))
    }

    fn with_sockets(&self, medium: &'static Medium, lanes: u32) -> Result<(Fabric, String)> {
        let mut changed = self.clone();
        let mut links = changed.links.iter_mut().filter(|link| link.medium.family == LinkFamily::Socket).peekable();
        let had = links.peek().map(|link| format!("{} x {}", link.lanes, link.medium.title));
        let had = had.ok_or_else(|| unable(self, "it has no links between sockets".to_owned()))?;
        links.for_each(|link| *link = Link { medium, lanes, ..*link });
        Ok((changed, format!("{lanes} x {} instead of {had} between sockets", medium.title)))
    }

    fn widened(&self, family: LinkFamily, times: f64) -> Result<(Fabric, String)> {
        let mut changed = self.clone();
        let is_of_node = |link: &Link| link.medium.family == family && self.devices[link.from].node.is_some();
        let shown = self.links.iter().position(is_of_node);
        let shown = shown.ok_or_else(|| unable(self, format!("it has no links of {}", family.name())))?;
        for link in changed.links.iter_mut().filter(|link| link.medium.family == family) {
            *link = wider(link, times).ok_or_else(|| {
                let (lanes, medium) = (f64::from(link.lanes) * times, &link.medium.title);
                let message = format!(
                    "{lanes:.2} x {medium} instead of {}: pass a factor that keeps whole links, or for lanes of slots `lanes 8`",
                    link.lanes
                );
                unable(self, message)
            })?;
        }
        let words = |link: &Link| format!("{} x {}", link.lanes, link.medium.title);
        let words = format!("{} instead of {}", words(&changed.links[shown]), words(&self.links[shown]));
        Ok((changed, words))
    }

    fn over_pcie(&self) -> Result<(Fabric, String)> {
        let mut changed = self.clone();
        changed.links.retain(|link| !link.medium.family.joins_gpus());
        if changed.links.len() == self.links.len() {
            return Err(unable(self, "its GPUs have no NVLink that could be left out".to_owned()));
        }
        changed.abilities = Abilities { multicast: false, switch_reduction: false, forwards: false, ..self.abilities };
        let gpus = changed.gpus();
        let here = gpus.iter().filter(|&&gpu| self.devices[gpu].node == self.devices[gpus[0]].node).count() as u32;
        if let Some(away) = (1..here).find(|&rank| changed.route(0, rank).is_err()) {
            let (from, to) = (&self.devices[gpus[0]].name, &self.devices[gpus[away as usize]].name);
            return Err(unable(self, format!("without NVLink nothing joins {from} and {to}: it is a rack")));
        }
        Ok((changed, "PCIe instead of NVLink".to_owned()))
    }

    fn with_cards(&self, nics: u32) -> Result<(Fabric, String)> {
        let (node, network) = self.parts()?;
        let plain = cluster(node, self.nodes(), &Network { nics, ..network.clone() })?;
        let others = self.origin.changes.iter().filter(|change| !matches!(change, Change::Nics(_)));
        let had = self.cards().unwrap_or(network.nics);
        let words = format!("{nics} instead of {had} network cards in each node or tray");
        Ok((plain.with_changes(&others.copied().collect::<Vec<_>>())?, words))
    }
}

/// Returns a link whose rate is multiplied by `times`: with more lanes, or with faster ports of a network; none for parts of a lane.
fn wider(link: &Link, times: f64) -> Option<Link> {
    if link.medium.family == LinkFamily::Network {
        let gbit = (link.medium.lane_gbps * 8.0 * times * 1e6).round() / 1e6;
        return Some(Link { medium: media::altered(link.medium, Some(gbit), None, None), ..*link });
    }
    // PCIe is specified to 32 lanes: `pcie x8` means eight lanes, and never eight times as many.
    let most = if link.medium.family == LinkFamily::Pcie { 32.0 } else { f64::from(u16::MAX) };
    let wanted = f64::from(link.lanes) * times;
    let is_whole = wanted.round() >= 1.0 && wanted <= most && (wanted - wanted.round()).abs() < 1e-9;
    is_whole.then_some(Link { lanes: wanted.round() as u32, ..*link })
}

fn unable(fabric: &Fabric, message: String) -> Error {
    Error::Unable { fabric: fabric.name.clone(), message }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::hardware::origin::Change;
    use crate::machines::preset;
    use crate::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};
    use crate::Fabric;

    fn with(name: &str, change: &str) -> Fabric {
        preset(name).unwrap().changed(&Change::of(change).unwrap()).unwrap()
    }

    fn us(fabric: &Fabric) -> f64 {
        let predictor = Predictor::of(fabric, None).unwrap();
        let (pattern, launch) = (Pattern::AllGather, Launch::Framework);
        let call = CollectiveCall { pattern, launch, forced: AlgorithmFilter::default() };
        predictor.us(&call, &predictor.weigh(&call, 1 << 32).unwrap())
    }

    #[test]
    fn a_change_says_what_it_changes() {
        for (name, change, expected) in [
            ("hgx-h100", "nvlink x2", "nvlink x2: 36 x NVLink 4 instead of 18 x NVLink 4"),
            (
                "hgx-h100x4+ib-ndr-8",
                "network  X2",
                "network x2: 1 x InfiniBand 800 Gbit/s instead of 1 x InfiniBand NDR",
            ),
            ("hgx-h100x4+ib-ndr-8", "nics 4", "nics 4: 4 instead of 8 network cards in each node or tray"),
            ("hgx-h100", "pcie", "pcie: PCIe instead of NVLink"),
            ("rtx4090-4-staged", "lanes 8", "lanes 8: 8 x PCIe 4 instead of 16 for each GPU"),
        ] {
            let changed = with(name, change);
            let (change, words) = expected.split_once(": ").unwrap();
            assert_eq!(changed.name, format!("{name} with {change}"));
            assert!(changed.title.ends_with(words), "{}", changed.title);
        }
    }

    #[test]
    fn cards_are_spread_as_a_network_with_as_many_spreads_them() {
        for (name, change, as_in) in [
            ("hgx-h100x4+ib-ndr-8", "nics 4", "hgx-h100x4+ib-ndr-4"),
            ("hgx-a100x2+ib-hdr-4", "nics 8", "hgx-a100x2+ib-hdr-8"),
            ("gb200-nvl72x2+ib-ndr-4", "nics 1", "gb200-nvl72x2+ib-ndr-1"),
        ] {
            let (changed, as_in) = (with(name, change), preset(as_in).unwrap());
            assert_eq!((&changed.devices, &changed.links), (&as_in.devices, &as_in.links), "{change} of {name}");
            assert_eq!(changed.abilities, as_in.abilities);
        }
    }

    #[test]
    fn what_is_wider_is_faster_until_something_else_is_narrow() {
        let node = us(&preset("hgx-h100").unwrap());
        let (wider, over_pcie) = (us(&with("hgx-h100", "nvlink x2")), us(&with("hgx-h100", "pcie")));
        assert!((wider / node - 0.5).abs() < 0.05, "{wider} {node}");
        assert!(over_pcie > 5.0 * node, "{over_pcie} {node}");
        let cluster = "hgx-h100x4+ib-ndr-8";
        let (nodes, slower) = (us(&preset(cluster).unwrap()), us(&with(cluster, "network x2")));
        assert!(slower < 0.95 * nodes && slower > 0.6 * nodes, "{slower} {nodes}");
        let and = |of: &Fabric, change: &str| of.changed(&Change::of(change).unwrap()).unwrap();
        let both = and(&with(cluster, "network x2"), "pcie x2");
        assert!((us(&both) / slower - 1.0).abs() < 1e-9, "NVLink is narrow now");
        let all = us(&and(&both, "nvlink x2"));
        assert!((all / nodes - 0.5).abs() < 0.05, "{all} {nodes}");
    }

    #[test]
    fn changes_that_a_machine_cannot_have_are_refused() {
        for (name, change, expected) in [
            ("hgx-h100", "nvlink", "choose from `nvlink x2`"),
            ("hgx-h100", "nvlink 2", "choose from"),
            ("hgx-h100", "nvlink x-1", "choose from"),
            ("hgx-h100x2+ib-ndr-8", "network x1e300", "choose from"),
            ("hgx-h100", "nvlink x0.3", "5.40 x NVLink 4 instead of 18: pass a factor that keeps whole links"),
            ("hgx-h100", "network x2", "it has no links of network"),
            ("hgx-h100", "nics 4", "its nodes and its network are not known"),
            ("hgx-h100x2+ib-ndr-8", "nics 0", "nics: 0: it must be from 1"),
            ("gb200-nvl72", "pcie", "without NVLink nothing joins gpu0 and gpu2"),
            ("rtx4090-4-staged", "pcie", "no NVLink that could be left out"),
            ("rtx4090-4-staged", "pcie x8", "for lanes of slots `lanes 8`"),
            ("rtx4090-4-staged", "lanes 0", "`lanes 8`"),
            ("gh200-4", "lanes 8", "no slots of PCIe"),
        ] {
            let error: Error =
                Change::of(change).and_then(|change| preset(name).unwrap().changed(&change)).unwrap_err();
            assert!(error.to_string().contains(expected), "{change} of {name}: {error}");
        }
    }
}
