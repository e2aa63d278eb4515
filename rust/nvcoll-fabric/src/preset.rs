//! The machines that are shipped. **A board or box is one TOML file in `presets/` and one line
//! here;** a file may name several machines, as the same box with fewer GPUs.
//!
//! | name | meaning |
//! |---|---|
//! | `hgx-h100`, `dgx1-v100` | a board or box of one maker: what is on it is known |
//! | `rtx4090-4-p2p`, `rtx4090-4-staged` | the number of cards in a box, and how they reach each other |

use std::sync::LazyLock;

use crate::error::Result;
use crate::hardware::gpus::Gpu;
use crate::hardware::{describe, Fabric};

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
    include_str!("presets/h200-nvl.toml"),
    include_str!("presets/h200-nvl-pair.toml"),
    include_str!("presets/rtx3090-bridge.toml"),
    include_str!("presets/rtx2080ti.toml"),
    include_str!("presets/rtx2080ti-bridge.toml"),
    include_str!("presets/rtx4090.toml"),
    include_str!("presets/rtx5090.toml"),
    include_str!("presets/rtx5060ti.toml"),
    include_str!("presets/rtxpro6000-ws.toml"),
    include_str!("presets/rtxpro6000-server.toml"),
    include_str!("presets/rtxpro6000-server-cx8.toml"),
    include_str!("presets/l40s.toml"),
    include_str!("presets/l4.toml"),
    include_str!("presets/t4.toml"),
    include_str!("presets/r9700.toml"),
    include_str!("presets/mi250x.toml"),
    include_str!("presets/mi300x.toml"),
    include_str!("presets/mi308x.toml"),
    include_str!("presets/mi325x.toml"),
    include_str!("presets/mi350x.toml"),
    include_str!("presets/mi355x.toml"),
];

/// A machine that is shipped.
#[derive(Debug)]
pub struct Preset {
    /// The machine.
    pub fabric: Fabric,
    /// Whether it is the board or rack on which its model of GPU is sold.
    pub is_board: bool,
    /// Whether its cards do what they do with the drivers of their maker.
    pub is_stock: bool,
}

/// Returns every machine that is shipped.
pub fn rows() -> &'static [Preset] {
    static ROWS: LazyLock<Vec<Preset>> =
        LazyLock::new(|| FILES.iter().flat_map(|text| machines_of(text).expect("a test reads every preset")).collect());
    &ROWS
}

/// Returns every machine that is shipped, in the order in which they are described.
pub fn presets() -> &'static [Fabric] {
    static MACHINES: LazyLock<Vec<Fabric>> = LazyLock::new(|| rows().iter().map(|row| row.fabric.clone()).collect());
    &MACHINES
}

fn machines_of(text: &str) -> Result<Vec<Preset>> {
    let description: describe::Description = crate::tables::read(text, "preset")?;
    let row = |machine: &describe::MachineVariant| {
        let fabric = description.build(machine, &machine.name)?;
        Ok(Preset { fabric, is_board: machine.board, is_stock: machine.stock })
    };
    description.machines.iter().map(row).collect()
}

/// Returns the board or rack on which a model of GPU is sold, the largest if there are several.
pub fn board_of(gpu: &Gpu) -> Option<&'static Fabric> {
    let is_its = |row: &&Preset| row.is_board && (row.fabric.gpu == gpu || gpu.is_variant_of(row.fabric.gpu));
    rows().iter().filter(is_its).map(|row| &row.fabric).max_by_key(|fabric| fabric.world_size())
}
