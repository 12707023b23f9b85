//! One macro for closed vocabularies: an enum, its exact spelling, the list of all values, and a refusal of anything else.

/// A value outside a closed vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{given}`: must be {expected}")]
pub struct UnknownWord {
    pub what: &'static str,
    pub given: String,
    pub expected: String,
}

/// `a`, `a or b`, `a, b, or c`: the way refusals list choices.
pub fn choices(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, second] => format!("{first} or {second}"),
        [head @ .., last] => format!("{}, or {last}", head.join(", ")),
    }
}

/// `no rules`, `1 rule`, `2 rules`.
pub fn plural<N: std::fmt::Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    if count == N::from(0) {
        format!("no {one}s")
    } else if count == N::from(1) {
        format!("1 {one}")
    } else {
        format!("{count} {one}s")
    }
}

/// Makes a closed vocabulary: an enum that is spelled in one place.
#[doc(hidden)]
#[macro_export]
macro_rules! closed_vocabulary {
    ($(#[$doc:meta])* pub enum $name:ident($what:literal) { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err($crate::words::UnknownWord {
                        what: $what,
                        given: other.to_owned(),
                        expected: $crate::words::choices(&[$($text,)+]),
                    }),
                }
            }
        }
    };
}
pub use closed_vocabulary as words;
