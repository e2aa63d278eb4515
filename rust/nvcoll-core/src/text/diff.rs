//! The difference of two schedules, line by line: what changed, with a little of what did not.
//!
//! Both are laid out in the same columns first, so that one long line in one of them does not make every line differ.

use similar::{ChangeTag, TextDiff};

use super::print::{lines, Widths};
use crate::schedule::Schedule;

/// Unchanged lines shown around each change. Chosen: what `diff -u` shows.
const CONTEXT: usize = 3;

/// Returns the lines that differ, `-` for those of `a` and `+` for those of `b`, or an empty string if none does.
pub fn diff(a: &Schedule, b: &Schedule) -> String {
    let mut widths = Widths::default();
    widths.admit(a);
    widths.admit(b);
    let layout = |schedule| lines(schedule, widths).map(|line| line + "\n").collect::<String>();
    let (a, b) = (layout(a), layout(b));
    let changes = TextDiff::from_lines(&a, &b);
    let mut text = String::new();
    for (i, hunk) in changes.grouped_ops(CONTEXT).iter().enumerate() {
        if i > 0 {
            text.push_str("  …\n");
        }
        for change in hunk.iter().flat_map(|op| changes.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => "- ",
                ChangeTag::Insert => "+ ",
                ChangeTag::Equal => "  ",
            };
            text.extend([mark, change.value()]);
        }
    }
    text
}
