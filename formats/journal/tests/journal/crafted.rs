//! Files that were made up with right checksums: they are read or refused, and nothing overflows.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use trainmon_journal::{Recovered, Storage};

use super::support::{Workspace, batch, names};

const RECORDS: u32 = 6;
/// Numbers at which sums and tables go wrong.
const EXTREMES: [u64; 9] =
    [0, 1, 63, 64, u32::MAX as u64 - 1, u32::MAX as u64, i64::MAX as u64, u64::MAX - 1, u64::MAX];

/// Fields of a frame's header with their widths: number, place, place before, step, length, content's checksum, records,
/// kind.
const FIELDS: [(usize, usize); 8] = [(16, 8), (24, 8), (32, 8), (40, 8), (48, 4), (52, 4), (56, 4), (4, 4)];

/// A journal whose rings went round, with alerts and late names.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let workspace = Workspace::new();
    let mut journal = workspace.journal(Storage::Calls);
    for step in 0..400 {
        journal.append(&names(RECORDS), &batch(step, RECORDS)).unwrap();
        if step % 9 == 0 {
            journal.append_alert(format!("alert at {step}").as_bytes()).unwrap();
        }
    }
    std::fs::read(workspace.path()).unwrap()
});

fn frames(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() - 64).step_by(64).filter(|&at| bytes[at..].starts_with(b"TMJf")).collect()
}

fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

fn seal(bytes: &mut [u8], covered: std::ops::Range<usize>, at: usize) {
    let crc = crc32fast::hash(&bytes[covered]);
    put(bytes, at, 4, u64::from(crc));
}

/// Reads everything there is to read.
fn read_all(bytes: &[u8]) {
    let workspace = Workspace::new();
    std::fs::write(workspace.path(), bytes).unwrap();
    let Ok(recovered) = Recovered::open(&workspace.path()) else { return };
    for fault in recovered.faults() {
        assert!(!fault.to_string().is_empty());
    }
    for step in recovered.steps().flatten() {
        assert!(step.names_known <= recovered.names().len());
        assert!(step.batch.records.iter().all(|record| record.tensor.index() < step.names_known));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A frame's header says anything at all.
    #[test]
    fn a_frame_may_say_of_itself_whatever_it_likes(
        which in any::<Index>(),
        fields in prop::collection::vec((0usize..8, select(&EXTREMES[..])), 1..5),
    ) {
        let mut bytes = WHOLE.clone();
        let at = *which.get(&frames(&bytes));
        for (field, value) in fields {
            let (offset, width) = FIELDS[field];
            put(&mut bytes, at + offset, width, value);
        }
        seal(&mut bytes, at..at + 60, at + 60);
        read_all(&bytes);
    }

    /// A frame's content holds a number it must not.
    #[test]
    fn a_frames_content_may_hold_any_number(
        which in any::<Index>(),
        place in any::<Index>(),
        width in select(vec![1usize, 2, 4, 8]),
        value in select(&EXTREMES[..]),
    ) {
        let mut bytes = WHOLE.clone();
        let at = *which.get(&frames(&bytes));
        let length = u32::from_le_bytes(bytes[at + 48..at + 52].try_into().unwrap()) as usize;
        let content = at + 64;
        // A frame that runs over its ring's end has its content elsewhere: the next one is as good.
        if length >= width && content + length <= bytes.len() {
            put(&mut bytes, content + place.index(length - width + 1), width, value);
            let crc = crc32fast::hash(&bytes[content..content + length]);
            put(&mut bytes, at + 52, 4, u64::from(crc));
            seal(&mut bytes, at..at + 60, at + 60);
        }
        read_all(&bytes);
    }

    /// The writer's counts and the file's own header are made up.
    #[test]
    fn the_counts_and_the_layout_may_say_whatever_they_like(
        counts in prop::collection::vec((0usize..10, select(&EXTREMES[..])), 1..4),
        regions in prop::collection::vec((0usize..9, select(&EXTREMES[..])), 0..3),
    ) {
        let mut bytes = WHOLE.clone();
        for copy in [4096, 6144] {
            for (field, value) in &counts {
                put(&mut bytes, copy + 16 + 8 * field, 8, *value);
            }
            seal(&mut bytes, copy + 8..copy + 104, copy + 4);
        }
        for (field, value) in regions {
            put(&mut bytes, 32 + 8 * field, 8, value);
        }
        seal(&mut bytes, 0..116, 116);
        read_all(&bytes);
    }
}
