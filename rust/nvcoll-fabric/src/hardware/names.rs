//! Names of many devices at once: `gpu[0-3]` is gpu0, gpu1, gpu2 and gpu3.

/// Spells a pattern out.
///
/// # Errors
/// What is wrong with it.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let Some((stem, rest)) = pattern.split_once('[') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let numbers = rest.strip_suffix(']').and_then(numbers);
    let numbers = numbers.ok_or_else(|| format!("`{pattern}` names no devices: write gpu0 or gpu[0-3]"))?;
    Ok(numbers.into_iter().map(|nth| format!("{stem}{nth}")).collect())
}

/// Reads numbers and ranges of them, as `0-3,5`; none if they are written otherwise, or too many.
pub(crate) fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last.checked_sub(first)? >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Chosen: more devices than any machine has.
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
