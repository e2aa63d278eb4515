//! A machine as data that another process reads back. Of a cluster these are its node, its network and its changes: it is made again.

use std::sync::Arc;

use serde::{de, Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Result;
use crate::hardware::media::{self, Medium};
use crate::hardware::network::Network;
use crate::hardware::origin::Change;
use crate::hardware::Origin;
use crate::hardware::{gpus, Abilities, Device, Fabric, Link};
use crate::topology::cluster::cluster;

#[derive(Serialize, Deserialize)]
enum SavedFabric {
    Cluster(Box<SavedFabric>, u32, Box<Network>, Vec<String>),
    Described(SavedNode),
}

/// A machine that was described; links name a row of `media`.
#[derive(Serialize, Deserialize)]
struct SavedNode {
    name: String,
    title: String,
    gpu: String,
    devices: Vec<Device>,
    media: Vec<Medium>,
    links: Vec<(usize, usize, usize, u32)>,
    abilities: Abilities,
    ram_gib: Option<[u32; 2]>,
    sources: Vec<String>,
    changes: Vec<String>,
    #[serde(default)]
    whole: Option<Box<SavedFabric>>,
}

impl SavedFabric {
    fn of(fabric: &Fabric) -> Self {
        let changes = fabric.origin.changes.iter().map(ToString::to_string).collect();
        if let Some((node, network)) = fabric.origin.cluster.as_deref() {
            return Self::Cluster(Box::new(Self::of(node)), fabric.nodes(), Box::new(network.clone()), changes);
        }
        let mut media: Vec<&'static Medium> = Vec::new();
        let mut place = |medium: &'static Medium| {
            media.iter().position(|known| std::ptr::eq(*known, medium)).unwrap_or_else(|| {
                media.push(medium);
                media.len() - 1
            })
        };
        let links = fabric.links.iter().map(|link| (link.from, link.to, place(link.medium), link.lanes)).collect();
        Self::Described(SavedNode {
            name: fabric.name.clone(),
            title: fabric.title.clone(),
            gpu: fabric.gpu.name.clone(),
            devices: fabric.devices.clone(),
            links,
            media: media.into_iter().cloned().collect(),
            abilities: fabric.abilities,
            ram_gib: fabric.ram_gib,
            sources: fabric.sources.clone(),
            changes,
            whole: fabric.origin.whole.as_deref().map(|all| Box::new(Self::of(all))),
        })
    }

    fn fabric(self) -> Result<Fabric> {
        let changes_of =
            |changes: &[String]| changes.iter().map(|change| Change::of(change)).collect::<Result<Vec<_>>>();
        match self {
            Self::Cluster(node, nodes, network, changes) => {
                cluster(&node.fabric()?, nodes, &network)?.with_changes(&changes_of(&changes)?)
            }
            Self::Described(saved) => {
                let media: Vec<&'static Medium> = saved.media.into_iter().map(media::kept).collect();
                let link = |&(from, to, medium, lanes): &(usize, usize, usize, u32)| {
                    let (from, to) = Some((from, to)).filter(|(from, to)| (*from).max(*to) < saved.devices.len())?;
                    Some(Link { from, to, medium: media.get(medium)?, lanes })
                };
                let whole = saved.whole.map(|all| all.fabric()).transpose()?.map(Arc::new);
                Ok(Fabric {
                    links: saved.links.iter().filter_map(link).collect(),
                    gpu: gpus::named(&saved.gpu)?,
                    origin: Origin { changes: changes_of(&saved.changes)?, whole, ..Origin::default() },
                    name: saved.name,
                    title: saved.title,
                    devices: saved.devices,
                    abilities: saved.abilities,
                    ram_gib: saved.ram_gib,
                    sources: saved.sources,
                })
            }
        }
    }
}

impl Serialize for Fabric {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        SavedFabric::of(self).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Fabric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        SavedFabric::deserialize(from)?.fabric().map_err(de::Error::custom)
    }
}
