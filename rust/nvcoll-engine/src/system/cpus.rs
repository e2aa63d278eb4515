//! How many CPUs this process may use: the affinity mask, and the quota of its control group.

use std::fs::read_to_string;

/// Returns the number of CPUs, at least 1.
pub fn usable() -> usize {
    let affinity = std::thread::available_parallelism().map_or(1, usize::from);
    quota().map_or(affinity, |quota| affinity.min(quota.ceil() as usize)).max(1)
}

/// Returns the control group's quota in CPUs, if there is one.
pub fn quota() -> Option<f64> {
    let group = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_end_matches('/').to_owned();
    let unified =
        [own.as_str(), ""].into_iter().find_map(|g| read_to_string(format!("/sys/fs/cgroup{g}/cpu.max")).ok());
    let legacy = || {
        let read = |name| read_to_string(format!("/sys/fs/cgroup/cpu/cpu.cfs_{name}_us")).ok();
        Some(format!("{} {}", read("quota")?.trim(), read("period")?.trim()))
    };
    parse_quota(&unified.or_else(legacy)?)
}

/// Parses "quota period" in microseconds, as in `cpu.max`; "max" and negative quotas mean none.
fn parse_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// Returns the size in bytes of the unified cache of `level` of CPU 0, where the system tells.
pub fn cache_bytes(level: u32) -> Option<usize> {
    parse_size(&cache_fact(level, "size")?)
}

/// Returns how many CPUs share the cache of `level` of CPU 0, where the system tells.
pub fn sharing(level: u32) -> Option<usize> {
    count_of_list(&cache_fact(level, "shared_cpu_list")?)
}

/// Returns the number of CPUs that are online, whichever this process may use, where the system tells.
pub fn online() -> Option<usize> {
    count_of_list(&read_to_string("/sys/devices/system/cpu/online").ok()?)
}

fn cache_fact(level: u32, name: &str) -> Option<String> {
    let read = |index: u32, name: &str| {
        let text = read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()?;
        Some(text.trim().to_owned())
    };
    let is_wanted = |&index: &u32| {
        read(index, "level") == Some(level.to_string()) && read(index, "type").is_some_and(|it| it != "Instruction")
    };
    read((0..8).find(is_wanted)?, name)
}

/// Counts the numbers of a list such as "0-3,8".
fn count_of_list(text: &str) -> Option<usize> {
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    text.trim().split(',').map(of_range).sum()
}

/// Parses "32K" or "8M".
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    Some(digits.parse::<usize>().ok()? * unit)
}

/// Returns the processor's name, where the system tells.
pub fn model() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split(':').nth(1)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_and_sizes_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_quota("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("-1 100000"), None);
        assert_eq!(parse_quota(""), None);
        assert_eq!(parse_size("2048K"), Some(2 << 20));
        assert_eq!(parse_size("1Q"), None);
        assert_eq!(["0", "0-3,8", "4-7,12-15\n", "", "3-"].map(count_of_list), [Some(1), Some(5), Some(8), None, None]);
        assert!(usable() >= 1);
    }
}
