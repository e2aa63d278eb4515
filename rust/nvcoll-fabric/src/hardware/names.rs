//! Names of many devices at once: `gpu[0-3]` is gpu0, gpu1, gpu2 and gpu3.

/// Spells a pattern out.
///
/// # Errors
/// What is wrong with it.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let Some((stem, rest)) = pattern.split_once('[') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let wrong = || format!("`{pattern}` names no devices: write gpu0 or gpu[0-3]");
    let (range, end) = rest.split_once(']').ok_or_else(wrong)?;
    let (first, last) = range.split_once('-').ok_or_else(wrong)?;
    let (first, last): (u32, u32) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    if first > last || last - first >= MOST || !end.is_empty() {
        return Err(wrong());
    }
    Ok((first..=last).map(|nth| format!("{stem}{nth}")).collect())
}

/// Chosen: more devices than any pattern of a machine has.
const MOST: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn a_range_names_both_ends() {
        assert_eq!(expand("gpu[2-4]").unwrap(), ["gpu2", "gpu3", "gpu4"]);
        assert_eq!(expand("nvswitch").unwrap(), ["nvswitch"]);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for pattern in ["gpu[3-1]", "gpu[0-", "gpu[]", "gpu[a-b]", "gpu[0-1]x", "gpu[0-4294967295]"] {
            assert!(expand(pattern).is_err(), "{pattern}");
        }
    }
}
