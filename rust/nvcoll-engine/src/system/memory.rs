//! How much memory this process may still use: that of the machine, and the limit of its control groups.

use std::fs::read_to_string;

/// Returns the bytes that can be allocated, where the system tells.
pub fn available_bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| available_in(&text));
    [machine, left_in_groups()].into_iter().flatten().min()
}

/// Reads the line `MemAvailable` of `/proc/meminfo`, which is in KiB.
fn available_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Returns the bytes up to the limit of the control group and of those above it: the least counts.
fn left_in_groups() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let legacy = groups.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path));
    let of_unified = unified.and_then(|path| left_above("/sys/fs/cgroup", path, ["memory.max", "memory.current"]));
    let names = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
    let of_legacy = legacy.and_then(|path| left_above("/sys/fs/cgroup/memory", path, names));
    [of_unified, of_legacy].into_iter().flatten().min()
}

/// Returns the least difference between limit and use in a group and those above it. Pages of files do not count as used: the kernel takes
/// them back.
fn left_above(root: &str, path: &str, [limit, used]: [&str; 2]) -> Option<u64> {
    let read = |group: &str, name: &str| -> Option<u64> {
        read_to_string(format!("{root}{group}/{name}")).ok()?.trim().parse().ok()
        // "max" is no number: no limit
    };
    let of_files = |group: &str| {
        let text = read_to_string(format!("{root}{group}/memory.stat")).unwrap_or_default();
        let of_list =
            |line: &str| line.strip_prefix("inactive_file ").or(line.strip_prefix("active_file "))?.parse::<u64>().ok();
        text.lines().filter_map(of_list).sum::<u64>()
    };
    let left = |group: &str| Some(read(group, limit)?.saturating_sub(read(group, used)?) + of_files(group));
    let parents = std::iter::successors(Some(path.trim_end_matches('/')), |group| Some(group.rsplit_once('/')?.0));
    parents.filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(available_in("MemTotal:  9 kB\nMemAvailable:   24000 kB\n"), Some(24_576_000));
        assert_eq!(available_in("MemTotal:  9 kB\n"), None);
    }

    #[test]
    fn the_least_of_a_group_and_those_above_counts() {
        let root = std::env::temp_dir().join(format!("nvcoll-groups-{}", std::process::id()));
        let write = |group: &str, [limit, used]: [&str; 2]| {
            let folder = root.join(group);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("memory.max"), limit).unwrap();
            std::fs::write(folder.join("memory.current"), used).unwrap();
        };
        write("", ["max\n", "9\n"]);
        write("a", ["1000\n", "400\n"]);
        std::fs::write(root.join("a/memory.stat"), "anon 7\ninactive_file 50\nactive_file 5\n").unwrap();
        write("a/b", ["900\n", "100\n"]);
        let left = left_above(root.to_str().unwrap(), "/a/b", ["memory.max", "memory.current"]);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(left, Some(655));
    }
}
