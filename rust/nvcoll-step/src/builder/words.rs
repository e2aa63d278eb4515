//! The meaning of names that frameworks give to process groups and kernels.

use crate::parts::TimePart;

/// Parts of a layout, with the words of frameworks for them.
const WORDS: [(&str, &[&str]); 7] = [
    ("tp", &["tp", "tensor"]),
    ("cp", &["cp", "context", "sequence"]),
    ("ep", &["ep", "expert", "moe"]),
    ("pp", &["pp", "pipe", "pipeline", "stage"]),
    ("shard", &["shard", "fsdp", "zero"]),
    ("copies", &["replicate", "replica", "copies"]),
    ("dp", &["dp", "data", "ddp"]),
];

/// Words in the names of kernels, with the parts of the time of a step that they mean.
const KERNELS: [(TimePart, &[&str]); 3] = [
    (TimePart::Optimizer, &["optimizer", "adam", "_fused_sgd", "_foreach_"]),
    (TimePart::Attention, &["attention", "flash", "fmha"]),
    (TimePart::Gemm, &["gemm", "nvjet", "cutlass"]),
];

/// Returns the part of the layout that the description of a process group names, as `tp`; none if it names none, or several.
pub fn group_word(description: &str) -> Option<&'static str> {
    let mut spaced = String::with_capacity(description.len() + 8);
    let mut was_lower = false;
    for letter in description.chars() {
        if was_lower && letter.is_ascii_uppercase() {
            spaced.push('_');
        }
        was_lower = letter.is_ascii_lowercase();
        spaced.push(letter.to_ascii_lowercase());
    }
    let words: Vec<&str> = spaced.split(|letter: char| !letter.is_ascii_lowercase()).collect();
    let is_named = |names: &[&str]| names.iter().any(|name| words.contains(name));
    let found: Vec<&str> = WORDS.iter().filter(|(_, names)| is_named(names)).map(|(word, _)| *word).collect();
    match found[..] {
        // mesh_dp_shard, mesh_dp_replicate
        ["shard", "dp"] | ["copies", "dp"] => Some(found[0]),
        // Experts whose matrices are sharded, too.
        ["tp", "ep"] => Some("ep"),
        // Gradients are reduced over context parallelism, too.
        ["cp", "dp"] => Some("dp"),
        // Parameters are sharded over context parallelism, too.
        ["cp", "shard", "dp"] | ["cp", "shard"] => Some("shard"),
        [word] => Some(word),
        _ => None,
    }
}

/// Returns the part of the time of a step that the name of a kernel means.
pub(super) fn part_of_kernel(name: &str) -> Option<TimePart> {
    KERNELS.into_iter().find(|(_, words)| words.iter().any(|word| name.contains(word))).map(|(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_frameworks_name_parts_of_the_layout() {
        for (description, word) in [
            ("mesh_tp", Some("tp")),
            ("TENSOR_MODEL_PARALLEL_GROUP", Some("tp")),
            ("mesh_dp_shard_cp", Some("shard")),
            ("dpReplicate", Some("copies")),
            ("EXPERT_TENSOR_PARALLEL_GROUP", Some("ep")),
            ("DATA_PARALLEL_GROUP_WITH_CP", Some("dp")),
            ("default_pg", None),
            ("tp_pp", None),
            ("", None),
        ] {
            assert_eq!(group_word(description), word, "{description}");
        }
    }
}
