//! A node from the matrix of `nvidia-smi topo -m`.
//!
//! ```text
//!         GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity
//! GPU0     X    NV18  PIX   0-55          0                 NV18: 18 NVLinks; PIX, PXB: PCIe switches; PHB, NODE: the
//! GPU1    NV18   X    SYS   56-111        1                 same socket; SYS: another one
//! NIC0    PIX   SYS    X
//! ```
//!
//! What the words leave open is settled so:
//!
//! - the model of the GPUs, and with it the generations of its links, is said by the caller: words count links only;
//! - if the NVLinks of a row are more than the GPU has, they lead to an NVSwitch; otherwise straight to the other GPU;
//! - devices that PIX joins hang at one PCIe switch; switches that PXB joins hang at one above them;
//! - sockets are what PIX, PXB, PHB and NODE tie together, and equal NUMA affinities; what nothing ties is on the first.
//!
//! Cells are symmetric, so one of two is enough. A pair of GPUs of which neither cell is there (an excerpt) is refused.
//! What follows the matrix (legends) is not read.

use std::collections::BTreeMap;

use nvcoll_core::ties::groups;

use super::abilities_of;
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;
use crate::hardware::{media, Device, DeviceKind, Fabric};

/// Chosen: more devices than any node has.
const MOST_DEVICES: usize = 512;

/// How two devices are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    Nvlinks(u32),
    Pix,
    Pxb,
    Phb,
    Node,
    Sys,
}

impl Connection {
    fn read(text: &str) -> Option<Self> {
        match text {
            "PIX" => Some(Connection::Pix),
            "PXB" => Some(Connection::Pxb),
            "PHB" => Some(Connection::Phb),
            "NODE" => Some(Connection::Node),
            "SYS" | "SOC" => Some(Connection::Sys),
            _ => text.strip_prefix("NV")?.parse().ok().filter(|&links| links > 0).map(Connection::Nvlinks),
        }
    }
}

/// What the text says.
#[derive(Debug, Default)]
struct TopologyMatrix {
    names: Vec<String>,
    /// For each pair (smaller position first), its word.
    words: BTreeMap<(usize, usize), Connection>,
    /// For each device, its NUMA affinity.
    numa: Vec<Option<String>>,
}

impl Fabric {
    /// Reads the output of `nvidia-smi topo -m` of a node with GPUs of this model; `origin` is what to call it in errors.
    ///
    /// Peer access is as the model has it by default: GPUs of GeForce reach each other over NVLink only.
    ///
    /// # Errors
    /// [`Error::Description`] with the line, if it is no such matrix, or one that is cut off.
    pub fn from_nvidia_smi(text: &str, gpu: &'static Gpu, origin: &str) -> Result<Fabric> {
        let wrong = |message: String| Error::Description { origin: origin.to_owned(), message };
        let matrix = TopologyMatrix::read(text).map_err(wrong)?;
        matrix.check_nvlinks(gpu).map_err(wrong)?;
        matrix.build(gpu, origin)
    }
}

impl TopologyMatrix {
    fn read(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines().map(plain).enumerate();
        let is_header = |line: &str| line.split_whitespace().next().is_some_and(is_gpu) && !line.contains(" X ");
        let header = lines.find(|(_, line)| is_header(line) && line.split_whitespace().nth(1) != Some("X"));
        let (_, header) =
            header.ok_or("no line begins with GPU0 and names the columns: pass what `nvidia-smi topo -m` prints")?;
        let names: Vec<String> =
            header.split_whitespace().take_while(|word| *word != "CPU").map(str::to_owned).collect();
        if names.len() > MOST_DEVICES {
            return Err(format!("it names {} devices: at most {MOST_DEVICES} are read", names.len()));
        }
        let mut matrix = TopologyMatrix { numa: vec![None; names.len()], names, words: BTreeMap::new() };
        for (number, line) in lines {
            matrix.read_row(&line).map_err(|message| format!("line {}: {message}", number + 1))?;
        }
        matrix.check_pairs()?;
        Ok(matrix)
    }

    fn read_row(&mut self, line: &str) -> std::result::Result<(), String> {
        let mut cells = line.split_whitespace();
        let named = cells.next().and_then(|name| self.names.iter().position(|known| known == name));
        let Some(row) = named else { return Ok(()) };
        for column in 0..self.names.len() {
            let Some(cell) = cells.next() else { return Ok(()) };
            if row == column {
                if cell != "X" {
                    return Err(format!("{0} to {0} is `{cell}`, it should be X", self.names[row]));
                }
                continue;
            }
            let pair = format!("{} to {}", self.names[row], self.names[column]);
            let word = Connection::read(cell)
                .ok_or_else(|| format!("{pair} is `{cell}`: known are X, NV1 …, PIX, PXB, PHB, NODE, SYS"))?;
            let known = self.words.insert((row.min(column), row.max(column)), word);
            if known.is_some_and(|known| known != word) {
                return Err(format!("{pair} is `{cell}`, the other way it is not"));
            }
        }
        self.numa[row] = cells.nth(1).filter(|cell| *cell != "N/A").map(str::to_owned);
        Ok(())
    }

    fn gpus(&self) -> Vec<usize> {
        (0..self.names.len()).filter(|&at| is_gpu(&self.names[at])).collect()
    }

    fn word(&self, a: usize, b: usize) -> Option<Connection> {
        self.words.get(&(a.min(b), a.max(b))).copied()
    }

    fn check_pairs(&self) -> std::result::Result<(), String> {
        let gpus = self.gpus();
        for (nth, &a) in gpus.iter().enumerate() {
            if let Some(&b) = gpus[nth + 1..].iter().find(|&&b| self.word(a, b).is_none()) {
                return Err(format!(
                    "it does not say how {} and {} are joined: it is cut off",
                    self.names[a], self.names[b]
                ));
            }
        }
        Ok(())
    }

    fn nvlinks(&self, a: usize, b: usize) -> u32 {
        match self.word(a, b) {
            Some(Connection::Nvlinks(links)) => links,
            _ => 0,
        }
    }

    fn check_nvlinks(&self, gpu: &Gpu) -> std::result::Result<(), String> {
        let most = self
            .words
            .values()
            .filter_map(|word| if let Connection::Nvlinks(links) = word { Some(*links) } else { None })
            .max();
        match most {
            Some(links) if links > gpu.nvlinks => Err(format!(
                "two GPUs are joined by {links} NVLinks, a {} has {}: it is another GPU",
                gpu.title, gpu.nvlinks
            )),
            _ => Ok(()),
        }
    }

    fn build(&self, gpu: &'static Gpu, origin: &str) -> Result<Fabric> {
        let gpus = self.gpus();
        let mut fabric = Fabric {
            name: origin.to_owned(),
            title: format!("{} x {}, as nvidia-smi topo -m has it", gpus.len(), gpu.title),
            gpu,
            devices: Vec::new(),
            links: Vec::new(),
            abilities: abilities_of(gpu),
            sources: vec![format!("nvidia-smi topo -m of {origin}; rates of {}", gpu.source)],
        };
        let kind = |name: &str| if is_gpu(name) { DeviceKind::Gpu } else { DeviceKind::Nic };
        let device =
            |name: &String| Device { name: name.to_lowercase(), kind: kind(name), node: Some(0), tray: None, chips: 1 };
        fabric.devices = self.names.iter().map(device).collect();
        self.add_nvlinks(&mut fabric)?;
        self.add_host(&mut fabric)?;
        Ok(fabric)
    }

    fn add_nvlinks(&self, fabric: &mut Fabric) -> Result<()> {
        let Some(medium) = fabric.gpu.nvlink.as_deref().map(media::named).transpose()? else { return Ok(()) };
        let gpus = self.gpus();
        let of_row = |a: usize| gpus.iter().filter(|&&b| b != a).map(|&b| self.nvlinks(a, b)).sum::<u32>();
        let lanes = |a: usize| gpus.iter().filter(|&&b| b != a).map(|&b| self.nvlinks(a, b)).max().unwrap_or(0);
        if gpus.iter().any(|&gpu| of_row(gpu) > fabric.gpu.nvlinks) {
            let switch = fabric.add("nvswitch".to_owned(), DeviceKind::Nvswitch);
            gpus.iter().filter(|&&gpu| lanes(gpu) > 0).for_each(|&gpu| fabric.join(gpu, switch, medium, lanes(gpu)));
            return Ok(());
        }
        for (&(a, b), &word) in &self.words {
            if let Connection::Nvlinks(lanes) = word {
                fabric.join(a, b, medium, lanes);
            }
        }
        Ok(())
    }

    /// PCIe switches, sockets and their memory.
    fn add_host(&self, fabric: &mut Fabric) -> Result<()> {
        let (medium, lanes) = (media::named(&fabric.gpu.pcie)?, fabric.gpu.pcie_lanes);
        let [behind_one, behind_several, sockets] = [
            &[Connection::Pix][..],
            &[Connection::Pix, Connection::Pxb],
            &[Connection::Pix, Connection::Pxb, Connection::Phb, Connection::Node],
        ]
        .map(|words| self.tied(words));
        let sockets = self.with_affinity(&sockets);
        let mut socket_of = vec![0; self.names.len()];
        let mut seats = Vec::new();
        for (number, members) in sockets.iter().enumerate() {
            members.iter().for_each(|&at| socket_of[at as usize] = number);
            seats.push(fabric.add_socket(BETWEEN_SOCKETS)?);
        }
        let mut switches = 0;
        for above in &behind_several {
            let inside: Vec<_> = behind_one.iter().filter(|below| above.contains(&below[0])).collect();
            let seat = seats[socket_of[above[0] as usize]];
            let top = if inside.len() > 1 {
                switches += 1;
                let top = fabric.add(format!("pcie{}", switches - 1), DeviceKind::PcieSwitch);
                fabric.join(top, seat, medium, lanes);
                top
            } else {
                seat
            };
            for below in inside {
                let mut at = top;
                if below.len() > 1 {
                    at = fabric.add(format!("pcie{switches}"), DeviceKind::PcieSwitch);
                    switches += 1;
                    fabric.join(at, top, medium, lanes);
                }
                below.iter().for_each(|&device| fabric.join(device as usize, at, medium, lanes));
            }
        }
        Ok(())
    }

    fn tied(&self, words: &[Connection]) -> Vec<Vec<u32>> {
        let pairs = self.words.iter().filter(|(_, word)| words.contains(word));
        groups(self.names.len() as u32, pairs.map(|(&(a, b), _)| (a as u32, b as u32)))
    }

    /// Sockets: what equal affinities tie as well; devices of which nothing is known are on the first.
    fn with_affinity(&self, sockets: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let n = self.names.len();
        let known =
            |group: &Vec<u32>| group.len() > 1 || self.numa[group[0] as usize].is_some() || self.is_apart(group[0]);
        let first = sockets.iter().find(|group| known(group)).map_or(0, |group| group[0]);
        let mut ties: Vec<(u32, u32)> = Vec::new();
        for group in sockets {
            ties.extend(group.windows(2).map(|pair| (pair[0], pair[1])));
            if !known(group) {
                ties.push((first, group[0]));
            }
        }
        for a in 0..n {
            let same = (a + 1..n).find(|&b| self.numa[a].is_some() && self.numa[a] == self.numa[b]);
            ties.extend(same.map(|b| (a as u32, b as u32)));
        }
        groups(n as u32, ties)
    }

    /// Says whether SYS sets a device apart from another.
    fn is_apart(&self, at: u32) -> bool {
        self.words.iter().any(|(&(a, b), word)| *word == Connection::Sys && (a == at as usize || b == at as usize))
    }
}

/// What sockets are joined by: words do not say. Chosen: the slowest that NCCL counts of this decade.
const BETWEEN_SOCKETS: &str = "upi1";

fn is_gpu(name: &str) -> bool {
    name.strip_prefix("GPU")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// A line without the escapes by which nvidia-smi underlines its header.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(|end| end.is_ascii_alphabetic());
        } else {
            plain.push(letter);
        }
    }
    plain
}
