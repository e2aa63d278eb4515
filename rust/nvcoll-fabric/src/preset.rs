//! The machines that are shipped. **A machine is one TOML file in `presets/` and one line here.**
//!
//! | name | what it tells |
//! |---|---|
//! | `hgx-h100`, `dgx1-v100` | a board or box of one maker: what is on it is known |
//! | `rtx4090-4-p2p`, `rtx4090-4-staged` | so many cards in a box, and how they reach each other: tenfold apart |

use crate::error::{Error, Result};
use crate::hardware::Fabric;

/// Name and description of every preset.
pub static PRESETS: &[(&str, &str)] = &[
    ("hgx-h100", include_str!("presets/hgx-h100.toml")),
    ("rtx4090-4-staged", include_str!("presets/rtx4090-4-staged.toml")),
];

/// Makes a preset.
///
/// # Errors
/// [`Error::Unknown`].
pub fn preset(name: &str) -> Result<Fabric> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| Error::Unknown {
        kind: "fabric",
        name: name.to_owned(),
        known: PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    })?;
    Fabric::parse(text, name)
}
