//! The machine of a name without a file: its own name, another name of it, or a number of GPUs of a model.
//!
//! | typed | found |
//! |---|---|
//! | `8xH100`, `h100x8`, `H100` | the board on which the model is sold |
//! | `3xH100` | three GPUs of it |
//! | `4x rtx4090` | four cards, as the drivers of their maker let them reach each other |
//! | `L40S`, `h100-pcie` | nothing: several machines have them, and the error says how they differ |
//!
//! What is not found names the three machines that come nearest: by model, by number of GPUs, by links, and only then by letters.

use crate::error::{edits, Error, Result};
use crate::hardware::gpu_names::words;
use crate::hardware::gpus::{all, gpus_called, Gpu};
use crate::hardware::network::network;
use crate::hardware::origin::Change;
use crate::hardware::Fabric;
use crate::preset::{rows, Preset};

/// How many machines are offered instead of one that there is not. Chosen.
const OFFERED: usize = 3;

/// Words around the name of a GPU that do not say which machine it is: of boards, servers, and rows of clouds.
const AROUND: [&str; 35] = [
    "dgx",
    "hgx",
    "ubb",
    "board",
    "baseboard",
    "server",
    "system",
    "node",
    "machine",
    "box",
    "rack",
    "instance",
    "gpu",
    "gpus",
    "x",
    "nvidia",
    "amd",
    "nd",
    "standard",
    "isr",
    "asr",
    "rs",
    "amsr",
    "v",
    "bm",
    "m",
    "with",
    "on",
    "memory",
    "air",
    "sxm",
    "pcie",
    "nvl",
    "oam",
    "nvlink",
];

/// Returns the machine of a name.
///
/// # Errors
/// [`Error::Unknown`] with the machines that come nearest, and how they differ; [`Error::Description`] for more GPUs than a board has,
/// without a network.
pub(super) fn named(name: &str) -> Result<Fabric> {
    if let Some(found) = shipped(name)? {
        return Ok(found);
    }
    let phrase = GpuPhrase::of(name);
    if phrase.gpus.is_empty() {
        return Err(unknown(name, &phrase));
    }
    if let Some((stem, count)) = nodes_of(name) {
        let networks =
            ["ib-ndr-8", "roce-400-8", "efa-400-8"].map(|network| format!("{}x{count}+{network}", stem.name));
        let message = format!("nodes have a network between them: add +NETWORK, as {}", networks.join(", "));
        return Err(Error::Description { origin: name.to_owned(), message });
    }
    phrase.machine(name)
}

/// Returns the machine that is called so; none if none is.
fn shipped(name: &str) -> Result<Option<Fabric>> {
    let key = key(name);
    if let Some(row) = rows().iter().find(|row| self::key(&row.fabric.name) == key) {
        return Ok(Some(row.fabric.clone()));
    }
    for row in rows() {
        for also in &row.also {
            let (other, change) = also.split_once(" with ").unwrap_or((also, ""));
            if self::key(other) == key {
                let changes = [change].into_iter().filter(|change| !change.is_empty()).map(Change::of);
                return row.fabric.clone().with_changes(&changes.collect::<Result<Vec<_>>>()?).map(Some);
            }
        }
    }
    Ok(None)
}

/// Returns the letters and digits of a name, in small letters.
fn key(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Reads the name of a machine, `x` and a number, as clusters have it.
fn nodes_of(name: &str) -> Option<(Fabric, u32)> {
    let (stem, count) = name.rsplit_once(['x', 'X'])?;
    Some((shipped(stem.trim_end()).ok()??, count.trim().parse().ok()?))
}

/// A number of GPUs of a model, as people type it.
struct GpuPhrase {
    gpus: Vec<&'static Gpu>,
    count: Option<u32>,
    /// Words that say something else.
    rest: Vec<String>,
}

impl GpuPhrase {
    fn of(name: &str) -> Self {
        let lower = name.trim().to_ascii_lowercase();
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|count| *count > 0);
        let before = lower.split_once(['x', '*', '×']).and_then(|(count, text)| Some((number(count)?, text)));
        let behind = || lower.rsplit_once(['x', '*', '×']).and_then(|(text, count)| Some((number(count)?, text)));
        // MI300X ends with an x of its own.
        let is_model = |found: &(u32, &str)| !gpus_called(found.1).is_empty();
        let (count, text) = match before.filter(is_model).or_else(|| behind().filter(is_model)) {
            Some((count, text)) => (Some(count), text.to_owned()),
            None => (None, lower.replace('_', " ")),
        };
        let gpus = gpus_called(&text);
        let mut rest = words(&text);
        for gpu in &gpus {
            for own in words(&gpu.name).into_iter().chain(words(&gpu.title)) {
                rest.retain(|word| *word != own);
            }
            // Of the GPU, or of a board of eight.
            let memory = |times: f64| gpu.compute.as_ref().map(|compute| format!("{}gb", times * compute.memory_gb));
            rest.retain(|word| ![memory(1.0), memory(8.0)].iter().flatten().any(|known| known == word));
        }
        rest.retain(|word| !AROUND.contains(&word.as_str()) && word != "hbm");
        let counts: Vec<u32> = rest.iter().filter_map(|word| word.parse().ok()).collect();
        let is_azure = words(&lower).iter().any(|word| word == "nd");
        let count = count.or(counts.first().copied().filter(|_| !is_azure && counts.len() == 1));
        rest.retain(|word| word.parse::<u32>().is_err());
        Self { gpus, count, rest }
    }

    /// Returns the rows whose GPUs are meant; a variant is on the boards of its model.
    fn rows(&self) -> Vec<&'static Preset> {
        let is_meant = |row: &&Preset| {
            self.gpus.iter().any(|gpu| gpu.name == row.fabric.gpu.name || gpu.is_variant_of(row.fabric.gpu))
        };
        rows().iter().filter(is_meant).collect()
    }

    fn machine(&self, name: &str) -> Result<Fabric> {
        let mut meant = self.rows();
        let board = meant.iter().filter(|row| row.is_board).max_by_key(|row| row.fabric.world_size()).copied();
        if let Some(board) = board {
            // Of several models with a number, the one that is sold on a board is meant.
            meant.retain(|row| row.fabric.gpu == board.fabric.gpu);
        }
        let same: Vec<&&Preset> =
            meant.iter().filter(|row| self.count.is_some_and(|count| row.fabric.world_size() == count)).collect();
        let one_of = |is: fn(&Preset) -> bool| {
            let mut found = same.iter().filter(|row| is(row));
            found.next().filter(|_| found.next().is_none())
        };
        let only = || same.first().filter(|_| same.len() == 1);
        let row = match (self.count, board) {
            _ if !self.rest.is_empty() => None,
            (None, Some(board)) => Some(board),
            (None, None) => meant.first().copied().filter(|_| meant.len() == 1),
            (Some(_), _) => {
                one_of(|row| row.is_board).or_else(only).or_else(|| one_of(|row| row.is_stock)).map(|row| **row)
            }
        };
        if let Some(row) = row {
            return self.with_model(row.fabric.clone());
        }
        match (self.count, board) {
            (Some(count), Some(board)) if self.rest.is_empty() => self.of_board(name, count, &board.fabric),
            _ => Err(unknown(name, self)),
        }
    }

    /// Returns some GPUs of a board, which has another number.
    fn of_board(&self, name: &str, count: u32, board: &Fabric) -> Result<Fabric> {
        let size = board.world_size();
        if count < size {
            let ranks: Vec<u32> = (0..count).collect();
            let written = if count == 1 { "0".to_owned() } else { format!("0-{}", count - 1) };
            return self.with_model(board.only(&ranks, &written)?);
        }
        let nodes = count.div_ceil(size);
        let networks =
            if size > 8 { ["ib-ndr-4", "roce-400-4", "ib-xdr-4"] } else { ["ib-ndr-8", "roce-400-8", "efa-400-8"] };
        let known = networks.map(|by| {
            let title = network(by).map_or("", |network| network.title.as_str());
            format!("{}x{nodes}+{by} ({title})", board.name)
        });
        let message = format!(
            "{} has {size} GPUs, and nodes have a network between them: pass one, as {}",
            board.name,
            known.join(", ")
        );
        Err(Error::Description { origin: name.to_owned(), message })
    }

    fn with_model(&self, fabric: Fabric) -> Result<Fabric> {
        match self.gpus.as_slice() {
            [gpu] if gpu.is_variant_of(fabric.gpu) => fabric.changed(&Change::Model(gpu)),
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
            let names = row.also.iter().map(String::as_str).chain([row.fabric.name.as_str()]);
            let letters = names.map(|known| edits(&wanted, known)).min().filter(|_| phrase.gpus.is_empty());
            ((of_model, letters, of_count, !row.is_board, !row.is_stock), row)
        })
        .collect();
    nearest.sort_by_key(|(key, _)| *key);
    let is_far = nearest[0].0 .1.is_some_and(|letters| 3 * letters > wanted.len());
    let shown = nearest.iter().map(|(_, row)| format!("{} ({})", row.fabric.name, row.fabric.title));
    let shown: Vec<String> = shown.take(if meant == 0 { OFFERED } else { meant.min(OFFERED) }).collect();
    let known = match (phrase.gpus.first(), meant) {
        (None, _) if is_far => {
            "its number of GPUs and their model, as 8xH100, a file that describes it, or a name".to_owned()
        }
        (None, _) => format!("{}, the nearest of {}", shown.join(", "), nearest.len()),
        (Some(gpu), 0) => format!("{}, the nearest to a {}", shown.join(", "), gpu.title),
        (_, meant) => format!("{}, of {meant} with this GPU", shown.join(", ")),
    };
    Error::Unknown { kind: "machine", name: name.to_owned(), known: format!("{known}; `nvcoll fabric` lists all") }
}

/// Says how far two models are from each other: their number, their generation, how they are joined.
fn distance(a: &Gpu, b: &Gpu) -> u32 {
    let number = |gpu: &Gpu| words(&gpu.name).into_iter().take(2).collect::<Vec<_>>();
    let place = |gpu: &Gpu| all().iter().position(|other| other.name == gpu.name).unwrap_or(0);
    let joined = |gpu: &Gpu| (gpu.nvlinks > 0, gpu.needs_bridge);
    let generations = (a.generation as u32).abs_diff(b.generation as u32);
    u32::from(place(a) != place(b))
        + 2 * u32::from(number(a) != number(b))
        + 2 * u32::from(joined(a) != joined(b))
        + 4 * generations
}
