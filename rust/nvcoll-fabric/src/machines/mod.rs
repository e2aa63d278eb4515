//! Machines by what people type: one grammar for every command and every function.
//!
//! ```text
//! list    = machine ("," machine)*                commas in brackets belong to a machine, those before a change to the changes
//! machine = node ["[" ranks "]"] ["x" N "+" NETWORK] (" with " change)*
//! node    = PRESET | OTHER NAME | FILE | N "x" GPU | GPU ["x" N]
//! N "x" node "+" NETWORK, N "nodes of" node "+" NETWORK: as people write clusters, too
//! change  = FAMILY "x" F | "nics" N | "pcie" | "gpu" GPU | "socket" MEDIUM "x" N | "ram" GIB
//! ```
//!
//! A file describes a node or, in TOML, a network; its name has an ending of [`crate::import::FORMATS`], or a slash. Letters may be
//! small or capital. A machine's name parses back to the machine. `by_gpu.rs` finds the machine of a GPU's name, and
//! `divided.rs` has the places at which a text is divided.

mod by_gpu;
mod divided;

pub use by_gpu::other_names;
use by_gpu::Named;

use std::sync::Arc;

use crate::error::{shortened, Error, Result};
use crate::hardware::gpus::Gpu;
use crate::hardware::names::numbers;
use crate::hardware::network::{network, Network};
use crate::hardware::origin::Change;
use crate::hardware::{Fabric, Origin};
use crate::import::FORMATS;
use crate::topology::cluster::cluster;

use divided::{bracketed, divided};

/// Reads the text of a file.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String>;

/// Makes the machines of a list. `gpu` is the model of the GPUs of described files that do not name it; `read` reads files.
///
/// # Errors
/// [`Error::Unknown`] with the machines that come nearest; [`Error::Description`] for what is no machine, or if no file wants `gpu`;
/// the errors of [`Fabric::from_text`], of [`cluster`] and of changes.
pub fn machines(text: &str, gpu: Option<&'static Gpu>, read: ReadFile<'_>) -> Result<Vec<Fabric>> {
    let listed = split(text);
    let wrong = |message: &str| Err(Error::Description { origin: text.trim().to_owned(), message: message.to_owned() });
    if listed.is_empty() {
        return wrong("no machine is named: pass one, as hgx-h100; nvcoll fabric lists them");
    }
    if gpu.is_some() && !takes_gpu(text) {
        return wrong(
            "`gpu` is for files that may leave their GPUs unnamed, of nvidia-smi, amd-smi and NCCL: none is named; for another model \
             with the same links add a change, as `hgx-a100 with gpu a100-sxm-40gb`",
        );
    }
    listed.iter().map(|one| machine(one, gpu, read)).collect()
}

/// Makes the machine of a name without files.
///
/// # Errors
/// As [`machines`]; [`Error::Description`] if there are several.
pub fn preset(name: &str) -> Result<Fabric> {
    let wrong = |message: &str| Error::Description { origin: name.to_owned(), message: message.to_owned() };
    let mut found = machines(name, None, &|_| Err(wrong("files are not read here")))?;
    found.pop().filter(|_| found.is_empty()).ok_or_else(|| wrong("these are several machines: pass one"))
}

/// Divides a list at commas; a change belongs to the machine before it, where that has changes.
pub fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for letter in text.chars() {
        depth = depth + usize::from(letter == '[') - usize::from(letter == ']' && depth > 0);
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("there is one").push(letter),
        }
    }
    let mut machines: Vec<String> = Vec::new();
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        match machines.last_mut().filter(|machine| divided(machine).1.is_some() && Change::of(part).is_ok()) {
            Some(machine) => *machine = format!("{machine} with {part}"),
            None => machines.push(part.to_owned()),
        }
    }
    machines
}

/// Divides node, nodes and network of a cluster.
fn cluster_of(machine: &str) -> Option<(&str, u32, &str)> {
    machine.match_indices('+').rev().find_map(|(at, _)| {
        let (before, network) = (machine[..at].trim_end(), machine[at + 1..].trim());
        let (node, nodes) = before.rsplit_once(['x', 'X', '*', '×'])?;
        let is_there = !network.is_empty() && !node.trim().is_empty();
        Some((node.trim_end(), nodes.trim().parse().ok()?, network)).filter(|_| is_there)
    })
}

fn is_file(name: &str) -> bool {
    name.contains(std::path::MAIN_SEPARATOR) || ending_of(name).is_some()
}

fn ending_of(name: &str) -> Option<&'static str> {
    let ends = |ending: &&str| name.len() > ending.len() && name.to_ascii_lowercase().ends_with(ending);
    FORMATS.iter().map(|format| format.ending).find(ends)
}

/// Says whether the node of a machine in a list is a file that may leave the model of its GPUs open.
pub fn takes_gpu(list: &str) -> bool {
    split(list).iter().any(|machine| may_be_open(machine))
}

fn may_be_open(machine: &str) -> bool {
    let plain = divided(machine).0;
    let node = cluster_of(plain).map_or(plain, |(node, ..)| node);
    let reads = |ending: &str| FORMATS.iter().any(|format| format.ending == ending && format.takes_gpu());
    is_file(node) && ending_of(node).is_none_or(reads)
}

fn machine(text: &str, gpu: Option<&'static Gpu>, read: ReadFile<'_>) -> Result<Fabric> {
    let (plain, changes) = divided(text);
    let lower = changes.unwrap_or("").to_ascii_lowercase();
    let changes: Result<Vec<Change>> =
        lower.split(" with ").filter(|change| !change.is_empty()).map(Change::of).collect();
    let (made, own) = match cluster_of(plain) {
        Some((name, nodes, by)) if !is_file(name) && by_gpu::is_model(name) => {
            let message = format!("`{name}x{nodes}` is {nodes} GPUs, or {nodes} nodes: write {nodes}x{name}+{by}, or 8x{name}x{nodes}+{by}");
            return Err(Error::Description { origin: plain.to_owned(), message });
        }
        Some((name, nodes, by)) => {
            let (node, own) = node(name, gpu, read)?;
            (cluster(&node, nodes, &network_of(by, read)?)?, own)
        }
        None if plain.contains('+') && !is_file(plain) => {
            let (nodes, by) = plain.rsplit_once('+').unwrap_or((plain, ""));
            let Ok(Named::Nodes(node, nodes)) = by_gpu::found(nodes) else {
                let message = "no cluster is written so: write hgx-h100x4+ib-ndr-8, four nodes and their network";
                return Err(Error::Description { origin: plain.to_owned(), message: message.to_owned() });
            };
            let (node, own) = unchanged(node, read)?;
            (cluster(&node, nodes, &network_of(by.trim(), read)?)?, own)
        }
        None => node(plain, gpu, read)?,
    };
    made.with_changes(&[own, changes?].concat())
}

/// Returns the machine without the changes that a name stands for, and these: behind GPUs and network they belong to the whole.
fn unchanged(found: Fabric, read: ReadFile<'_>) -> Result<(Fabric, Vec<Change>)> {
    if found.origin.changes.is_empty() {
        return Ok((found, Vec::new()));
    }
    let (plain, _) = node(divided(&found.name).0, None, read)?;
    Ok((plain, found.origin.changes))
}

fn network_of(by: &str, read: ReadFile<'_>) -> Result<Network> {
    match is_file(by) {
        true => Network::from_text(&read(by)?, file_name(by)),
        false => network(by).cloned(),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(std::path::MAIN_SEPARATOR).next().unwrap_or(path)
}

/// Makes a node, or of one the GPUs that `name[0-3,5]` names. The changes that its name stands for are not made yet.
fn node(name: &str, gpu: Option<&'static Gpu>, read: ReadFile<'_>) -> Result<(Fabric, Vec<Change>)> {
    let (stem, ranks) = bracketed(name);
    if stem.is_empty() {
        let message = format!("this names GPUs of no machine: write hgx-h100{}", shortened(name));
        return Err(Error::Description { origin: name.to_owned(), message });
    }
    let found = match is_file(stem) {
        true => {
            let gpu = gpu.filter(|_| may_be_open(stem)).map(|gpu| gpu.name.as_str());
            Fabric::from_text(&read(stem)?, gpu, file_name(stem))?
        }
        // A file that is there may have any name.
        false => by_gpu::named(stem).or_else(|unknown| match read(stem) {
            Ok(text) => Fabric::from_text(&text, None, stem),
            Err(_) => Err(unknown),
        })?,
    };
    let (found, own) = unchanged(found, read)?;
    let Some(ranks) = ranks else { return Ok((found, own)) };
    let wrong = || Error::Description {
        origin: name.to_owned(),
        message: format!("`[{}]` names no GPUs: write {stem}[0-3] or {stem}[0,2,5]", shortened(ranks)),
    };
    Ok((found.only(&numbers(ranks).ok_or_else(wrong)?, ranks)?, own))
}

impl Fabric {
    /// Returns the machine with some of its GPUs, whose name has the ranks as they were written.
    ///
    /// # Errors
    /// As [`Fabric::among`].
    fn only(&self, ranks: &[u32], written: &str) -> Result<Fabric> {
        let among = self.among(ranks)?;
        let title = format!("{} of ({})", among.world_size(), self.title);
        let origin = Origin { whole: Some(Arc::new(self.clone())), ..Origin::default() };
        Ok(Fabric { name: format!("{}[{written}]", self.name), title, origin, ..among })
    }
}
