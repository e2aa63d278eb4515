//! How much memory this process may still use: that of the machine, and the limit of its control groups.

use std::fs::read_to_string;
use std::sync::atomic::{AtomicU64, Ordering};

/// The least number that is no limit. Chosen: no machine has as much. Version 1 of control groups writes 2^63 less a page for "no limit".
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The limit of a control group, and what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMemory {
    /// What its processes may use together.
    pub limit_bytes: u64,
    /// What they may still use.
    pub left_bytes: u64,
}

/// Returns the bytes that can be allocated, where the system tells.
pub fn available_bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| available_in(&text));
    [machine, group_memory().map(|group| group.left_bytes)].into_iter().flatten().min()
}

/// Reads the line `MemAvailable` of `/proc/meminfo`, which is in KiB.
fn available_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Returns the memory of the control group, or of one above it: the one with the least left counts. None has no limit.
pub fn group_memory() -> Option<GroupMemory> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let legacy = groups.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path));
    let of_unified = unified.and_then(|path| left_above("/sys/fs/cgroup", path, ["memory.max", "memory.current"]));
    let names = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
    let of_legacy = legacy.and_then(|path| left_above("/sys/fs/cgroup/memory", path, names));
    [of_unified, of_legacy].into_iter().flatten().min_by_key(|group| group.left_bytes)
}

/// The processes of this control group that the kernel had killed before this process joined a job.
static KILLED_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Begins to count the processes that the kernel kills because memory runs out.
pub(crate) fn begin_to_count_kills() {
    // Relaxed: the number stands for itself.
    KILLED_BEFORE.store(kills_of_own_group(), Ordering::Relaxed);
}

/// Says whether the kernel has killed a process of this control group since [`begin_to_count_kills`], because memory ran out.
pub(crate) fn memory_ran_out() -> bool {
    // Relaxed: as above.
    kills_of_own_group() > KILLED_BEFORE.load(Ordering::Relaxed)
}

fn kills_of_own_group() -> u64 {
    kills_in(&read_to_string("/proc/self/cgroup").unwrap_or_default(), "/sys/fs/cgroup")
}

/// Returns the number of kills that the control groups of a process count.
fn kills_in(groups: &str, root: &str) -> u64 {
    let counts = groups.lines().filter_map(|line| {
        let file = match line.strip_prefix("0::") {
            Some(path) => format!("{root}{path}/memory.events"),
            None => format!("{root}/memory{}/memory.oom_control", line.split_once(":memory:")?.1),
        };
        let events = read_to_string(file).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
    });
    counts.sum()
}

/// Returns the memory of a group or of a group above it: the one with the least memory left. Pages of files do not count as used: the kernel takes
/// them back.
fn left_above(root: &str, path: &str, [limit, used]: [&str; 2]) -> Option<GroupMemory> {
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
    let memory_of = |group: &str| {
        let limit_bytes = read(group, limit).filter(|&bytes| bytes < UNLIMITED_BYTES)?;
        Some(GroupMemory { limit_bytes, left_bytes: limit_bytes.saturating_sub(read(group, used)?) + of_files(group) })
    };
    let parents = std::iter::successors(Some(path.trim_end_matches('/')), |group| Some(group.rsplit_once('/')?.0));
    parents.filter_map(memory_of).min_by_key(|group| group.left_bytes)
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
    fn kills_are_counted_from_the_join_on() {
        let root = std::env::temp_dir().join(format!("nvcoll-kills-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::write(root.join("a/memory.events"), "low 0\noom 9\noom_kill 3\noom_group_kill 0\n").unwrap();
        let kills = kills_in("12:cpu:/\n0::/a\n", root.to_str().unwrap());
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(kills, 3);
        begin_to_count_kills();
        assert!(!memory_ran_out(), "kills of earlier days count");
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
        write("a/b/c", ["9223372036854771712\n", "9223372036854771711\n"]);
        let left = left_above(root.to_str().unwrap(), "/a/b/c", ["memory.max", "memory.current"]);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(left, Some(GroupMemory { limit_bytes: 1000, left_bytes: 655 }));
    }
}
