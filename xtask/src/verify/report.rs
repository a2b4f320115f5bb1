//! The summary at the end of `cargo xtask test`.

use std::fmt;
use std::time::Duration;

use super::results::{Counts, Skip, Tests, Took};

/// How many of the slowest parts are shown.
const SLOWEST: usize = 10;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything it looks at is in order.
    Passed,
    /// Something is not.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
        })
    }
}

/// One finished check.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
    /// The tests it ran.
    pub tests: Tests,
}

/// The tests of all checks together. A check that failed without a failed test (a lint, a build that breaks, a test
/// program that crashed) counts as one failure, so that `0 failed` always means success. The harness calls a test passed
/// that found it could not run and said so: it counts as skipped instead. A skipped case of a test counts beside it.
pub fn total(finished: &[Finished], skips: &[Skip]) -> Counts {
    let mut sum = Counts::default();
    for check in finished {
        sum += check.tests.counts;
        if check.verdict == Verdict::Failed && check.tests.counts.failed == 0 {
            sum.failed += 1;
        }
    }
    let called_passed = |skip: &&Skip| finished.iter().any(|check| check.tests.calls_passed(&skip.name));
    sum.passed = sum.passed.saturating_sub(skips.iter().filter(called_passed).count() as u64);
    sum.skipped += skips.len() as u64;
    sum
}

/// Shown as the table of checks, the list of skips, and the line of totals.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// The checks, in the order they ran.
    pub finished: &'a [Finished],
    /// The tests that could not run.
    pub skips: &'a [Skip],
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.finished.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for Finished { name, verdict, took, tests } in self.finished {
            write!(f, "{name:width$}  {verdict}  {:7.1} s", took.as_secs_f64())?;
            match tests.counts.passed + tests.counts.failed + tests.counts.skipped {
                0 => writeln!(f)?,
                count => writeln!(f, "  {count} tests")?,
            }
        }
        let mut took: Vec<&Took> = self.finished.iter().flat_map(|check| &check.tests.took).collect();
        took.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for Took { seconds, what } in took.into_iter().take(SLOWEST) {
            writeln!(f, "SLOW {seconds:6.1} s  {what}")?;
        }
        for Skip { name, reason } in self.skips {
            writeln!(f, "SKIPPED {name}: {reason}")?;
        }
        let Counts { passed, failed, skipped } = total(self.finished, self.skips);
        writeln!(f, "\n{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(name: &'static str, verdict: Verdict, counts: Counts) -> Finished {
        let passed = vec!["rules::alerts_fire".to_owned(), "rules::other".to_owned()];
        let took = vec![Took { seconds: 61.25, what: "rules".to_owned() }];
        let tests = Tests { counts, passed, took: if counts.passed > 0 { took } else { Vec::new() } };
        Finished { name, verdict, took: Duration::from_millis(1250), tests }
    }

    #[test]
    fn the_summary_ends_with_the_line_of_totals() {
        let checks = [
            finished("format", Verdict::Passed, Counts::default()),
            finished("tests", Verdict::Passed, Counts { passed: 7, failed: 0, skipped: 1 }),
        ];
        let skips = [Skip { name: "alerts_fire".to_owned(), reason: "no promtool".to_owned() }];
        assert_eq!(
            Summary { finished: &checks, skips: &skips }.to_string(),
            "format  passed      1.2 s\ntests   passed      1.2 s  8 tests\nSLOW   61.2 s  rules\nSKIPPED alerts_fire: no promtool\n\n\
             6 passed, 0 failed, 2 skipped\n"
        );
    }

    #[test]
    fn a_failed_check_without_a_failed_test_is_one_failure() {
        let some = Counts { passed: 4, failed: 2, skipped: 0 };
        let checks = [
            finished("clippy", Verdict::Failed, Counts::default()),
            finished("tests", Verdict::Failed, some),
            finished("doctests", Verdict::Passed, Counts { passed: 1, ..Counts::default() }),
        ];
        assert_eq!(total(&checks, &[]), Counts { passed: 5, failed: 3, skipped: 0 });
    }

    #[test]
    fn a_test_that_could_not_run_is_not_called_passed() {
        let checks = [finished("tests", Verdict::Passed, Counts { passed: 3, failed: 0, skipped: 1 })];
        let skip = |name: &str| Skip { name: name.to_owned(), reason: "no promtool".to_owned() };
        assert_eq!(total(&checks, &[skip("alerts_fire")]), Counts { passed: 2, failed: 0, skipped: 2 });
        assert_eq!(total(&checks, &[skip("a case of another")]), Counts { passed: 3, failed: 0, skipped: 2 });
    }
}
