//! What every page we write has in common.

use maud::{Markup, PreEscaped, html};

/// Nothing is loaded, from anywhere: what a name out of a file might smuggle in has nobody to call.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The look all pages share.
const STYLE: &str = include_str!("page.css");

/// A whole page. The title is the command and its answer, `style` what this kind of page has besides; `scripts` stand behind the
/// content.
pub fn page(command: &str, sentence: &str, style: &str, content: &Markup, scripts: &Markup) -> Markup {
    html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                title { "trainmon " (command) ": " (sentence) }
                style { "\n" (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            "\n"
            body { main { "\n" (content) } (scripts) }
        }
        "\n"
    }
}

/// A script of ours, not of a name's.
pub fn script(source: &str) -> Markup {
    html! { script { "\n" (PreEscaped(source)) } "\n" }
}

/// A list of texts, or nothing.
pub fn list(items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            ul { @for (index, item) in items.iter().enumerate() { @if index > 0 { "\n" } li { (item) } } }
            "\n"
        }
    }
}
