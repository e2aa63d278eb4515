//! Changes of a machine, as `nvlink x2`.

use std::fmt;

use super::gpus::{self, Gpu};
use super::media::{self, LinkFamily, Medium};
use crate::error::{Error, Result};

/// A change of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The rate of all links of a family is multiplied by a factor.
    Wider(LinkFamily, f64),
    /// Nodes, or trays of a rack, have as many network cards.
    Nics(u32),
    /// No NVLink.
    Pcie,
    /// The slots of GPUs have as many lanes of PCIe.
    Lanes(u32),
    /// Another model of GPU that has the same links.
    Model(&'static Gpu),
    /// A number of links of a medium joins the sockets.
    Sockets(&'static Medium, u32),
    /// Hosts have as many GiB of RAM.
    Ram(u32),
}

/// The families whose links a change may widen.
const FAMILIES: [LinkFamily; 6] =
    [LinkFamily::Nvlink, LinkFamily::Xgmi, LinkFamily::Pcie, LinkFamily::C2c, LinkFamily::Socket, LinkFamily::Network];

impl Change {
    /// Reads a change, as `nvlink x2`, `nics 4`, `pcie`, `gpu a100-sxm-40gb`, `socket epyc x3` or `ram 1024`.
    ///
    /// # Errors
    /// [`Error::Unknown`] for another text, or an unknown GPU.
    pub fn of(text: &str) -> Result<Change> {
        let lower = text.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        let change = match words[..] {
            ["pcie"] => Some(Change::Pcie),
            ["gpu", _, ..] => return gpus::named(words[1..].join(" ").as_str()).map(Change::Model),
            ["ram", gib] => gib.parse().ok().filter(|gib| (1..=1 << 20).contains(gib)).map(Change::Ram),
            ["lanes", count] => count.parse().ok().filter(|lanes| (1..=32).contains(lanes)).map(Change::Lanes),
            ["nics", count] => count.parse().ok().map(Change::Nics),
            ["socket", medium] => sockets(medium, "x1").or_else(|| wider("socket", medium)),
            ["socket", medium, links] => sockets(medium, links),
            [family, times] => wider(family, times),
            [word] => FAMILIES.iter().find_map(|family| wider(family.name(), word.strip_prefix(family.name())?)),
            _ => None,
        };
        change.ok_or_else(|| unknown(text))
    }
}

fn wider(family: &str, times: &str) -> Option<Change> {
    let family = FAMILIES.into_iter().find(|of| of.name() == family)?;
    let times = times.strip_prefix('x')?.parse().ok().filter(|times| (1e-3..=1e3).contains(times))?;
    Some(Change::Wider(family, times))
}

fn sockets(medium: &str, links: &str) -> Option<Change> {
    let medium = media::all().iter().find(|one| one.family == LinkFamily::Socket && one.name == medium)?;
    let links = links.strip_prefix('x')?.parse().ok().filter(|links| (1..=64).contains(links))?;
    Some(Change::Sockets(medium, links))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Wider(family, times) => write!(f, "{} x{times}", family.name()),
            Change::Nics(count) => write!(f, "nics {count}"),
            Change::Pcie => f.write_str("pcie"),
            Change::Lanes(count) => write!(f, "lanes {count}"),
            Change::Model(gpu) => write!(f, "gpu {}", gpu.name),
            Change::Sockets(medium, links) => write!(f, "socket {} x{links}", medium.name),
            Change::Ram(gib) => write!(f, "ram {gib}"),
        }
    }
}

fn unknown(change: &str) -> Error {
    let families = FAMILIES.map(|family| format!("`{} x2`", family.name())).join(", ");
    let known = format!("{families}, `nics 4`, `pcie`, `lanes 8`, `gpu h200`, `socket epyc x3`, `ram 1024`");
    Error::Unknown { kind: "change of a machine", name: change.to_owned(), known }
}
