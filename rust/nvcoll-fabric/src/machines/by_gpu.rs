//! The machine of a name without a file: its own name, another name of it, or a number of GPUs of a model.
//!
//! | typed | found |
//! |---|---|
//! | `8xH100`, `h100x8`, `H100` | the board on which the model is sold |
//! | `3xH100`, `1xL40S` | some GPUs of it, or of a box of cards |
//! | `2x3090 nvlink` | cards with bridges |
//! | `4x rtx4090` | four cards, as the drivers of their maker let them reach each other |
//! | `L40S`, `rtx4090` | a model that is sold as a card: one card |
//! | `4xA10G`, `8x3090` | cards that no machine has: in a box of cards with the same PCIe, without bridges |
//! | `p5.48xlarge`, `DGX-1V` | what `known_as.toml` says of makers and clouds |
//! | `2x8xH100`, `2 nodes of hgx-h100`, `16xH100` | nodes, which need a network |
//! | `V100`, `8xV100` | nothing: several models or machines are called so, and the error says how they differ |
//!
//! What is not found names the three machines that come nearest: by model, by number of GPUs, by links, and only then by letters.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::error::{edits, Error, Result};
use crate::hardware::gpu_names::words;
use crate::hardware::gpus::{all, gpus_called, Gpu};
use crate::hardware::names::numbers;
use crate::hardware::network::network;
use crate::hardware::origin::Change;
use crate::hardware::Fabric;
use crate::preset::{rows, Preset};
use crate::topology::cluster::cluster;

use super::divided::{bracketed, divided};

/// How many machines are offered instead of one that there is not. Chosen.
const OFFERED: usize = 3;

/// Words around the name of a GPU that do not say which machine it is: of boards, servers, schedulers, and plurals.
const AROUND: &str =
    "dgx hgx ubb board baseboard server system node machine box rack instance gres gpu gpus s x nvidia \
    amd bm with on of memory air sxm pcie nvl oam nvlink bridge bridges";

/// Words behind a number that is one of nodes.
const NODES: &str = "nodes node servers hosts machines instances systems boxes racks";

/// Letters between a number and what it counts.
const TIMES: [char; 4] = ['x', 'X', '*', '×'];

/// What makers and clouds call machines, with what it is in the grammar of machines.
static KNOWN_AS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let makers: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        toml::from_str(include_str!("known_as.toml")).expect("a test reads the table that is shipped");
    let names = makers.into_values().flatten();
    names.flat_map(|(machine, names)| names.into_iter().map(move |name| (name, machine.clone()))).collect()
});

/// Returns the names that makers and clouds have for machines.
pub fn other_names() -> impl Iterator<Item = &'static str> {
    KNOWN_AS.iter().map(|(name, _)| name.as_str())
}

/// What a text names.
pub(super) enum Named {
    Machine(Fabric),
    /// Nodes, without a network.
    Nodes(Fabric, u32),
}

/// Returns the machine of a name.
///
/// # Errors
/// As [`found`]; [`Error::Description`] for nodes, which need a network.
pub(super) fn named(name: &str) -> Result<Fabric> {
    match found(name)? {
        Named::Machine(fabric) => Ok(fabric),
        Named::Nodes(node, nodes) => Err(no_network(name, &node, nodes)),
    }
}

/// Returns what a name means.
///
/// # Errors
/// [`Error::Unknown`] with the machines that come nearest, and how they differ.
pub(super) fn found(name: &str) -> Result<Named> {
    if let Some(found) = shipped(name)? {
        return Ok(Named::Machine(found));
    }
    if let Some((node, nodes)) = nodes_of(name)? {
        return Ok(if nodes == 1 { Named::Machine(node) } else { Named::Nodes(node, nodes) });
    }
    GpuPhrase::of(name).machine(name)
}

/// Says whether a name is a model of GPU alone, without a number.
pub(super) fn is_model(name: &str) -> bool {
    let phrase = GpuPhrase::of(name);
    !name.contains('[')
        && !phrase.gpus.is_empty()
        && phrase.count.is_none()
        && !begins_with_board(name)
        && matches!(shipped(name), Ok(None))
}

/// Returns the machine that is called so; none if none is.
fn shipped(name: &str) -> Result<Option<Fabric>> {
    let key = key(name);
    if let Some(row) = rows().iter().find(|row| self::key(&row.fabric.name) == key) {
        return Ok(Some(row.fabric.clone()));
    }
    if let Some((known, machine)) = KNOWN_AS.iter().find(|(known, _)| self::key(known) == key) {
        return of_table(machine).map(Some).map_err(|error| error.called(&format!("{known} ({machine})")));
    }
    // `p4d` of `p4d.24xlarge`.
    let is_family = |known: &str| known.split_once('.').is_some_and(|(family, _)| self::key(family) == key);
    let family: Vec<_> = KNOWN_AS.iter().filter(|(known, _)| is_family(known)).collect();
    match family.as_slice() {
        [] => Ok(None),
        [(_, machine)] => of_table(machine).map(Some),
        several => {
            let known: Vec<_> = several.iter().map(|(known, machine)| format!("{known} ({machine})")).collect();
            Err(Error::Unknown { kind: "machine", name: name.to_owned(), known: known.join(", ") })
        }
    }
}

/// Makes the machine that the table has for a name: a machine or some GPUs of one, perhaps with a change.
fn of_table(machine: &str) -> Result<Fabric> {
    let (plain, change) = divided(machine);
    let (stem, ranks) = bracketed(plain);
    let node = named(stem)?;
    let some = match ranks {
        Some(ranks) => node.only(&numbers(ranks).unwrap_or_default(), ranks)?,
        None => node,
    };
    match change {
        Some(change) => some.changed(&Change::of(change)?),
        None => Ok(some),
    }
}

/// Returns the letters and digits of a name, in small letters, without what Azure writes before all of its names.
fn key(name: &str) -> String {
    let key: String = name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    key.strip_prefix("standardn").map_or(key.clone(), |rest| format!("n{rest}"))
}

/// Reads a node and a number of nodes: `NODExN`, `N nodes of NODE`, and `NxNODE` where the node has a number of GPUs of its own.
fn nodes_of(name: &str) -> Result<Option<(Fabric, u32)>> {
    if let Some((stem, Ok(nodes))) = name.rsplit_once(TIMES).map(|(stem, count)| (stem, count.trim().parse::<u32>())) {
        if let Some(node) = shipped(stem.trim_end())?.filter(|_| nodes > 0) {
            return Ok(Some((node, nodes)));
        }
    }
    let lower = name.trim().to_ascii_lowercase();
    let rest = lower.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let Ok(nodes) = lower[..lower.len() - rest.len()].parse::<u32>() else { return Ok(None) };
    let counted = rest.trim_start();
    let node = NODES.split(' ').find_map(|word| counted.strip_prefix(word));
    let times = counted.strip_prefix(TIMES).map(str::trim_start);
    let of_node = node.map(|node| {
        let node = node.trim_start().trim_start_matches("of ").trim_start_matches("with ");
        node.strip_prefix(TIMES).unwrap_or(node).trim_start()
    });
    let is_node = |node: &&str| {
        begins_with_board(node) || shipped(node).is_ok_and(|found| found.is_some()) || GpuPhrase::of(node).is_counted()
    };
    match of_node.or(times.filter(is_node)).filter(|node| nodes > 0 && !node.is_empty()) {
        Some(node) => Ok(Some((named(node)?, nodes))),
        None => Ok(None),
    }
}

fn begins_with_board(name: &str) -> bool {
    ["dgx", "hgx"].iter().any(|board| name.trim().to_ascii_lowercase().starts_with(board))
}

/// Says which networks nodes may have.
fn no_network(name: &str, node: &Fabric, nodes: u32) -> Error {
    let by = match (node.gpu.has_soldered_nvlinks(), node.world_size() > 8) {
        (true, false) => ["ib-ndr-8", "roce-400-8", "efa-400-8"],
        (true, true) => ["ib-ndr-4", "roce-400-4", "ib-xdr-4"],
        (false, _) => ["ib-ndr-1", "roce-400-1", "roce-100-1"],
    };
    let known = by.iter().filter_map(|by| {
        let network = network(by).ok()?;
        Some(format!("{} ({})", cluster(node, nodes, network).ok()?.name, network.title))
    });
    let size = node.world_size();
    let message = format!(
        "{} has {size} GPU{}, and nodes have a network between them: pass one, as {}",
        node.name,
        if size == 1 { "" } else { "s" },
        known.collect::<Vec<_>>().join(", ")
    );
    Error::Description { origin: name.to_owned(), message }
}

/// A number of GPUs of a model, as people type it.
struct GpuPhrase {
    gpus: Vec<&'static Gpu>,
    count: Option<u32>,
    /// Other words.
    rest: Vec<String>,
    /// Whether NVLink joins them.
    is_joined: bool,
}

impl GpuPhrase {
    fn of(name: &str) -> Self {
        let lower = name.trim().to_ascii_lowercase();
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|count| *count > 0);
        let before = lower.split_once(TIMES).and_then(|(count, text)| Some((number(count)?, text)));
        let behind = || lower.rsplit_once(TIMES).and_then(|(text, count)| Some((number(count)?, text)));
        // MI300X ends with an x of its own.
        let is_model = |found: &(u32, &str)| !gpus_called(found.1).is_empty();
        let (count, text) = match before.filter(is_model).or_else(|| behind().filter(is_model)) {
            Some((count, text)) => (Some(count), text.to_owned()),
            None => (None, lower.replace('_', " ")),
        };
        let mut gpus = gpus_called(&text);
        let mut rest = words(&text);
        // `RTX PRO 6000` is a model, and how the names of others begin, whose machines may have more GPUs.
        let has_places =
            |gpu: &Gpu| rows().iter().any(|row| row.fabric.gpu == gpu && count <= Some(row.fabric.world_size()));
        let is_exact = |gpu: &&Gpu| words(&gpu.name) == rest && !gpu.has_soldered_nvlinks() && has_places(gpu);
        if let Some(exact) = gpus.iter().copied().find(is_exact) {
            gpus = vec![exact];
        }
        for gpu in &gpus {
            for own in words(&gpu.name).into_iter().chain(words(&gpu.title)) {
                rest.retain(|word| *word != own);
            }
            // Of the GPU, or of a board of eight.
            let memory = |times: f64| gpu.compute.as_ref().map(|compute| format!("{}gb", times * compute.memory_gb));
            rest.retain(|word| ![memory(1.0), memory(8.0)].iter().flatten().any(|known| known == word));
        }
        let is_joined = rest.iter().any(|word| ["nvlink", "bridge", "bridges"].contains(&word.as_str()));
        rest.retain(|word| !AROUND.split(' ').any(|around| around == word) && word != "hbm");
        let counts: Vec<u32> = rest.iter().filter_map(|word| word.parse().ok()).collect();
        let count = count.or(counts.first().copied().filter(|count| counts.len() == 1 && *count > 0));
        // None of them is a number of GPUs: it stays among the other words.
        rest.retain(|word| word.parse::<u32>().map_or(true, |number| number == 0));
        Self { gpus, count, rest, is_joined }
    }

    fn is_counted(&self) -> bool {
        !self.gpus.is_empty() && self.count.is_some()
    }

    /// Returns the rows whose GPUs are meant; a variant is on the boards of its model.
    fn rows(&self) -> Vec<&'static Preset> {
        let is_meant = |row: &&Preset| {
            self.gpus.iter().any(|gpu| gpu.name == row.fabric.gpu.name || gpu.is_variant_of(row.fabric.gpu))
        };
        rows().iter().filter(is_meant).collect()
    }

    fn machine(&self, name: &str) -> Result<Named> {
        let mut meant = self.rows();
        let board = meant.iter().filter(|row| row.is_board).max_by_key(|row| row.fabric.world_size()).copied();
        if let Some(board) = board {
            // Of several models with a number, the one that is sold on a board is meant.
            meant.retain(|row| row.fabric.gpu == board.fabric.gpu);
        }
        if !self.rest.is_empty() {
            return Err(unknown(name, self));
        }
        if self.is_joined {
            meant.retain(|row| row.fabric.links.iter().any(|link| link.medium.family.joins_gpus()));
        }
        let is_one_model = |rows: &[&'static Preset]| rows.iter().all(|row| row.fabric.gpu == rows[0].fabric.gpu);
        let only = |rows: &[&'static Preset]| rows.first().copied().filter(|_| rows.len() == 1);
        let whole = board.or_else(|| only(&meant)).filter(|_| self.count.is_none());
        if let Some(row) = whole {
            return self.with_model(row.fabric.clone()).map(Named::Machine);
        }
        let is_card = self.gpus.iter().all(|gpu| !gpu.has_soldered_nvlinks());
        let Some(count) = self.count.or(Some(1).filter(|_| is_card)) else { return Err(unknown(name, self)) };
        let of = |rows: &[&'static Preset], is: fn(&Preset) -> bool| {
            only(&rows.iter().copied().filter(|row| is(row)).collect::<Vec<_>>())
        };
        let same: Vec<_> = meant.iter().copied().filter(|row| row.fabric.world_size() == count).collect();
        let stock = || of(&same, |row| row.is_stock).filter(|_| is_one_model(&same));
        if let Some(row) = of(&same, |row| row.is_board).or_else(|| only(&same)).or_else(stock) {
            return self.with_model(row.fabric.clone()).map(Named::Machine);
        }
        let is_one_model = is_one_model(&meant);
        // Some GPUs of a larger machine, the smallest; the links between GPUs are nothing to one.
        let larger = meant.iter().copied().filter(|row| is_one_model && row.fabric.world_size() > count);
        let larger: Vec<_> = larger.filter(|row| row.is_stock || count == 1).collect();
        let smallest = larger.iter().copied().min_by_key(|row| (!row.is_stock, row.fabric.world_size()));
        let largest = meant.iter().copied().filter(|row| is_one_model && row.is_stock);
        let base = board.or(smallest).or_else(|| largest.max_by_key(|row| row.fabric.world_size()));
        match base.filter(|_| is_one_model && same.is_empty()) {
            Some(row) => self.of_machine(count, &row.fabric),
            None => match self.cards(count).filter(|_| count == 1 && meant.is_empty() || is_card && same.is_empty()) {
                Some(row) => self.of_machine(count, &row.fabric),
                None => Err(unknown(name, self)),
            },
        }
    }

    /// Returns a box for cards that no machine has: with their PCIe, the smallest that has places for all, else the largest.
    /// Cards of GeForce reach each other through host memory, as their maker's drivers have it; others directly.
    fn cards(&self, count: u32) -> Option<&'static Preset> {
        let [gpu] = self.gpus[..] else { return None };
        let pcie = |gpu: &Gpu| (gpu.pcie, gpu.pcie_lanes, gpu.c2c);
        let reaches = |row: &Preset| row.fabric.abilities.peer_access != gpu.title.starts_with("GeForce");
        let is_box = |row: &&Preset| row.is_stock && !row.is_board && pcie(row.fabric.gpu) == pcie(gpu);
        let size = |row: &&Preset| row.fabric.world_size();
        let boxes = rows().iter().filter(|row| is_box(row) && (reaches(row) || count == 1));
        boxes
            .clone()
            .filter(|row| size(row) >= count)
            .min_by_key(|row| (!reaches(row), size(row)))
            .or_else(|| boxes.max_by_key(size))
    }

    /// Returns some GPUs of a machine, or nodes of it that have a number of GPUs together.
    fn of_machine(&self, count: u32, machine: &Fabric) -> Result<Named> {
        let size = machine.world_size();
        let nodes = (count.div_ceil(size)..=count).find(|nodes| count.is_multiple_of(*nodes)).unwrap_or(count);
        let each = count / nodes;
        let node = match each == size {
            true => machine.clone(),
            false => {
                let ranks: Vec<u32> = (0..each).collect();
                machine.only(&ranks, &if each == 1 { "0".to_owned() } else { format!("0-{}", each - 1) })?
            }
        };
        let node = self.with_model(node)?;
        Ok(if nodes == 1 { Named::Machine(node) } else { Named::Nodes(node, nodes) })
    }

    fn with_model(&self, fabric: Fabric) -> Result<Fabric> {
        match self.gpus.as_slice() {
            [gpu] if gpu.name != fabric.gpu.name => fabric.changed(&Change::Model(gpu)),
            _ => Ok(fabric),
        }
    }
}

/// Says which machines come nearest, and how they differ.
fn unknown(name: &str, phrase: &GpuPhrase) -> Error {
    let (wanted, meant) = (name.to_ascii_lowercase(), phrase.rows().len());
    let mut nearest: Vec<(_, &Preset)> = rows()
        .iter()
        .map(|row| {
            let has_nvlink = row.fabric.links.iter().any(|link| link.medium.family.joins_gpus());
            let lacks = |gpu: &Gpu| u32::from(meant == 0 && has_nvlink != (gpu.nvlinks > 0));
            let of_model = phrase.gpus.iter().map(|gpu| distance(gpu, row.fabric.gpu) + lacks(gpu)).min();
            let size = row.fabric.world_size();
            let of_count = phrase.count.map_or(u32::MAX - size, |count| count.abs_diff(size));
            let letters = Some(edits(&wanted, &row.fabric.name)).filter(|_| phrase.gpus.is_empty());
            ((of_model, letters, of_count, !row.is_board, !row.is_stock), row)
        })
        .collect();
    nearest.sort_by_key(|(key, _)| *key);
    let is_far = nearest[0].0 .1.is_some_and(|letters| 3 * letters > wanted.len());
    let shown = nearest.iter().map(|(_, row)| format!("{} ({})", row.fabric.name, row.fabric.title));
    let shown: Vec<String> = shown.take(if meant == 0 { OFFERED } else { meant.min(OFFERED) }).collect();
    let known = match (phrase.gpus.first(), meant) {
        (None, _) if is_far => match models_like(name).as_slice() {
            [] => "its number of GPUs and their model (8xH100), a file that describes it, or a name".to_owned(),
            like => format!("{}, models of GPUs that are known", like.join(", ")),
        },
        (None, _) => format!("{}, the nearest of {}", shown.join(", "), nearest.len()),
        (Some(gpu), 0) => format!("{}, the nearest to {}", shown.join(", "), gpu.title),
        (_, meant) => format!("{}, of {meant} with this GPU", shown.join(", ")),
    };
    Error::Unknown { kind: "machine", name: name.to_owned(), known: format!("{known}; `nvcoll fabric` lists all") }
}

/// Returns the models of GPU whose names are nearly the last word of a text, in which a number may stand before it.
fn models_like(text: &str) -> Vec<&'static str> {
    let word = key(text.rsplit([' ', ':']).next().unwrap_or(text));
    let word = word.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start_matches('x');
    let mut near: Vec<_> = all().iter().map(|gpu| (edits(word, &key(&gpu.name)), gpu.name.as_str())).collect();
    near.retain(|(letters, name)| 4 * letters <= name.len().min(word.len()));
    near.sort_unstable();
    near.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// Says how far two models are from each other: their number, their generation, how they are joined, their maker.
fn distance(a: &Gpu, b: &Gpu) -> u32 {
    let number = |gpu: &Gpu| words(&gpu.name).into_iter().take(2).collect::<Vec<_>>();
    let place = |gpu: &Gpu| all().iter().position(|other| other.name == gpu.name).unwrap_or(0);
    let joined = |gpu: &Gpu| (gpu.nvlinks > 0, gpu.needs_bridge);
    let generations = (a.generation as u32).abs_diff(b.generation as u32);
    let makers = u32::from(a.sm.is_some() != b.sm.is_some());
    u32::from(place(a) != place(b))
        + 2 * u32::from(number(a) != number(b))
        + 2 * u32::from(joined(a) != joined(b))
        + 4 * generations
        + 64 * makers
}
