//! SIGKILL and abort at random moments.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use trainmon_journal::Recovered;

use super::remains::{assert_same_csv, assert_whole, last_step_in_csv, room_for};
use super::training::{Files, Training, completed_steps, run_directory, train_if_asked};

/// Each size with each set of files four times. That a journal reads back wherever its writer was interrupted is tried byte
/// by byte in trainmon-journal; what is left for real kills is that the kernel keeps what was written and that a step is
/// written before it returns. Where the second does not hold nearly every kill shows it, at these rates of some thousand
/// steps a second; of what one kill in ten shows, 24 miss less than a tenth. `cargo xtask torture` makes a thousand.
const KILLS: u64 = 24;
/// Every so many kills the CSV files are compared too.
const COMPARE_EVERY: u64 = 4;
/// How long after the first step, or after the ring went round, the axe may fall.
const LONGEST: Duration = Duration::from_millis(50);
const RECORDS: [u32; 3] = [80, 200, 600];

/// Numbers that are other ones in every run of the test, and the same ones with `TRAINMON_TEST_SEED`.
struct Dice(u64);

impl Dice {
    fn new(test: &str) -> Self {
        let given = std::env::var("TRAINMON_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(test));
        println!("TRAINMON_TEST_SEED={seed}");
        Self(seed)
    }

    /// splitmix64.
    fn throw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }
}

#[test]
fn killed_at_any_moment_a_run_leaves_every_step_its_journal_had_room_for_and_never_garbage() {
    train_if_asked();
    let test = "killed::killed_at_any_moment_a_run_leaves_every_step_its_journal_had_room_for_and_never_garbage";
    let mut dice = Dice::new(test);
    let rooms = RECORDS.map(room_for);
    let (mut went_round, mut was_writing, mut compared) = (0, 0, 0);
    for kill in 0..KILLS {
        let which = kill as usize % RECORDS.len();
        let (records, room) = (RECORDS[which], rooms[which]);
        let moment = Duration::from_micros(dice.throw(LONGEST.as_micros() as u64));
        let what = format!("kill {kill} after {moment:?}, {records} records");
        let base = tempfile::tempdir().unwrap();
        // Alone it goes round; CSV files would make that slow.
        let files = if (kill / RECORDS.len() as u64).is_multiple_of(2) { Files::CsvAndJournal } else { Files::Journal };
        let announced = if files == Files::Journal { room as u64 + dice.throw(room as u64) } else { 0 };
        let mut training = Training::start_announcing(test, &base.path().join("run"), files, records, announced);
        training.wait_until_ready();
        std::thread::sleep(moment);
        training.kill();
        let run = files.directory(&base.path().join("run")).unwrap();
        let (recovered, remains) = assert_whole(&run, records, room, &what);
        assert!(remains.steps.last().is_some_and(|&last| last >= announced), "{what}: {:?}", remains.steps);
        // A step is in the journal when it returns to the host, and before any file sees it.
        let completed = completed_steps(&base.path().join("run"));
        assert!(
            completed > announced && remains.steps.last() >= Some(&(completed - 1)),
            "{what}: {completed} completed"
        );
        assert!(last_step_in_csv(&run) <= remains.steps.last().copied(), "{what}");
        went_round += u64::from(remains.steps.first().is_some_and(|&first| first > 0));
        was_writing += u64::from(remains.was_writing);
        if files == Files::CsvAndJournal && kill % COMPARE_EVERY == 0 {
            compared += assert_same_csv(&run, &recovered, &what);
        }
    }
    println!(
        "{KILLS} kills: {went_round} after the ring went round, {was_writing} in mid-write, {compared} files equal"
    );
    assert!(went_round > 0 && compared > 0, "{went_round} went round, {compared} files compared");
}

/// The file is being made, or the first steps are on their way: it is whole, or it says what it is not.
#[test]
fn killed_while_it_starts_a_run_leaves_a_journal_or_a_word_why_there_is_none() {
    train_if_asked();
    let test = "killed::killed_while_it_starts_a_run_leaves_a_journal_or_a_word_why_there_is_none";
    let mut dice = Dice::new(test);
    for _kill in 0..15 {
        let base = tempfile::tempdir().unwrap();
        let training = Training::start(test, &base.path().join("run"), Files::CsvAndJournal, 20);
        let moment = Duration::from_micros(dice.throw(30_000));
        std::thread::sleep(moment);
        training.kill();
        let Some(run) = run_directory(&base.path().join("run")) else { continue };
        match Recovered::open(&run.join("journal_rank0.tmj")) {
            Ok(_) => drop(assert_whole(&run, 20, 0, &format!("{moment:?}"))),
            Err(error) => assert!(!error.to_string().contains("damaged"), "{moment:?}: {error}"),
        }
    }
}

#[test]
fn an_abort_costs_no_step() {
    train_if_asked();
    let test = "killed::an_abort_costs_no_step";
    let last = 400;
    let base = tempfile::tempdir().unwrap();
    let training = Training::start_aborting(test, &base.path().join("run"), Files::CsvAndJournal, 60, last);
    assert_eq!(training.ended_by(), Some(6), "SIGABRT");
    let run = run_directory(&base.path().join("run")).unwrap();
    let (recovered, remains) = assert_whole(&run, 60, room_for(60), "abort");
    assert_eq!(remains.steps.last(), Some(&last));
    assert!(last_step_in_csv(&run) <= remains.steps.last().copied());
    assert_same_csv(&run, &recovered, "abort");
}

/// As `os._exit` in Python. Nothing is waited for, so the last steps are on their way to the CSV files.
#[test]
fn a_process_that_leaves_without_a_word_has_its_last_step_in_the_journal() {
    train_if_asked();
    let test = "killed::a_process_that_leaves_without_a_word_has_its_last_step_in_the_journal";
    for last in [0, 1, 300] {
        let base = tempfile::tempdir().unwrap();
        let training = Training::start_leaving(test, &base.path().join("run"), Files::CsvAndJournal, 60, last);
        assert_eq!(training.ended_by(), None);
        let run = run_directory(&base.path().join("run")).unwrap();
        let (_, remains) = assert_whole(&run, 60, room_for(60), "_exit");
        assert_eq!(remains.steps.last(), Some(&last));
    }
}
