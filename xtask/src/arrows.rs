//! Who may depend on whom: the arrows of docs/architecture.md, checked against cargo's own graph.

use std::fmt;

use crate::graph::Graph;

/// What a member may depend on.
#[derive(Clone, Copy, Debug)]
enum May {
    /// These members only.
    On(&'static [&'static str]),
    /// Every member that others may depend on.
    OnAnything,
}

/// One line of the table.
struct Rule {
    member: &'static str,
    may: May,
}

/// Every member the workspace has or will have; a member without a line here is a violation.
const RULES: &[Rule] = &[
    Rule { member: "trainmon-record", may: May::On(&[]) },
    Rule { member: "trainmon-core", may: May::On(&["trainmon-record"]) },
    Rule { member: "trainmon-stats", may: May::On(&["trainmon-core"]) },
    Rule { member: "trainmon-device", may: May::On(&["trainmon-core"]) },
    Rule { member: "trainmon-service", may: May::On(&["trainmon-core"]) },
    Rule { member: "trainmon-web", may: May::On(&[]) },
    Rule { member: "trainmon-history", may: May::On(&["trainmon-core"]) },
    Rule {
        member: "trainmon-exporters",
        may: May::On(&["trainmon-core", "trainmon-history", "trainmon-run-files", "trainmon-service", "trainmon-web"]),
    },
    Rule { member: "trainmon-alerts", may: May::On(&["trainmon-core", "trainmon-service"]) },
    Rule { member: "trainmon-control", may: May::On(&["trainmon-core", "trainmon-service"]) },
    // The formats, each in one crate: whoever writes or reads such a file does so through it.
    Rule { member: "trainmon-capture-files", may: May::On(&["trainmon-core"]) },
    Rule { member: "trainmon-journal", may: May::On(&["trainmon-core"]) },
    Rule { member: "trainmon-run-files", may: May::On(&["trainmon-core"]) },
    // Captures in the test of the kept inputs of the fuzz targets.
    Rule { member: "trainmon-tensor-files", may: May::On(&["trainmon-capture-files", "trainmon-core"]) },
    Rule { member: "trainmon-noise", may: May::On(&["trainmon-core"]) },
    Rule {
        member: "trainmon-baseline",
        may: May::On(&["trainmon-core", "trainmon-journal", "trainmon-noise", "trainmon-run-files"]),
    },
    Rule {
        member: "trainmon-capture",
        may: May::On(&[
            "trainmon-capture-files",
            "trainmon-core",
            "trainmon-service",
            "trainmon-stats",
            "trainmon-tensor-files",
        ]),
    },
    Rule {
        member: "trainmon-agent",
        may: May::On(&[
            "trainmon-core",
            "trainmon-stats",
            "trainmon-journal",
            "trainmon-run-files",
            "trainmon-baseline",
            "trainmon-exporters",
            "trainmon-service",
            "trainmon-alerts",
            "trainmon-control",
        ]),
    },
    // The fronts see the agent and what it re-exports.
    Rule {
        member: "trainmon-tch",
        // The formats in tests.
        may: May::On(&[
            "trainmon-agent",
            "trainmon-capture",
            "trainmon-capture-files",
            "trainmon-core",
            "trainmon-device",
            "trainmon-stats",
            "trainmon-tensor-files",
        ]),
    },
    // What a loop in Rust depends on: names of the others under one.
    Rule { member: "trainmon", may: May::On(&["trainmon-agent", "trainmon-capture", "trainmon-tch"]) },
    Rule {
        member: "trainmon-python",
        // The program too: whoever installs the package has the command, and nothing is compiled for it twice.
        may: May::On(&[
            "trainmon-agent",
            "trainmon-capture",
            "trainmon-cli",
            "trainmon-core",
            "trainmon-device",
            "trainmon-stats",
        ]),
    },
    // What is done after a run: each kind of comparison by itself, what they share below them, the program above them.
    Rule { member: "trainmon-report", may: May::On(&["trainmon-core", "trainmon-web"]) },
    Rule { member: "trainmon-distance", may: May::On(&["trainmon-core", "trainmon-tensor-files"]) },
    Rule { member: "trainmon-tensors", may: May::On(&["trainmon-report", "trainmon-tensor-files"]) },
    Rule {
        member: "trainmon-compare",
        may: May::On(&[
            "trainmon-capture-files",
            "trainmon-core",
            "trainmon-distance",
            "trainmon-noise",
            "trainmon-report",
            "trainmon-tensor-files",
        ]),
    },
    Rule {
        member: "trainmon-checkpoint",
        may: May::On(&["trainmon-core", "trainmon-distance", "trainmon-report", "trainmon-tensor-files"]),
    },
    // Of the exporters the format of event files alone.
    Rule { member: "trainmon-logs", may: May::On(&["trainmon-exporters", "trainmon-report"]) },
    // Of the exporters the writers of files and OTLP: it recovers, converts and replays recorded runs with them. Of the alerts
    // the rules.
    Rule {
        member: "trainmon-runs",
        may: May::On(&[
            "trainmon-alerts",
            "trainmon-capture-files",
            "trainmon-core",
            "trainmon-journal",
            "trainmon-run-files",
            "trainmon-baseline",
            "trainmon-exporters",
            "trainmon-logs",
            "trainmon-report",
        ]),
    },
    Rule {
        member: "trainmon-views",
        may: May::On(&["trainmon-core", "trainmon-history", "trainmon-report", "trainmon-runs", "trainmon-web"]),
    },
    Rule {
        member: "trainmon-cli",
        may: May::On(&[
            "trainmon-capture-files",
            "trainmon-core",
            "trainmon-exporters",
            "trainmon-journal",
            "trainmon-report",
            "trainmon-tensor-files",
            "trainmon-tensors",
            "trainmon-compare",
            "trainmon-checkpoint",
            "trainmon-runs",
            "trainmon-views",
        ]),
    },
    Rule { member: "trainmon-integration-tests", may: May::OnAnything },
    Rule { member: "xtask", may: May::OnAnything },
];

/// Members at the top: nobody depends on them, unless a line of the table says so.
const TOPS: &[&str] = &["trainmon", "trainmon-cli", "trainmon-integration-tests", "xtask"];

/// A foreign crate that only some members may reach, over any number of steps.
struct Fence {
    foreign: &'static str,
    /// The members that may; empty: all but `except`.
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

/// A broken arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The table has no line for a member.
    UnknownMember {
        /// The member.
        member: String,
    },
    /// A member depends on another it must not know.
    Forbidden {
        /// Who depends.
        from: String,
        /// On whom.
        to: String,
    },
    /// A member reaches a foreign crate it must not reach.
    Reaches {
        /// From the member to the crate.
        way: Vec<String>,
        /// The reason for the fence.
        why: &'static str,
    },
    /// A default member would make a plain `cargo build` need libtorch or Python.
    HeavyDefault {
        /// The member.
        member: String,
        /// What it reaches.
        foreign: &'static str,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMember { member } => {
                write!(f, "{member}: not in the table of xtask/src/arrows.rs; add what it may depend on")
            }
            Self::Forbidden { from, to } => write!(f, "{from} must not depend on {to}"),
            Self::Reaches { way, why } => write!(f, "{}: {why}", way.join(" -> ")),
            Self::HeavyDefault { member, foreign } => {
                write!(f, "{member} reaches {foreign}: take it out of default-members")
            }
        }
    }
}

/// Every broken arrow of a workspace; empty when the house stands as drawn. Dev-dependencies are arrows too.
pub fn violations(graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    for (place, member) in graph.members() {
        let Some(rule) = RULES.iter().find(|rule| rule.member == member.name) else {
            found.push(Violation::UnknownMember { member: member.name.clone() });
            continue;
        };
        for edge in &member.edges {
            let to = &graph.packages[edge.to];
            if to.member && !allows(rule, &to.name) {
                found.push(Violation::Forbidden { from: member.name.clone(), to: to.name.clone() });
            }
        }
        fences_broken(graph, place, &mut found);
    }
    found
}

fn allows(rule: &Rule, to: &str) -> bool {
    match rule.may {
        May::On(allowed) => allowed.contains(&to),
        May::OnAnything => !TOPS.contains(&to),
    }
}

fn fences_broken(graph: &Graph, place: usize, found: &mut Vec<Violation>) {
    let member = &graph.packages[place];
    let mut reaches = |way: Vec<&str>, why| {
        found.push(Violation::Reaches { way: way.into_iter().map(str::to_owned).collect(), why });
    };
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
        for fence in FENCES.iter().filter(|fence| graph.way_to(place, fence.foreign).is_some()) {
            found.push(Violation::HeavyDefault { member: member.name.clone(), foreign: fence.foreign });
        }
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
    fn with(line: &str) -> Vec<Violation> {
        let name = |line: &str| line.trim().trim_start_matches('*').split(' ').next().map(str::to_owned);
        assert!(GOOD.lines().any(|old| name(old) == name(line)), "no line to replace: {line}");
        let text: Vec<&str> = GOOD.lines().map(|old| if name(old) == name(line) { line } else { old }).collect();
        violations(&graph(&text.join("\n")))
    }

    fn forbidden(from: &str, to: &str) -> Violation {
        Violation::Forbidden { from: from.to_owned(), to: to.to_owned() }
    }

    #[test]
    fn the_house_as_drawn_has_no_broken_arrow() {
        assert_eq!(violations(&graph(GOOD)), []);
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
        assert_eq!(violations(&graph(&text)), [Violation::UnknownMember { member: "trainmon-helper".to_owned() }]);
    }

    #[test]
    fn only_the_rust_front_reaches_libtorch_and_only_the_python_front_python() {
        let found = with("**trainmon-compare -> trainmon-core, tch");
        let way = ["trainmon-compare", "tch", "torch-sys"].map(str::to_owned).to_vec();
        // Whoever reaches the comparison is named too: the program, and the Python front, which carries it.
        let reaches = |violation: &Violation| matches!(violation, Violation::Reaches { way: got, .. } if *got == way);
        assert!(found.iter().any(reaches), "{found:?}");
        let heavy = Violation::HeavyDefault { member: "trainmon-compare".to_owned(), foreign: "torch-sys" };
        assert!(found.contains(&heavy), "{found:?}");
        let found = with("*trainmon-tch -> trainmon-agent, pyo3");
        let way_of = |violation: &Violation| match violation {
            Violation::Reaches { way, .. } => way.join(" "),
            other => panic!("{other}"),
        };
        let ways: Vec<String> = found.iter().map(way_of).collect();
        assert_eq!(ways, ["trainmon-tch pyo3", "trainmon trainmon-tch pyo3"], "the crate trainmon re-exports it");
    }

    #[test]
    fn core_reaches_no_runtime_even_through_others() {
        let text = GOOD.replace("        serde\n", "        serde -> hyper\n        hyper -> tokio\n");
        let found = violations(&graph(&text));
        let reached: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            reached,
            [
                "trainmon-core -> serde -> hyper -> tokio: the vocabulary crate does no I/O",
                "trainmon-core -> serde -> hyper: the vocabulary crate does no I/O",
            ]
        );
    }

    #[test]
    fn a_plain_build_needs_neither_libtorch_nor_python() {
        let found = with("**trainmon-tch -> trainmon-agent, tch");
        assert_eq!(found, [Violation::HeavyDefault { member: "trainmon-tch".to_owned(), foreign: "torch-sys" }]);
        let found = with("**trainmon-integration-tests -> trainmon-tch");
        assert!(matches!(&found[..], [Violation::HeavyDefault { .. }]), "{found:?}");
    }

    #[test]
    fn this_workspace_stands_as_drawn() {
        let graph = Graph::of_workspace(&workspace::root()).unwrap();
        assert!(graph.members().count() >= 8, "cargo metadata lists the members");
        let found: Vec<_> = violations(&graph).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
