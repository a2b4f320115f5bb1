//! Counting tests from what the test harnesses print.

use std::ops::AddAssign;

/// The outcome of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ran to the end without a failed assertion.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Did not run: ignored, or could not.
    pub skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Counts {
    /// The sum over every `test result:` line.
    pub fn of_output(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines() {
            if let Some(counts) = Self::of_line(line) {
                sum += counts;
            }
        }
        sum
    }

    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
    fn of_line(line: &str) -> Option<Self> {
        let (_verdict, parts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        let count =
            |what: &str| parts.split(';').find_map(|part| part.trim().strip_suffix(what)?.trim().parse::<u64>().ok());
        Some(Self { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
    }
}

/// What test programs reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tests {
    /// The sums of their result lines.
    pub counts: Counts,
    /// The names of those the harness calls passed, with their modules.
    pub passed: Vec<String>,
    /// What took time: a program of Rust tests, a test of Python or what was set up for it.
    pub took: Vec<Took>,
}

/// How long a part of a check took.
#[derive(Clone, Debug, PartialEq)]
pub struct Took {
    /// The seconds.
    pub seconds: f64,
    /// Of what.
    pub what: String,
}

impl Tests {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.counts.passed += other.counts.passed;
        self.counts.failed += other.counts.failed;
        self.counts.skipped += other.counts.skipped;
        self.passed.extend(other.passed);
        self.took.extend(other.took);
        self
    }

    /// Reads the output of `cargo test`; of anything else, nothing.
    pub fn of_output(output: &str) -> Self {
        let passed = output.lines().filter_map(|line| line.trim().strip_prefix("test ")?.strip_suffix(" ... ok"));
        let passed = passed.map(str::to_owned).collect();
        Self { counts: Counts::of_output(output), passed, took: programs(output) }
    }

    /// Reads the last line of pytest: `2 failed, 85 passed, 1 skipped, 1 error in 3.27s`. Skipped tests are left to the log
    /// that names them.
    pub fn of_pytest(output: &str) -> Self {
        let words = |line: &str| -> Option<Counts> {
            let (counts, _time) = line.trim().trim_matches('=').trim().rsplit_once(" in ")?;
            let mut sum = Counts::default();
            for part in counts.split(", ") {
                let (count, word) = part.split_once(' ')?;
                let count = count.parse::<u64>().ok()?;
                match word {
                    "passed" | "xfailed" => sum.passed += count,
                    "failed" | "error" | "errors" | "xpassed" => sum.failed += count,
                    _ => {}
                }
            }
            Some(sum)
        };
        let counts = output.lines().rev().find_map(words).unwrap_or_default();
        Self { counts, passed: Vec::new(), took: output.lines().filter_map(duration).collect() }
    }

    /// Whether the harness calls the test of this name passed; the name may come with or without its modules.
    pub fn calls_passed(&self, name: &str) -> bool {
        self.passed
            .iter()
            .any(|passed| passed.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with("::")))
    }
}

/// The programs of a `cargo test`: `Running tests/a.rs (target/debug/deps/a-0)`, then `test result: … finished in 1.20s`.
fn programs(output: &str) -> Vec<Took> {
    let (mut program, mut found) = ("", Vec::new());
    for line in output.lines().map(str::trim) {
        if let Some(running) = line.strip_prefix("Running ").or_else(|| line.strip_prefix("Doc-tests ")) {
            program = running.rsplit_once("deps/").map_or(running, |(_, name)| name.trim_end_matches(')'));
            program = program.rsplit_once('-').map_or(program, |(name, _)| name);
        }
        let ended = line.strip_prefix("test result: ").and_then(|line| line.rsplit_once("finished in "));
        if let Some(seconds) = ended.and_then(|(_, time)| time.strip_suffix('s')?.parse().ok()) {
            found.push(Took { seconds, what: program.to_owned() });
        }
    }
    found
}

/// A line of pytest's `--durations`: `12.34s call     tests/test_a.py::test_b`.
fn duration(line: &str) -> Option<Took> {
    let (seconds, rest) = line.split_once("s ")?;
    let (phase, test) = rest.trim_start().split_once(' ')?;
    let what = match phase {
        "call" => test.trim_start().to_owned(),
        "setup" | "teardown" => format!("{} ({phase})", test.trim_start()),
        _ => return None,
    };
    Some(Took { seconds: seconds.trim_start().parse().ok()?, what })
}

/// A test, or a case of a test, that could not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The name of the test or case.
    pub name: String,
    /// What it lacked.
    pub reason: String,
}

/// The skips of a log of `name: reason` lines, each name once, in order.
pub fn skips(log: &str) -> Vec<Skip> {
    let mut found: Vec<Skip> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once(": ").unwrap_or((line, "no reason given")))
        .map(|(name, reason)| Skip { name: name.to_owned(), reason: reason.to_owned() })
        .collect();
    found.sort();
    found.dedup_by(|a, b| a.name == b.name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytests_last_line_is_counted_and_skips_are_left_to_the_log() {
        let counts = |line: &str| Tests::of_pytest(&format!("collected 9 items in 3 files\n{line}\n")).counts;
        let of = |passed, failed| Counts { passed, failed, skipped: 0 };
        assert_eq!(counts("======== 88 passed in 3.27s ========"), of(88, 0));
        assert_eq!(counts("=== 2 failed, 85 passed, 3 skipped, 1 warning, 1 error in 61.20s (0:01:01) ==="), of(85, 3));
        assert_eq!(counts("===== 5 skipped in 0.12s ====="), of(0, 0));
        assert_eq!(counts("ImportError while loading conftest"), of(0, 0));
    }

    const OUTPUT: &str = "\
running 4 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests trainmon_core
test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s
";

    #[test]
    fn programs_and_tests_are_timed() {
        let output = "     Running unittests src/lib.rs (target/debug/deps/trainmon_core-1f)\n".to_owned() + OUTPUT;
        let took = |seconds, what: &str| Took { seconds, what: what.to_owned() };
        assert_eq!(Tests::of_output(&output).took, [took(0.0, "trainmon_core"), took(1.2, "trainmon_core")]);
        let output = "== slowest 10 durations ==\n61.50s setup    tests/a.py::b[c d]\n2.00s call     tests/a.py::e\n1 passed in 9.1s\n";
        let expected = [took(61.5, "tests/a.py::b[c d] (setup)"), took(2.0, "tests/a.py::e")];
        assert_eq!(Tests::of_pytest(output).took, expected);
    }

    #[test]
    fn every_result_line_counts() {
        assert_eq!(Counts::of_output(OUTPUT), Counts { passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn other_lines_do_not_count() {
        let output =
            "the test result: ok. 3 passed; 0 failed; 1 ignored\ntest result: ok\ntest result: ok. many passed;";
        assert_eq!(Counts::of_output(output), Counts::default());
    }

    #[test]
    fn passed_tests_are_known_by_name() {
        let output =
            "test config::tests::reads_all ... ok\ntest golden ... FAILED\ntest src/lib.rs - Watch (line 3) ... ok\n";
        let tests = Tests::of_output(output);
        assert!(tests.calls_passed("reads_all") && tests.calls_passed("config::tests::reads_all"));
        assert!(!tests.calls_passed("all") && !tests.calls_passed("golden"));
    }

    #[test]
    fn a_skip_is_told_once_with_its_reason() {
        let told = skips("b: no promtool: not installed\n\na: no golden data\nb: no promtool: not installed\nc\n");
        let skip = |name: &str, reason: &str| Skip { name: name.to_owned(), reason: reason.to_owned() };
        assert_eq!(
            told,
            [skip("a", "no golden data"), skip("b", "no promtool: not installed"), skip("c", "no reason given")]
        );
    }
}
