//! The machines that are shipped. **A board or box is one TOML file in `presets/` and one line
//! here;** a file may name several machines, as the same box with fewer GPUs.
//!
//! | name | what it tells |
//! |---|---|
//! | `hgx-h100`, `dgx1-v100` | a board or box of one maker: what is on it is known |
//! | `rtx4090-4-p2p`, `rtx4090-4-staged` | the number of cards in a box, and how they reach each other |
//! | `hgx-h100[0-3]` | some of the GPUs of one, in that order |
//! | `hgx-h100x4+ib-ndr-8` | four of one, and their network |

use std::sync::LazyLock;

use crate::error::{edits, shortened, Error, Result};
use crate::hardware::names::numbers;
use crate::hardware::{describe, Fabric};
use crate::topology::cluster::{cluster, network};

/// The descriptions, in the order in which they are listed.
static FILES: &[&str] = &[
    include_str!("presets/dgx1-p100.toml"),
    include_str!("presets/dgx1-v100.toml"),
    include_str!("presets/v100-4-mesh.toml"),
    include_str!("presets/dgx2.toml"),
    include_str!("presets/hgx-a100.toml"),
    include_str!("presets/hgx-a800.toml"),
    include_str!("presets/hgx-a100-4.toml"),
    include_str!("presets/hgx-h100.toml"),
    include_str!("presets/hgx-h200.toml"),
    include_str!("presets/hgx-h800.toml"),
    include_str!("presets/hgx-h20.toml"),
    include_str!("presets/hgx-b200.toml"),
    include_str!("presets/hgx-b300.toml"),
    include_str!("presets/gb200-nvl72.toml"),
    include_str!("presets/gb300-nvl72.toml"),
    include_str!("presets/gh200-4.toml"),
    include_str!("presets/gb10.toml"),
    include_str!("presets/pcie3.toml"),
    include_str!("presets/a100-pcie.toml"),
    include_str!("presets/h100-pcie.toml"),
    include_str!("presets/a100-pcie-bridge.toml"),
    include_str!("presets/h100-pcie-bridge.toml"),
    include_str!("presets/rtx3090-bridge.toml"),
    include_str!("presets/rtx2080ti.toml"),
    include_str!("presets/rtx2080ti-bridge.toml"),
    include_str!("presets/rtx4090.toml"),
    include_str!("presets/rtx5090.toml"),
    include_str!("presets/rtxpro6000-ws.toml"),
    include_str!("presets/rtxpro6000-server.toml"),
    include_str!("presets/rtxpro6000-server-cx8.toml"),
    include_str!("presets/l40s.toml"),
    include_str!("presets/l4.toml"),
    include_str!("presets/t4.toml"),
    include_str!("presets/mi300x.toml"),
    include_str!("presets/mi355x.toml"),
];

/// Returns every machine that is shipped, in the order in which they are described.
pub fn presets() -> &'static [Fabric] {
    static MACHINES: LazyLock<Vec<Fabric>> =
        LazyLock::new(|| FILES.iter().flat_map(|text| machines_of(text).expect("a test reads every preset")).collect());
    &MACHINES
}

fn machines_of(text: &str) -> Result<Vec<Fabric>> {
    let description: describe::Description = describe::read(text, "preset")?;
    let built = description.machines.iter().map(|machine| description.build(machine, &machine.name));
    built.collect()
}

/// Makes what a name stands for: a preset, some GPUs of one as `name[0-3,5]`, or nodes with a network as `namex4+network`.
/// Whether letters are small or capital is all the same.
///
/// # Errors
/// [`Error::Unknown`], which offers the nearest names; [`Error::Description`] if it has no such GPUs, or for nodes without
/// a number or a network.
pub fn preset(name: &str) -> Result<Fabric> {
    let Some((nodes, between)) = name.split_once('+') else { return node(name) };
    let counted = nodes.rsplit_once(['x', 'X']).and_then(|(stem, count)| Some((stem, count.parse().ok()?)));
    let (stem, count) = counted.ok_or_else(|| Error::Description {
        origin: name.to_owned(),
        message: "no cluster is written so: write hgx-h100x4+ib-ndr-8, four nodes and their network".to_owned(),
    })?;
    cluster(&node(stem)?, count, network(&between.to_ascii_lowercase())?)
}

/// Makes a preset, or of one the GPUs that `name[0-3,5]` names.
fn node(name: &str) -> Result<Fabric> {
    let (stem, ranks) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((stem, ranks)) => (stem, Some(ranks)),
        None => (name, None),
    };
    let found = shipped(stem).ok_or_else(|| unknown(stem))?;
    let Some(ranks) = ranks else { return Ok(found.clone()) };
    let wrong = || Error::Description {
        origin: name.to_owned(),
        message: format!("`[{}]` names no GPUs: write {stem}[0-3] or {stem}[0,2,5]", shortened(ranks)),
    };
    let among = found.among(&numbers(ranks).ok_or_else(wrong)?)?;
    let title = format!("{} of ({})", among.world_size(), found.title);
    Ok(Fabric { name: format!("{}[{ranks}]", found.name), title, ..among })
}

fn shipped(name: &str) -> Option<&'static Fabric> {
    presets().iter().find(|fabric| fabric.name.eq_ignore_ascii_case(name))
}

/// How many names are offered instead of one that there is not. Chosen.
const OFFERED: usize = 3;

/// Says what may have been meant.
fn unknown(name: &str) -> Error {
    let nodes = name.rsplit_once(['x', 'X']).filter(|(_, count)| count.parse::<u32>().is_ok());
    if let Some((stem, count)) = nodes.and_then(|(stem, count)| Some((shipped(stem)?, count))) {
        let message = format!("nodes have a network between them: add +NETWORK, as {}x{count}+ib-ndr-8", stem.name);
        return Error::Description { origin: name.to_owned(), message };
    }
    let mut nearest: Vec<&str> = presets().iter().map(|fabric| fabric.name.as_str()).collect();
    let wanted = name.to_ascii_lowercase();
    nearest.sort_by_key(|known| edits(&wanted, known));
    let known =
        format!("{}, the nearest of {}; `nvcoll fabric` lists all", nearest[..OFFERED].join(", "), nearest.len());
    Error::Unknown { kind: "machine", name: name.to_owned(), known }
}
