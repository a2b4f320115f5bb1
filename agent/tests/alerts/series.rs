//! The spike rule on norms of real trainings and on synthetic ones, and the same after a NaN and after a resume.

use trainmon_agent::alerts::Detector;
use trainmon_agent::core::config::RuleArgs;
use trainmon_agent::core::{AlertRule, AlertSignal};

use crate::recorded::Recording;
use crate::synthetic::{Chance, SERIES, level, norms, with_spikes};

fn spike(signal: AlertSignal) -> Detector {
    Detector::new(AlertRule::Spike, RuleArgs::of_rule(AlertRule::Spike), signal)
}

fn found(signal: AlertSignal, values: &[f64]) -> Vec<usize> {
    let mut detector = spike(signal);
    values.iter().enumerate().filter(|&(_, &value)| detector.observe(value).is_some()).map(|(step, _)| step).collect()
}

/// The first step of each spike that lies behind the rule's first samples.
fn starts(recording: &Recording) -> Vec<usize> {
    recording.starts().into_iter().filter(|&start| start >= 64).collect()
}

/// Whether the rule speaks within two steps of a spike's beginning.
fn is_hit(hits: &[usize], start: usize) -> bool {
    hits.iter().any(|hit| (start..start + 2).contains(hit))
}

#[test]
fn spikes_of_real_trainings_are_found_and_calm_steps_stay_calm() {
    let recordings = Recording::all();
    assert!(recordings.len() >= 2, "no recorded norms");
    for recording in &recordings {
        let (signal, grad_norms) = &recording.series[0];
        let (hits, starts) = (found(*signal, grad_norms), starts(recording));
        let hit = starts.iter().filter(|&&start| is_hit(&hits, start)).count();
        assert!(10 * hit >= 8 * starts.len(), "{}: {hit} of {}", recording.name, starts.len());
        let false_alarms = false_alarms(recording, &hits);
        assert!(50 * false_alarms <= grad_norms.len(), "{}: {false_alarms} false alarms", recording.name);
    }
    assert!(recordings.iter().any(|recording| !starts(recording).is_empty()), "no recording has a spike");
}

#[test]
fn a_training_left_alone_has_at_most_one_false_alarm() {
    let is_left_alone = |recording: &Recording| recording.spikes.is_empty() && recording.nans.is_empty();
    let calm: Vec<Recording> = Recording::all().into_iter().filter(is_left_alone).collect();
    assert!(calm.len() >= 2);
    for recording in &calm {
        let hits = recording.series.iter().map(|(signal, values)| found(*signal, values).len());
        assert!(hits.clone().sum::<usize>() <= 1, "{}: {:?}", recording.name, hits.collect::<Vec<_>>());
    }
}

/// Five deviations above the mean of the last 128, what is above entering as the limit: the rule without a learnt tail.
fn beyond_five_deviations(values: &[f64]) -> Vec<usize> {
    let mut window: Vec<f64> = Vec::new();
    let is_spike = |&(_, &value): &(usize, &f64)| {
        let count = window.len() as f64;
        let mean = window.iter().sum::<f64>() / count;
        let deviation = (window.iter().map(|kept| (kept - mean).powi(2)).sum::<f64>() / count).sqrt();
        let limit = if window.len() >= 64 { mean + (5.0 * deviation).max(0.5 * mean) } else { f64::INFINITY };
        window.push(value.min(limit));
        if window.len() > 128 {
            window.remove(0);
        }
        value > limit
    };
    values.iter().enumerate().filter(is_spike).map(|(step, _)| step).collect()
}

#[test]
fn two_in_10_000_are_false_on_quiet_rough_and_heavy_tailed_norms_and_large_spikes_are_still_found() {
    // Seeds the rule was not chosen on.
    let seeds = 201..204;
    for (name, series) in SERIES {
        // Of Student's t with three degrees of freedom two in 10,000 are above 17.6: who knows level and scatter of a
        // heavy-tailed series, and may be wrong as often, sets the limit there.
        let known_limit = match name {
            "heavy" => Some(1.0 + 0.1 * 17.6),
            "heavier" => Some(1.0 + 0.2 * 17.6),
            _ => None,
        };
        let (mut false_alarms, mut fixed_false_alarms, mut steps) = (0, 0, 0);
        let (mut large, mut hit, mut fixed_hit, mut known_hit) = (0, 0, 0, 0);
        for seed in seeds.clone() {
            let mut chance = Chance::new(seed);
            let clean = series(&mut chance, 10_000);
            let (spiked, spikes) = with_spikes(&mut chance, &clean, &[2.0, 3.0, 5.0]);
            steps += clean.len();
            false_alarms += found(AlertSignal::Grad, &clean).len();
            fixed_false_alarms += beyond_five_deviations(&clean).len();
            let (hits, fixed_hits) = (found(AlertSignal::Grad, &spiked), beyond_five_deviations(&spiked));
            for spike in spikes.iter().filter(|spike| spike.factor >= 3.0) {
                large += 1;
                hit += usize::from(is_hit(&hits, spike.step));
                fixed_hit += usize::from(is_hit(&fixed_hits, spike.step));
                known_hit +=
                    usize::from(known_limit.is_some_and(|limit| spiked[spike.step] > limit * level(spike.step)));
            }
        }
        assert!(10_000 * false_alarms <= 2 * steps, "{name}: {false_alarms} false alarms in {steps} steps");
        if known_limit.is_some() {
            assert!(fixed_false_alarms > 5 * false_alarms.max(1), "{name}: {fixed_false_alarms}, {false_alarms}");
            assert!(3 * hit >= 2 * known_hit, "{name}: {hit} of {large}, {known_hit} by who knows the series");
        } else {
            assert!(hit >= fixed_hit, "{name}: {hit} of {large}, {fixed_hit} without the tail");
        }
    }
}

fn false_alarms(recording: &Recording, hits: &[usize]) -> usize {
    hits.iter().filter(|&&hit| !recording.is_in_wake(hit)).count()
}

fn recorded(name: &str) -> Recording {
    let recording = Recording::all().into_iter().find(|recording| recording.name == name);
    recording.unwrap_or_else(|| panic!("no recorded norms {name}"))
}

#[test]
fn every_spike_injected_into_the_demo_is_found_in_its_step() {
    let faults = recorded("demo_faults");
    assert_eq!((faults.starts().len(), faults.nans.len()), (6, 2));
    for (signal, values) in [&faults.series[0], &faults.series[2]] {
        let hits = found(*signal, values);
        assert!(faults.spikes.iter().all(|spike| hits.contains(spike)), "{signal}: {hits:?} of {:?}", faults.spikes);
    }
}

#[test]
fn the_demo_left_alone_has_no_false_alarm() {
    let clean = recorded("demo_clean");
    assert_eq!((clean.spikes.len(), clean.nans.len()), (0, 0));
    let hits = clean.series.each_ref().map(|(signal, values)| found(*signal, values));
    // Of gradients, updates and losses.
    assert_eq!(hits, [const { Vec::<usize>::new() }; 3]);
}

#[test]
fn behind_a_nan_in_the_demo_the_next_spike_is_found_also_by_a_detector_resumed_in_between() {
    let faults = recorded("demo_faults");
    for (signal, values) in [&faults.series[0], &faults.series[2]] {
        for &nan in &faults.nans {
            assert!(values[nan].is_nan(), "{signal}, step {nan}");
            let next = *faults.spikes.iter().find(|&&spike| spike > nan).unwrap();
            let mut first = spike(*signal);
            for &value in &values[..=nan] {
                first.observe(value);
            }
            let text = first.state().unwrap().to_string();
            let mut second = spike(*signal);
            second.load_state(serde_json::from_str(&text).unwrap()).unwrap();
            for detector in [&mut first, &mut second] {
                for &value in &values[nan + 1..next] {
                    detector.observe(value);
                }
                assert!(detector.observe(values[next]).is_some(), "{signal}, spike {next} behind the NaN {nan}");
            }
        }
    }
}

#[test]
fn after_a_nan_the_next_spike_is_seen() {
    for recording in Recording::all() {
        let (signal, grad_norms) = &recording.series[0];
        let unspoiled = found(*signal, grad_norms);
        for start in starts(&recording).into_iter().filter(|&start| is_hit(&unspoiled, start)) {
            for (before, poison) in [(1, f64::NAN), (5, f64::INFINITY), (40, f64::NAN)] {
                let mut poisoned = grad_norms.clone();
                poisoned[start - before] = poison;
                assert!(is_hit(&found(*signal, &poisoned), start), "{}: {start}", recording.name);
            }
        }
    }
    let mut chance = Chance::new(11);
    let (mut series, spikes) = with_spikes(&mut chance, &norms(&mut Chance::new(3), 6_000, 0.0, 0.1), &[3.0, 5.0]);
    for spike in &spikes {
        series[spike.step - 2] = f64::NAN;
    }
    let hits = found(AlertSignal::Grad, &series);
    assert!(spikes.iter().all(|spike| hits.contains(&spike.step)), "{hits:?} of {spikes:?}");
}

#[test]
fn a_resume_at_any_step_changes_no_finding() {
    let mut chance = Chance::new(5);
    let calm = norms(&mut chance, 1_500, 0.5, 0.2);
    let (synthetic, spikes) = with_spikes(&mut chance, &calm, &[2.0, 4.0]);
    assert!(!spikes.is_empty() && spikes.iter().all(|spike| spike.factor >= 2.0));
    let mut series = vec![(AlertSignal::Grad, synthetic)];
    series.extend(Recording::all().into_iter().flat_map(|recording| recording.series));
    for (signal, values) in series {
        let mut whole = spike(signal);
        let expected: Vec<_> = values.iter().map(|&value| whole.observe(value)).collect();
        let mut first = spike(signal);
        for (stop, &value) in values.iter().enumerate() {
            // As a checkpoint keeps it: text. Behind the resume a window's length tells whether anything was lost.
            if stop % 7 == 0 {
                let text = first.state().unwrap().to_string();
                let mut second = spike(signal);
                second.load_state(serde_json::from_str(&text).unwrap()).unwrap();
                let end = values.len().min(stop + 130);
                let rest: Vec<_> = values[stop..end].iter().map(|&value| second.observe(value)).collect();
                assert_eq!(rest, expected[stop..end], "{signal}, stopped at {stop}");
            }
            first.observe(value);
        }
    }
}
