//! How pairs of GPUs are joined, in the words of `nvidia-smi topo -m`.
//!
//! | word | meaning |
//! |---|---|
//! | `X` | itself |
//! | `NV18` | 18 NVLinks, to each other or to one switch; `XGMI` for Infinity Fabric |
//! | `PIX`, `PXB` | one PCIe switch, or several |
//! | `PHB` | the root complex of one socket |
//! | `NODE` | several root complexes of one socket, where the text names them |
//! | `SYS` | another socket |
//! | `NET` | another node |

use nvcoll_core::interrupt::Interrupt;

use crate::error::Result;
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric};
use crate::topology::route::{Route, RouteKind};

impl Fabric {
    /// Returns the word for each pair: row `from`, column `to`.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub fn matrix(&self) -> Result<Vec<Vec<String>>> {
        self.matrix_among(self.world_size(), &Interrupt::never())
    }

    /// Returns the word for each pair of the first ranks.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`]; [`crate::Error::Interrupted`].
    pub fn matrix_among(&self, ranks: u32, interrupt: &Interrupt) -> Result<Vec<Vec<String>>> {
        let word = |route: &Route| self.word(route);
        Ok(self.routes_among(ranks, interrupt)?.iter().map(|row| row.iter().map(word).collect()).collect())
    }

    fn word(&self, route: &Route) -> String {
        match route.kind {
            RouteKind::Local => "X".to_owned(),
            RouteKind::Network => "NET".to_owned(),
            RouteKind::Nvlink => self.lanes(route),
            RouteKind::Peer | RouteKind::Staged => self.host_word(route).to_owned(),
        }
    }

    fn lanes(&self, route: &Route) -> String {
        let links = route.links.iter().map(|&link| &self.links[link]);
        let lanes = links.clone().map(|link| link.lanes).min().unwrap_or(0);
        let is_amd = links.clone().any(|link| link.medium.family == LinkFamily::Xgmi);
        if is_amd {
            "XGMI".to_owned()
        } else {
            format!("NV{lanes}")
        }
    }

    fn host_word(&self, route: &Route) -> &'static str {
        let passed =
            |kind| route.links.iter().filter(move |&&link| self.devices[self.links[link].to].kind == kind).count();
        let between_sockets = |&&link: &&usize| self.links[link].medium.family == LinkFamily::Socket;
        if route.links.iter().any(|link| between_sockets(&link)) {
            "SYS"
        } else if passed(DeviceKind::Socket) > 0 {
            let ends = [self.links[route.links[0]].from, self.links[route.links[route.links.len() - 1]].to];
            let [from, to] = ends.map(|at| self.devices[at].host_bridge);
            if from == to {
                "PHB"
            } else {
                "NODE"
            }
        } else if passed(DeviceKind::PcieSwitch) > 1 {
            "PXB"
        } else {
            "PIX"
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::machines::preset;

    #[test]
    fn the_words_are_those_of_nvidia_smi() {
        let row = |name: &str| preset(name).unwrap().matrix().unwrap()[0].clone();
        assert_eq!(row("dgx1-v100")[..5], ["X", "NV1", "NV1", "NV2", "NV2"]);
        assert_eq!(row("dgx1-v100")[5..], ["SYS", "SYS", "SYS"]);
        assert_eq!(row("hgx-h100")[1], "NV18");
        assert_eq!(row("pcie3-8-p2p")[..5], ["X", "PIX", "PHB", "PHB", "SYS"]);
        assert_eq!(row("rtx4090-8-staged")[1..5], ["PHB", "PHB", "PHB", "SYS"]);
        assert_eq!(row("mi300x-8")[1], "XGMI");
    }
}
