//! What is noise, what is none, and what was there from the start.

use crate::workspace::{Made, RUN, Workspace, no_divergence, part};

#[test]
fn recorded_trainings_part_where_their_fault_is_and_nowhere_else() {
    let workspace = Workspace::recorded();
    // The same samples in another order: every sum over the batch is rounded otherwise.
    assert_eq!(workspace.first("order", &["golden"]), no_divergence());
    assert_eq!(workspace.first("golden", &["golden"]), no_divergence());
    assert_eq!(workspace.first("half", &["golden"]), part(9, "actv", "layers.0.fc2.input"));
    assert_eq!(workspace.first("weight", &["golden"]), part(16, "param_origin", "layers.0.fc1.weight"));
    let said = workspace.compare(&["order", "golden", "--fail-on", "warning"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.out.contains("not judged") && said.out.contains("`layers.0.k.bias`"), "{}", said.out);
}

#[test]
fn a_jump_in_growing_noise_is_found_at_its_step_and_tensor() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    workspace.make("clean", &Made { seed: 2, ..Made::GOLDEN });
    workspace.make("fault", &Made { seed: 2, fault: Some((23, 1.01)), ..Made::GOLDEN });
    assert_eq!(workspace.first("clean", &["golden"]), no_divergence());
    assert_eq!(workspace.first("fault", &["golden"]), part(23, "grad_reduced", "layers.2.weight"));
    let (found, code) = workspace.json(&["fault", "golden"]);
    let first = &found["first"];
    assert_eq!((code, first["bound_source"].as_str()), (Some(1), Some("growth")), "{first}");
    let number = |key: &str| first[key].as_f64().expect("a number");
    assert!(number("difference") > number("bound") && number("bound") > 1e-6, "{first}");
    assert!((number("target") / number("golden") - 1.01).abs() < 1e-4, "{first}");
}

#[test]
fn a_small_jump_of_one_series_is_noise_and_of_many_a_fault() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    // Some two times the bound.
    let lone = Made { seed: 2, fault: Some((23, 1.0004)), ..Made::GOLDEN };
    workspace.make("lone", &lone);
    workspace.make("broad", &Made { is_broad: true, ..lone });
    assert_eq!(workspace.first("lone", &["golden"]), no_divergence());
    let (answer, first) = workspace.first("broad", &["golden"]);
    let (step, kind, _) = first.expect("they part");
    assert_eq!((answer.as_str(), step, kind.as_str()), ("diverges", 23, "grad_reduced"));
}

#[test]
fn several_golden_runs_are_the_measure_of_each_other() {
    let workspace = Workspace::new();
    // Noise of a tenth of a percent from the first step on: one golden run cannot explain it, three can.
    let noisy = Made { noise: 1e-3, growth: 1.0, ..Made::GOLDEN };
    for (name, seed) in [("target", 2), ("golden", 1), ("golden2", 3), ("golden3", 4)] {
        workspace.make(name, &Made { seed, ..noisy });
    }
    workspace.make("fault", &Made { seed: 2, fault: Some((30, 1.1)), ..noisy });
    assert_ne!(workspace.first("target", &["golden"]).0, "no_divergence");
    let golden = ["golden", "golden2", "golden3"];
    assert_eq!(workspace.first("target", &golden), no_divergence());
    assert_eq!(workspace.first("fault", &golden), part(30, "grad_reduced", "layers.2.weight"));
    let (found, _) = workspace.json(&["fault", "golden", "golden2", "golden3"]);
    assert_eq!(found["first"]["bound_source"], "golden_spread");
}

#[test]
fn noise_that_may_hide_a_fault_is_a_warning_with_one_golden_run_and_with_three() {
    let workspace = Workspace::new();
    let noisy = Made { growth: 1.45, ..Made::GOLDEN };
    for (name, seed) in [("golden", 1), ("golden2", 3), ("golden3", 4)] {
        workspace.make(name, &Made { seed, ..noisy });
    }
    // A tenth of what the noise has become by step 35.
    workspace.make("fault", &Made { seed: 2, fault: Some((35, 1.05)), ..noisy });
    let golden = ["golden", "golden2", "golden3"];
    for (golden, hint) in
        [(&golden[..1], "compare with a second baseline"), (&golden, "start both runs from a checkpoint")]
    {
        assert_eq!(workspace.first("fault", golden), no_divergence());
        let said = workspace.compare(&[&["fault"], golden, &["--fail-on", "warning"]].concat());
        assert_eq!(said.code, Some(1), "{}", said.out);
        for text in ["noise this large may hide a smaller", &format!("next: {hint}")] {
            assert!(said.out.contains(text), "{}", said.out);
        }
    }
}

#[test]
fn runs_equal_to_the_last_digit_part_with_the_first_bit() {
    let workspace = Workspace::new();
    let exact = Made { noise: 0.0, ..Made::GOLDEN };
    workspace.make("golden", &exact);
    workspace.make("fault", &Made { fault: Some((7, 1.0 + 1e-9)), ..exact });
    assert_eq!(workspace.first("fault", &["golden"]), part(7, "grad_reduced", "layers.2.weight"));
    let (found, _) = workspace.json(&["fault", "golden"]);
    assert_eq!(found["first"]["bound_source"], "equal_until_then");
}

#[test]
fn printed_digits_are_no_difference_and_too_few_of_them_are_an_answer_of_their_own() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    workspace.make("six", &Made { seed: 2, decimals: Some(6), growth: 1.0, ..Made::GOLDEN });
    assert_eq!(workspace.first("six", &["golden"]), no_divergence());
    let faulty = Made { seed: 2, decimals: Some(6), fault: Some((11, 1.01)), growth: 1.0, ..Made::GOLDEN };
    workspace.make("six_fault", &faulty);
    assert_eq!(workspace.first("six_fault", &["golden"]), part(11, "grad_reduced", "layers.2.weight"));
    // Values of some 1e-6 with six decimals.
    for (name, seed) in [("small", 1), ("small2", 2)] {
        workspace.make(name, &Made { seed, decimals: Some(6), start: 1e-6, ..Made::GOLDEN });
    }
    let said = workspace.compare(&["small", "small2"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.starts_with("Cannot tell: ") && said.out.contains(" of 1920 values "), "{}", said.out);
    assert!(
        said.out.contains("too few digits (6 decimals)") && said.out.contains("next: remove `ndigits`"),
        "{}",
        said.out
    );
}

#[test]
fn another_start_is_told_from_a_fault() {
    let workspace = Workspace::new();
    workspace.make("golden", &Made::GOLDEN);
    workspace.make("other", &Made { start: 1.3, ..Made::GOLDEN });
    let (answer, first) = workspace.first("other", &["golden"]);
    assert_eq!((answer.as_str(), first.expect("something").0), ("different_start", 0));
    // All gradients twice as large from the first step on are a scale, not another seed.
    let header = "vpp_stage,name,step,norm,shape,dtype\n";
    for (run, factor) in [("scaled", 2.0), ("plain", 1.0)] {
        let rows: Vec<String> =
            (0..12).map(|n| format!("0,w{n},0,{},[4],torch.float32\n", factor * (1.0 + f64::from(n)))).collect();
        workspace.write(&format!("{run}/{RUN}/grad_reduced_0-0.csv"), &format!("{header}{}", rows.concat()));
    }
    let said = workspace.compare(&["scaled", "plain"]);
    assert!(said.out.starts_with("First divergence: step 0, rank 0, grad_reduced of `w"), "{}", said.out);
    assert!(said.out.contains("are 2 times the baseline's: look for a scale"), "{}", said.out);
}

#[test]
fn what_a_script_told_by_name_measures_the_machine_perhaps_and_is_not_compared() {
    let workspace = Workspace::new();
    for (run, speed) in [("golden", 1000.0), ("target", 3.5)] {
        workspace.make(run, &Made::GOLDEN);
        let rows: Vec<String> = (0..40).map(|step| format!("0,tokens_per_s,{step},{speed}")).collect();
        workspace.write(
            &format!("{run}/{RUN}/scalar_0-999.csv"),
            &format!("vpp_stage,name,step,value\n{}\n", rows.join("\n")),
        );
    }
    assert_eq!(workspace.first("target", &["golden"]), ("no_divergence".to_owned(), None));
}
