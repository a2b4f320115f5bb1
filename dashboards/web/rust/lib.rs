//! The page of a run, one self-contained HTML file, and the styles and scripts of comparison reports.
//!
//! `npm run build` (dashboards/web) builds them. They are committed, so that a Rust build needs no Node; an end-to-end
//! test rebuilds them and fails if one differs.

#![forbid(unsafe_code)]

/// The page as the agent serves it: it loads its data from `/api/overview`, `/api/heatmap` and `/api/events`.
pub const RUN_PAGE: &str = include_str!("../dist/run.html");

/// The policy for serving [`RUN_PAGE`]: its own script and style by their hashes, requests to its own origin, nothing
/// else.
pub const CONTENT_SECURITY_POLICY: &str = include_str!("../dist/run.csp");

/// The style of all reports.
pub const REPORT_STYLE: &str = include_str!("../dist/report.css");

/// The script of a kind of report.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The report's script; empty if it has none.
    pub script: &'static str,
    /// The `Content-Security-Policy` of a report with this script: this script by its hash and inline styles.
    pub policy: &'static str,
}

impl Behaviour {
    /// A page without a script.
    pub const NONE: Self = Self {
        script: "",
        policy: "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    };

    /// A comparison of captures. The page contains a `ReportData` (`dashboards/web/src/report/data.ts`) in the element
    /// `data`; the script adds a searchable table of its rows to the element `values`.
    pub const COMPARE: Self =
        Self { script: include_str!("../dist/compare.js"), policy: include_str!("../dist/compare.csp") };

    /// A comparison of checkpoints: the script hides the rows of the table `tensors` that do not match the fields
    /// `search` and `verdict`.
    pub const CHECKPOINT: Self =
        Self { script: include_str!("../dist/checkpoint.js"), policy: include_str!("../dist/checkpoint.csp") };
}

/// The placeholder for the data.
const EMPTY_DATA: &str = r#"<script type="application/json" id="run-data">null</script>"#;

/// The page with embedded data, for a file: `json` is a `RunDocument` of `trainmon-history`, including its heat maps.
///
/// Texts in the data cannot end the element that contains them. Cost: a copy.
pub fn page_with_data(json: &str) -> String {
    // In JSON, `<` occurs only within texts, where the escape means the same.
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
    fn a_report_asks_nobody_and_runs_no_script_but_its_own() {
        for Behaviour { script, policy } in [Behaviour::NONE, Behaviour::COMPARE, Behaviour::CHECKPOINT] {
            assert!(policy.starts_with("default-src 'none';"), "{policy}");
            assert_eq!(policy.contains("script-src 'sha256-"), !script.is_empty(), "{policy}");
            assert!(!policy.contains("script-src 'unsafe"), "{policy}");
            for text in [script, REPORT_STYLE] {
                for foreign in ["://", "@import", "url(", "</", "fetch(", "XMLHttpRequest"] {
                    assert!(!text.contains(foreign), "{foreign}");
                }
            }
        }
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
