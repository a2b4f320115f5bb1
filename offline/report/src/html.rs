//! What every page we write has in common. Style and scripts are those of `dashboards/web`.

use maud::{Markup, PreEscaped, html};
pub use trainmon_web::Behaviour;
use trainmon_web::REPORT_STYLE;

/// A whole page. The title is the command and its answer; `data`, if there is some, stands behind the content, before the script
/// of this kind of page.
pub fn page(command: &str, sentence: &str, behaviour: Behaviour, content: &Markup, data: &Markup) -> Markup {
    let Behaviour { script, policy } = behaviour;
    html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                // Nothing is loaded, from anywhere: what a name out of a file might smuggle in has nobody to call.
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width";
                title { "trainmon " (command) ": " (sentence) }
                style { (PreEscaped(REPORT_STYLE)) }
            }
            "\n"
            body {
                main { "\n" (content) }
                (data)
                // The policy has its hash: not a byte may stand beside it.
                @if !script.is_empty() { "\n" script { (PreEscaped(script)) } "\n" }
            }
        }
        "\n"
    }
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
