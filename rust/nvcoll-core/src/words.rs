//! Numbers with their nouns, for messages.

/// Returns a number and its noun, in the plural unless the number is 1: `1 rank`, `4 ranks`.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular_and_none_is_plural() {
        let ranks = |number: u32| super::counted(number, "rank");
        assert_eq!([ranks(0), ranks(1), ranks(2)], ["0 ranks", "1 rank", "2 ranks"]);
    }
}
