//! Config files: wrong ones cost the measurements and nothing else; every sample works on a real training.

use std::path::Path;

use anyhow::Result;

use crate::support::{Scene, assert_unharmed};

const STEPS: u64 = 3;

fn assert_told_and_unmeasured(scene: &Scene, told: &[&str]) -> Result<()> {
    let ended = scene.trainer(STEPS).run()?;
    assert_unharmed(&ended, STEPS)?;
    assert_eq!(ended.figure("counts", "observed")?, 0);
    assert!(!scene.out().exists(), "nothing is written");
    let expected: Vec<String> =
        told.iter().map(|line| line.replace("FILE", &scene.config().to_string_lossy())).collect();
    assert_eq!(ended.stderr.lines().collect::<Vec<_>>(), expected);
    Ok(())
}

const HINT: &str = "  hint: run `trainmon check-config FILE` to see the line in the file";
const OFF: &str = "nothing is measured; training continues";

#[test]
fn a_syntax_error_is_told_with_its_place_and_the_training_goes_on_unmeasured() -> Result<()> {
    let scene = Scene::with_file("{\n  \"wg_distribution\": tru\n}")?;
    assert_told_and_unmeasured(&scene, &["trainmon: warning: FILE:2:22: `tru` is not a JSON value", OFF, HINT])
}

#[test]
fn a_misspelt_key_is_told_with_the_key_that_was_meant() -> Result<()> {
    let scene = Scene::with_file("{\n  \"wg_distributon\": true\n}")?;
    let told = "trainmon: warning: FILE:2:3: key `wg_distributon`: unknown key; did you mean `wg_distribution`?";
    assert_told_and_unmeasured(&scene, &[told, OFF, HINT])
}

#[test]
fn a_wrong_type_is_told_with_what_was_expected_and_found() -> Result<()> {
    let scene = Scene::with_file("{\n  \"wg_distribution\": \"yes\"\n}")?;
    let told = "trainmon: warning: FILE:2:22: key `wg_distribution`: expected true or false, found \"yes\"";
    assert_told_and_unmeasured(&scene, &[told, OFF, HINT])
}

#[test]
fn a_missing_file_is_told_by_name() -> Result<()> {
    let scene = Scene::new("")?;
    std::fs::remove_file(scene.config())?;
    let told = "trainmon: warning: cannot read `FILE`: No such file or directory (os error 2): nothing is measured; \
                training continues";
    assert_told_and_unmeasured(&scene, &[told, "  hint: check the path"])
}

#[test]
fn every_sample_config_watches_a_real_training() -> Result<()> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut observed = 0;
    for entry in std::fs::read_dir(samples)? {
        let path = entry?.path();
        let name = path.display();
        if path.extension().is_none_or(|extension| extension != "json") || path.ends_with("trainmon.schema.json") {
            continue;
        }
        let scene = Scene::with_file(&std::fs::read_to_string(&path)?)?;
        let ended = scene.homeless_trainer(STEPS).run()?;
        assert_unharmed(&ended, STEPS)?;
        assert_eq!(ended.notices("nothing is measured"), 0, "{name}: {}", ended.stderr);
        // Some samples ask for modules that this network does not have, or begin later.
        observed += ended.figure("counts", "observed")?;
    }
    assert!(observed > 0);
    Ok(())
}
