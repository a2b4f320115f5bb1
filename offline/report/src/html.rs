//! What every page we write has in common.

/// Nothing is loaded, from anywhere: what a name out of a file might smuggle in has nobody to call.
pub const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The look all pages share.
const STYLE: &str = include_str!("page.css");

/// The beginning of a page, up to where its own content starts; `</main></body></html>` ends it. The title is the command and
/// its answer, `style` what this kind of page has besides.
pub fn head(command: &str, sentence: &str, style: &str) -> String {
    let sentence = escaped(sentence);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>trainmon {command}: {sentence}</title>\
         <style>\n{STYLE}{style}</style></head>\n<body><main>\n"
    )
}

/// A list of texts, or nothing.
pub fn list(items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: Vec<String> = items.iter().map(|item| escaped(item)).collect();
    format!("<ul><li>{}</li></ul>\n", items.join("</li>\n<li>"))
}

/// Names come out of files: as text and inside quotes they stay text.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
