//! Times, sizes and rates in sentences, with units.

/// Writes microseconds, or the two ends of an interval, with three digits in the unit of the last, as
/// `duration` in python/nvcoll/text/formatting.py does.
pub(crate) fn timed(times_us: &[f64]) -> String {
    let last = times_us.last().copied().unwrap_or_default();
    let (scale, unit) = [(1e6, "s"), (1e3, "ms")].into_iter().find(|&(scale, _)| last >= scale).unwrap_or((1.0, "us"));
    let numbers: Vec<String> = times_us.iter().map(|us| three_digits(us / scale)).collect();
    format!("{} {unit}", numbers.join(" to "))
}

/// Writes a number with three digits, zeros at its end too, and all digits before the point.
fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if value >= 99.95 {
        return format!("{value:.0}");
    }
    let scientific = format!("{value:.2e}");
    let exponent: i32 = scientific.split('e').nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    format!("{value:.*}", (2 - exponent).max(0) as usize)
}

/// Writes bytes in the largest unit that is at most their number.
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
        assert_eq!([0.0, 999.9, 1000.0, 2.5e6].map(|us| timed(&[us])), ["0 us", "1000 us", "1.00 ms", "2.50 s"]);
        assert_eq!([0, 100, 1 << 20, 3 << 29].map(sized), ["0 B", "100 B", "1 MiB", "1.5 GiB"]);
    }
}
