//! Numbers with their nouns, for messages, and enums whose variants have names.

/// Returns a number and its noun, in the plural unless the number is 1: `1 rank`, `4 ranks`.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Declares an enum with the name of each variant, as `Ring = "Ring"`. It has `ALL`, every variant in this order, and `name`.
#[macro_export]
macro_rules! names {
    ($(#[$meta:meta])* $visible:vis enum $Type:ident { $($(#[$note:meta])* $Variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        $visible enum $Type { $($(#[$note])* $Variant,)+ }

        impl $Type {
            /// Every variant.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name,)+ }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular_and_none_is_plural() {
        let ranks = |number: u32| super::counted(number, "rank");
        assert_eq!([ranks(0), ranks(1), ranks(2)], ["0 ranks", "1 rank", "2 ranks"]);
    }
}
