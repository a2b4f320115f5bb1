//! The font for pictures, embedded so that a machine without fonts draws the same picture.

use std::sync::OnceLock;

use plotters::style::{FontStyle, register_font};

/// The font family of the text in pictures.
pub(super) const FAMILY: &str = "sans-serif";

/// A subset of Roboto, Apache-2.0: `assets/README.md`.
const ROBOTO: &[u8] = include_bytes!("../../assets/roboto-latin.ttf");

/// Registers the font with the drawing library. Returns false if the library cannot parse it.
pub(super) fn register() -> bool {
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, ROBOTO).is_ok())
}
