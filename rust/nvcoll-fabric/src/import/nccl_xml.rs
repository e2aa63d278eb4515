//! A node from NCCL's topology in XML: what `NCCL_TOPO_DUMP_FILE` writes and `NCCL_TOPO_FILE` reads; RCCL's too.
//!
//! ```text
//! <system> <cpu numaid vendor modelid>                       a socket, with its memory
//!            <pci class="0x060400" link_speed link_width>    a PCIe switch; its link is the one above it
//!              <pci class="0x030200"> <gpu rank>             a GPU
//!                <nvlink target count tclass/>               NVLinks to a GPU, or (class 0x068000) to an NVSwitch
//!              <pci class="0x020700"> <nic> <net name/>      a NIC
//! ```
//!
//! A dump has one `<nvlink>` for each NVSwitch chip that a GPU is linked to (four on an H100 board: 5 + 5 + 4 + 4 links).
//! Transfers are striped over all chips, so the links add up to one link to one switch.
//!
//! Files that clouds ship list PCIe only and leave the rest to NCCL, which finds it when it runs. Such a file is refused if
//! it has no GPUs, or no NVLinks between GPUs whose links are soldered to the board: nothing would say that the answer is
//! that of another machine. A link without speed has that of the GPU's model. Ranks are the GPUs in the order of the file.
//! The caller says the model.

use std::collections::{BTreeMap, HashMap};

use roxmltree::{Document, Node, NodeId, ParsingOptions};

use super::{abilities_of, check_switch_links, Reader, TextFormat};
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;
use crate::hardware::media::{self, Medium};
use crate::hardware::{DeviceKind, Fabric};

/// The class of PCI devices that NVSwitch chips have. Cited: NCCL, `src/graph/topo.cc`; 0x068001 are processors of POWER9.
const NVSWITCH_CLASS: &str = "0x068000";

/// Chosen: the largest files of single machines have some hundred elements.
const MOST_ELEMENTS: u32 = 1 << 16;

pub(super) const FORMAT: TextFormat = TextFormat {
    name: "NCCL's topology in XML",
    ending: ".xml",
    made_by: "NCCL_TOPO_DUMP_FILE",
    is_written_so: |text| text.trim_start().starts_with('<'),
    reader: Reader::NeedsGpu(read),
};

/// Reads a topology of a node with GPUs of this model; `origin` is what to call it in errors.
///
/// # Errors
/// [`Error::Description`] if it is no such document, has no GPU, or lacks the NVLinks that the model must have.
fn read(text: &str, gpu: &'static Gpu, origin: &str) -> Result<Fabric> {
    let wrong = |message: String| Error::Description { origin: origin.to_owned(), message };
    let options = ParsingOptions { nodes_limit: MOST_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| wrong(error.to_string()))?;
    let mut reading = Reading::new(gpu, origin);
    reading.read(&document).map_err(wrong)?;
    Ok(reading.fabric)
}

/// A fabric that is being read.
struct Reading<'a> {
    fabric: Fabric,
    /// The device that an element became.
    device_of: HashMap<NodeId, usize>,
    /// The GPU at a bus address.
    at_bus: HashMap<&'a str, usize>,
    /// For each GPU, the number of its NVLinks to switches.
    to_switch: BTreeMap<usize, u32>,
}

impl<'a> Reading<'a> {
    fn new(gpu: &'static Gpu, origin: &str) -> Self {
        let fabric = Fabric {
            name: origin.to_owned(),
            title: String::new(),
            gpu,
            devices: Vec::new(),
            links: Vec::new(),
            abilities: abilities_of(gpu),
            sources: vec![format!("NCCL topology {origin}; rates of {}", gpu.source)],
        };
        Self { fabric, device_of: HashMap::new(), at_bus: HashMap::new(), to_switch: BTreeMap::new() }
    }

    fn read(&mut self, document: &'a Document<'_>) -> std::result::Result<(), String> {
        let root = document.root_element();
        if root.tag_name().name() != "system" {
            return Err(format!("it is a <{}>: a topology is a <system>", root.tag_name().name()));
        }
        self.add_gpus(root);
        if self.at_bus.is_empty() {
            return Err("it lists no GPU: NCCL adds them when it runs; pass what NCCL_TOPO_DUMP_FILE wrote".to_owned());
        }
        for element in root.descendants() {
            match element.tag_name().name() {
                "cpu" => self.add_socket(element),
                "pci" => self.add_pci(element),
                "net" => self.add_nic(element),
                _ => Ok(()),
            }?;
        }
        let direct = root.descendants().filter(|element| matches!(element.tag_name().name(), "nvlink" | "xgmi"));
        let mut is_any = false;
        for link in direct {
            is_any = true;
            self.add_nvlink(link)?;
        }
        self.join_switch()?;
        if !is_any && self.fabric.gpu.nvlinks > 0 {
            self.accept_without_nvlinks()?;
        }
        self.fabric.title =
            format!("{} x {}, as NCCL's topology has it", self.fabric.world_size(), self.fabric.gpu.title);
        Ok(())
    }

    /// Joins the GPUs that have links to NVSwitch chips to one switch.
    fn join_switch(&mut self) -> std::result::Result<(), String> {
        let lanes: Vec<u32> = self.to_switch.values().copied().collect();
        check_switch_links(&lanes, self.fabric.gpu)?;
        if !lanes.is_empty() {
            let medium = self.nvlink()?;
            self.fabric.add_nvswitch(medium, self.to_switch.iter().map(|(&gpu, &lanes)| (gpu, lanes)));
        }
        Ok(())
    }

    /// Refuses a file without NVLinks, unless there is one GPU only or the model may do without.
    fn accept_without_nvlinks(&mut self) -> std::result::Result<(), String> {
        let (n, gpu) = (self.fabric.world_size(), self.fabric.gpu);
        if n > 1 && gpu.has_soldered_nvlinks() {
            return Err(format!(
                "it lists no NVLink, and {n} x {} have them: such a file (NCCL_TOPO_FILE) leaves them to NCCL; pass what \
                 NCCL_TOPO_DUMP_FILE wrote on the machine, or name a board, as nvcoll fabric lists them",
                gpu.title
            ));
        }
        self.fabric.sources.push("it lists no NVLink: there is no bridge".to_owned());
        Ok(())
    }

    /// Returns the medium of the model's NVLinks.
    fn nvlink(&self) -> std::result::Result<&'static Medium, String> {
        let medium = self.fabric.gpu.nvlink.as_deref();
        named(medium.ok_or_else(|| format!("a {} has no NVLink: it is another GPU", self.fabric.gpu.title))?)
    }

    /// GPUs come first among the devices, whatever the order of the rest.
    fn add_gpus(&mut self, root: Node<'a, '_>) {
        for element in root.descendants().filter(|element| element.tag_name().name() == "pci") {
            if let (Some(DeviceKind::Gpu), Some(bus)) = (kind_of(element), element.attribute("busid")) {
                let number = self.at_bus.len();
                let at = self.fabric.add(format!("gpu{number}"), DeviceKind::Gpu);
                self.device_of.insert(element.id(), at);
                self.at_bus.insert(bus, at);
            }
        }
    }

    fn add_socket(&mut self, element: Node<'a, '_>) -> std::result::Result<(), String> {
        let socket = self.fabric.add_socket(between_sockets(element)).map_err(|error| error.to_string())?;
        self.device_of.insert(element.id(), socket);
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
        let (medium, lanes) = self.link_of(element)?;
        self.fabric.join(above, at, medium, lanes);
        Ok(())
    }

    /// Adds a network device whose card is not on PCIe, as in virtual machines.
    fn add_nic(&mut self, element: Node<'a, '_>) -> std::result::Result<(), String> {
        let above = self.above(element).ok_or_else(|| "a <net> is outside of any <cpu>".to_owned())?;
        if self.fabric.devices[above].kind == DeviceKind::Nic {
            return Ok(());
        }
        let number = self.fabric.of_kind(DeviceKind::Nic).count();
        let nic = self.fabric.add(format!("nic{number}"), DeviceKind::Nic);
        self.fabric.join(above, nic, named(&self.fabric.gpu.pcie)?, self.fabric.gpu.pcie_lanes);
        Ok(())
    }

    fn add_nvlink(&mut self, element: Node<'a, '_>) -> std::result::Result<(), String> {
        let own = self.above(element).filter(|&at| self.fabric.devices[at].kind == DeviceKind::Gpu);
        let own = own.ok_or_else(|| "a link is outside of any GPU".to_owned())?;
        let (lanes, medium) = (number(element, "count")?, self.nvlink()?);
        if lanes == 0 {
            let gpu = &self.fabric.devices[own].name;
            return Err(format!("count of a link of {gpu} is 0: leave out links that are not there"));
        }
        match (element.attribute("tclass"), element.attribute("target").and_then(|bus| self.at_bus.get(bus))) {
            (Some(NVSWITCH_CLASS), _) => *self.to_switch.entry(own).or_default() += lanes,
            // Both ends list the link.
            (_, Some(&other)) if own < other => self.fabric.join(own, other, medium, lanes),
            (_, Some(_)) => (),
            (_, None) => {
                return Err(format!(
                    "a link of {} leads to {}, which is not there",
                    self.fabric.devices[own].name,
                    element.attribute("target").unwrap_or("nothing")
                ))
            }
        }
        Ok(())
    }

    /// The device of the nearest element around this one that is a device.
    fn above(&self, element: Node<'a, '_>) -> Option<usize> {
        element.ancestors().skip(1).find_map(|around| self.device_of.get(&around.id()).copied())
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
            "" | "Unknown" => &self.fabric.gpu.pcie,
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

fn bus_of<'a>(element: Node<'a, '_>) -> &'a str {
    element.attribute("busid").unwrap_or("a <pci>")
}

fn number(element: Node<'_, '_>, attribute: &str) -> std::result::Result<u32, String> {
    let text = element.attribute(attribute).unwrap_or("");
    let most = |number: &u32| *number <= 1024;
    text.trim()
        .parse()
        .ok()
        .filter(most)
        .ok_or_else(|| format!("{attribute} is `{text}`: it should be a number up to 1024"))
}

/// What a PCI device is, by its class; one that contains others is a switch.
fn kind_of(element: Node<'_, '_>) -> Option<DeviceKind> {
    let has = |tag: &str| element.children().any(|child| child.tag_name().name() == tag);
    match element.attribute("class").map(|class| class.get(..4).unwrap_or("")) {
        Some("0x03" | "0x12") => Some(DeviceKind::Gpu),
        Some("0x02") => Some(DeviceKind::Nic),
        _ if has("gpu") => Some(DeviceKind::Gpu),
        _ if has("nic") => Some(DeviceKind::Nic),
        _ if has("pci") => Some(DeviceKind::PcieSwitch),
        _ => None,
    }
}

/// What joins sockets of this kind. Cited: the models by which NCCL tells them apart (`src/graph/topo.h`).
fn between_sockets(cpu: Node<'_, '_>) -> &'static str {
    let model = cpu.attribute("modelid").and_then(|model| model.parse().ok()).unwrap_or(0);
    match (cpu.attribute("vendor"), model) {
        (Some("AuthenticAMD"), _) => "epyc",
        (Some("GenuineIntel"), 143 | 207 | 173) => "upi2",
        (Some("GenuineIntel"), 85 | 106) => "upi1",
        (Some("GenuineIntel"), _) => "qpi",
        _ => "upi1",
    }
}
