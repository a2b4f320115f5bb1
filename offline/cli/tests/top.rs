//! `trainmon top` in a real pseudo-terminal: what is on its screen, what keys do, and that the terminal is given back.
#![cfg(unix)]

#[path = "support/run_files.rs"]
mod run_files;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use tempfile::TempDir;

use run_files::{MadeRun, TENSORS};
use support::trainmon;

const PATIENCE: Duration = Duration::from_mins(1);
/// What full-screen programs show themselves on, and leave again.
const OTHER_SCREEN: &[u8] = b"\x1b[?1049h";
const FIRST_SCREEN: &[u8] = b"\x1b[?1049l";

/// The program in a terminal of its own.
struct Session {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn std::io::Write + Send>,
    output: Arc<Mutex<(vt100::Parser, Vec<u8>)>>,
}

impl Session {
    fn start(directory: &Path, arguments: &[&str], (columns, rows): (u16, u16), environment: &[(&str, &str)]) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_trainmon"));
        command.args([&["top"], arguments].concat());
        command.cwd(directory);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("starts");
        drop(pair.slave);
        let output = Arc::new(Mutex::new((vt100::Parser::new(rows, columns, 0), Vec::new())));
        let (mut reader, shared) = (pair.master.try_clone_reader().expect("readable"), Arc::clone(&output));
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut output = shared.lock().expect("not poisoned");
                output.0.process(&bytes[..count]);
                output.1.extend_from_slice(&bytes[..count]);
            }
        };
        drop(std::thread::Builder::new().name("screen".to_owned()).spawn(read).expect("a thread"));
        let keys = pair.master.take_writer().expect("writable");
        Self { child, master: pair.master, keys, output }
    }

    fn screen(&self) -> String {
        self.output.lock().expect("not poisoned").0.screen().contents()
    }

    /// Waits until the screen is so.
    fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(since.elapsed() < PATIENCE, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("writable");
        self.keys.flush().expect("writable");
    }

    /// Waits for the end; the terminal must be as it was then.
    fn ended(mut self) -> ExitStatus {
        let since = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("known") {
                Some(status) => break status,
                None if since.elapsed() > PATIENCE => {
                    self.child.kill().expect("ends");
                    panic!("it does not end:\n{}", self.screen());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let is_back = || {
            let output = self.output.lock().expect("not poisoned");
            let place = |what: &[u8]| output.1.windows(what.len()).rposition(|window| window == what);
            place(FIRST_SCREEN).is_some_and(|back| place(OTHER_SCREEN).is_some_and(|there| back > there))
                && !output.0.screen().hide_cursor()
        };
        let since = Instant::now();
        while !is_back() {
            assert!(since.elapsed() < PATIENCE, "the first screen and the cursor are not back");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Not in raw mode: a line is what the terminal waits for.
        let modes = self.master.get_termios().expect("known");
        let usual = libc::ICANON | libc::ECHO;
        assert_eq!(modes.local_flags.bits() & usual, usual);
        status
    }
}

/// A run with a spike that is its newest step, and the alert of it.
fn workspace() -> TempDir {
    let dir = TempDir::new().expect("a temporary directory");
    MadeRun { steps: 60, spike: Some(59), not_finite: None }.write_run(&dir.path().join("out/run-a"), 1);
    MadeRun::write_finding(&dir.path().join("out/run-a"), 0, 59, "Spike", TENSORS[1]);
    dir
}

#[test]
fn a_run_fits_a_small_and_a_large_terminal() {
    let workspace = workspace();
    for size in [(80, 24), (200, 60)] {
        let mut session = Session::start(workspace.path(), &["out"], size, &[]);
        // The last line is drawn last.
        let screen = session.wait_for("the run", |screen| screen.contains("? help"));
        assert!(screen.starts_with("run-a  rank 0 of 1  step 59"), "{screen}");
        for text in [
            "loss",
            "grad norm",
            "step s",
            "█",
            "blocks.1.mlp.weight",
            "alerts: 1",
            "Spike: grad_reduced norm of `blocks.1.mlp.weight` ",
            "records: seen 360",
            "q quit",
        ] {
            assert!(screen.contains(text), "{size:?} {text}:\n{screen}");
        }
        // The frames are whole: as many left as right corners, all in their places.
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(lines.iter().filter(|line| line.starts_with('┌') && line.ends_with('┐')).count(), 3, "{screen}");
        assert_eq!(lines.iter().filter(|line| line.starts_with('└') && line.ends_with('┘')).count(), 3, "{screen}");
        assert!(lines.len() <= usize::from(size.1), "{screen}");
        session.press("q");
        assert!(session.ended().success());
    }
}

#[test]
fn keys_sort_filter_move_and_help() {
    let workspace = workspace();
    let mut session = Session::start(workspace.path(), &["out"], (100, 30), &[]);
    let place =
        |screen: &str, name: &str| screen.lines().position(|line| line.contains(name) && line.contains("grad_reduced"));
    let is_before = |screen: &str, first: &str, second: &str| {
        place(screen, first).is_some_and(|first| place(screen, second).is_some_and(|second| first < second))
    };
    session.wait_for("the farthest first", |screen| {
        screen.contains("by deviation") && is_before(screen, TENSORS[1], TENSORS[0])
    });
    session.press("ss");
    session
        .wait_for("sorted by name", |screen| screen.contains("by name") && is_before(screen, TENSORS[0], TENSORS[1]));
    session.press("/head");
    session.wait_for("filtered", |screen| screen.contains("/head") && !screen.contains("blocks.0"));
    session.press("\r");
    session.wait_for("the filter is told", |screen| screen.contains("filter head"));
    session.press("?");
    session.wait_for("help", |screen| screen.contains("sort by deviation, value or name"));
    session.press("x\u{1b}");
    session.wait_for("no filter", |screen| !screen.contains("filter head") && screen.contains("blocks.0"));
    session.press("j\u{1b}[B");
    let is_marked = |session: &Session, row: usize| {
        let output = session.output.lock().expect("not poisoned");
        let screen = output.0.screen();
        let line = screen.contents().lines().position(|line| line.contains("tensor") && line.contains("deviations"));
        line.is_some_and(|head| screen.cell((head + 1 + row) as u16, 2).is_some_and(vt100::Cell::inverse))
    };
    session.wait_for("the third row is marked", |_| is_marked(&session, 2));
    session.press("k");
    session.wait_for("the second row is marked", |_| is_marked(&session, 1));
    session.press("\u{3}");
    assert!(session.ended().success(), "Ctrl-C leaves");
}

#[test]
fn no_color_is_respected_and_signals_give_the_terminal_back() {
    let workspace = workspace();
    for (signal, environment) in [("TERM", &[("NO_COLOR", "1")][..]), ("INT", &[][..])] {
        let session = Session::start(workspace.path(), &["out"], (80, 24), environment);
        session.wait_for("the run", |screen| screen.contains("run-a"));
        let has_colour = {
            let output = session.output.lock().expect("not poisoned");
            let screen = output.0.screen();
            let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
            cells
                .filter_map(|(row, column)| screen.cell(row, column))
                .any(|cell| cell.fgcolor() != vt100::Color::Default)
        };
        assert_eq!(has_colour, environment.is_empty(), "{signal}");
        let id = session.child.process_id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{signal}"), &*id]).status().expect("kill");
        assert!(sent.success());
        assert!(session.ended().success(), "{signal}");
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let workspace = workspace();
    let Session { mut child, master, keys, output } = Session::start(workspace.path(), &["out"], (80, 24), &[]);
    let since = Instant::now();
    while !output.lock().expect("not poisoned").0.screen().contents().contains("run-a") {
        assert!(since.elapsed() < PATIENCE, "it shows nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = child.process_id().expect("it runs");
    drop((master, keys));
    // The thread that reads the screen holds the terminal open until the program closes it: the system's word alone.
    assert!(std::process::Command::new("kill").args(["-HUP", &id.to_string()]).status().expect("kill").success());
    let since = Instant::now();
    while child.try_wait().expect("known").is_none() {
        assert!(since.elapsed() < PATIENCE, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn files_that_grow_are_read_again() {
    let workspace = workspace();
    let mut session = Session::start(workspace.path(), &["out"], (80, 24), &[]);
    session.wait_for("the run", |screen| screen.contains("step 59"));
    MadeRun { steps: 75, spike: None, not_finite: None }.write_run(&workspace.path().join("out/run-a"), 1);
    session.wait_for("the new steps", |screen| screen.contains("step 74"));
    session.press("q");
    assert!(session.ended().success());
}

#[test]
fn a_journal_is_read_again_while_the_training_writes_it() {
    use trainmon_core::config::Config;
    use trainmon_core::{Kind, MicroStep, Rank, Record, Step, StepBatch, TensorId, TensorInfo, TensorStats};
    use trainmon_journal::{Journal, JournalRun, JournalSpec, MIN_FILE_BYTES, Storage};

    let dir = TempDir::new().expect("a temporary directory");
    let config = Config::parse(r#"{"wg_distribution": true, "ops": ["norm"]}"#, "t", &|_| None).expect("good").config;
    let csv = config.csv.as_ref().expect("CSV is the default");
    let run = JournalRun { run: "run-j".to_owned(), rank: Rank(0), local_rank: Rank(0), world_size: 1 };
    let spec = JournalSpec { file_bytes: MIN_FILE_BYTES, run, config: &config, csv, storage: Storage::Auto };
    let mut journal = Journal::create(&dir.path().join("run-j.tmj"), &spec).expect("room");
    let names = [TensorInfo { name: "head.weight".into(), vpp_stage: 0 }];
    let mut write = |step: u64| {
        let reading = TensorStats { norm: 1.0 + step as f64, ..TensorStats::of_value(1.0) };
        let (tensor, kind, micro_step) = (TensorId(0), Kind::GradReduced, MicroStep(0));
        let records = vec![Record { tensor, kind, micro_step, reading: Some(reading.into()) }];
        let batch = StepBatch { step: Step(step), collected: true, records, loss: Some(1.0), ..StepBatch::default() };
        journal.append(&names, &batch).expect("room");
    };
    (0..3).for_each(&mut write);
    let mut session = Session::start(dir.path(), &["run-j.tmj"], (100, 30), &[]);
    session.wait_for("the journal", |screen| screen.contains("run-j  rank 0 of 1  step 2"));
    (3..8).for_each(&mut write);
    session.wait_for("what was written since", |screen| screen.contains("step 7"));
    session.press("q");
    assert!(session.ended().success());
}

#[test]
fn once_and_an_output_that_is_no_terminal_are_one_frame_of_plain_text() {
    let workspace = workspace();
    for arguments in [&["top", "out", "--once"][..], &["top", "out"]] {
        let said = trainmon(workspace.path(), arguments);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        assert!(said.out.starts_with("run-a  rank 0 of 1  step 59\n┌ curves, steps 0 to 59 "), "{}", said.out);
        assert!(!said.out.contains('\u{1b}') && said.out.contains("blocks.1.mlp.weight"), "{}", said.out);
    }
    let said = trainmon(workspace.path(), &["top", "nowhere"]);
    assert_eq!((said.code, said.err.lines().next()), (Some(2), Some("error: `nowhere` does not exist")));
}

#[test]
fn the_page_of_a_real_exporter_is_shown() {
    use trainmon_core::{Kind, MicroStep, Rank, Record, Step, StepBatch, TensorId, TensorInfo, TensorStats};
    use trainmon_exporters::{Exporter as _, MeasuredStatistics, PrometheusExporter, RunInfo, Sources};

    let config = trainmon_core::config::Prometheus { port: 0, ..trainmon_core::config::Prometheus::default() };
    let run = RunInfo { run: "live-run".to_owned(), rank: Rank(3), local_rank: Rank(0), world_size: 8 };
    let sources = Sources::of_recorded(MeasuredStatistics::everything(), Arc::default(), true);
    let mut exporter = PrometheusExporter::start(&config, run, sources).expect("a page");
    let names = [TensorInfo { name: "blocks.7.attn.weight".into(), vpp_stage: 0 }];
    for step in 0..20 {
        let norm = if step == 19 { 500.0 } else { 1.0 + 0.01 * step as f64 };
        let reading = Some(TensorStats { norm, ..TensorStats::of_value(norm) }.into());
        let record = Record { tensor: TensorId(0), kind: Kind::GradReduced, micro_step: MicroStep(0), reading };
        let batch = StepBatch { step: Step(step), loss: Some(2.0), records: vec![record], ..StepBatch::default() };
        exporter.export(&names, &batch).expect("taken");
    }
    let said = exporter.locations().join(" ");
    let (_, address) = said.split_once("http://").expect("an address");
    let address = address.split(['/', ' ']).next().expect("an address");
    let dir = TempDir::new().expect("a temporary directory");
    let said = trainmon(dir.path(), &["top", &format!("http://{address}/"), "--once"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.out.starts_with("live-run  rank 3 of 8  step 19"), "{}", said.out);
    assert!(said.out.contains("blocks.7.attn.weight") && said.out.contains("500.00"), "{}", said.out);
    exporter.shutdown(Instant::now() + PATIENCE).expect("ends");
}

#[test]
fn an_address_with_encryption_or_a_rank_is_refused() {
    let dir = TempDir::new().expect("a temporary directory");
    for (arguments, expected) in [
        (
            &["top", "https://localhost:9464"][..],
            "error: `https://localhost:9464` uses HTTPS, which an agent's page does not support\n",
        ),
        (
            &["top", "http://localhost:9464", "--rank", "3"],
            "error: `--rank 3` cannot be combined with an address, which already names one rank\n",
        ),
    ] {
        let said = trainmon(dir.path(), arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
        assert!(said.err.starts_with(expected) && said.err.contains("hint: "), "{}", said.err);
    }
}

/// Serves `/api/overview` until it is switched off, as an agent does.
struct FakeAgent {
    address: SocketAddr,
    is_on: Arc<AtomicBool>,
}

impl FakeAgent {
    fn start(overview: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, is_on) = (listener.local_addr().expect("a port"), Arc::new(AtomicBool::new(true)));
        let switch = Arc::clone(&is_on);
        let serve = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if switch.load(Ordering::Relaxed) {
                    answer(stream, &overview);
                }
            }
        };
        drop(std::thread::Builder::new().name("agent".to_owned()).spawn(serve).expect("a thread"));
        Self { address, is_on }
    }
}

fn answer(mut stream: TcpStream, overview: &str) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let (status, body) =
        if head.starts_with(b"GET /api/overview ") { ("200 OK", overview) } else { ("404 Not Found", "") };
    let length = body.len();
    drop(write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"));
}

#[test]
fn an_agent_is_shown_and_asked_again_until_it_answers() {
    let workspace = workspace();
    // What an agent serves is what stands in a page, without the heat maps.
    let said = trainmon(workspace.path(), &["plot", "out", "-o", "run.html"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let page = std::fs::read_to_string(workspace.path().join("run.html")).expect("there");
    let (_, rest) = page.split_once(r#"id="run-data">"#).expect("data");
    let (data, _) = rest.split_once("</script>").expect("an end");
    let agent = FakeAgent::start(data.to_owned());
    let url = format!("http://{}", agent.address);
    let mut session = Session::start(workspace.path(), &[&url], (120, 30), &[]);
    session.wait_for("the run", |screen| screen.contains("run-a  rank 0 of 1  step 59"));
    agent.is_on.store(false, Ordering::Relaxed);
    session.wait_for("no answer, and the last state", |screen| {
        screen.contains("NO RESPONSE") && screen.contains("blocks.1.mlp.weight")
    });
    agent.is_on.store(true, Ordering::Relaxed);
    session.wait_for("it answers again", |screen| !screen.contains("NO RESPONSE"));
    session.press("q");
    assert!(session.ended().success());
    agent.is_on.store(false, Ordering::Relaxed);
    let said = trainmon(workspace.path(), &["top", &url, "--once"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.starts_with(&format!("error: `{url}/api/overview`: ")), "{}", said.err);
}
