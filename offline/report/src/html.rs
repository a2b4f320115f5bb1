//! The common frame of every HTML page. Styles and scripts come from `dashboards/web`.

use maud::{Markup, PreEscaped, html};
pub use trainmon_web::Behaviour;
use trainmon_web::REPORT_STYLE;

/// A complete page. The title consists of the command and its answer. `data`, if any, comes after the content and
/// before the script of this kind of page.
pub fn page(command: &str, sentence: &str, behaviour: Behaviour, content: &Markup, data: &Markup) -> Markup {
    let Behaviour { script, policy } = behaviour;
    html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                // Nothing is loaded from anywhere, so that a name from a file cannot inject a request.
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width";
                title { "trainmon " (command) ": " (sentence) }
                style { (PreEscaped(REPORT_STYLE)) }
            }
            "\n"
            body {
                main { "\n" (content) }
                (data)
                // The policy contains the script's hash: no byte may be added.
                @if !script.is_empty() { "\n" script { (PreEscaped(script)) } "\n" }
            }
        }
        "\n"
    }
}

/// A text whose parts in backticks are shown as code, without the backticks. A text with an odd number of them stays as it was.
pub fn with_code(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! { @for (index, part) in parts.into_iter().enumerate() { @if index % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// A list of texts; empty if there are none.
pub fn list(items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            ul { @for (index, item) in items.iter().enumerate() { @if index > 0 { "\n" } li { (with_code(item)) } } }
            "\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_backticks_are_code_and_nothing_is_injected() {
        let shown = |given: &str| with_code(given).into_string();
        assert_eq!(shown("run `a <b>` & `c`"), "run <code>a &lt;b&gt;</code> &amp; <code>c</code>");
        assert_eq!(shown("a ` b"), "a ` b");
        assert_eq!(shown("plain"), "plain");
    }
}
