//! What the samples come to: a line for every tenth of the run, and whether the last is like the second. (In the first
//! queues, rings and pools fill.)

use std::fmt;

use super::Sample;

/// Memory may differ by this share, or by [`MEMORY_KIB`] where that is more: an allocator gives back what it likes.
const MEMORY_SHARE: f64 = 0.05;
const MEMORY_KIB: u64 = 8 << 10;
/// The four threads on which OTLP reads the journal come and go.
const THREADS: u64 = 4;
/// A connection or a file may be open at the moment of looking.
const DESCRIPTORS: u64 = 4;

const TENTHS: u64 = 10;

/// A tenth of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenth {
    /// How often the process was looked at.
    pub samples: usize,
    /// The median of its memory.
    pub resident_kib: u64,
    /// Most threads seen.
    pub threads: u64,
    /// Most file descriptors seen.
    pub descriptors: u64,
}

/// The table of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenths(Vec<Tenth>);

impl Tenths {
    /// Sorts samples into the tenths of a run of so many steps. Those from before the first step and after the last belong
    /// to start and shutdown.
    pub fn of(samples: &[Sample], steps: u64) -> Self {
        let tenth = |index: u64| {
            let own = |sample: &&Sample| (1..steps).contains(&sample.steps) && sample.steps * TENTHS / steps == index;
            let own: Vec<&Sample> = samples.iter().filter(own).collect();
            let mut memory: Vec<u64> = own.iter().map(|sample| sample.resident_kib).collect();
            memory.sort_unstable();
            Tenth {
                samples: own.len(),
                resident_kib: memory.get(memory.len() / 2).copied().unwrap_or_default(),
                threads: own.iter().map(|sample| sample.threads).max().unwrap_or_default(),
                descriptors: own.iter().map(|sample| sample.descriptors).max().unwrap_or_default(),
            }
        };
        Self((0..TENTHS).map(tenth).collect())
    }

    /// What has grown from the second tenth to the last beyond the bounds; none if the run was flat.
    pub fn growth(&self) -> Vec<String> {
        let (Some(second), Some(last)) = (self.0.get(1), self.0.last()) else { return Vec::new() };
        if second.samples == 0 || last.samples == 0 {
            return vec!["the second or the last tenth was over before anybody looked: take more steps".to_owned()];
        }
        let share = (second.resident_kib as f64 * MEMORY_SHARE) as u64;
        [
            ("memory (KiB)", second.resident_kib, last.resident_kib, share.max(MEMORY_KIB)),
            ("threads", second.threads, last.threads, THREADS),
            ("file descriptors", second.descriptors, last.descriptors, DESCRIPTORS),
        ]
        .into_iter()
        .filter(|(_, second, last, more)| *last > second + more)
        .map(|(what, second, last, more)| {
            format!("{what}: {second} in the second tenth, {last} in the last, expected at most {}", second + more)
        })
        .collect()
    }
}

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tenth  samples  memory (median)  threads (most)  descriptors (most)")?;
        for (index, tenth) in self.0.iter().enumerate() {
            let Tenth { samples, resident_kib, threads, descriptors } = tenth;
            let mebibytes = *resident_kib as f64 / 1024.0;
            writeln!(f, "{:5}  {samples:7}  {mebibytes:11.1} MiB  {threads:14}  {descriptors:18}", index + 1)?;
        }
        write!(
            f,
            "bounds of the last tenth: the second's memory + {:.0} % (at least {} MiB), threads + {THREADS}, \
             descriptors + {DESCRIPTORS}",
            100.0 * MEMORY_SHARE,
            MEMORY_KIB >> 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 1,000 steps, looked at after each, whose figures are those of `at`.
    fn growth(at: impl Fn(u64) -> (u64, u64, u64)) -> Vec<String> {
        let sample = |steps| {
            let (resident_kib, threads, descriptors) = at(steps);
            Sample { steps, resident_kib, threads, descriptors }
        };
        Tenths::of(&(0..=1000).map(sample).collect::<Vec<_>>(), 1000).growth()
    }

    #[test]
    fn a_run_is_flat_whatever_its_first_tenth_and_its_shutdown_take() {
        let flapping = |steps: u64| (300_000 + steps % 7 * 1000, 20 + steps % 2, 30 + steps % 3);
        assert_eq!(growth(flapping), [""; 0]);
        let filling = |steps: u64| if steps < 100 { (1000, 1, 3) } else { flapping(steps) };
        assert_eq!(growth(filling), [""; 0]);
        let closing = |steps: u64| if steps == 1000 { (900_000, 99, 999) } else { flapping(steps) };
        assert_eq!(growth(closing), [""; 0]);
        let shrinking = |steps: u64| (900_000 - 500 * steps, 30 - steps / 100, 20);
        assert_eq!(growth(shrinking), [""; 0]);
    }

    #[test]
    fn whatever_grows_is_named_with_its_bound() {
        let memory = growth(|steps| (300_000 + 40 * steps, 20, 30));
        assert_eq!(memory, ["memory (KiB): 306000 in the second tenth, 338000 in the last, expected at most 321300"]);
        let threads = growth(|steps| (300_000, 20 + steps / 100, 30));
        assert_eq!(threads, ["threads: 21 in the second tenth, 29 in the last, expected at most 25"]);
        let descriptors = growth(|steps| (300_000, 20, 30 + steps / 100));
        assert_eq!(descriptors, ["file descriptors: 31 in the second tenth, 39 in the last, expected at most 35"]);
        let unseen = Tenths::of(&[], 1000).growth();
        assert!(unseen[0].contains("take more steps"), "{unseen:?}");
    }
}
