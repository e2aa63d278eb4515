//! A node from the matrices of `rocm-smi --showtopo` and `amd-smi topology`.
//!
//! ```text
//! ====== Weight between two GPUs ======        LINK TYPE TABLE:
//!        GPU0   GPU1                                        0000:05:00.0  0000:26:00.0
//! GPU0   0      15                             0000:05:00.0 SELF          XGMI
//! GPU1   15     0                              0000:26:00.0 XGMI          SELF
//! ====== Link Type between two GPUs ======
//!        GPU0   GPU1                           the types of links: XGMI (Infinity Fabric) or PCIE
//! GPU0   0      XGMI
//! GPU1   XGMI   0
//! GPU[0]  : (Topology) Numa Node: 0
//! ```
//!
//! What the matrices leave open is settled so:
//!
//! - XGMI is printed for every pair that any number of links joins. Direct are the pairs of the least weight, if weights are
//!   there (ROCm/rocm-systems#5763), else all;
//! - the number of links of a pair is that on the model's board of eight; a bridge shares out the links of a GPU. A model of
//!   which pairs have unlike numbers of links (the dies of MI250X) is refused: RCCL's dump has these numbers;
//! - the model is named by `--showproductname` or `amd-smi static` in the same text, or by the caller;
//! - `sockets.rs` finds sockets from NUMA nodes. Without nodes, GPUs are on one socket.

use super::format::{Reader, TextFormat};
use super::model::ModelClues;
use super::sockets;
use crate::error::{Error, Result};
use crate::hardware::gpus::Gpu;
use crate::hardware::{DeviceKind, Fabric};

/// Chosen: more GPUs than any node has.
const MOST_GPUS: usize = 256;

pub(super) const FORMAT: TextFormat = TextFormat {
    name: "rocm-smi --showtopo",
    ending: ".txt",
    made_by: "what it or amd-smi topology prints",
    is_written_so: |text| text.lines().any(|line| title_of(line) == Some(Title::LinkTypes)),
    reader: Reader::TakesGpu(read),
};

/// The titles of the matrices that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Title {
    Weights,
    LinkTypes,
    Other,
}

fn title_of(line: &str) -> Option<Title> {
    let words = line.trim_matches(|letter: char| letter == '=' || letter.is_whitespace());
    match words.to_ascii_lowercase().as_str() {
        "link type between two gpus" | "link type table:" => Some(Title::LinkTypes),
        "weight between two gpus" | "weight table:" => Some(Title::Weights),
        other if line.trim_start().starts_with("===") || other.ends_with("table:") => Some(Title::Other),
        _ => None,
    }
}

/// Reads the matrices of a node; `given` is the model of its GPUs that the caller names, and `origin` what to call it in errors.
///
/// # Errors
/// [`Error::Description`] if rows are missing, or the model is not named.
fn read(text: &str, given: Option<&'static Gpu>, origin: &str) -> Result<Fabric> {
    let wrong = |message: String| Error::Description { origin: origin.to_owned(), message };
    let [types, weights] = [Title::LinkTypes, Title::Weights].map(|title| cells_of(text, title));
    let n = types.len();
    if n == 0 || n > MOST_GPUS || types.iter().any(|row| row.len() < n) {
        return Err(wrong(format!("its table of link types has {n} rows that are not all whole: it is cut off")));
    }
    let mut clues = ModelClues::default();
    clues.names_in(text.lines());
    let gpu = clues.settle(given).map_err(wrong)?;
    if gpu.sm.is_some() {
        return Err(wrong(format!("{} is not of AMD, which prints such matrices", gpu.title)));
    }
    let mut fabric = FORMAT.machine(gpu, n, origin);
    for number in 0..n {
        fabric.add(format!("gpu{number}"), DeviceKind::Gpu);
    }
    add_links(&mut fabric, &types, &weights).map_err(wrong)?;
    let nodes = numa_nodes(text, n);
    let (socket_of, is_divided) = sockets::of_nodes(&nodes, false);
    let seats = fabric.add_sockets(&socket_of, is_divided)?;
    socket_of.iter().enumerate().for_each(|(at, &socket)| fabric.join(at, seats[socket], gpu.pcie, gpu.pcie_lanes));
    Ok(fabric)
}

/// Returns the cells of the rows below a title, up to the next.
fn cells_of(text: &str, title: Title) -> Vec<Vec<&str>> {
    let lines = text.lines().skip_while(|line| title_of(line) != Some(title)).skip(1);
    let rows = lines.take_while(|line| title_of(line).is_none());
    let is_row = |line: &&str| {
        let mut words = line.split_whitespace();
        let is_name = |word: &str| word.starts_with("GPU") || word.contains(':');
        words.next().is_some_and(is_name) && words.next().is_some_and(|word| !is_name(word))
    };
    rows.filter(is_row).map(|line| line.split_whitespace().skip(1).collect()).collect()
}

/// Returns the NUMA node of each GPU: `GPU[0] : (Topology) Numa Node: 0`; 0 where it is missing.
fn numa_nodes(text: &str, n: usize) -> Vec<u32> {
    let mut nodes = vec![0; n];
    for line in text.lines() {
        let named = line.trim_start().strip_prefix("GPU[").and_then(|rest| rest.split_once(']'));
        let Some((gpu, rest)) = named.and_then(|(gpu, rest)| Some((gpu.parse::<usize>().ok()?, rest))) else {
            continue;
        };
        let node = rest.rsplit_once("Numa Node:").and_then(|(_, node)| node.trim().parse().ok());
        if let (Some(place), Some(node)) = (nodes.get_mut(gpu), node) {
            *place = node;
        }
    }
    nodes
}

/// Joins the pairs that Infinity Fabric joins directly.
fn add_links(fabric: &mut Fabric, types: &[Vec<&str>], weights: &[Vec<&str>]) -> std::result::Result<(), String> {
    let (gpu, n) = (fabric.gpu, types.len());
    let pairs = || (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let mut linked = Vec::new();
    for (a, b) in pairs() {
        match (types[a][b], types[b][a]) {
            ("XGMI", "XGMI") => linked.push((a, b)),
            (one, other) if one == other && matches!(one, "PCIE" | "PCIe") => (),
            (one, other) => {
                return Err(format!("GPU{a} to GPU{b} is `{one}`, the other way `{other}`: known are XGMI and PCIE"));
            }
        }
    }
    let weight = |&(a, b): &(usize, usize)| weights.get(a)?.get(b)?.parse::<u32>().ok();
    let least = linked.iter().filter_map(weight).min();
    linked.retain(|pair| weight(pair) == least || weight(pair).is_none());
    if linked.is_empty() {
        return match n > 1 && gpu.has_soldered_nvlinks() {
            true => {
                Err(format!("it has no XGMI, and {n} x {} have them: pass another gpu, or a dump of RCCL", gpu.title))
            }
            false => Ok(()),
        };
    }
    let peers = |a: usize| linked.iter().filter(|(x, y)| *x == a || *y == a).count() as u32;
    let most = (0..n).map(peers).max().unwrap_or(1);
    let lanes = match gpu.full_board {
        Some(all) => gpu.nvlinks / (all - 1),
        None if gpu.needs_bridge => gpu.nvlinks / most,
        None => 0,
    };
    if lanes == 0 || lanes * most > gpu.nvlinks {
        return Err(format!(
            "a GPU reaches {most} others over XGMI, a {} has {} links: the table does not say how many join a pair; pass \
             what NCCL_TOPO_DUMP_FILE wrote with RCCL",
            gpu.title, gpu.nvlinks
        ));
    }
    let Some(medium) = gpu.nvlink else { return Ok(()) };
    linked.iter().for_each(|&(a, b)| fabric.join(a, b, medium, lanes));
    Ok(())
}
