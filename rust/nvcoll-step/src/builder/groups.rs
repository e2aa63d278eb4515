//! The groups of a step that is made: their shapes, names and kinds.
//!
//! The kind of a group is what its framework calls it ([`group_word`]). If the name has none of these words, its calls decide:
//!
//! | calls | kind |
//! |---|---|
//! | all_gather and reduce_scatter, of more bytes than all_reduces | `shard`, also of a group called `dp` |
//! | messages alone | `pp` |
//! | small all_reduces of all ranks beside smaller groups, as of the norm of gradients | `other`, called `world` |
//! | others | `dp` |
//!
//! Groups of one shape and kind are one. Further groups of a kind are named by their description or, if torch made that up, by size and
//! distance. Ranks that are no runs of equal distances, as 0, 1, 5, are priced as if evenly apart, as 0, 2, 4, with a note.

use std::collections::{BTreeMap, BTreeSet};

use super::words::group_word;
use crate::error::{Error, Result};
use crate::network::Group;
use crate::step::{GroupKind, RankGroup};

/// Gradients of a model are at least as many bytes; norms and losses are fewer. Chosen.
const SMALL_BYTES: f64 = (1 << 20) as f64;

/// A group as a maker knows it.
#[derive(Debug, Clone)]
pub(super) struct GroupDraft {
    /// What the framework calls it.
    called: String,
    /// Its ranks, ascending; none if only its shape is known.
    ranks: Vec<u32>,
    shape: Group,
    /// The bytes of each call: a collective, or `message`.
    calls: GroupCalls,
}

/// Of each call the largest bytes, and the bytes of all, shares of all ranks counted.
type GroupCalls = BTreeMap<&'static str, (f64, f64)>;

/// A group with its name.
#[derive(Debug, Clone)]
pub(super) struct NamedGroup {
    pub(super) name: String,
    pub(super) group: RankGroup,
}

/// The shape of the group of a rank among `gpus`, and what was assumed about it.
fn shape_of(called: &str, ranks: &[u32], rank: u32, gpus: u32) -> Result<(Group, Option<String>)> {
    let size = ranks.len() as u32;
    let steps: Vec<u32> = ranks.windows(2).map(|two| two[1] - two[0]).collect();
    let stride = steps.first().copied().unwrap_or(1);
    let shown: Vec<String> = ranks.iter().take(12).map(u32::to_string).collect();
    let shown = format!("[{}{}]", shown.join(", "), if size > 12 { ", ..." } else { "" });
    let refuse = || {
        let message = format!("the group `{called}` has the ranks {shown}: nvcoll prices groups of distinct ranks");
        Error::Step(message)
    };
    if ranks.is_empty() || steps.contains(&0) {
        return Err(refuse());
    }
    let length = steps.iter().position(|&step| step != stride).map_or(size, |at| at as u32 + 1);
    let apart = if length == size { 0 } else { ranks[length as usize] - ranks[0] };
    let shape = Group { size, stride, runs: size.div_ceil(length), apart };
    if shape.is_sound() && shape.ranks(ranks[0]).eq(ranks.iter().copied()) {
        return Ok((shape, None));
    }
    let fits = |even: &u32| Group::even(size, *even).fits(rank, gpus);
    let even = (1..=(ranks[ranks.len() - 1] - ranks[0]) / (size - 1)).rev().find(fits).ok_or_else(refuse)?;
    let what = format!("the group `{called}` of ranks at unequal distances, {shown}");
    Ok((Group::even(size, even), Some(format!("{what}, costs what {size} ranks {even} apart would"))))
}

impl GroupDraft {
    /// Makes the draft of the group of a rank among `gpus`, and returns what was assumed about them.
    pub(super) fn of_ranks(called: &str, ranks: &[u32], rank: u32, gpus: u32) -> Result<(Self, Option<String>)> {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        let (shape, assumed) = shape_of(called, &ranks, rank, gpus)?;
        Ok((Self { called: called.to_owned(), ranks, shape, calls: BTreeMap::new() }, assumed))
    }

    /// Makes the draft of a group with a known shape and unknown ranks.
    pub(super) fn of_shape(called: &str, shape: Group) -> Self {
        Self { called: called.to_owned(), ranks: Vec::new(), shape, calls: BTreeMap::new() }
    }

    pub(super) fn size(&self) -> u32 {
        self.shape.size
    }

    /// Says whether it is the draft of the same group.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.called, &self.ranks, self.shape) == (&other.called, &other.ranks, other.shape)
    }

    /// Says whether it has calls.
    pub(super) fn communicates(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Notes a call, of the bytes of one rank's share, or of all.
    pub(super) fn called_with(&mut self, call: &'static str, bytes: f64, is_share: bool) {
        let (most, all) = self.calls.entry(call).or_default();
        *most = most.max(bytes);
        *all += bytes * if is_share { f64::from(self.shape.size) } else { 1.0 };
    }

    /// Returns the word for its kind; `calls` are the calls of all groups of these ranks.
    fn word(&self, calls: &GroupCalls, is_world: bool) -> &'static str {
        let all = |call| calls.get(call).map(|(_, all)| *all);
        // A contrastive loss gathers in the group of the gradients, too.
        let is_sharded = all("all_gather")
            .zip(all("reduce_scatter"))
            .is_some_and(|(gathered, scattered)| gathered + scattered >= all("all_reduce").unwrap_or(0.0));
        match group_word(&self.called) {
            Some("dp") if is_sharded => "shard",
            Some(word) => word,
            None if is_sharded => "shard",
            None if calls.keys().all(|call| *call == "message") => "pp",
            None if is_world
                && calls.len() == 1
                && calls.get("all_reduce").is_some_and(|(most, _)| *most < SMALL_BYTES) =>
            {
                "world"
            }
            None => "dp",
        }
    }

    /// Says whether torch made up its name: a number, or a digest of its ranks.
    fn is_nameless(&self) -> bool {
        let name = &self.called;
        let is_digest = name.len() >= 16 && name.bytes().all(|one| one == b'_' || one.is_ascii_hexdigit());
        is_digest || name.bytes().all(|one| one.is_ascii_digit())
    }
}

/// Returns the names and kinds of groups, in their order.
pub(super) fn named(drafts: &[GroupDraft], gpus: u32) -> Vec<NamedGroup> {
    let mut calls: BTreeMap<(&[u32], u32, u32), GroupCalls> = BTreeMap::new();
    let key = |draft: &'_ GroupDraft| (draft.shape.size, draft.shape.stride);
    for draft in drafts {
        let made = calls.entry((&draft.ranks, key(draft).0, key(draft).1)).or_default();
        for (call, (largest, total)) in &draft.calls {
            let (most, all) = made.entry(call).or_default();
            *most = most.max(*largest);
            *all += total;
        }
    }
    let is_split = drafts.iter().any(|draft| draft.communicates() && (2..gpus).contains(&draft.size()));
    let mut taken: BTreeMap<String, Group> = BTreeMap::new();
    drafts
        .iter()
        .map(|draft| {
            let made = &calls[&(draft.ranks.as_slice(), key(draft).0, key(draft).1)];
            let word = draft.word(made, is_split && draft.size() == gpus);
            let Group { size, stride, .. } = draft.shape;
            let apart = format!("{word} of {size}, {stride} apart");
            let described = if draft.is_nameless() { apart } else { draft.called.clone() };
            let names = [word.to_owned(), described].into_iter().chain((2..).map(|nth| format!("{word} {nth}")));
            let is_free = |name: &String| taken.get(name).is_none_or(|known| *known == draft.shape);
            let name = names.into_iter().find(is_free).expect("there are endless names");
            taken.insert(name.clone(), draft.shape);
            NamedGroup { name, group: RankGroup { kind: GroupKind::named(word), ranks: draft.shape } }
        })
        .collect()
}

/// Returns the position of each group among the sorted names: the tag of its messages.
pub(super) fn tags(groups: &[NamedGroup]) -> Vec<u64> {
    let names: BTreeSet<&str> = groups.iter().map(|one| one.name.as_str()).collect();
    groups.iter().map(|one| names.iter().position(|name| *name == one.name).unwrap_or(0) as u64).collect()
}
