//! What is compared with what: steps, ranks, tensors; and values that are no numbers.

use std::fs;

use crate::workspace::{HEADER, Made, RUN, Workspace, no_divergence, part};

#[test]
fn steps_in_common_are_compared_and_the_others_told() {
    let workspace = Workspace::new();
    let exact = Made { noise: 0.0, ..Made::GOLDEN };
    workspace.make("golden", &exact);
    workspace.make("later", &Made { first: 25, ..exact });
    let said = workspace.compare(&["later", "golden"]);
    assert!(said.out.starts_with("No divergence: all 720 values of steps 25 to 39 are equal"), "{}", said.out);
    assert!(said.out.contains("25 steps only in the target (its steps: 25 to 64)"), "{}", said.out);
    assert_eq!(said.code, Some(0));
    assert_eq!(workspace.compare(&["later", "golden", "--fail-on", "warning"]).code, Some(1));
    workspace.make("apart", &Made { first: 100, ..exact });
    let said = workspace.compare(&["apart", "golden"]);
    let expected = "Cannot tell: no step in common (target: 100 to 139, baseline: 0 to 39)\n";
    assert!(said.out.starts_with(expected), "{}", said.out);
    assert_eq!(said.code, Some(1));
}

#[test]
fn nan_on_one_side_is_a_divergence_and_on_both_is_none() {
    let workspace = Workspace::new();
    let rows = |third: &str| {
        format!(
            "{HEADER}0,a,0,1.5123456789012345,[2],torch.float32\n0,a,1,{third},[2],torch.float32\n0,a,2,nan,[2],torch.float32\n"
        )
    };
    for (run, value) in [("good", "2.5"), ("bad", "nan")] {
        workspace.write(&format!("{run}/{RUN}/grad_reduced_0-9.csv"), &rows(value));
    }
    assert_eq!(workspace.first("good", &["good"]), no_divergence());
    assert_eq!(workspace.first("bad", &["good"]), part(1, "grad_reduced", "a"));
    let said = workspace.compare(&["bad", "good"]);
    assert!(said.out.contains("grad_reduced of `a` on rank 0: norm NaN (baseline 2.5)\n"), "{}", said.out);
}

#[test]
fn ranks_are_paired_by_number_and_the_unpaired_named() {
    let workspace = Workspace::new();
    let row = |value: &str| format!("{HEADER}0,a,0,{value},[2],torch.float32\n");
    for (path, value) in [
        ("golden/Nov20_16-05-09-rank0-1f0a9c42", "1.5"),
        ("golden/Nov20_16-05-09-rank1-0a1b2c3d", "2.5"),
        ("golden/Nov20_16-05-09-rank2-0a1b2c3e", "2.5"),
        ("target/Nov21_08-00-00-rank1-aaaaaaaa", "2.75"),
        ("target/Nov21_08-00-00-rank0-bbbbbbbb", "1.5"),
    ] {
        workspace.write(&format!("{path}/grad_reduced_0-0.csv"), &row(value));
    }
    let said = workspace.compare(&["target", "golden"]);
    assert!(said.out.contains("grad_reduced of `a` on rank 1: norm 2.75 (baseline 2.5)"), "{}", said.out);
    assert!(said.out.contains("note: ranks only in the baseline: 2\n"), "{}", said.out);
    workspace.write("golden/Nov20_17-00-00-rank1-00000000/grad_reduced_0-0.csv", &row("1.25"));
    // Of several runs of a rank the newest is taken, by the time in its name, and that is said.
    let said = workspace.compare(&["target", "golden"]);
    assert_eq!(said.err, "`golden` contains 2 runs; comparing the newest, Nov20_17-00-00-rank1-00000000\n");
    assert!(said.out.contains("grad_reduced of `a` on rank 1: norm 2.75 (baseline 1.25),"), "{}", said.out);
}

#[test]
fn of_a_directory_of_runs_the_newest_is_taken_and_that_is_said() {
    let workspace = Workspace::new();
    let row = |value: &str| format!("{HEADER}0,a,0,{value},[2],torch.float32\n");
    for (run, started, value) in [("train", 10, "1.5123456789012345"), ("train-2", 12, "2.5"), ("other", 11, "3.5")] {
        workspace.write(&format!("out/{run}/rank_0/grad_reduced_0-9999.csv"), &row(value));
        workspace.write(&format!("out/{run}/rank_1/grad_reduced_0-9999.csv"), &row(value));
        let facts = format!(r#"{{"run": "train", "world_size": 2, "started": "2026-11-23T04:38:{started}.5Z"}}"#);
        workspace.write(&format!("out/{run}/run.json"), &facts);
    }
    workspace.write("out/never/rank_0/control.json", "{}");
    let said = workspace.compare(&["out", "out/train"]);
    assert_eq!(said.err, "`out` contains 3 runs; comparing the newest, train-2\n");
    assert!(said.out.contains("grad_reduced of `a` on rank 0: norm 2.5 (baseline 1.512)"), "{}", said.out);
    let (found, _) = workspace.json(&["out", "out/train"]);
    assert_eq!(found["newest"], serde_json::json!([{"directory": "out", "runs": 3, "taken": "out/train-2"}]));
    assert_eq!(found["ranks"][1]["target"], "out/train-2/rank_1");
    let (found, _) = workspace.json(&["out/train-2/rank_0", "out/other"]);
    assert_eq!((&found["newest"], &found["ranks"][0]["golden"]), (&serde_json::json!([]), &"out/other/rank_0".into()));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("train", workspace.path("out/latest")).expect("writable");
        let said = workspace.compare(&["out/latest", "out/train"]);
        assert_eq!((said.err.as_str(), said.code), ("", Some(0)), "{}", said.out);
        assert!(workspace.compare(&["out", "out/train"]).err.contains("contains 3 runs"), "the link is none");
    }
    // `trainmon compare` finds out what they are.
    let said = crate::support::trainmon(&workspace.path("."), &["compare", "out", "out/train"]);
    assert!(said.err.contains("`out` contains 3 runs; comparing the newest, train-2\n"), "{}", said.err);
}

#[test]
fn tensors_of_one_side_and_other_shapes_are_told() {
    let workspace = Workspace::new();
    let of = |rows: &str| format!("{HEADER}{rows}");
    workspace.write(
        &format!("a/{RUN}/grad_reduced_0-0.csv"),
        &of("0,x,0,1.5123456789012345,[2],torch.float32\n0,new,0,1.5123456789012345,[2],torch.float32\n"),
    );
    workspace.write(
        &format!("b/{RUN}/grad_reduced_0-0.csv"),
        &of("0,x,0,1.5123456789012345,[2],torch.float32\n0,old,0,1.5123456789012345,[2],torch.float32\n"),
    );
    let said = workspace.compare(&["a", "b"]);
    assert!(said.out.contains("grad_reduced only in the target: `new`"), "{}", said.out);
    assert!(said.out.contains("grad_reduced only in the baseline: `old`"), "{}", said.out);
    assert_eq!(said.code, Some(0));
    workspace
        .write(&format!("c/{RUN}/grad_reduced_0-0.csv"), &of("0,x,0,1.5123456789012345,\"[1, 2]\",torch.float32\n"));
    let said = workspace.compare(&["c", "b"]);
    assert!(said.out.contains("rank 0, grad_reduced of `x`, shape [1, 2] against [2]"), "{}", said.out);
    assert_eq!(said.code, Some(1));
}

#[test]
fn what_one_run_lacks_in_some_steps_and_what_it_did_not_measure_are_told() {
    let workspace = Workspace::new();
    let exact = Made { noise: 0.0, ..Made::GOLDEN };
    workspace.make("golden", &exact);
    workspace.make("stopped", &exact);
    workspace.make("other", &exact);
    // Gradients end after step 29; their largest element has another name.
    let file = |run: &str| workspace.path(&format!("{run}/{RUN}/grad_reduced_0-999.csv"));
    let text = fs::read_to_string(file("stopped")).expect("there");
    let lines: Vec<&str> = text.lines().take(1 + 30 * 8).collect();
    fs::write(file("stopped"), lines.join("\n") + "\n").expect("writable");
    fs::write(file("other"), text.replacen(",max,", ",min,", 1)).expect("writable");
    for (target, golden, notes) in [
        (
            "stopped",
            "golden",
            vec![
                "rank 0: 80 rows of grad_reduced missing in the target, steps 30 to 39: `layers.0.weight`, `layers.1.weight`, \
                 `layers.2.weight`, `layers.3.weight`, `layers.4.weight` and 3 more",
            ],
        ),
        (
            "golden",
            "stopped",
            vec![
                "rank 0: 80 rows of grad_reduced missing in the baseline, steps 30 to 39: `layers.0.weight`, `layers.1.weight`, \
                 `layers.2.weight`, `layers.3.weight`, `layers.4.weight` and 3 more",
            ],
        ),
        (
            "other",
            "golden",
            vec!["rank 0: min of grad_reduced only in the target", "rank 0: max of grad_reduced only in the baseline"],
        ),
    ] {
        let (found, code) = workspace.json(&[target, golden, "--fail-on", "warning"]);
        assert_eq!((&found["notes"], code), (&notes.into(), Some(1)), "{target}: {}", found["verdict"]);
        assert_eq!(found["verdict"]["answer"], "no_divergence", "{target}");
    }
}

#[test]
fn steps_that_were_trained_twice_are_one_warning() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made { noise: 0.0, ..Made::GOLDEN });
    workspace.make("again", &Made { noise: 0.0, ..Made::GOLDEN });
    let file = workspace.path(&format!("again/{RUN}/actv_0-999.csv"));
    let text = fs::read_to_string(&file).expect("there");
    let again: Vec<&str> = text.lines().skip(1 + 10 * 8).take(5 * 8).collect();
    fs::write(&file, format!("{text}{}\n", again.join("\n"))).expect("writable");
    assert_eq!(workspace.compare(&["again", "golden"]).code, Some(0));
    let (found, code) = workspace.json(&["again", "golden", "--fail-on", "warning"]);
    let expected = format!("`again/{RUN}/actv_0-999.csv`: steps 10 to 14 occur again: reading the first occurrence");
    assert_eq!((&found["warnings"], code), (&vec![expected].into(), Some(1)));
}
