//! Journals that were cut, flipped, or half written by a disk that lost power.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use trainmon_journal::{Fault, MIN_FILE_BYTES, RecoverError, Recovered, Storage};

use super::support::{Workspace, assert_genuine, batch, names};

const RECORDS: u32 = 25;
/// The ring goes round more than twice in so many steps.
const STEPS: u64 = 250;

/// The file after each step.
static HISTORY: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let workspace = Workspace::new();
    let mut journal = workspace.journal(Storage::Mapped);
    (0..STEPS)
        .map(|step| {
            if step % 50 == 0 {
                journal.append_alert(format!("alert at {step}").as_bytes()).unwrap();
            }
            journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
            std::fs::read(workspace.path()).unwrap()
        })
        .collect()
});

/// Opens these bytes as a journal.
fn open(bytes: &[u8]) -> Result<Recovered, RecoverError> {
    let workspace = Workspace::new();
    std::fs::write(workspace.path(), bytes).unwrap();
    // The open file outlives its name.
    Recovered::open(&workspace.path())
}

/// Whatever is read is genuine, and numbers that are left out between the first and the last are told of.
fn assert_honest(bytes: &[u8], what: &str) -> Option<Recovered> {
    let recovered = open(bytes).ok()?;
    let steps = assert_genuine(&recovered, RECORDS);
    assert!(recovered.alerts().iter().all(|alert| alert.starts_with("alert at ")), "{what}");
    let has_gap = steps.windows(2).any(|pair| pair[1] != pair[0] + 1);
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{what}: {steps:?}");
    assert!(!has_gap || !recovered.faults().is_empty(), "{what}: {steps:?}");
    Some(recovered)
}

fn whole_steps() -> Vec<u64> {
    let recovered = open(HISTORY.last().unwrap()).unwrap();
    assert_eq!(recovered.faults(), []);
    assert_genuine(&recovered, RECORDS)
}

#[test]
fn the_file_is_whole_after_every_step() {
    let mut room = 0;
    for (step, bytes) in (0u64..).zip(HISTORY.iter()) {
        let recovered = open(bytes).unwrap();
        assert_eq!(recovered.faults(), []);
        let steps = assert_genuine(&recovered, RECORDS);
        assert_eq!(steps.last(), Some(&step));
        // The ring never holds less than it held once but for one frame that its end may cost.
        assert!(steps.len() + 1 >= room, "{} after step {step}, {room} before", steps.len());
        room = room.max(steps.len());
    }
    assert!(STEPS as usize > 2 * room, "the ring went round: room for {room}");
}

#[test]
fn a_file_cut_anywhere_is_told_and_the_rest_of_it_read() {
    let bytes = HISTORY.last().unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    // Every region's beginning and end, the header's and the state's fields, every frame's beginning and header's end.
    let regions = [40, 56, 72, 88].map(|at| (word(at), word(at) + word(at + 8)));
    let mut cuts: Vec<usize> = regions.into_iter().flat_map(|(from, to)| [from - 1, from, from + 1, to - 1]).collect();
    cuts.extend([0, 1, 15, 16, 20, 119, 120, 4095, 4096, 4200, 6144, 6248]);
    cuts.extend((regions[3].0..regions[3].1).step_by(64).flat_map(|at| [at, at + 60]).step_by(7));
    assert!(cuts.len() > 300);
    for cut in cuts {
        let cut_off = &bytes[..cut];
        match assert_honest(cut_off, &format!("cut at {cut}")) {
            None => assert!(cut < 8192 + word(48), "cut at {cut}: the run's facts are whole, so the rest is read"),
            Some(recovered) => {
                let expected = Fault::CutOff { expected: bytes.len() as u64, found: cut as u64 };
                assert!(recovered.faults().contains(&expected), "cut at {cut}: {:?}", recovered.faults());
            }
        }
    }
}

#[test]
fn files_that_are_no_journal_are_told_apart() {
    let whole = HISTORY.last().unwrap();
    let say = |bytes: &[u8]| open(bytes).map(drop).unwrap_err().to_string();
    assert!(say(b"").ends_with("is empty"));
    assert!(say(b"step,loss\n").ends_with("is not a journal: it does not begin with `trainmonJournal`"));
    assert!(say(&whole[..100]).contains("is truncated to 100 bytes"));
    assert!(say(&whole[..9_000]).contains("is truncated to 9000 bytes, but the description of the run ends at"));
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        bytes
    };
    assert!(say(&with(16, 3)).ends_with("has format version 2, this trainmon reads version 1"));
    assert!(say(&with(40, 1)).contains("the header of"));
    assert!(say(&with(8_200, 1)).contains("the description of the run in"));
    let missing = Recovered::open("/nowhere/journal_rank0.tmj".as_ref()).unwrap_err();
    assert!(missing.hint().starts_with("check the path"));
}

#[test]
fn a_step_whose_content_is_flipped_is_named_and_the_others_are_read() {
    let mut bytes = HISTORY.last().unwrap().clone();
    let steps = whole_steps();
    let (middle, at) = (steps[steps.len() / 2], place_of(&bytes, steps[steps.len() / 2]));
    bytes[at + 100] ^= 0x10;
    let recovered = assert_honest(&bytes, "flipped").unwrap();
    assert_eq!(recovered.faults(), [Fault::TornStep { step: trainmon_core::Step(middle) }]);
    let rest: Vec<u64> = steps.iter().copied().filter(|&step| step != middle).collect();
    assert_eq!(recovered.step_numbers().map(|step| step.0).collect::<Vec<_>>(), rest);
}

#[test]
fn the_oldest_and_the_newest_step_do_not_vanish_unseen() {
    let steps = whole_steps();
    for step in [steps[0], steps[1], *steps.last().unwrap()] {
        let mut bytes = HISTORY.last().unwrap().clone();
        let at = place_of(&bytes, step);
        bytes[at..at + 64].fill(0);
        let recovered = assert_honest(&bytes, "without a header").unwrap();
        assert_eq!(recovered.step_numbers().len(), steps.len() - 1);
        let told = recovered.faults().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(told.len(), 1, "step {step}: {told:?}");
        let is_newest = Some(&step) == steps.last();
        assert!(told[0].contains(if is_newest { "is incomplete" } else { "missing" }), "step {step}: {told:?}");
    }
}

/// Where the step's frame begins in the file.
fn place_of(bytes: &[u8], step: u64) -> usize {
    let is_frame = |at: &usize| bytes[*at..].starts_with(b"TMJf") && bytes[at + 4] == 3;
    let is_step = |at: &usize| u64::from_le_bytes(bytes[at + 40..at + 48].try_into().unwrap()) == step;
    (0..bytes.len() - 64).step_by(64).filter(is_frame).find(is_step).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A flip is noticed, or it hit a place that means nothing and every step is still there.
    #[test]
    fn flipped_bits_are_noticed_or_harmless(flips in vec((any::<Index>(), 0u8..8), 1..4), steps in any::<Index>()) {
        let history = &HISTORY[steps.index(HISTORY.len())];
        let mut bytes = history.clone();
        for (place, bit) in &flips {
            bytes[place.index(history.len())] ^= 1 << bit;
        }
        if let Some(recovered) = assert_honest(&bytes, "flips") {
            let intact = open(history).unwrap();
            let is_complete = recovered.step_numbers().eq(intact.step_numbers())
                && recovered.names() == intact.names()
                && recovered.alerts() == intact.alerts();
            prop_assert!(is_complete || !recovered.faults().is_empty());
        }
    }

    /// Power is lost: of the pages written since the last flush some are on the disk, some are not, each as a whole
    /// sector. What the flush covered and the ring still had is read, and nothing but what was written.
    #[test]
    fn after_power_loss_what_was_flushed_is_there_and_nothing_is_made_up(
        flushed in any::<Index>(),
        ahead in 0usize..40,
        is_written in vec(any::<bool>(), (MIN_FILE_BYTES / 512) as usize),
    ) {
        let flushed = flushed.index(HISTORY.len());
        let last = (flushed + ahead).min(HISTORY.len() - 1);
        let (old, new) = (&HISTORY[flushed], &HISTORY[last]);
        let mut bytes = old.clone();
        for (sector, is_new) in bytes.chunks_mut(512).zip(new.chunks(512)).zip(&is_written) {
            let (sector, new) = sector;
            if *is_new {
                sector.copy_from_slice(new);
            }
        }
        let recovered = assert_honest(&bytes, "power loss").unwrap();
        let steps: Vec<u64> = recovered.step_numbers().map(|step| step.0).collect();
        let would_be_kept = open(new).unwrap().step_numbers().next().unwrap().0;
        for step in would_be_kept..=flushed as u64 {
            prop_assert!(steps.contains(&step), "step {step} was flushed and had room: {steps:?}, {:?}", recovered.faults());
        }
        // Garbage would have shown in `assert_honest`; here: nothing newer than what was written.
        prop_assert!(steps.iter().all(|&step| step <= last as u64));
    }

    #[test]
    fn noise_is_no_journal(noise in vec(any::<u8>(), 0..5000)) {
        prop_assert!(open(&noise).is_err());
    }
}
