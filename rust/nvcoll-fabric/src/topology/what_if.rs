//! A machine with a change: what would it be with other links, or other network cards?
//!
//! | change | the machine with it |
//! |---|---|
//! | `nvlink x2`, `network x0.5`, `pcie x2` | links of the family carry so many times as much |
//! | `nics 4` | nodes, or trays of a rack, with as many network cards, spread over their GPUs |
//! | `pcie` | no NVLink: GPUs of a node reach each other over PCIe |
//!
//! All else stays: wider NVLink does not widen the cards, and faster cards do not widen the PCIe behind them. Links inside a node get
//! more lanes, of the same efficiency and latency, and NCCL's model counts more links. Ports of a network get another rate.
//! Source: ours.

use crate::error::{Error, Result};
use crate::hardware::media::{self, LinkFamily};
use crate::hardware::{Abilities, DeviceKind, Fabric, Link};
use crate::topology::cluster::{cluster, Network};
use crate::topology::network::{rails_and_spine, Ecmp};

/// The families whose links a change may widen.
const FAMILIES: [LinkFamily; 6] =
    [LinkFamily::Nvlink, LinkFamily::Xgmi, LinkFamily::Pcie, LinkFamily::C2c, LinkFamily::Socket, LinkFamily::Network];

impl Fabric {
    /// Returns the machine with a change, and the change in words, as `nvlink x2: 36 x NVLink 4 instead of 18 x NVLink 4`.
    ///
    /// # Errors
    /// [`Error::Unknown`] for an unknown change; [`Error::Unable`] for a change that the machine cannot have.
    pub fn what_if(&self, change: &str) -> Result<(Fabric, String)> {
        let words: Vec<&str> = change.split_whitespace().collect();
        let (mut changed, message) = match words[..] {
            ["pcie"] => self.over_pcie()?,
            ["nics", count] => self.with_cards(count.parse().map_err(|_| unknown(change))?)?,
            [family, times] => {
                let family = FAMILIES.into_iter().find(|of| of.name() == family).ok_or_else(|| unknown(change))?;
                let times = times.strip_prefix(['x', 'X']).and_then(|times| times.parse().ok());
                let is_factor = |times: &f64| (1e-3..=1e3).contains(times);
                self.widened(family, times.filter(is_factor).ok_or_else(|| unknown(change))?)?
            }
            _ => return Err(unknown(change)),
        };
        let change = words.join(" ");
        changed.name = format!("{} with {change}", self.name);
        changed.title = format!("{}, {message}", self.title);
        Ok((changed, format!("{change}: {message}")))
    }

    fn widened(&self, family: LinkFamily, times: f64) -> Result<(Fabric, String)> {
        let mut changed = self.clone();
        let is_of_node = |link: &Link| link.medium.family == family && self.devices[link.from].node.is_some();
        let shown = self.links.iter().position(is_of_node);
        let shown = shown.ok_or_else(|| unable(self, format!("it has no links of {}", family.name())))?;
        for link in changed.links.iter_mut().filter(|link| link.medium.family == family) {
            *link = wider(link, times).ok_or_else(|| {
                let (lanes, medium) = (f64::from(link.lanes) * times, &link.medium.title);
                let message =
                    format!("{lanes:.2} x {medium} instead of {}: pass a factor that keeps whole links", link.lanes);
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

    /// Takes the first node without its cards, and makes the cluster anew.
    fn with_cards(&self, nics: u32) -> Result<(Fabric, String)> {
        let network = self.network().ok_or_else(|| {
            let message = "its cards are not known to hang at one switch for each rail: describe the network in a file";
            unable(self, message.to_owned())
        })?;
        let ranks = self.world_size() / self.nodes();
        let first = self.of_communicator(&(0..ranks).collect::<Vec<u32>>())?;
        let is_card = |kind| matches!(kind, DeviceKind::Nic | DeviceKind::NetworkSwitch);
        let mut node = first.keeping(&first.devices.iter().map(|device| !is_card(device.kind)).collect::<Vec<_>>());
        for device in &mut node.devices {
            device.name = device.name.trim_start_matches("n0.").to_owned();
        }
        let had = network.nics;
        let network = Network { nics, ..network };
        let words = format!("{nics} instead of {had} network cards in each node or tray");
        Ok((cluster(&node, self.nodes(), &network)?, words))
    }

    /// Returns the network of a cluster of nodes, or racks, whose cards hang at one switch for each rail; none of another.
    fn network(&self) -> Option<Network> {
        let gpus = self.gpus();
        let home = self.devices[*gpus.first()?].node;
        let are_alike = self.nodes() > 1 && self.world_size().is_multiple_of(self.nodes());
        let port = self.network_ports(home).next().filter(|_| are_alike && !self.has_tiers())?;
        let slot = self.links.iter().find(|link| link.to == port.from && link.medium.family != LinkFamily::Network)?;
        let of_node = gpus.iter().filter(|&&gpu| self.devices[gpu].node == home);
        let mut trays: Vec<Option<u32>> = of_node.map(|&gpu| self.devices[gpu].tray).collect();
        trays.dedup();
        Some(Network {
            name: port.medium.name.clone(),
            title: port.medium.title.clone(),
            medium: port.medium,
            port_gbit: None,
            efficiency: None,
            latency_ns: None,
            ports: port.lanes,
            nics: self.network_ports(home).count() as u32 / trays.len() as u32,
            host_medium: slot.medium,
            host_lanes: slot.lanes,
            gpu_direct: self.abilities.gpu_direct,
            ecmp: Ecmp::Ideal,
            tiers: rails_and_spine(),
            source: format!("the cards of {}", self.name),
        })
    }
}

/// Returns a link that carries so many times as much: with more lanes, or with faster ports of a network; none for parts of a lane.
fn wider(link: &Link, times: f64) -> Option<Link> {
    if link.medium.family == LinkFamily::Network {
        let gbit = (link.medium.lane_gbps * 8.0 * times * 1e6).round() / 1e6;
        return Some(Link { medium: media::altered(link.medium, Some(gbit), None, None), ..*link });
    }
    let (wanted, most) = (f64::from(link.lanes) * times, f64::from(u16::MAX));
    let is_whole = wanted.round() >= 1.0 && wanted <= most && (wanted - wanted.round()).abs() < 1e-9;
    is_whole.then_some(Link { lanes: wanted.round() as u32, ..*link })
}

fn unable(fabric: &Fabric, message: String) -> Error {
    Error::Unable { fabric: fabric.name.clone(), message }
}

fn unknown(change: &str) -> Error {
    let families = FAMILIES.map(|family| format!("`{} x2`", family.name())).join(", ");
    Error::Unknown {
        kind: "change of a machine",
        name: change.to_owned(),
        known: format!("{families}, `nics 4`, `pcie`"),
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};
    use crate::preset::preset;
    use crate::Fabric;

    fn with(name: &str, change: &str) -> Fabric {
        preset(name).unwrap().what_if(change).unwrap().0
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
                "network X2: 1 x InfiniBand 800 Gbit/s instead of 1 x InfiniBand NDR",
            ),
            ("hgx-h100x4+ib-ndr-8", "nics 4", "nics 4: 4 instead of 8 network cards in each node or tray"),
            ("hgx-h100", "pcie", "pcie: PCIe instead of NVLink"),
        ] {
            let (changed, words) = preset(name).unwrap().what_if(change).unwrap();
            assert_eq!(words, expected);
            assert!(changed.name.starts_with(&format!("{name} with ")), "{}", changed.name);
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
        let and = |of: &Fabric, change: &str| of.what_if(change).unwrap().0;
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
            ("hgx-h100", "nics 4", "describe the network in a file"),
            ("hgx-h100x2+ib-ndr-8", "nics 0", "nics: 0: it must be from 1"),
            ("gb200-nvl72", "pcie", "without NVLink nothing joins gpu0 and gpu2"),
            ("rtx4090-4-staged", "pcie", "no NVLink that could be left out"),
        ] {
            let error: Error = preset(name).unwrap().what_if(change).unwrap_err();
            assert!(error.to_string().contains(expected), "{change} of {name}: {error}");
        }
    }
}
