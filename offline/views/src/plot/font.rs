//! The letters of pictures: the program's own, so that a machine without fonts draws the same.

use std::sync::OnceLock;

use plotters::style::{FontStyle, register_font};

/// What text in pictures is set in.
pub(super) const FAMILY: &str = "sans-serif";

/// A part of Roboto, Apache-2.0: `assets/README.md`.
const ROBOTO: &[u8] = include_bytes!("../../assets/roboto-latin.ttf");

/// Makes the letters known to the drawing library. False if it does not understand them.
pub(super) fn register() -> bool {
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, ROBOTO).is_ok())
}
