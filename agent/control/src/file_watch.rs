//! Rereads the config file when it changes: in msprobe's dynamic mode for the plan, and for a capture request if
//! captures are enabled. Only rank 0 does so, on a separate thread. The file is never written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value};
use trainmon_core::config::{CaptureRequest, Config, DYNAMIC_VARIABLE, DiagnosticKind, Plan};
use trainmon_service::{Notices, environment};

use super::capture_requests;
use super::change_request::{Change, ChangeIds, ChangeRequest};
use crate::captures::AskedBy;
use crate::live::Live;

/// The interval between two checks of the file.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const IGNORED: &str = "the change is ignored, and the current plan stays in effect";

/// The file from which a config was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Keys that override the file's top-level keys whenever it is read.
    pub over: Map<String, Value>,
}

impl From<PathBuf> for ConfigFile {
    fn from(path: PathBuf) -> Self {
        Self { path, over: Map::new() }
    }
}

/// Watches one config file.
pub(super) struct FileWatch {
    file: ConfigFile,
    /// The config at the start, for everything that a plan does not contain.
    start: Arc<Config>,
    live: Arc<Live>,
    seen: Option<Stamp>,
    looked: Option<Instant>,
    /// The last capture request in the file.
    capture: Option<CaptureRequest>,
    numbers: ChangeIds,
    notices: Notices,
}

/// The modification time and size of a file.
type Stamp = (SystemTime, u64);

impl FileWatch {
    /// Creates a watch that treats the current file as known, because the monitor was started with it.
    pub(super) fn new(
        file: ConfigFile,
        start: Arc<Config>,
        live: Arc<Live>,
        numbers: ChangeIds,
        notices: Notices,
    ) -> Self {
        let seen = stamp(&file.path);
        let capture = start.capture.as_ref().and_then(|capture| capture.request.clone());
        Self { file, start, live, seen, looked: None, capture, numbers, notices }
    }

    /// The requests from the file, if it changed since the last check.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<ChangeRequest> {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY) {
            return Vec::new();
        }
        self.looked = Some(now);
        // A file that is missing for a moment is being replaced.
        let Some(stamp) = stamp(&self.file.path).filter(|stamp| self.seen != Some(*stamp)) else { return Vec::new() };
        self.seen = Some(stamp);
        let Some(config) = self.read() else { return Vec::new() };
        // Outside of the dynamic mode, the plan stays as at the start.
        let plan = if self.start.dynamic_on.is_some() { self.plan(&config) } else { None };
        plan.into_iter().chain(self.capture(&config)).collect()
    }

    /// The request for a new plan.
    fn plan(&self, config: &Config) -> Option<ChangeRequest> {
        if config.dynamic_on == Some(true) && !self.can_aim_at(&config.targets.names) {
            let name = self.file.path.display();
            let message =
                format!("`{name}`: key `targets`: this front cannot change targets during the training: {IGNORED}");
            self.notices
                .warn(message, Some("restart the training with these targets, or restore the former ones".to_owned()));
            return None;
        }
        let what = format!("the change of `{}`", self.file.path.display());
        let change = match config.dynamic_on {
            Some(true) => Change::Replace(Plan { paused: false, window: from_now_on(config), ..Plan::of(config) }),
            _ => Change::Pause,
        };
        self.tell_what_stays(config);
        Some(ChangeRequest { id: self.numbers.next(), what, change })
    }

    /// The capture request in the file, if it is new.
    fn capture(&mut self, config: &Config) -> Option<ChangeRequest> {
        let wanted = config.capture.as_ref()?;
        let before = std::mem::replace(&mut self.capture, wanted.request.clone());
        let request = wanted.request.as_ref().filter(|request| before.as_ref() != Some(*request))?;
        // Levels and tasks that the request omits are those of the current file, and were checked with it.
        let order = wanted.order(request, "capture.request").ok()?;
        Some(capture_requests::request(self.numbers.next(), order, AskedBy::Config, self.live.step().0))
    }

    fn read(&self) -> Option<Config> {
        let ConfigFile { path, over } = &self.file;
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.notices.warn(format!("cannot read `{name}`: {error}: {IGNORED}"), None);
                return None;
            }
        };
        // The mode was chosen when the training started.
        let dynamic = self.start.dynamic_on.map(|_| "True");
        let env = |name: &str| {
            if name == DYNAMIC_VARIABLE { dynamic.map(str::to_owned) } else { environment::variable(name) }
        };
        match Config::parse_over(&text, over, &name, &env) {
            Ok(parsed) => {
                for lacking in parsed.warnings.iter().filter(|one| one.kind == DiagnosticKind::NotImplemented) {
                    self.notices.warn(lacking.to_string(), lacking.hint.clone());
                }
                Some(parsed.config)
            }
            Err(errors) => {
                let hint = format!("run `trainmon check-config {name}` to see the line in the file");
                self.notices.warn(format!("{errors}\n{IGNORED}"), Some(hint));
                None
            }
        }
    }

    /// Whether these targets can be measured. If the front has fixed targets, only the current ones, as for other
    /// requests.
    fn can_aim_at(&self, targets: &[String]) -> bool {
        self.live.follows_targets() || self.live.plan().targets == targets
    }

    /// Warns if the file differs in a key that is only read at the start.
    fn tell_what_stays(&self, config: &Config) {
        let plan = Plan::of(&self.start);
        let rest = Config { dynamic_on: self.start.dynamic_on, ..config.with_plan(&plan) };
        let rest = Config { adhoc: self.start.adhoc.clone(), capture: self.start.capture.clone(), ..rest };
        if rest != *self.start {
            self.notices.info(format!(
                "`{}`: the changed keys that are not part of the plan take effect at the next start",
                self.file.path.display()
            ));
        }
    }
}

/// msprobe's window in this mode: from the switch on, regardless of `start_step`.
fn from_now_on(config: &Config) -> trainmon_core::config::Window {
    trainmon_core::config::Window { start_step: 0, ..config.window }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn later(now: &mut Instant) -> Instant {
        *now += 2 * LOOK_EVERY;
        *now
    }

    /// A write that a coarse clock cannot hide: the length differs each time.
    fn write(path: &Path, text: &str, padding: usize) {
        std::fs::write(path, format!("{text}{}", " ".repeat(padding))).unwrap();
    }

    #[test]
    fn a_change_is_taken_up_once_and_a_faulty_file_is_told_and_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        write(&path, r#"{"wg_distribution": true}"#, 0);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string()));
        let start = Arc::new(Config { dynamic_on: Some(false), ..Config::parse("{}", "x", &|_| None).unwrap().config });
        let live = Arc::new(Live::new(trainmon_core::Step(0), false, Plan::of(&start)));
        let mut watch = FileWatch::new(path.clone().into(), start, Arc::clone(&live), ChangeIds::default(), notices);
        let mut now = Instant::now();
        assert_eq!(watch.tick(later(&mut now)), []);
        write(&path, r#"{"wg_distribution": 7}"#, 40);
        assert_eq!(watch.tick(later(&mut now)), []);
        assert!(said.lock().unwrap()[0].contains("wg_distribution"), "{said:?}");
        write(&path, r#"{"wg_distribution": true}"#, 80);
        assert_eq!(watch.tick(later(&mut now)).pop().map(|request| request.change), Some(Change::Pause));
        write(&path, r#"{"wg_distribution": true, "dynamic_on": true, "start_step": 7}"#, 0);
        let Some(Change::Replace(plan)) = watch.tick(later(&mut now)).pop().map(|request| request.change) else {
            panic!()
        };
        assert!(!plan.paused && plan.signals.weight_grad.is_some() && plan.window.start_step == 0);
        assert_eq!(watch.tick(later(&mut now)), []);
        // Other targets: only where the front can.
        let narrowed = r#"{"wg_distribution": true, "dynamic_on": true, "targets": {"h.1": {}}}"#;
        write(&path, narrowed, 120);
        assert_eq!(watch.tick(later(&mut now)), []);
        assert!(said.lock().unwrap().last().unwrap().contains("key `targets`"), "{said:?}");
        live.follow_targets();
        write(&path, narrowed, 160);
        let Some(Change::Replace(plan)) = watch.tick(later(&mut now)).pop().map(|request| request.change) else {
            panic!()
        };
        assert_eq!(plan.targets, ["h.1"]);
    }

    #[test]
    fn keys_given_beside_the_file_stand_in_the_place_of_its_own_when_it_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let text = |ops: &str| {
            format!(r#"{{"dynamic_on": true, "wg_distribution": true, "ops": ["{ops}"], "output_dir": "theirs"}}"#)
        };
        write(&path, &text("min"), 0);
        let over = serde_json::json!({"output_dir": "mine", "targets": {"h.1": {}}}).as_object().unwrap().clone();
        let dynamic = |name: &str| (name == DYNAMIC_VARIABLE).then(|| "True".to_owned());
        let start = Arc::new(Config::parse_over(&text("min"), &over, "config.json", &dynamic).unwrap().config);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let notices = Notices::new(move |notice| heard.lock().unwrap().push(notice.to_string()));
        let live = Arc::new(Live::new(trainmon_core::Step(0), false, Plan::of(&start)));
        let file = ConfigFile { path: path.clone(), over };
        let mut watch = FileWatch::new(file, start, live, ChangeIds::default(), notices);
        let mut now = Instant::now();
        write(&path, &text("max"), 40);
        let Some(Change::Replace(plan)) = watch.tick(later(&mut now)).pop().map(|request| request.change) else {
            panic!()
        };
        assert_eq!(plan.targets, ["h.1"]);
        assert_eq!(plan.signals.weight_grad.unwrap().signal.ops, [trainmon_core::Statistic::Max]);
        assert!(said.lock().unwrap().is_empty(), "the output directory is as at the start: {said:?}");
    }
}
