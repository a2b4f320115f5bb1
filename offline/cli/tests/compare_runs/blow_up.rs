//! Trainings that blow up in both runs.

use crate::workspace::{Made, Workspace, part};

#[test]
fn trainings_that_blow_up_together_do_not_part_and_an_earlier_fault_is_found() {
    let workspace = Workspace::recorded();
    // From step 10 on the learning rate is far too large: gradients leave their range in both runs, then round-off its own.
    for (target, steps) in [("blow_up_order", "at step 14"), ("blow_up_order2", "in steps 13 to 14")] {
        let (found, code) = workspace.json(&[target, "blow_up"]);
        let (answer, sentence) = (&found["verdict"]["answer"], found["verdict"]["sentence"].as_str());
        let expected = format!(
            "Cannot tell {steps}: the training itself blows up (in both runs gradients are 23 times as large at step 11 \
             as at first); no divergence beyond noise before"
        );
        assert_eq!((answer, sentence, code), (&"cannot_tell".into(), Some(expected.as_str()), Some(1)), "{found:#}");
        assert!(found["parted"].as_array().is_some_and(Vec::is_empty), "{found:#}");
    }
    assert_eq!(workspace.first("blow_up_weight", &["blow_up"]), part(6, "param_origin", "layers.0.fc1.weight"));
}

#[test]
fn gradients_that_leave_their_range_in_the_target_alone_part() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    let huge = Made { seed: 2, fault: Some((23, 100.0)), is_broad: true, ..Made::GOLDEN };
    workspace.make("fault", &huge);
    let (answer, first) = workspace.first("fault", &["golden"]);
    let (step, kind, _) = first.expect("they part");
    assert_eq!((answer.as_str(), step, kind.as_str()), ("diverges", 23, "grad_reduced"));
    // Where both leave it, a jump of the noise is no evidence.
    workspace.make("golden_too", &Made { seed: 1, ..huge });
    workspace.make("jump", &Made { fault: Some((23, 103.0)), ..huge });
    let (found, _) = workspace.json(&["jump", "golden_too"]);
    let blow_up = &found["ranks"][0]["blow_up"];
    assert_eq!((&found["verdict"]["answer"], &blow_up["first"]), (&"cannot_tell".into(), &23.into()), "{found:#}");
    // Before, it is.
    workspace.make("early", &Made { fault: Some((15, 1.01)), ..Made::GOLDEN });
    workspace.make("golden_late", &Made { fault: Some((30, 100.0)), is_broad: true, ..Made::GOLDEN });
    assert_eq!(workspace.first("early", &["golden_late"]), part(15, "grad_reduced", "layers.2.weight"));
}
