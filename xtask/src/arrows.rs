//! Who may depend on whom: the arrows of docs/architecture.md, checked against cargo's own graph.

use crate::graph::Graph;

/// Every member the workspace has or will have, and the members that it may depend on, without `trainmon-`; `*`: every one that
/// others may depend on. A member without a line here breaks a rule.
const RULES: &[(&str, &str)] = &[
    ("trainmon-record", ""),
    ("trainmon-core", "record"),
    ("trainmon-stats", "core"),
    ("trainmon-device", "core"),
    ("trainmon-service", "core"),
    ("trainmon-web", ""),
    ("trainmon-history", "core"),
    ("trainmon-exporters", "core history run-files service web"),
    ("trainmon-alerts", "core service"),
    ("trainmon-control", "core service"),
    // The formats, each in one crate: whoever writes or reads such a file does so through it.
    ("trainmon-capture-files", "core"),
    ("trainmon-journal", "core"),
    ("trainmon-run-files", "core"),
    // Captures in the test of the kept inputs of the fuzz targets.
    ("trainmon-tensor-files", "capture-files core"),
    ("trainmon-noise", "core"),
    ("trainmon-baseline", "core journal noise run-files"),
    ("trainmon-capture", "capture-files core service stats tensor-files"),
    ("trainmon-agent", "core stats journal run-files baseline exporters service alerts control"),
    // The fronts see the agent and what it re-exports.
    // The formats in tests.
    ("trainmon-tch", "agent capture capture-files core device stats tensor-files"),
    // What a loop in Rust depends on: names of the others under one.
    ("trainmon", "agent capture tch"),
    // The program too: whoever installs the package has the command, and nothing is compiled for it twice.
    ("trainmon-python", "agent capture cli core device stats"),
    // What is done after a run: each kind of comparison by itself, what they share below them, the program above them.
    ("trainmon-report", "core web"),
    ("trainmon-distance", "core tensor-files"),
    ("trainmon-tensors", "report tensor-files"),
    ("trainmon-compare", "capture-files core distance noise report tensor-files"),
    ("trainmon-graph", "capture-files compare report"),
    ("trainmon-checkpoint", "core distance report tensor-files"),
    // Of the exporters the format of event files alone.
    ("trainmon-logs", "exporters report"),
    // Of the exporters the writers of files and OTLP: it recovers, converts and replays recorded runs with them. Of the alerts
    // the rules.
    ("trainmon-runs", "alerts capture-files core journal run-files baseline exporters logs report"),
    ("trainmon-views", "core history report runs web"),
    (
        "trainmon-cli",
        "capture-files core exporters journal report tensor-files tensors compare checkpoint graph runs views",
    ),
    ("trainmon-integration-tests", "*"),
    ("xtask", "*"),
];

/// Members at the top: nobody depends on them, unless a line of the table says so.
const TOPS: &[&str] = &["trainmon", "trainmon-cli", "trainmon-integration-tests", "xtask"];

/// A foreign crate that only some members may reach, over any number of steps.
struct Fence {
    foreign: &'static str,
    /// The members that may.
    only: &'static [&'static str],
    why: &'static str,
}

const FENCES: &[Fence] = &[
    Fence {
        foreign: "torch-sys",
        only: &["trainmon", "trainmon-tch", "trainmon-integration-tests"],
        why: "trainmon-tch is the only crate that links libtorch",
    },
    Fence {
        foreign: "pyo3",
        only: &["trainmon-python", "trainmon-integration-tests"],
        why: "trainmon-python is the only crate that links Python",
    },
];

/// What the vocabulary crate must not reach.
const NOT_IN_CORE: &[&str] = &["tokio", "hyper"];

/// Every broken arrow of a workspace; empty when the house stands as drawn. Dev-dependencies are arrows too.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (place, member) in graph.members() {
        let from = &member.name;
        let Some((_, may)) = RULES.iter().find(|(name, _)| name == from) else {
            found.push(format!("{from}: not in the table of xtask/src/arrows.rs; add what it may depend on"));
            continue;
        };
        let targets = member.edges.iter().map(|edge| &graph.packages[edge.to]);
        let forbidden = targets.filter(|to| to.member && !allows(may, &to.name));
        found.extend(forbidden.map(|to| format!("{from} must not depend on {}", to.name)));
        fences_broken(graph, place, &mut found);
    }
    found
}

fn allows(may: &str, to: &str) -> bool {
    match may {
        "*" => !TOPS.contains(&to),
        _ => may.split(' ').any(|name| to.strip_prefix("trainmon-") == Some(name)),
    }
}

fn fences_broken(graph: &Graph, place: usize, found: &mut Vec<String>) {
    let member = &graph.packages[place];
    let mut reaches = |way: Vec<&str>, why| found.push(format!("{}: {why}", way.join(" -> ")));
    for fence in FENCES.iter().filter(|fence| !fence.only.contains(&member.name.as_str())) {
        if let Some(way) = graph.way_to(place, fence.foreign) {
            reaches(way, fence.why);
        }
    }
    if member.name == "trainmon-core" {
        for way in NOT_IN_CORE.iter().filter_map(|foreign| graph.way_to(place, foreign)) {
            reaches(way, "the vocabulary crate does no I/O");
        }
    }
    if member.default_member {
        let heavy = FENCES.iter().filter(|fence| graph.way_to(place, fence.foreign).is_some());
        found.extend(
            heavy.map(|fence| format!("{} reaches {}: take it out of default-members", member.name, fence.foreign)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::made_up::graph;
    use crate::workspace;

    const GOOD: &str = "
        **trainmon-core -> serde
        **trainmon-stats -> trainmon-core
        **trainmon-service -> trainmon-core
        **trainmon-alerts -> trainmon-core, trainmon-service
        **trainmon-control -> trainmon-core, trainmon-service, tokio
        **trainmon-exporters -> trainmon-core, trainmon-run-files, trainmon-service, tokio
        **trainmon-capture-files -> trainmon-core
        **trainmon-journal -> trainmon-core
        **trainmon-run-files -> trainmon-core
        **trainmon-tensor-files -> trainmon-core
        **trainmon-noise -> trainmon-core
        **trainmon-baseline -> trainmon-core, trainmon-journal, trainmon-noise
        **trainmon-capture -> trainmon-capture-files, trainmon-core, trainmon-tensor-files, trainmon-stats
        **trainmon-agent -> trainmon-core, trainmon-stats, trainmon-journal, trainmon-baseline, trainmon-exporters, trainmon-alerts, trainmon-control
        *trainmon-tch -> trainmon-agent, trainmon-capture, trainmon-stats, tch
        *trainmon -> trainmon-agent, trainmon-capture, trainmon-tch
        *trainmon-python -> trainmon-agent, trainmon-capture, trainmon-cli, pyo3
        **trainmon-report -> serde
        **trainmon-tensors -> trainmon-tensor-files, trainmon-report
        **trainmon-compare -> trainmon-capture-files, trainmon-core, trainmon-tensor-files, trainmon-noise, trainmon-report
        **trainmon-checkpoint -> trainmon-core, trainmon-tensor-files, trainmon-report
        **trainmon-runs -> trainmon-core, trainmon-journal, trainmon-baseline, trainmon-exporters, trainmon-report
        **trainmon-cli -> trainmon-core, trainmon-report, trainmon-tensors, trainmon-compare, trainmon-checkpoint, trainmon-runs
        *trainmon-integration-tests -> trainmon-tch, trainmon-agent
        **xtask -> trainmon-core
        serde
        tokio
        tch -> torch-sys
        torch-sys
        pyo3";

    /// The good graph with one line replaced.
    fn with(line: &str) -> Vec<String> {
        let name = |line: &str| line.trim().trim_start_matches('*').split(' ').next().map(str::to_owned);
        assert!(GOOD.lines().any(|old| name(old) == name(line)), "no line to replace: {line}");
        let text: Vec<&str> = GOOD.lines().map(|old| if name(old) == name(line) { line } else { old }).collect();
        violations(&graph(&text.join("\n")))
    }

    fn forbidden(from: &str, to: &str) -> String {
        format!("{from} must not depend on {to}")
    }

    #[test]
    fn the_house_as_drawn_has_no_broken_arrow() {
        assert_eq!(violations(&graph(GOOD)), [""; 0]);
    }

    #[test]
    fn a_member_must_not_depend_upwards_or_sideways() {
        assert_eq!(
            with("**trainmon-stats -> trainmon-core, trainmon-exporters"),
            [forbidden("trainmon-stats", "trainmon-exporters")]
        );
        assert_eq!(with("**trainmon-core -> trainmon-stats"), [forbidden("trainmon-core", "trainmon-stats")]);
        assert_eq!(
            with("**trainmon-runs -> trainmon-core, trainmon-agent"),
            [forbidden("trainmon-runs", "trainmon-agent")]
        );
    }

    #[test]
    fn comparisons_know_neither_each_other_nor_the_program() {
        assert_eq!(
            with("**trainmon-compare -> trainmon-core, trainmon-runs"),
            [forbidden("trainmon-compare", "trainmon-runs")]
        );
        assert_eq!(with("**trainmon-report -> trainmon-compare"), [forbidden("trainmon-report", "trainmon-compare")]);
        assert_eq!(
            with("*trainmon-integration-tests -> trainmon-cli"),
            [forbidden("trainmon-integration-tests", "trainmon-cli")]
        );
        assert_eq!(with("*trainmon-tch -> trainmon-cli"), [forbidden("trainmon-tch", "trainmon-cli")]);
    }

    #[test]
    fn dev_dependencies_are_arrows_too() {
        assert_eq!(with("**trainmon-journal -> (trainmon-stats)"), [forbidden("trainmon-journal", "trainmon-stats")]);
    }

    #[test]
    fn nobody_depends_on_the_tops() {
        assert_eq!(
            with("**trainmon-agent -> (trainmon-integration-tests)")[0],
            forbidden("trainmon-agent", "trainmon-integration-tests")
        );
        assert_eq!(with("*trainmon-integration-tests -> xtask"), [forbidden("trainmon-integration-tests", "xtask")]);
    }

    #[test]
    fn a_member_outside_the_table_is_a_violation() {
        let text = format!("{GOOD}\n*trainmon-helper -> trainmon-core");
        let unknown = "trainmon-helper: not in the table of xtask/src/arrows.rs; add what it may depend on";
        assert_eq!(violations(&graph(&text)), [unknown]);
    }

    #[test]
    fn only_the_rust_front_reaches_libtorch_and_only_the_python_front_python() {
        let found = with("**trainmon-compare -> trainmon-core, tch");
        // Whoever reaches the comparison is named too: the program, and the Python front, which carries it.
        for expected in [
            "trainmon-compare -> tch -> torch-sys: trainmon-tch is the only crate that links libtorch",
            "trainmon-compare reaches torch-sys: take it out of default-members",
        ] {
            assert!(found.iter().any(|told| told == expected), "{found:?}");
        }
        let why = "trainmon-python is the only crate that links Python";
        assert_eq!(
            with("*trainmon-tch -> trainmon-agent, pyo3"),
            ["trainmon-tch -> pyo3", "trainmon -> trainmon-tch -> pyo3"].map(|way| format!("{way}: {why}")),
            "the crate trainmon re-exports it"
        );
    }

    #[test]
    fn core_reaches_no_runtime_even_through_others() {
        let text = GOOD.replace("        serde\n", "        serde -> hyper\n        hyper -> tokio\n");
        assert_eq!(
            violations(&graph(&text)),
            [
                "trainmon-core -> serde -> hyper -> tokio: the vocabulary crate does no I/O",
                "trainmon-core -> serde -> hyper: the vocabulary crate does no I/O",
            ]
        );
    }

    #[test]
    fn a_plain_build_needs_neither_libtorch_nor_python() {
        let heavy = |name: &str| format!("{name} reaches torch-sys: take it out of default-members");
        assert_eq!(with("**trainmon-tch -> trainmon-agent, tch"), [heavy("trainmon-tch")]);
        let tests = "trainmon-integration-tests";
        assert_eq!(with(&format!("**{tests} -> trainmon-tch")), [heavy(tests)]);
    }

    #[test]
    fn this_workspace_stands_as_drawn() {
        let graph = Graph::of_workspace(&workspace::root()).unwrap();
        assert!(graph.members().count() >= 8, "cargo metadata lists the members");
        let found = violations(&graph);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
