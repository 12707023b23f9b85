//! One macro for closed vocabularies, as the law has one: an enum, its spelling, the list of all values.

macro_rules! words {
    ($(#[$doc:meta])* pub enum $name:ident($what:literal) { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The exact spelling.
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
            type Err = countersign_core::words::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err(countersign_core::words::UnknownWord {
                        what: $what,
                        given: other.to_owned(),
                        expected: countersign_core::words::choices(&[$($text,)+]),
                    }),
                }
            }
        }
    };
}
pub(crate) use words;
