//! What every page we write has in common.

/// Nothing is loaded, from anywhere: what a name out of a file might smuggle in has nobody to call.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Names come out of files: as text and inside quotes they stay text.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
