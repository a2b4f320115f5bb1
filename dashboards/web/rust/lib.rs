//! The page of a run: one HTML file without any request to elsewhere.
//!
//! It is built by `npm run build` (dashboards/web) and committed, so that a build of Rust needs no Node; a test of the
//! end-to-end tests builds it anew and fails if it differs.

#![forbid(unsafe_code)]

/// The page as the agent serves it: it asks `/api/overview`, `/api/heatmap` and `/api/events` for its data.
pub const RUN_PAGE: &str = include_str!("../dist/run.html");

/// The policy to serve [`RUN_PAGE`] with: its own script and style by their hashes, requests to where it comes from, nothing else.
pub const CONTENT_SECURITY_POLICY: &str = include_str!("../dist/run.csp");

/// Where the data goes.
const EMPTY_DATA: &str = r#"<script type="application/json" id="run-data">null</script>"#;

/// The page with its data in it, for a file: `json` is a `RunDocument` of `trainmon-history`, its heat maps included.
///
/// Whatever stands in the texts of the data, it cannot end the element it stands in. Cost: a copy.
pub fn page_with_data(json: &str) -> String {
    // `<` stands in JSON within texts only, where this means the same.
    let data = json.replace('<', "\\u003c");
    let element = EMPTY_DATA.replace("null", &data);
    RUN_PAGE.replacen(EMPTY_DATA, &element, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_place_for_data_and_asks_nobody_else() {
        assert_eq!(RUN_PAGE.matches(EMPTY_DATA).count(), 1);
        for foreign in ["http://", "https://", "@import", "url("] {
            let uses =
                RUN_PAGE.match_indices(foreign).filter(|&(at, _)| !RUN_PAGE[at..].starts_with("http://www.w3.org/"));
            assert_eq!(uses.count(), 0, "{foreign}");
        }
        assert!(CONTENT_SECURITY_POLICY.contains("default-src 'none'"), "{CONTENT_SECURITY_POLICY}");
        assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"), "{CONTENT_SECURITY_POLICY}");
    }

    #[test]
    fn data_cannot_end_the_element_it_stands_in() {
        let hostile = r#"{"name":"</script><script>alert(1)</script><!--"}"#;
        let page = page_with_data(hostile);
        assert!(page.contains(r#"id="run-data">{"name":"\u003c/script>"#));
        assert_eq!(page.matches("</script").count(), RUN_PAGE.matches("</script").count());
        assert_eq!(page.matches("<!--").count(), RUN_PAGE.matches("<!--").count());
    }
}
