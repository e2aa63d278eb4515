//! Where the text of a machine is divided: before its changes, and before the GPUs that it is of.

/// Divides a machine from its changes.
pub(super) fn divided(machine: &str) -> (&str, Option<&str>) {
    match machine.to_ascii_lowercase().find(" with ") {
        Some(at) => (machine[..at].trim_end(), Some(&machine[at + " with ".len()..])),
        None => (machine, None),
    }
}

/// Divides a machine from the ranks of its GPUs, which `name[0-3,5]` has.
pub(super) fn bracketed(name: &str) -> (&str, Option<&str>) {
    match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((stem, ranks)) => (stem.trim_end(), Some(ranks)),
        None => (name, None),
    }
}
