//! Data-parallel training over MPI as a user runs it: real processes, started by `mpirun`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod common;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::socket::ask;

type Rows = Vec<BTreeMap<String, String>>;

/// The example's program: cargo builds it beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/data_parallel");
    assert!(program.is_file(), "{}: build it with `--examples --features mpi`", program.display());
    program
}

/// A job of that many processes, its output piped.
fn job(ranks: u32, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string()]).arg(example()).arg("--out").arg(out).args(arguments);
    // OpenMPI refuses root and more processes than cores unless it is told otherwise; from version 5 on by other words.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("OMP_NUM_THREADS", "1")]);
    command.envs([
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ]);
    // Two jobs that start at once would both make its directory below the temporary one, and one of them fail.
    command.env("TMPDIR", out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a job that ended well has said.
fn output_of(job: Child) -> String {
    let output = job.wait_with_output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

/// The rows of a rank's file whose name begins with `prefix`; `None` if there is none yet.
fn rows_so_far(out: &Path, rank: u32, prefix: &str) -> Option<Rows> {
    let found_in = |directory: &Path, is_wanted: &dyn Fn(&str) -> bool| {
        let paths = std::fs::read_dir(directory).ok()?.map(|entry| entry.unwrap().path());
        paths.into_iter().find(|path| is_wanted(path.file_name().unwrap().to_str().unwrap()))
    };
    // msprobe's layout, or a run's directory with those of its ranks.
    let directory = found_in(out, &|name| name.contains(&format!("-rank{rank}-")))
        .or_else(|| found_in(&out.join("latest"), &|name| name == format!("rank_{rank}")))?;
    let file = found_in(&directory, &|name| name.starts_with(prefix))?;
    Some(csv::Reader::from_path(file).unwrap().deserialize().filter_map(Result::ok).collect())
}

/// The rows of a file that is complete.
fn rows(out: &Path, rank: u32, prefix: &str) -> Rows {
    rows_so_far(out, rank, prefix).unwrap_or_else(|| panic!("rank {rank} has no file {prefix}…"))
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// The words `parameters HASH` of each rank, and the loss of the first.
fn hashes(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.contains("parameters "));
    lines.map(|line| line.rsplit_once("parameters ").unwrap().1).collect()
}

#[test]
fn two_ranks_average_their_gradients_and_every_all_reduce_is_on_record() {
    let (two, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let steps = ["--steps", "12"];
    let text = output_of(job(2, two.path(), &steps).spawn().unwrap());
    let hashes = hashes(&text);
    assert!(hashes.len() == 2 && hashes[0] == hashes[1], "the models part:\n{text}");
    output_of(job(1, one.path(), &steps).spawn().unwrap());

    let after: Vec<Rows> = (0..2).map(|rank| rows(two.path(), rank, "grad_reduced")).collect();
    let before: Vec<Rows> = (0..2).map(|rank| rows(two.path(), rank, "grad_unreduced")).collect();
    assert_eq!(after[0], after[1]);
    assert_ne!(before[0], before[1]);
    assert_eq!(after[0].len(), 12 * 4);
    // The mean of the parts' gradients is the whole batch's, which one process has.
    let whole = rows(one.path(), 0, "grad_reduced");
    for (averaged, alone) in after[0].iter().zip(&whole) {
        assert_eq!((&averaged["name"], &averaged["step"]), (&alone["name"], &alone["step"]));
        for column in ["norm", "min", "max"] {
            let (found, expected) = (number(averaged, column), number(alone, column));
            assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1e-3), "{averaged:?}\n{alone:?}");
        }
    }

    for rank in 0..2 {
        let times = rows(two.path(), rank, "comm_time");
        let sums: Vec<_> = times.iter().filter(|row| row["name"] == "all_reduce/dp").collect();
        assert_eq!(sums.len(), 12);
        let elements = 16 * 32 + 32 + 32 * 4 + 4;
        for row in &sums {
            assert_eq!((number(row, "bytes"), row["dtype"].as_str()), (f64::from(4 * elements), "torch.float32"));
            assert!((number(row, "algbw") * number(row, "seconds") * 1e9 / number(row, "bytes") - 1.0).abs() < 1e-9);
            assert_eq!(number(row, "busbw"), number(row, "algbw"), "of two ranks");
        }
        assert_eq!(times.iter().filter(|row| row["name"] == "broadcast/dp" && row["step"] == "0").count(), 1);
        // What went in are this rank's gradients, what came out their sum over the ranks.
        let payload = rows(two.path(), rank, "comm_0");
        for (name, gradients, ranks) in [("pre_0", &before[rank as usize], 1.0), ("post_0", &after[0], 2.0)] {
            let name = format!("all_reduce/dp/{name}");
            let of_call: Vec<_> = payload.iter().filter(|row| row["name"] == name).collect();
            assert_eq!(of_call.len(), 12, "{name}");
            for row in of_call {
                let of_step = gradients.iter().filter(|gradient| gradient["step"] == row["step"]);
                let expected = ranks * of_step.map(|gradient| number(gradient, "norm").powi(2)).sum::<f64>().sqrt();
                assert!((number(row, "norm") / expected - 1.0).abs() < 1e-5, "{row:?}: {expected}");
            }
        }
    }
    assert!(text.contains("all_reduce in dp: 12 operations"), "{text}");
}

/// A job that ends with the test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn both_ranks_switch_at_the_same_step_agreed_over_mpi() {
    let directory = tempfile::tempdir().unwrap();
    let (out, control) = (directory.path().join("out"), directory.path().join("control"));
    let config = directory.path().join("config.json");
    let text = format!(
        r#"{{"wg_distribution": true, "ops": ["norm"], "format": ["csv"], "step_count_per_record": 100000,
            "control": {{"directory": {:?}}}}}"#,
        control.to_str().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let arguments = ["--steps", "1000000", "--pause", "2", "--config", config.to_str().unwrap()];
    let _job = Killed(job(2, &out, &arguments).spawn().unwrap());
    let socket = control.join("control.sock");
    wait_for("no socket", || socket.exists() && UnixStream::connect(&socket).is_ok());
    let answer = ask(&socket, "POST", "/set", r#"{"kinds": {"param": true}}"#);
    assert!(answer.contains("\"id\":"), "{answer}");
    wait_for("no switch", || ask(&socket, "GET", "/status", "").contains("\"stage\":\"agreed\""));
    let first = |rank| rows_so_far(&out, rank, "param_origin")?.first().map(|row| row["step"].clone());
    wait_for("no parameters", || first(0).is_some() && first(1).is_some());
    let files_in_control = std::fs::read_dir(&control).unwrap().count();
    let (zero, one) = (first(0), first(1));
    assert_eq!(zero, one, "the first step with parameters");
    assert_ne!(zero.as_deref(), Some("0"));
    // The lock, the socket, the token and the description: no leader state, no rank state.
    assert!(files_in_control <= 4, "{files_in_control} files: the ranks talked over the directory");
}
