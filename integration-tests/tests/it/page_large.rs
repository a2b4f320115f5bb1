//! The page of a run of 2,002 tensors in a real browser: what a reader sees first, and where clicks and keys lead.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;
use trainmon_integration_tests::skip;

use crate::live_page::{chromium, missing, web};

/// The tensor that the run's faults are in, and its layer.
const TENSOR: &str = "model.layers.117.mlp.down.weight";
const LAYER: &str = "model.layers.117";

/// What a probe of `large.mjs` saw; `None` where it cannot run, which is logged.
fn probe(test: &str, name: &str) -> Result<Option<Value>> {
    if let Some(reason) = missing() {
        skip(test, &reason)?;
        return Ok(None);
    }
    let Some(chromium) = chromium() else {
        skip(test, "no Chromium on PATH (Debian: chromium)")?;
        return Ok(None);
    };
    let ended = Command::new("node").arg("tests/large.mjs").arg(chromium).arg(name).current_dir(web()).output()?;
    ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let seen: Value = serde_json::from_slice(&ended.stdout)?;
    ensure!(seen[name].is_object() && seen[name].get("failed").is_none(), "{name}: {}", seen[name]);
    Ok(Some(seen[name].clone()))
}

/// The texts of a list.
fn texts(of: &Value) -> Vec<&str> {
    of.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Names of layers and tensors, without steps and signs of opening.
fn names(of: &Value) -> Vec<&str> {
    texts(of).into_iter().filter(|text| text.contains(|letter: char| letter.is_ascii_alphabetic())).collect()
}

#[test]
fn a_page_begins_by_layer_with_changes_and_opens_without_an_error() -> Result<()> {
    let Some(seen) = probe("a_page_begins_by_layer_with_changes_and_opens_without_an_error", "defaults")? else {
        return Ok(());
    };
    assert_eq!((&seen["rows"], &seen["colours"]), (&"layers".into(), &"change".into()), "{seen}");
    assert_eq!(seen["said"], serde_json::json!([]));
    Ok(())
}

#[test]
fn every_row_is_named_and_the_first_and_the_last_can_be_reached() -> Result<()> {
    let Some(seen) = probe("every_row_is_named_and_the_first_and_the_last_can_be_reached", "reach")? else {
        return Ok(());
    };
    for mode in ["layers", "tensors"] {
        for (place, name) in [("first", "embed.weight"), ("last", "lm_head.weight")] {
            let named = names(&seen[format!("{mode} {place}")]);
            assert!(named.len() > 15 && named.contains(&name), "by {mode}, {place}: {named:?}");
        }
    }
    assert_eq!(seen["ruler"], true, "beside the rows that are seen there are all of them: {seen}");
    Ok(())
}

#[test]
fn a_clicked_alert_leads_to_the_row_that_it_names() -> Result<()> {
    let Some(seen) = probe("a_clicked_alert_leads_to_the_row_that_it_names", "click")? else { return Ok(()) };
    for (rule, kind) in [("Spike", "grad_reduced"), ("UpdateRatio", "update_ratio")] {
        let seen = &seen[rule];
        assert_eq!((&seen["inView"], &seen["kind"]), (&true.into(), &kind.into()), "{rule}: {seen}");
        assert!(names(&seen["texts"]).contains(&LAYER), "{rule}: {seen}");
        assert!(seen["row"].as_str().is_some_and(|title| title.starts_with(LAYER)), "{rule}: {seen}");
    }
    let spike = &seen["Spike"];
    assert!(spike["row"].as_str().is_some_and(|title| title.starts_with(TENSOR)), "its curve is shown: {spike}");
    assert!(names(&spike["texts"]).contains(&"mlp.down.weight"), "its layer is open: {spike}");
    Ok(())
}

#[test]
fn an_alert_is_shown_although_the_filter_hides_what_it_names() -> Result<()> {
    let Some(seen) = probe("an_alert_is_shown_although_the_filter_hides_what_it_names", "filtered")? else {
        return Ok(());
    };
    assert!(!names(&seen["before"]).contains(&LAYER), "{seen}");
    assert!(names(&seen["texts"]).contains(&LAYER), "{seen}");
    assert_eq!((&seen["filter"], &seen["inView"]), (&"".into(), &true.into()), "{seen}");
    assert!(seen["row"].as_str().is_some_and(|title| title.starts_with(TENSOR)), "{seen}");
    Ok(())
}

#[test]
fn alerts_that_go_on_come_first_and_keys_walk_those_only() -> Result<()> {
    let Some(seen) = probe("alerts_that_go_on_come_first_and_keys_walk_those_only", "alerts")? else { return Ok(()) };
    assert_eq!(seen["figure"]["text"], "3 ongoing, 9 ended");
    assert_eq!(seen["figure"]["color"], seen["critical"], "what goes on is red: {seen}");
    let is_over = |list: &Value| -> Vec<bool> {
        list.as_array().into_iter().flatten().map(|alert| alert["isOver"] == true).collect()
    };
    assert_eq!(is_over(&seen["list"]), [false; 3], "what is over is folded away: {seen}");
    assert_eq!(texts(&seen["walked"])[..4], ["Drift", "UpdateRatio", "Spike", "Spike"], "`j`: {seen}");
    let opened = is_over(&seen["opened"]);
    assert!(opened.len() == 12 && opened.is_sorted(), "an alert is listed once, those that are over last: {seen}");
    Ok(())
}

#[test]
fn alerts_of_one_incident_stand_behind_its_headline() -> Result<()> {
    let Some(seen) = probe("alerts_of_one_incident_stand_behind_its_headline", "incident")? else { return Ok(()) };
    let rules: Vec<&str> =
        seen["list"].as_array().into_iter().flatten().filter_map(|alert| alert["rule"].as_str()).collect();
    assert_eq!(rules, ["Drift", "AnomalyTurbulence"], "{seen}");
    assert!(seen["said"].as_str().is_some_and(|said| said.contains("14 more of this incident")), "{seen}");
    assert_eq!(texts(&seen["walked"]), ["Drift", "AnomalyTurbulence", "AnomalyTurbulence"], "{seen}");
    assert_eq!(seen["opened"], 16, "{seen}");
    Ok(())
}

#[test]
fn when_all_alerts_are_over_none_is_red() -> Result<()> {
    const TEST: &str = "when_all_alerts_are_over_none_is_red";
    let Some(seen) = probe(TEST, "over")? else { return Ok(()) };
    assert_eq!(seen["figure"]["text"], "3 alerts, all ended");
    assert_eq!(seen["figure"]["color"], seen["text"], "{seen}");
    assert_eq!(
        (seen["list"].as_array().map(Vec::len), &seen["chosen"]),
        (Some(3), &0.into()),
        "`j` walks them: {seen}"
    );
    let Some(calm) = probe(TEST, "calm")? else { return Ok(()) };
    assert_eq!(calm["figure"]["text"], "none so far");
    assert_eq!(calm["figure"]["color"], calm["text"], "{calm}");
    Ok(())
}

#[test]
fn noise_of_2002_tensors_is_not_listed_as_far_and_a_change_is() -> Result<()> {
    let Some(seen) = probe("noise_of_2002_tensors_is_not_listed_as_far_and_a_change_is", "farthest")? else {
        return Ok(());
    };
    assert_eq!(texts(&seen["noise"]["names"]), Vec::<&str>::new(), "40 tensors at 3.6 deviations or less");
    let noise = seen["noise"]["text"].as_str().unwrap_or_default();
    assert!(noise.contains("No tensor is far from its usual value"), "{noise}");
    assert_eq!(texts(&seen["far"]["names"]), [TENSOR]);
    assert!(seen["far"]["text"].as_str().is_some_and(|text| text.contains("×17.6")), "{seen}");
    assert!(seen["clicked"]["row"].as_str().is_some_and(|title| title.starts_with(TENSOR)), "{seen}");
    Ok(())
}

#[test]
fn the_rank_of_a_straggler_is_text_and_no_curve() -> Result<()> {
    let Some(seen) = probe("the_rank_of_a_straggler_is_text_and_no_curve", "labels")? else { return Ok(()) };
    let panels = texts(&seen["panels"]);
    assert!(panels.contains(&"accuracy") && !panels.contains(&"straggler_rank/world"), "{panels:?}");
    assert!(seen["row"].as_str().is_some_and(|row| row.contains("1: 50%")), "{seen}");
    Ok(())
}

#[test]
fn what_trainmon_costs_stands_last_and_folded() -> Result<()> {
    let Some(seen) = probe("what_trainmon_costs_stands_last_and_folded", "own")? else { return Ok(()) };
    let said = texts(&seen["said"]);
    for own in ["trainmon's share", "of it trainmon", "What trainmon costs", "Cost", "Where records went"] {
        assert!(!said.contains(&own), "{own}: {said:?}");
    }
    assert_eq!((&seen["last"], &seen["isOpen"]), (&"trainmon's own cost".into(), &false.into()), "{seen}");
    let opened = seen["opened"].as_str().unwrap_or_default();
    assert!(opened.contains("share of step time3.2%") && opened.contains("4,004,000"), "{opened}");
    assert_eq!(seen["curve"], true, "its curve is drawn when it is opened");
    Ok(())
}

#[test]
fn who_sees_no_canvas_is_told_what_is_drawn_and_keys_read_every_cell() -> Result<()> {
    let Some(seen) = probe("who_sees_no_canvas_is_told_what_is_drawn_and_keys_read_every_cell", "access")? else {
        return Ok(());
    };
    let canvases = seen["canvases"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(canvases.len() > 6, "{seen}");
    for canvas in canvases.iter().filter(|canvas| canvas["hidden"] == false) {
        assert_eq!(canvas["role"], "img", "{canvas}");
        let label = canvas["label"].as_str().unwrap_or_default();
        assert!(label.contains("steps 0 to 1,499"), "{canvas}");
    }
    let map = canvases.iter().filter_map(|canvas| canvas["label"].as_str()).find(|label| label.starts_with("Heat map"));
    let map = map.unwrap_or_default();
    for part in [TENSOR, "at step 1,200–1,207", "200 layers", "Not finite in 1 row: model.layers.160.attn.q.weight"] {
        assert!(map.contains(part), "{part}: {map}");
    }
    let read = texts(&seen["read"]);
    assert!(read.len() == 3 && read.iter().all(|text| text.contains("its usual")), "{read:?}");
    assert!(read[0] != read[1] && read[1] != read[2], "{read:?}");
    assert!(seen["curve"].as_str().is_some_and(|text| text.starts_with("step 1,497")), "{seen}");
    assert_eq!(seen["focused"], "Drift", "a key on an alert chooses it, and the focus stays: {seen}");
    Ok(())
}

#[test]
fn every_text_stands_out_from_its_background_in_both_themes() -> Result<()> {
    let Some(seen) = probe("every_text_stands_out_from_its_background_in_both_themes", "contrast")? else {
        return Ok(());
    };
    assert_eq!(seen, serde_json::json!({"light": {}, "dark": {}}), "contrasts below 4.5 to 1");
    Ok(())
}

#[test]
fn numbers_and_plurals_are_written_as_people_write_them() -> Result<()> {
    let Some(seen) = probe("numbers_and_plurals_are_written_as_people_write_them", "texts")? else { return Ok(()) };
    for (name, text) in seen.as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        for foreign in ['\u{2212}', '\u{2009}'] {
            assert!(!text.contains(foreign), "{name}: {foreign:?} in {text}");
        }
        assert!(!text.contains("0 ended"), "{name}: nothing is folded away: {text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let noun = pair[1].trim_end_matches([',', '.', ';']);
            let is_plural = ["alerts", "tensors", "layers", "steps", "curves", "series"].contains(&noun);
            assert!(pair[0] != "1" || !is_plural, "{name}: {pair:?}");
            // A step of four digits without a separator.
            let is_step = pair[0] == "step" && noun.len() > 3 && noun.bytes().all(|byte| byte.is_ascii_digit());
            assert!(!is_step, "{name}: {pair:?}");
        }
    }
    let large = seen["large"].as_str().unwrap_or_default();
    for expected in ["202 layers, 2,002 tensors", "since step 1,200", "at step 1,240", "1,499", "1.5e-4"] {
        assert!(large.contains(expected), "{expected}: {large}");
    }
    assert!(seen["far"].as_str().is_some_and(|text| text.contains("1 ongoing")), "{seen}");
    Ok(())
}
