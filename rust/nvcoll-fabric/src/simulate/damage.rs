//! Links that are slower than they should be, or cut.

use super::ratio::Ratio;
use crate::error::{Error, Result};
use crate::hardware::Fabric;

/// The number of names that an error lists. Chosen: a screen.
const LISTED: usize = 40;

/// A link that is slower, or cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The link: a position in the fabric's `links`, one direction.
    pub link: usize,
    /// The part of its rate that is left; zero cuts it, and routes avoid it.
    pub left: Ratio,
}

impl Damage {
    /// Returns the damage of all links from one device to another; `left` is the part of their rate that is left.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a device that is not there, [`Error::Unable`] if no link goes there.
    pub fn between(fabric: &Fabric, from: &str, to: &str, left: Ratio) -> Result<Vec<Damage>> {
        let (a, b) = (device(fabric, from)?, device(fabric, to)?);
        let goes = |&link: &usize| (fabric.links[link].from, fabric.links[link].to) == (a, b);
        let found: Vec<Damage> = (0..fabric.links.len()).filter(goes).map(|link| Damage { link, left }).collect();
        if found.is_empty() {
            let names = fabric.links.iter().filter(|link| link.from == a).map(|link| link.to);
            let there = listed(names.map(|at| fabric.devices[at].name.as_str()).collect());
            let message = format!("no link goes from {from} to {to}: from {from} they go to {there}");
            return Err(Error::Unable { fabric: fabric.name.clone(), message });
        }
        Ok(found)
    }
}

fn device(fabric: &Fabric, name: &str) -> Result<usize> {
    fabric.device(name).ok_or_else(|| Error::Unknown {
        kind: "device of this fabric",
        name: name.to_owned(),
        known: listed(fabric.devices.iter().map(|device| device.name.as_str()).collect()),
    })
}

fn listed(names: Vec<&str>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let shown = names[..names.len() - more].join(", ");
    match more {
        0 => shown,
        _ => format!("{shown} and {more} more"),
    }
}
