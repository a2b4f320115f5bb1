//! Enums in which every variant has a name.

/// Declares an enum of plain variants, each with a name.
///
/// `pub enum Kind: name, from_name { Actv = "actv" }` has `Kind::ALL`, an array in order of declaration; `Kind::name`,
/// which `Display` writes; and `Kind::from_name`, if requested.
#[macro_export]
macro_rules! named_enum {
    ($(#[$about:meta])* $vis:vis enum $type:ident: $name:ident $(, $from_name:ident)? {
        $($(#[$about_variant:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        $vis enum $type {
            $($(#[$about_variant])* $variant,)+
        }

        impl $type {
            /// All variants, in order of declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The name.
            #[inline]
            pub const fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            $(
                /// Returns the variant with this name.
                pub fn $from_name(name: &str) -> Option<Self> {
                    Self::ALL.into_iter().find(|one| one.$name() == name)
                }
            )?
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.$name())
            }
        }
    };
}
