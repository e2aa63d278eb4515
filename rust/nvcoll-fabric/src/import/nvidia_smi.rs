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
//! - the model of the GPUs, and with it the generations of its links, comes from `nvidia-smi` or `nvidia-smi -L` in the same
//!   text, or is given by the caller: words count links only;
//! - if the NVLinks of a row are more than the GPU has, they lead to an NVSwitch; otherwise straight to the other GPU;
//! - devices that PIX joins hang at one PCIe switch; switches that PXB joins hang at one above them;
//! - PIX, PXB, PHB, NODE or equal NUMA affinities join GPUs to a NUMA node; `sockets.rs` finds their sockets;
//! - without affinities, SYS leads from one of two sockets to the other; where it cannot, each has half of the GPUs. A device
//!   of which nothing is known is on the socket of the one before it.
//!
//! Terminals lose tabs and escapes: cells that stand together (`PXBNODE`, `SYSSYS`, `NIC11CPU Affinity`) are split by the
//! words that there are, and `[4m` without its escape is left out.
//!
//! Cells are symmetric, so one of two is enough. A pair of GPUs without either cell (an excerpt) is refused. So is
//! a matrix without NVLinks for several GPUs of a model whose NVLinks are soldered: its links are down, or it is another model.
//! What follows the matrix (legends) is not read.

use std::collections::BTreeMap;

use nvcoll_core::connected_components::connected_components;

use super::format::{check_switch_links, Reader, TextFormat};
use super::model::ModelClues;
use super::sockets;
use crate::error::{Error, Result};
use crate::hardware::gpus::{self, Gpu};
use crate::hardware::{DeviceKind, Fabric};

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
    /// Takes a cell of the matrix off the front of a line, whether or not a space follows; none is the cell of a device and itself.
    fn take(line: &str) -> Option<(Option<Self>, &str)> {
        const WORDS: [(&str, Option<Connection>); 7] = [
            ("X", None),
            ("PIX", Some(Connection::Pix)),
            ("PXB", Some(Connection::Pxb)),
            ("PHB", Some(Connection::Phb)),
            ("NODE", Some(Connection::Node)),
            ("SYS", Some(Connection::Sys)),
            ("SOC", Some(Connection::Sys)),
        ];
        let line = line.trim_start();
        if let Some((cell, rest)) = WORDS.iter().find_map(|&(word, cell)| Some((cell, line.strip_prefix(word)?))) {
            return Some((cell, rest));
        }
        let (number, rest) = digits(line.strip_prefix("NV")?);
        let links = number.parse().ok().filter(|&links| links > 0)?;
        Some((Some(Connection::Nvlinks(links)), rest))
    }
}

/// Divides a text after the digits with which it begins.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns the names of devices in a header, up to the columns that are no devices.
fn names_of(header: &str) -> Vec<String> {
    let mut names = Vec::new();
    for word in header.split_whitespace() {
        let mut rest = word;
        while let Some((name, after)) = numbered_name(rest) {
            names.push(name.to_owned());
            rest = after;
        }
        if rest.starts_with("CPU") {
            break;
        }
        if !rest.is_empty() {
            names.push(rest.to_owned());
        }
    }
    names
}

/// Takes a name that ends in a number off the front of a word: others may stand right behind it.
fn numbered_name(word: &str) -> Option<(&str, &str)> {
    let stem = ["GPU", "NIC"].into_iter().find(|stem| word.starts_with(stem));
    let stem = stem.map_or_else(|| word.strip_prefix("mlx")?.find('_').map(|at| at + 4), |stem| Some(stem.len()))?;
    let (number, _) = digits(&word[stem..]);
    let end = stem + number.len();
    (!number.is_empty()).then(|| word.split_at(end))
}

/// Returns the affinities to processors and to NUMA nodes from what follows the cells of a row: two columns; the
/// first may be blank where tabs divide columns.
fn affinities_of(rest: &str) -> [Option<String>; 2] {
    let rest = rest.trim_start_matches(' ');
    let columns: Vec<&str> = match rest.contains('\t') {
        true => rest.strip_prefix('\t').unwrap_or(rest).split('\t').collect(),
        false => rest.split_whitespace().collect(),
    };
    let known = |cell: &&str| !cell.is_empty() && *cell != "N/A";
    [0, 1].map(|at| columns.get(at).map(|cell| cell.trim()).filter(known).map(str::to_owned))
}

/// What the text says.
#[derive(Debug, Default)]
struct TopologyMatrix {
    names: Vec<String>,
    /// For each pair (smaller position first), its word.
    words: BTreeMap<(usize, usize), Connection>,
    /// For each device, its affinities to processors and to NUMA nodes.
    affinities: Vec<[Option<String>; 2]>,
}

pub(super) const FORMAT: TextFormat = TextFormat {
    name: "nvidia-smi topo -m",
    ending: ".txt",
    made_by: "what it prints",
    is_written_so: |text| text.lines().map(plain).any(|line| line.split_whitespace().next().is_some_and(is_gpu)),
    reader: Reader::TakesGpu(read),
};

/// Reads the matrix of a node; `given` is the model of its GPUs that the caller names, and `origin` what to call it in errors.
/// GPUs of GeForce are taken to reach each other over NVLink only.
///
/// # Errors
/// [`Error::Description`] with the line, if it is no such matrix, one that is cut off, or one without the model.
fn read(text: &str, given: Option<&'static Gpu>, origin: &str) -> Result<Fabric> {
    let wrong = |message: String| Error::Description { origin: origin.to_owned(), message };
    let matrix = TopologyMatrix::read(text).map_err(wrong)?;
    let mut clues = matrix.clues();
    clues.names_in(text.lines());
    let gpu = clues.settle(given).map_err(wrong)?;
    matrix.check_nvlinks(gpu).map_err(wrong)?;
    let mut fabric = matrix.build(gpu, origin)?;
    fabric.sources.extend(clues.substitution(gpu));
    Ok(fabric)
}

impl TopologyMatrix {
    fn read(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines().map(plain).enumerate();
        let is_header = |line: &str| line.split_whitespace().next().is_some_and(is_gpu) && !line.contains(" X ");
        let header = lines.find(|(_, line)| is_header(line) && line.split_whitespace().nth(1) != Some("X"));
        let (_, header) =
            header.ok_or("no line begins with GPU0 and names the columns: pass what `nvidia-smi topo -m` prints")?;
        let names = names_of(&header);
        if names.len() > MOST_DEVICES {
            return Err(format!("it names {} devices: at most {MOST_DEVICES} are read", names.len()));
        }
        let mut matrix = TopologyMatrix { affinities: vec![[None, None]; names.len()], names, words: BTreeMap::new() };
        for (number, line) in lines {
            matrix.read_row(&line).map_err(|message| format!("line {}: {message}", number + 1))?;
        }
        matrix.check_pairs()?;
        Ok(matrix)
    }

    fn read_row(&mut self, line: &str) -> std::result::Result<(), String> {
        let Some(name) = line.split_whitespace().next() else { return Ok(()) };
        let Some(row) = self.names.iter().position(|known| known == name) else { return Ok(()) };
        let mut rest = line.trim_start().strip_prefix(name).unwrap_or("");
        for column in 0..self.names.len() {
            let Some(found) = rest.split_whitespace().next() else { return Ok(()) };
            let pair = format!("{} to {}", self.names[row], self.names[column]);
            let (cell, after) = Connection::take(rest)
                .ok_or_else(|| format!("{pair} is `{found}`: known are X, NV1 …, PIX, PXB, PHB, NODE, SYS"))?;
            rest = after;
            match cell {
                None if row == column => {}
                Some(word) if row != column => {
                    let known = self.words.insert((row.min(column), row.max(column)), word);
                    if known.is_some_and(|known| known != word) {
                        return Err(format!("{pair} is `{found}`, the other way it is not"));
                    }
                }
                None => return Err(format!("{pair} is `X`, which only a device and itself are")),
                Some(_) => return Err(format!("{pair} is `{found}`, it should be X")),
            }
        }
        self.affinities[row] = affinities_of(rest);
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
                    "it does not say how {} and {} are joined: it is cut off; pass all rows of GPUs",
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

    /// Returns what the numbers of NVLinks say of the model: more than any GPU has lead to a switch.
    fn clues(&self) -> ModelClues {
        let gpus = self.gpus();
        let of_row = |a: usize| gpus.iter().filter(move |&&b| b != a).map(move |&b| self.nvlinks(a, b));
        let most = gpus.iter().map(|&gpu| of_row(gpu).sum()).max().unwrap_or(0);
        let widest = gpus.iter().flat_map(|&gpu| of_row(gpu)).max().unwrap_or(0);
        let is_switched = gpus::all().iter().all(|gpu| gpu.nvlinks < most);
        let to_switch = is_switched.then_some(widest);
        ModelClues { most_links: if is_switched { widest } else { most }, to_switch, ..ModelClues::default() }
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
            None if self.gpus().len() > 1 && gpu.has_soldered_nvlinks() => Err(format!(
                "it has no NVLink (NV1, NV2, …), and {} x {} have them: pass what the machine prints while its fabric \
                 manager runs, another gpu, or name a board, as nvcoll fabric lists them",
                self.gpus().len(),
                gpu.title
            )),
            _ => Ok(()),
        }
    }

    fn build(&self, gpu: &'static Gpu, origin: &str) -> Result<Fabric> {
        let mut fabric = FORMAT.machine(gpu, self.gpus().len(), origin);
        for name in &self.names {
            fabric.add(name.to_lowercase(), if is_gpu(name) { DeviceKind::Gpu } else { DeviceKind::Nic });
        }
        self.tell_host_bridges(&mut fabric);
        self.add_nvlinks(&mut fabric)?;
        self.add_host(&mut fabric)?;
        Ok(fabric)
    }

    /// Tells host bridges of a socket apart, where NODE leads from one to the other.
    fn tell_host_bridges(&self, fabric: &mut Fabric) {
        if self.words.values().any(|word| *word == Connection::Node) {
            let bridges = self.tied(&[Connection::Pix, Connection::Pxb, Connection::Phb]);
            for (bridge, devices) in (0..).zip(&bridges) {
                devices.iter().for_each(|&at| fabric.devices[at as usize].host_bridge = Some(bridge));
            }
        }
    }

    fn add_nvlinks(&self, fabric: &mut Fabric) -> Result<()> {
        let Some(medium) = fabric.gpu.nvlink else { return Ok(()) };
        let gpus = self.gpus();
        let of_row = |a: usize| gpus.iter().filter(|&&b| b != a).map(|&b| self.nvlinks(a, b)).sum::<u32>();
        let lanes = |a: usize| gpus.iter().filter(|&&b| b != a).map(|&b| self.nvlinks(a, b)).max().unwrap_or(0);
        if gpus.iter().any(|&gpu| of_row(gpu) > fabric.gpu.nvlinks) {
            let all: Vec<u32> = gpus.iter().map(|&gpu| lanes(gpu)).collect();
            check_switch_links(&all, fabric.gpu)
                .map_err(|message| Error::Description { origin: fabric.name.clone(), message })?;
            fabric.add_nvswitch(medium, gpus.iter().map(|&gpu| (gpu, lanes(gpu))).filter(|(_, lanes)| *lanes > 0));
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
        let gpu = fabric.gpu;
        let (medium, lanes) = (gpu.pcie, gpu.pcie_lanes);
        let [behind_one, behind_several] =
            [&[Connection::Pix][..], &[Connection::Pix, Connection::Pxb]].map(|words| self.tied(words));
        let (socket_of, is_divided) = self.sockets(gpu);
        let seats = fabric.add_sockets(&socket_of, is_divided)?;
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
                for &device in below {
                    match gpu.c2c.filter(|_| is_gpu(&self.names[device as usize])) {
                        Some(c2c) => fabric.join(device as usize, seat, c2c, 1),
                        None => fabric.join(device as usize, at, medium, lanes),
                    }
                }
            }
        }
        Ok(())
    }

    fn tied(&self, words: &[Connection]) -> Vec<Vec<u32>> {
        let pairs = self.words.iter().filter(|(_, word)| words.contains(word));
        connected_components(self.names.len() as u32, pairs.map(|(&(a, b), _)| (a as u32, b as u32)))
    }

    /// Returns the socket of each device, and whether sockets have several NUMA nodes.
    fn sockets(&self, gpu: &Gpu) -> (Vec<usize>, bool) {
        let n = self.names.len();
        let numbers = self.numa_nodes();
        let mut ties: Vec<(u32, u32)> = Vec::new();
        for group in self.tied(&[Connection::Pix, Connection::Pxb, Connection::Phb, Connection::Node]) {
            ties.extend(group.windows(2).map(|pair| (pair[0], pair[1])));
        }
        for a in 0..n {
            let same = (a + 1..n).find(|&b| numbers[a].is_some() && numbers[a] == numbers[b]);
            ties.extend(same.map(|b| (a as u32, b as u32)));
        }
        let nodes = connected_components(n as u32, ties);
        let mut node_of = vec![0; n];
        nodes.iter().enumerate().for_each(|(node, members)| members.iter().for_each(|&at| node_of[at as usize] = node));
        let number_of = |members: &Vec<u32>| members.iter().find_map(|&at| numbers[at as usize]);
        let numbered: Vec<(usize, u32)> =
            nodes.iter().enumerate().filter_map(|(node, members)| Some((node, number_of(members)?))).collect();
        let all: Vec<u32> = numbered.iter().map(|(_, number)| *number).collect();
        let (sockets, is_divided) = sockets::of_nodes(&all, gpu.c2c.is_some());
        let mut socket_of: Vec<Option<usize>> = vec![None; nodes.len()];
        numbered.iter().zip(&sockets).for_each(|((node, _), &socket)| socket_of[*node] = Some(socket));
        // With two nodes or none, SYS leads to the other socket. Of several nodes, SYS says nothing about sockets.
        if all.len() <= 2 && sockets.iter().all(|&socket| socket < 2) {
            self.spread_over_sys(&node_of, &mut socket_of);
        }
        let is_torn = |(&(a, b), _): (&(usize, usize), &Connection)| {
            socket_of[node_of[a]].is_none_or(|socket| socket_of[node_of[b]] == Some(socket))
        };
        if all.is_empty() && self.words.iter().filter(|(_, word)| **word == Connection::Sys).any(is_torn) {
            let of_gpus: Vec<usize> =
                (0..nodes.len()).filter(|&node| is_gpu(&self.names[nodes[node][0] as usize])).collect();
            socket_of.fill(None);
            of_gpus.iter().enumerate().for_each(|(nth, &node)| socket_of[node] = Some(2 * nth / of_gpus.len()));
        }
        let mut before = [0, 0];
        let mut of_device = Vec::with_capacity(n);
        for (at, &node) in node_of.iter().enumerate() {
            let before = &mut before[usize::from(is_gpu(&self.names[at]))];
            *before = *socket_of[node].get_or_insert(*before);
            of_device.push(*before);
        }
        let places: Vec<u32> = of_device.iter().map(|&socket| socket as u32).collect();
        (sockets::of_nodes(&places, true).0, is_divided)
    }

    /// Returns the number of the NUMA node of each device: from the NUMA affinities, or where there are none, from the order of
    /// the affinities to processors, if these differ.
    fn numa_nodes(&self) -> Vec<Option<u32>> {
        let first = |cell: &String| cell.split([',', '-']).next()?.trim().parse().ok();
        let numbers: Vec<Option<u32>> = self.affinities.iter().map(|[_, numa]| numa.as_ref().and_then(first)).collect();
        let mut processors: Vec<&String> = self.affinities.iter().filter_map(|[cpu, _]| cpu.as_ref()).collect();
        processors.sort_unstable();
        processors.dedup();
        if numbers.iter().any(Option::is_some) || processors.len() < 2 {
            return numbers;
        }
        processors.sort_by_key(|cell| (first(cell), cell.as_str()));
        let place = |cell: &String| processors.iter().position(|known| *known == cell).map(|at| at as u32);
        self.affinities.iter().map(|[cpu, _]| cpu.as_ref().and_then(place)).collect()
    }

    /// Places NUMA nodes without a number on one of two sockets. SYS leads to the other socket: if it leads from a node to one
    /// socket only, the node is on the other.
    fn spread_over_sys(&self, node_of: &[usize], socket_of: &mut [Option<usize>]) {
        let mut apart = vec![Vec::new(); socket_of.len()];
        for (&(a, b), _) in self.words.iter().filter(|(_, word)| **word == Connection::Sys) {
            apart[node_of[a]].push(node_of[b]);
            apart[node_of[b]].push(node_of[a]);
        }
        if socket_of.iter().all(Option::is_none) {
            if let Some(first) = apart.iter().position(|others| !others.is_empty()) {
                socket_of[first] = Some(0);
            }
        }
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for node in 0..socket_of.len() {
                let mut others: Vec<usize> = apart[node].iter().filter_map(|&other| socket_of[other]).collect();
                others.sort_unstable();
                others.dedup();
                if let (None, [one]) = (socket_of[node], others.as_slice()) {
                    socket_of[node] = Some(1 - one);
                    is_settled = false;
                }
            }
        }
    }
}

fn is_gpu(name: &str) -> bool {
    name.strip_prefix("GPU")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Returns a line without the escapes by which nvidia-smi underlines its header, also where the escape itself was lost.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let sequence = rest.strip_prefix('\u{1b}').unwrap_or(rest).strip_prefix('[');
        let end = sequence.map(|sequence| digits(sequence).1).and_then(|end| end.strip_prefix('m'));
        rest = end.unwrap_or_else(|| {
            plain.push(letter);
            &rest[letter.len_utf8()..]
        });
    }
    plain
}
