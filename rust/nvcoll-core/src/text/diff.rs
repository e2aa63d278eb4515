//! The difference of two schedules, line by line, with some unchanged lines around each change.
//!
//! Both schedules are first laid out in the same columns, so that one long line does not make every line differ.

use similar::{ChangeTag, TextDiff};

use super::print::{lines, Widths};
use crate::schedule::Schedule;

/// The number of unchanged lines around each change. Chosen: as in `diff -u`.
const CONTEXT: usize = 3;

/// Returns the lines that differ, marked `-` in `a` and `+` in `b`; the empty string if all lines are equal.
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
