//! What stands where in NCCL's topology in XML: hosts, GPUs, and what the text says of their model. `nccl_xml.rs` makes the
//! machine of it.
//!
//! A host is a `<system>`, or in one `<system>` the `<cpu>` of one `host_hash`. A file that holds several documents is read as
//! one. Ranks come from the file if every GPU has a rank of its own, else from the order of the file.

use std::collections::HashMap;

use roxmltree::{Document, Node, NodeId};

use super::model::ModelClues;
use crate::hardware::{gpus, DeviceKind};

/// The class of PCI devices that NVSwitch chips have. Cited: NCCL, `src/graph/topo.cc`.
pub(super) const NVSWITCH_CLASS: &str = "0x068000";

/// The class that processors of POWER9 have as ends of NVLinks. Cited: as above.
pub(super) const PROCESSOR_CLASS: &str = "0x068001";

/// Chosen: more NUMA nodes than any host has; sockets are joined in pairs.
const MOST_NODES: usize = 256;

/// Puts several documents `<system>` into one root.
pub(super) fn in_one_root(text: &str) -> String {
    if text.matches("<system").count() < 2 {
        return text.to_owned();
    }
    let without_heads: String =
        text.split("<?xml").map(|part| part.split_once("?>").map_or(part, |(_, rest)| rest)).collect();
    format!("<systems>{without_heads}</systems>")
}

/// A document, its hosts and its GPUs.
pub(super) struct Dump<'a, 'i> {
    pub(super) root: Node<'a, 'i>,
    /// For each host, the elements of its NUMA nodes.
    pub(super) hosts: Vec<Vec<Node<'a, 'i>>>,
    /// The elements of GPUs, in the order of ranks.
    pub(super) gpus: Vec<Node<'a, 'i>>,
    /// The host of each NUMA node.
    host_of_node: HashMap<NodeId, usize>,
}

impl<'a, 'i> Dump<'a, 'i> {
    /// Finds the parts of a document.
    ///
    /// # Errors
    /// What the document is instead, or that it has no GPU.
    pub(super) fn of(document: &'a Document<'i>) -> Result<Self, String> {
        let root = document.root_element();
        let other = match root.tag_name().name() {
            "system" | "systems" => None,
            "graphs" => Some("what NCCL_GRAPH_DUMP_FILE wrote"),
            "algo" => Some("an algorithm of MSCCL"),
            "topology" => Some("a topology of hwloc"),
            _ => Some("no topology of NCCL, which is a <system>"),
        };
        if let Some(what) = other {
            let name = root.tag_name().name();
            return Err(format!("it is a <{name}>, {what}: pass what NCCL_TOPO_DUMP_FILE wrote"));
        }
        let mut dump = Self { root, hosts: Vec::new(), gpus: Vec::new(), host_of_node: HashMap::new() };
        let mut known: HashMap<(NodeId, Option<&str>), usize> = HashMap::new();
        for element in root.descendants().filter(|element| element.has_tag_name("cpu")) {
            let key = (element.parent().unwrap_or(root).id(), element.attribute("host_hash"));
            let host = *known.entry(key).or_insert(dump.hosts.len());
            dump.hosts.resize(dump.hosts.len().max(host + 1), Vec::new());
            dump.hosts[host].push(element);
            dump.host_of_node.insert(element.id(), host);
        }
        if let Some(nodes) = dump.hosts.iter().map(Vec::len).max().filter(|nodes| *nodes > MOST_NODES) {
            return Err(format!("a host has {nodes} NUMA nodes: at most {MOST_NODES} are read"));
        }
        let is_gpu = |element: &Node<'_, '_>| element.has_tag_name("pci") && kind_of(*element) == Some(DeviceKind::Gpu);
        dump.gpus = root.descendants().filter(is_gpu).collect();
        if dump.gpus.is_empty() {
            let asks = "pass what NCCL_TOPO_DUMP_FILE wrote, or name a machine, as nvcoll fabric lists them";
            return Err(format!("it lists no GPU: NCCL adds them when it runs; {asks}"));
        }
        let rank = |gpu: &Node<'_, '_>| child(*gpu, "gpu")?.attribute("rank")?.parse::<u32>().ok();
        let mut ranks: Vec<u32> = dump.gpus.iter().filter_map(rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() == dump.gpus.len() {
            dump.gpus.sort_by_key(rank);
        }
        Ok(dump)
    }

    /// Returns the host of an element: the first if the element is in none.
    pub(super) fn host_of(&self, element: Node<'_, '_>) -> usize {
        element.ancestors().find_map(|around| self.host_of_node.get(&around.id()).copied()).unwrap_or(0)
    }

    /// Returns what the elements say of the model.
    ///
    /// # Errors
    /// A count that is no number.
    pub(super) fn clues(&self) -> Result<ModelClues, String> {
        let mut clues = ModelClues::default();
        for element in &self.gpus {
            let id = |attribute| element.attribute(attribute).and_then(|id: &str| id.strip_prefix("0x"));
            if let (Some(vendor), Some(device)) =
                (id("vendor"), id("device").filter(|id| !["0000", "ffff"].contains(id)))
            {
                let id = format!("{vendor}:{device}").to_ascii_lowercase();
                clues.name(&id, gpus::of_pci(&id));
            }
            let Some(gpu) = child(*element, "gpu") else { continue };
            match gpu.attribute("gcn") {
                Some(gcn) => clues.gfx = Some(gfx_of(gcn)),
                None => clues.sm = gpu.attribute("sm").and_then(|sm| sm.parse().ok()).or(clues.sm),
            }
            clues.has_c2c |= child(gpu, "c2c").is_some();
            let counts = |is_taken: fn(&str) -> bool| {
                let links = gpu.children().filter(is_link);
                let taken = links.filter(|link| is_taken(link.attribute("tclass").unwrap_or("")));
                taken.map(|link| number(link, "count")).sum::<Result<u32, String>>()
            };
            clues.most_links = clues.most_links.max(counts(|class| class != PROCESSOR_CLASS)?);
            let to_switch = counts(|class| class == NVSWITCH_CLASS)?;
            clues.to_switch = clues.to_switch.max((to_switch > 0).then_some(to_switch));
        }
        Ok(clues)
    }
}

pub(super) fn bus_of<'a>(element: Node<'a, '_>) -> &'a str {
    element.attribute("busid").unwrap_or("a <pci>")
}

pub(super) fn number(element: Node<'_, '_>, attribute: &str) -> Result<u32, String> {
    let text = element.attribute(attribute).unwrap_or("");
    let most = |number: &u32| *number <= 1024;
    text.trim()
        .parse()
        .ok()
        .filter(most)
        .ok_or_else(|| format!("{attribute} is `{text}`: it should be a number up to 1024"))
}

pub(super) fn child<'a, 'i>(element: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    element.children().find(|child| child.has_tag_name(name))
}

/// Says whether an element is a link of a GPU to another device.
pub(super) fn is_link(element: &Node<'_, '_>) -> bool {
    matches!(element.tag_name().name(), "nvlink" | "xgmi")
}

/// Returns AMD's name of an instruction set, which RCCL wrote as `gfx942`, `908`, and `910` for gfx90a.
fn gfx_of(gcn: &str) -> String {
    match gcn.trim_start_matches("gfx") {
        "910" => "gfx90a".to_owned(),
        other => format!("gfx{other}"),
    }
}

/// What a PCI device is, by its class; one that contains others is a switch.
pub(super) fn kind_of(element: Node<'_, '_>) -> Option<DeviceKind> {
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
