//! Times, sizes and rates in sentences, with units.

/// Writes microseconds in the unit that suits them.
pub(crate) fn timed(us: f64) -> String {
    match us {
        us if us < 999.95 => format!("{us:.1} us"),
        us if us < 999_950.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Writes bytes in the largest unit of which there is at least one.
pub(crate) fn sized(nbytes: u64) -> String {
    let unit = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")].into_iter().find(|&(unit, _)| nbytes >= unit);
    let (unit, name) = unit.unwrap_or((1, "B"));
    let number = format!("{:.2}", nbytes as f64 / unit as f64);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_the_unit_that_suits_them() {
        assert_eq!([0.0, 999.9, 1000.0, 2.5e6].map(timed), ["0.0 us", "999.9 us", "1.0 ms", "2.50 s"]);
        assert_eq!([0, 100, 1 << 20, 3 << 29].map(sized), ["0 B", "100 B", "1 MiB", "1.5 GiB"]);
    }
}
