//! A node from NCCL's topology in XML: what `NCCL_TOPO_DUMP_FILE` writes and `NCCL_TOPO_FILE` reads; RCCL's too.
//!
//! ```text
//! <system> <cpu host_hash numaid vendor modelid>         a NUMA node of a host; `sockets.rs` finds its socket
//!            <pci class="0x060400" link_speed link_width>    a PCIe switch; its link is the one above it
//!              <pci class="0x030200" vendor device>          a GPU; its model is known by vendor and device, or by what fits
//!                <gpu rank sm gcn>
//!                  <nvlink target count tclass/>             NVLinks to a GPU, an NVSwitch (0x068000) or a processor (0x068001)
//!                  <xgmi target count/> <c2c/>               Infinity Fabric to a GPU; a coherent link to the processor
//!              <pci class="0x020700"> <nic> <net speed/>     a NIC and the Mbit/s of its port
//! ```
//!
//! A dump has one `<nvlink>` for each NVSwitch chip that a GPU is linked to (four on an H100 board: 5 + 5 + 4 + 4 links).
//! Transfers are striped over all chips, so the links add up to one link to one switch.
//!
//! Files that clouds ship list PCIe only and leave the rest to NCCL, which finds it when it runs. Such a file is completed if
//! its number of GPUs equals the number on the one board that links all GPUs of the model to each other. Otherwise it is refused if
//! it has no GPUs, or no NVLinks between GPUs whose links are soldered to the board: the answer would silently be
//! about another machine. A link without speed has the speed of the GPU's model.
//!
//! The dump of a rack of NVLink has several hosts (`nccl_dump.rs`): each is a tray of one node.

use std::collections::{BTreeMap, HashMap};

use roxmltree::{Document, Node, NodeId, ParsingOptions};

use super::format::{check_switch_links, Reader, TextFormat};
use super::nccl_dump::{bus_of, child, in_one_root, is_link, kind_of, number, Dump, NVSWITCH_CLASS, PROCESSOR_CLASS};
use super::sockets;
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;
use crate::hardware::media::{self, Medium};
use crate::hardware::{DeviceKind, Fabric};
use crate::preset::presets;

/// The medium of NVLinks to processors of POWER9.
const TO_POWER9: &str = "nvlink2-cpu";

/// Chosen: the largest files of single machines have some hundred elements.
const MOST_ELEMENTS: u32 = 1 << 16;

pub(super) const FORMAT: TextFormat = TextFormat {
    name: "NCCL's topology in XML",
    ending: ".xml",
    made_by: "NCCL_TOPO_DUMP_FILE",
    is_written_so: |text| text.trim_start().starts_with('<'),
    reader: Reader::TakesGpu(read),
};

/// Reads a topology of a node; `given` is the model of its GPUs that the caller names, and `origin` what to call it in errors.
///
/// # Errors
/// [`Error::Description`] if it is no such document, has no GPU, does not name the model, or lacks the NVLinks that the
/// model must have.
fn read(text: &str, given: Option<&'static Gpu>, origin: &str) -> Result<Fabric> {
    let wrong = |message: String| Error::Description { origin: origin.to_owned(), message };
    let options = ParsingOptions { nodes_limit: MOST_ELEMENTS, ..ParsingOptions::default() };
    let text = in_one_root(text);
    let document = Document::parse_with_options(&text, options).map_err(|error| wrong(error.to_string()))?;
    let dump = Dump::of(&document).map_err(wrong)?;
    let clues = dump.clues().map_err(wrong)?;
    let gpu = clues.settle(given).map_err(wrong)?;
    let mut reading = Reading::new(FORMAT.machine(gpu, dump.gpus.len(), origin));
    reading.read(&dump).map_err(wrong)?;
    reading.fabric.sources.extend(clues.substitution(reading.fabric.gpu));
    Ok(reading.fabric)
}

/// A fabric that is being read.
struct Reading<'a> {
    fabric: Fabric,
    /// The device that an element became.
    device_of: HashMap<NodeId, usize>,
    /// The GPU at a bus address of a host.
    at_bus: HashMap<(usize, &'a str), usize>,
    /// For each GPU, the number of its NVLinks to switches.
    to_switch: BTreeMap<usize, u32>,
    /// The number of links from a GPU to another, as the first lists them.
    direct: BTreeMap<(usize, usize), u32>,
}

impl<'a> Reading<'a> {
    fn new(fabric: Fabric) -> Self {
        let (device_of, at_bus) = (HashMap::new(), HashMap::new());
        Self { fabric, device_of, at_bus, to_switch: BTreeMap::new(), direct: BTreeMap::new() }
    }

    fn read(&mut self, dump: &Dump<'a, '_>) -> std::result::Result<(), String> {
        self.add_gpus(dump)?;
        self.add_sockets(dump)?;
        for element in dump.root.descendants() {
            match element.tag_name().name() {
                "pci" => self.add_pci(element),
                "net" => self.add_nic(element),
                _ => Ok(()),
            }?;
        }
        for link in dump.root.descendants().filter(is_link) {
            self.add_link(link, dump.host_of(link))?;
        }
        let is_any = !self.direct.is_empty() || !self.to_switch.is_empty();
        self.join_gpus()?;
        if !is_any && self.fabric.gpu.nvlinks > 0 {
            self.complete(dump)?;
        }
        self.check_hosts(dump)
    }

    /// Joins the GPUs that have links to NVSwitch chips to one switch, and the pairs that have links to each other.
    fn join_gpus(&mut self) -> std::result::Result<(), String> {
        let lanes: Vec<u32> = self.to_switch.values().copied().collect();
        check_switch_links(&lanes, self.fabric.gpu)?;
        if !lanes.is_empty() {
            let medium = self.nvlink()?;
            self.fabric.add_nvswitch(medium, self.to_switch.iter().map(|(&gpu, &lanes)| (gpu, lanes)));
        }
        for (&(from, to), &lanes) in &self.direct {
            let (gpu, back) = (self.fabric.gpu, self.direct.get(&(to, from)).copied());
            if lanes > gpu.nvlinks && gpu.nvlinks > 0 {
                return Err(format!(
                    "two GPUs are joined by {lanes} links, a {} has {}: it is another GPU",
                    gpu.title, gpu.nvlinks
                ));
            }
            // Both ends list the links, as a rule.
            if from < to || back.is_none() {
                let medium = self.nvlink()?;
                self.fabric.join(from, to, medium, lanes.max(back.unwrap_or(0)));
            }
        }
        Ok(())
    }

    /// Adds the links that a file without any leaves to NCCL, if the number of GPUs leaves no doubt about them.
    fn complete(&mut self, dump: &Dump<'_, '_>) -> std::result::Result<(), String> {
        let (n, gpu) = (self.fabric.world_size(), self.fabric.gpu);
        if n < 2 || !gpu.has_soldered_nvlinks() {
            self.fabric.sources.push("it lists no NVLink: there is no bridge".to_owned());
            return Ok(());
        }
        let is_of_running_job = dump.gpus.iter().any(|element| child(*element, "gpu").is_some());
        if gpu.full_board != Some(n) || is_of_running_job {
            let is_such = |board: &&Fabric| board.gpu == gpu && board.world_size() >= n;
            let boards: Vec<&str> = presets().iter().filter(is_such).map(|board| board.name.as_str()).collect();
            let reason = match is_of_running_job {
                true => "they were down when NCCL wrote it; pass a dump with them",
                false => "such a file (NCCL_TOPO_FILE) leaves them to NCCL; pass what NCCL_TOPO_DUMP_FILE wrote on the machine",
            };
            let names = if boards.is_empty() { "one that nvcoll fabric lists".to_owned() } else { boards.join(", ") };
            return Err(format!(
                "it lists no NVLink, and {n} x {} have them: {reason}, or name a machine: {names}",
                gpu.title
            ));
        }
        let medium = self.nvlink()?;
        let what = match gpu.nvlinks % (n - 1) {
            0 => {
                let gpus = self.fabric.gpus();
                for (nth, &from) in gpus.iter().enumerate() {
                    gpus[nth + 1..].iter().for_each(|&to| self.fabric.join(from, to, medium, gpu.nvlinks / (n - 1)));
                }
                format!("{} between every pair", gpu.nvlinks / (n - 1))
            }
            _ => {
                let gpus = self.fabric.gpus();
                self.fabric.add_nvswitch(medium, gpus.into_iter().map(|at| (at, gpu.nvlinks)));
                format!("{} of each GPU to NVSwitch", gpu.nvlinks)
            }
        };
        self.fabric
            .sources
            .push(format!("it lists no links between GPUs; added as on every board of {n} x {}: {what}", gpu.title));
        Ok(())
    }

    /// Refuses several hosts that are not one domain of NVLink.
    fn check_hosts(&self, dump: &Dump<'_, '_>) -> std::result::Result<(), String> {
        let mut hosts: Vec<usize> = dump.gpus.iter().map(|gpu| dump.host_of(*gpu)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let is_rack = self.fabric.gpu.c2c.is_some() && self.to_switch.len() == dump.gpus.len();
        if hosts.len() > 1 && !is_rack {
            return Err(format!(
                "it has GPUs of {} hosts, and NVLinks of {} do not join hosts: pass the <system> of one, and add nodes and \
                 network to its name, as nccl.xmlx{}+ib-ndr-8",
                hosts.len(),
                self.fabric.gpu.title,
                hosts.len()
            ));
        }
        Ok(())
    }

    /// Returns the medium of the model's NVLinks.
    fn nvlink(&self) -> std::result::Result<&'static Medium, String> {
        let gpu = self.fabric.gpu;
        gpu.nvlink.ok_or_else(|| format!("a {} has no NVLink: it is another GPU", gpu.title))
    }

    /// GPUs come first among the devices, whatever the order of the rest.
    fn add_gpus(&mut self, dump: &Dump<'a, '_>) -> std::result::Result<(), String> {
        for (number, element) in dump.gpus.iter().enumerate() {
            let host = dump.host_of(*element);
            let at = self.fabric.add(format!("gpu{number}"), DeviceKind::Gpu);
            self.fabric.devices[at].tray = (dump.hosts.len() > 1).then_some(host as u32);
            self.device_of.insert(element.id(), at);
            let bus = bus_of(*element);
            if self.at_bus.insert((host, bus), at).is_some() {
                return Err(format!("two GPUs have busid {bus}: tell hosts apart by host_hash or a <system> each"));
            }
        }
        Ok(())
    }

    /// Adds the sockets of every host that has anything on them, and joins the sockets of one host.
    fn add_sockets(&mut self, dump: &Dump<'a, '_>) -> std::result::Result<(), String> {
        let mut is_divided = false;
        for nodes in &dump.hosts {
            let nodes: Vec<_> = nodes.iter().filter(|node| node.children().any(|child| child.is_element())).collect();
            let numbers: Vec<u32> =
                nodes.iter().map(|node| node.attribute("numaid").and_then(|id| id.parse().ok()).unwrap_or(0)).collect();
            let are_sockets = nodes.iter().any(|node| matches!(node.attribute("arch"), Some("arm64" | "ppc64")));
            let (sockets, of_several) = sockets::of_nodes(&numbers, are_sockets);
            is_divided |= of_several;
            let mut added: Vec<usize> = Vec::new();
            for number in 0..sockets.iter().max().map_or(0, |last| last + 1) {
                let mut of_socket = nodes.iter().zip(&sockets).filter(|(_, socket)| **socket == number);
                let between = of_socket.next().map_or("upi1", |(node, _)| between_sockets(**node, self.fabric.gpu));
                added.push(self.fabric.add_socket(&added, (between, 1)).map_err(|error| error.to_string())?);
            }
            self.device_of.extend(nodes.iter().zip(&sockets).map(|(node, &socket)| (node.id(), added[socket])));
        }
        if is_divided {
            self.fabric.sources.push(sockets::DIVIDED.to_owned());
        }
        Ok(())
    }

    fn add_pci(&mut self, element: Node<'a, '_>) -> std::result::Result<(), String> {
        let Some(above) = self.above(element) else {
            return Err(format!("{} is outside of any <cpu>", bus_of(element)));
        };
        let at = match self.device_of.get(&element.id()) {
            Some(&gpu) => gpu,
            None if kind_of(element) == Some(DeviceKind::PcieSwitch) => {
                let number = self.fabric.of_kind(DeviceKind::PcieSwitch).count();
                self.fabric.add(format!("pcie{number}"), DeviceKind::PcieSwitch)
            }
            None if kind_of(element) == Some(DeviceKind::Nic) => {
                let number = self.fabric.of_kind(DeviceKind::Nic).count();
                self.fabric.add(format!("nic{number}"), DeviceKind::Nic)
            }
            None => return Ok(()),
        };
        self.device_of.insert(element.id(), at);
        match self.fabric.gpu.c2c.filter(|_| self.fabric.devices[at].kind == DeviceKind::Gpu) {
            Some(c2c) => self.fabric.join(self.socket_of(element)?, at, c2c, 1),
            None => {
                let (medium, lanes) = self.link_of(element)?;
                self.fabric.join(above, at, medium, lanes);
            }
        }
        Ok(())
    }

    /// Adds a network device: a port of the card around it, or a card that is not on PCIe, as in virtual machines.
    fn add_nic(&mut self, element: Node<'a, '_>) -> std::result::Result<(), String> {
        let above = self.above(element).ok_or_else(|| "a <net> is outside of any <cpu>".to_owned())?;
        let at = match self.fabric.devices[above].kind {
            DeviceKind::Nic => above,
            _ => {
                let number = self.fabric.of_kind(DeviceKind::Nic).count();
                let at = self.fabric.add(format!("nic{number}"), DeviceKind::Nic);
                let (medium, lanes) = (self.fabric.gpu.pcie, self.fabric.gpu.pcie_lanes);
                self.fabric.join(above, at, medium, lanes);
                at
            }
        };
        let speed: Option<u32> =
            element.attribute("speed").and_then(|speed| speed.parse().ok()).filter(|speed| *speed > 0);
        if let Some(mbits) = speed {
            let port = &mut self.fabric.devices[at].port_mbits;
            *port = Some(port.unwrap_or(0).saturating_add(mbits));
        }
        Ok(())
    }

    fn add_link(&mut self, element: Node<'a, '_>, host: usize) -> std::result::Result<(), String> {
        let own = self.above(element).filter(|&at| self.fabric.devices[at].kind == DeviceKind::Gpu);
        let own = own.ok_or_else(|| "a link is outside of any GPU".to_owned())?;
        let lanes = number(element, "count")?;
        let gpu = &self.fabric.devices[own].name;
        if lanes == 0 {
            return Err(format!("count of a link of {gpu} is 0: leave out links that are not there"));
        }
        let target = element.attribute("target").unwrap_or("nothing");
        match (element.attribute("tclass"), self.at_bus.get(&(host, target))) {
            (Some(NVSWITCH_CLASS), _) => *self.to_switch.entry(own).or_default() += lanes,
            (Some(PROCESSOR_CLASS), _) => {
                let socket = self.socket_of(element)?;
                self.fabric.join(own, socket, named(TO_POWER9)?, lanes);
            }
            (_, Some(&other)) if own == other => {
                return Err(format!(
                    "a link of {gpu} leads to itself ({target}): write the busid of the other GPU, or leave the link out"
                ));
            }
            (_, Some(&other)) => *self.direct.entry((own, other)).or_default() += lanes,
            (_, None) => return Err(format!("a link of {gpu} leads to {target}, which is not there")),
        }
        Ok(())
    }

    /// The device of the nearest element around this one that is a device.
    fn above(&self, element: Node<'a, '_>) -> Option<usize> {
        element.ancestors().skip(1).find_map(|around| self.device_of.get(&around.id()).copied())
    }

    /// The socket around an element.
    fn socket_of(&self, element: Node<'a, '_>) -> std::result::Result<usize, String> {
        let cpu = element.ancestors().find(|around| around.has_tag_name("cpu"));
        let socket = cpu.and_then(|cpu| self.device_of.get(&cpu.id()).copied());
        socket.ok_or_else(|| format!("{} is outside of any <cpu>", bus_of(element)))
    }

    /// What joins a PCI device to what is above it.
    fn link_of(&self, element: Node<'a, '_>) -> std::result::Result<(&'static Medium, u32), String> {
        let speed = element.attribute("link_speed").and_then(|speed| speed.split_whitespace().next()).unwrap_or("");
        let lanes = element.attribute("link_width").map_or(Ok(0), |_| number(element, "link_width"))?;
        let medium = match speed.trim_end_matches(".0") {
            "2.5" => "pcie1",
            "5" => "pcie2",
            "8" => "pcie3",
            "16" => "pcie4",
            "32" => "pcie5",
            "64" => "pcie6",
            "" | "Unknown" => &self.fabric.gpu.pcie.name,
            other => {
                return Err(format!(
                    "{} has a link of `{other}`: PCIe has 2.5, 5, 8, 16, 32 or 64 GT/s",
                    bus_of(element)
                ))
            }
        };
        Ok((named(medium)?, if lanes == 0 { self.fabric.gpu.pcie_lanes } else { lanes }))
    }
}

fn named(medium: &str) -> std::result::Result<&'static Medium, String> {
    media::named(medium).map_err(|error| error.to_string())
}

/// What joins sockets of this kind. Cited: the models by which NCCL tells them apart (`src/graph/topo.h`).
fn between_sockets<'g>(cpu: Node<'_, '_>, gpu: &'g Gpu) -> &'g str {
    let model = cpu.attribute("modelid").and_then(|model| model.parse().ok()).unwrap_or(0);
    match (cpu.attribute("arch"), cpu.attribute("vendor"), model) {
        (Some("ppc64"), ..) => "xbus",
        (_, Some("AuthenticAMD"), _) => "epyc",
        (_, Some("GenuineIntel"), 143 | 207 | 173) => "upi2",
        (_, Some("GenuineIntel"), 85 | 106) => "upi1",
        (_, Some("GenuineIntel"), _) => "qpi",
        _ => sockets::between(gpu),
    }
}
