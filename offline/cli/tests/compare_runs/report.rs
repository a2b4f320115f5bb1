//! The report's files, and what the guide says of the command.

use std::fs;

use serde_json::Value;

use crate::workspace::{Made, RUN, Workspace};

#[test]
fn the_report_is_whole_and_the_html_file_needs_nothing_else() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    workspace.make("fault", &Made { seed: 2, fault: Some((23, 1.5)), ..Made::GOLDEN });
    let said = workspace.compare(&["fault", "golden", "-o", "report", "--format", "csv,json,html,md"]);
    insta::assert_snapshot!(said.out);
    let read = |name: &str| fs::read_to_string(workspace.path("report").join(name)).expect("there");
    let table = read("compare.csv");
    let expected = "first_step,rank,kind,name,vpp_stage,micro_step,statistic,target,golden,difference,bound,bound_source,note\n\
                    23,0,grad_reduced,layers.2.weight,0,,";
    assert!(table.starts_with(expected), "{table}");
    assert_eq!(table.lines().count(), 3, "the norm and the largest element part: {table}");
    let json: Value = serde_json::from_str(&read("compare.json")).expect("JSON");
    assert_eq!(json["parted"].as_array().map(Vec::len), Some(2));
    let html = read("compare.html");
    assert_eq!(html.matches("<svg").count(), 1, "one tensor parts");
    for absent in ["<script", "http:", "https:", "src=", "NaN"] {
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(html.contains("prefers-color-scheme:dark") && html.contains(">step 23</text>"));
    assert!(read("compare.md").contains("| 23 | 0 | grad_reduced of `layers.2.weight` |"));
    let again = workspace.compare(&["fault", "golden", "-o", "report"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.starts_with("error: `report` already exists\nhint: "), "{}", again.err);
}

/// Everything parts at two steps: each step and kind is one fold, the first one open, and none of the rest says the same again.
#[test]
fn what_parts_at_one_step_is_told_together() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    workspace.make("fault", &Made { seed: 2, ..Made::GOLDEN });
    for (kind, from) in [("grad_reduced", 23), ("param_updated", 24)] {
        let path = format!("fault/{RUN}/{kind}_0-999.csv");
        let text = fs::read_to_string(workspace.path(&path)).expect("there");
        let scaled = text.lines().map(|line| {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            if fields[2].parse().is_ok_and(|step: u64| step >= from) {
                for number in &mut fields[3..5] {
                    *number = (number.parse::<f64>().expect("a number") * 1.5).to_string();
                }
            }
            fields.join(",") + "\n"
        });
        let scaled: String = scaled.collect();
        workspace.write(&path, &scaled);
    }
    workspace.compare(&["fault", "golden", "-o", "report", "--format", "html"]);
    let html = fs::read_to_string(workspace.path("report/compare.html")).expect("there");
    let folds = ["step 23: grad_reduced, 16 series", "step 24: param_updated, 16 series"];
    assert!(folds.iter().all(|fold| html.matches(fold).count() == 1), "{html}");
    let (grads, parameters) = (html.find(folds[0]).expect("there"), html.find(folds[1]).expect("there"));
    assert!(grads < parameters);
    assert_eq!(html.matches("<details open").count(), 1, "the first alone is open");
}

#[test]
fn the_example_of_the_guide_is_what_the_command_says() {
    let guide = include_str!("../../../../docs/compare-runs.md");
    let workspace = Workspace::recorded();
    let said = workspace.compare(&["weight", "golden"]);
    let sentence = said.out.lines().next().expect("a sentence");
    assert!(guide.contains(&format!("\n{sentence}\n")), "the guide lacks:\n{sentence}");
}
