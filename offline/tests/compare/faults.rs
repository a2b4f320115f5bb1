//! Where runs with one planted fault part, against the truth of each: `integration-tests/faults` says how they were made.

use std::path::{Path, PathBuf};

use serde_json::Value;
use trainmon_offline::compare::first::Kind;
use trainmon_offline::compare::{Answer, CompareError, Thresholds, Verdict, compare};

/// How an answer stands to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Place and kind are right.
    Right,
    /// It says that it does not know, or that nothing beyond rounding differs where something does.
    Unsure,
    /// It says something that is not so.
    Wrong,
}

fn mark(answer: &Answer, truth: &Value) -> Mark {
    let texts =
        |key: &str| -> Vec<&str> { truth[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect() };
    let verdicts: Vec<&str> = texts("also").into_iter().chain(truth["verdict"].as_str()).collect();
    match &answer.verdict {
        // That calls differ and no value does is so, and no fault of the numbers.
        Verdict::Same | Verdict::Rounding { .. } | Verdict::OneSided { .. } if verdicts.contains(&"none") => {
            Mark::Right
        }
        Verdict::Same | Verdict::Rounding { .. } | Verdict::CannotTell { .. } if verdicts.contains(&"cannot_tell") => {
            Mark::Right
        }
        Verdict::Same => Mark::Wrong,
        Verdict::CannotTell { .. } | Verdict::Rounding { .. } => Mark::Unsure,
        Verdict::Parts { step, ranks, finding } | Verdict::OneSided { step, ranks, finding } => {
            let is_step = truth["step"].as_u64() == Some(*step);
            let is_rank = truth["rank"].as_u64().is_none_or(|rank| ranks == &[rank]);
            let is_place =
                texts("operators").contains(&&*finding.operator) || texts("modules").contains(&&*finding.operator);
            let kind = match finding.kind {
                Kind::Parameter => "parameter",
                Kind::Data | Kind::Between => "input",
                _ => "operator",
            };
            let is_kind = verdicts.contains(&kind) || (kind == "input" && verdicts.contains(&"operator"));
            if is_step && is_rank && is_place && is_kind { Mark::Right } else { Mark::Wrong }
        }
    }
}

fn cases(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = entries.filter(|path| path.join("truth.json").exists()).collect();
    cases.sort();
    cases
}

/// The golden run, and its reruns where the case has some.
fn goldens(case: &Path, truth: &Value) -> Vec<PathBuf> {
    let reruns = truth["golden_reruns"].as_array().into_iter().flatten().filter_map(Value::as_str);
    std::iter::once("golden").chain(reruns).map(|name| case.join(name)).collect()
}

#[test]
fn planted_faults_are_found_where_they_are() {
    let unpacked = tempfile::tempdir().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/faults/corpus.tar.gz");
    let corpus = flate2::read::GzDecoder::new(std::fs::File::open(corpus).unwrap());
    tar::Archive::new(corpus).unpack(unpacked.path()).unwrap();
    let root = unpacked.path();
    let mut marks = Vec::new();
    for case in cases(root) {
        let truth: Value = serde_json::from_slice(&std::fs::read(case.join("truth.json")).unwrap()).unwrap();
        let answer = compare(&case.join("target"), &goldens(&case, &truth), &Thresholds::default(), |_| {
            Ok::<(), CompareError>(())
        })
        .unwrap();
        let mark = mark(&answer, &truth);
        if mark != Mark::Right {
            println!(
                "{mark:?} {}: {}\n   truth {} {} step {} rank {} {}\n   {:?}",
                case.display(),
                truth["what"],
                truth["verdict"],
                truth["also"],
                truth["step"],
                truth["rank"],
                truth["operators"],
                answer.verdict
            );
        }
        marks.push(mark);
    }
    let count = |of| marks.iter().filter(|&&mark| mark == of).count();
    println!(
        "{} cases: {} right, {} unsure, {} wrong",
        marks.len(),
        count(Mark::Right),
        count(Mark::Unsure),
        count(Mark::Wrong)
    );
    assert!(marks.len() >= 110, "the corpus is not whole");
    assert_eq!(count(Mark::Wrong), 0);
    assert!(count(Mark::Right) * 100 >= marks.len() * 95);
}
