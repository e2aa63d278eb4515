//! A machine from its description in TOML, which people write by hand (`hardware/describe.rs` has the fields).

use super::format::{Reader, TextFormat};
use crate::hardware::describe;

pub(super) const FORMAT: TextFormat = TextFormat {
    name: "a description in TOML",
    ending: ".toml",
    made_by: "gpu = \"rtx4090\", then [[machines]], [[devices]] and [[links]]",
    is_written_so: is_toml,
    reader: Reader::NamesGpus(describe::parse),
};

/// Says whether the first line that is no comment is a key with a value, or a table's name.
fn is_toml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| line.starts_with('[') || line.contains('='))
}
