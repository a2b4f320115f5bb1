//! Builds a capture's effective config from its file, with the checks that involve several keys.

use super::effective::{CaptureConfig, CaptureLevel, CaptureTask, DataMode, Precision, Summary};
use super::file::{BlockFile, CaptureFile, ModeFile, NumberFile};
use super::numbers::NumberRanges;
use crate::config::diagnostic::DiagnosticKind as Kind;
use crate::config::report::{Fault, Report};

/// The defaults: those of msprobe if the capture uses msprobe's names.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Usual {
    pub(in crate::config) precision: Precision,
    pub(in crate::config) neutral: bool,
}

/// The effective config of a file.
pub(in crate::config) fn from_file(file: CaptureFile, usual: Usual, report: &mut Report<'_>) -> CaptureConfig {
    let mut task = file.task.task().unwrap_or_default();
    let (name, block) = block_of(&file, task);
    let block = block.cloned().unwrap_or_default();
    // msprobe's way to request it: checksums of tensors and a capture to compare with.
    if task == CaptureTask::Tensor && block.bench_path.is_some() && block.summary_mode == Summary::Md5 {
        task = CaptureTask::DiffCheck;
    }
    let ranks = numbers("rank", &file.rank, report);
    let steps = numbers("step", &file.step, report);
    let level = level(file.level, task, report);
    let mut at = Block { name, report };
    let scope = scope(&block.scope, level, &mut at);
    let data_mode = data_mode(&block.data_mode, task, &mut at);
    let diff_nums = at.endless("diff_nums", block.diff_nums);
    let overflow_nums = at.endless("overflow_nums", block.overflow_nums);
    at.check_use(&block, task, level);
    if file.dump_path.is_none() {
        let fault = Fault::new(Kind::MissingKey, "missing: pass it as an argument");
        report.warn(
            0,
            "dump_path",
            fault.hint("PrecisionDebugger(dump_path=…) or trainmon.capture(dump_path=…), or add the key here"),
        );
    }
    CaptureConfig {
        task,
        dump_path: file.dump_path.unwrap_or_default(),
        ranks,
        steps,
        level,
        async_dump: file.async_dump,
        dump_enable: file.dump_enable,
        extra_info: file.extra_info,
        neutral: file.neutral.unwrap_or(usual.neutral),
        precision: file.precision.unwrap_or(usual.precision),
        risk_level: file.risk_level,
        custom_op_namespaces: file.custom_op_namespaces,
        scope,
        list: block.list,
        tensor_list: block.tensor_list,
        data_mode,
        slice: block.slice,
        request_id: block.request_id,
        summary: if task == CaptureTask::DiffCheck { Summary::Md5 } else { block.summary_mode },
        bench_path: block.bench_path,
        diff_nums,
        overflow_nums,
        file_format: block.file_format,
        files: file.files,
    }
}

/// The keys of the requested task.
fn block_of(file: &CaptureFile, task: CaptureTask) -> (&'static str, Option<&BlockFile>) {
    let block = match task {
        CaptureTask::Statistics => &file.statistics,
        CaptureTask::Tensor => &file.tensor,
        CaptureTask::Structure => &file.structure,
        CaptureTask::NanCheck => &file.nan_check,
        CaptureTask::OverflowCheck => &file.overflow_check,
        CaptureTask::DiffCheck => &file.diff_check,
    };
    (task.name(), block.as_ref())
}

fn numbers(key: &str, listed: &[NumberFile], report: &mut Report<'_>) -> NumberRanges {
    let mut ranges = NumberRanges::default();
    for (index, number) in listed.iter().enumerate() {
        let added = match number {
            NumberFile::Number(number) => ranges.add(i64::try_from(*number).unwrap_or(i64::MAX)),
            NumberFile::Range(text) => ranges.add_text(text),
        };
        if let Err(error) = added {
            let fault = Fault::new(Kind::OutOfRange, error.to_string())
                .expected("numbers from 0 to 1000000, and ranges like \"3-5\"");
            report.error(report.place(key), &format!("{key}[{index}]"), fault);
        }
    }
    ranges
}

/// The level; a capture of structure is always one of modules.
fn level(level: CaptureLevel, task: CaptureTask, report: &mut Report<'_>) -> CaptureLevel {
    if task != CaptureTask::Structure || level.has_modules() {
        return level;
    }
    if report.has("level") {
        let fault = Fault::new(
            Kind::NoEffect,
            format!("{} has no effect: a capture of structure is one of modules", level.name()),
        );
        report.warn(report.place("level"), "level", fault.hint("write \"mix\" or \"L0\""));
    }
    CaptureLevel::Mix
}

/// A task's keys, with their path for messages.
struct Block<'r, 'a> {
    name: &'static str,
    report: &'r mut Report<'a>,
}

impl Block<'_, '_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn error(&mut self, key: &str, fault: Fault) {
        let key = self.key(key);
        self.report.error(self.report.place(&key), &key, fault);
    }

    fn idle(&mut self, key: &str, is_given: bool, why: &str, hint: &str) {
        if is_given {
            let key = self.key(key);
            let fault = Fault::new(Kind::NoEffect, format!("has no effect: {why}"));
            self.report.warn(self.report.place(&key), &key, fault.hint(hint));
        }
    }

    /// A count, or -1 for no limit.
    fn endless(&mut self, key: &str, count: i64) -> Option<u64> {
        match u64::try_from(count) {
            Ok(count) if count > 0 => Some(count),
            _ if count == -1 => None,
            _ => {
                self.error(key, Fault::new(Kind::OutOfRange, count.to_string()).expected("a number from 1 on, or -1"));
                None
            }
        }
    }

    /// Warns of keys that have no effect with this task and level.
    fn check_use(&mut self, block: &BlockFile, task: CaptureTask, level: CaptureLevel) {
        let is_debug = level == CaptureLevel::Debug;
        let saves = matches!(task, CaptureTask::Statistics | CaptureTask::NanCheck | CaptureTask::OverflowCheck);
        let has_tensors = !block.tensor_list.is_empty();
        self.idle("tensor_list", has_tensors && is_debug, "values are saved by name", "write \"task\": \"tensor\"");
        self.idle(
            "tensor_list",
            has_tensors && !saves,
            &format!("the task `{}` does not use it", self.name),
            "remove it",
        );
        let cuts = matches!(task, CaptureTask::Statistics | CaptureTask::Tensor) && !is_debug;
        self.idle("slice", !block.slice.is_empty() && !cuts, "this task and level cut no slices", "remove it");
        self.idle("list", !block.list.is_empty() && is_debug, "values are saved by name", "remove it");
        let is_saved = matches!(task, CaptureTask::Statistics | CaptureTask::Tensor);
        if is_debug && !is_saved {
            let fault =
                Fault::new(Kind::Conflict, "`debug` saves values with the tasks `statistics` and `tensor` only");
            self.report.error(self.report.place("level"), "level", fault.hint("write another level or task"));
        }
        if task == CaptureTask::DiffCheck && block.bench_path.is_none() {
            let fault = Fault::new(Kind::MissingKey, "missing").hint("add \"bench_path\": the capture to compare with");
            self.error("bench_path", fault);
        }
        self.idle(
            "bench_path",
            block.bench_path.is_some() && task != CaptureTask::DiffCheck,
            "no capture is compared with it",
            "write \"task\": \"diff_check\", or \"summary_mode\": \"md5\" with the task `tensor`",
        );
    }
}

/// The first and the last entry captured.
fn scope(scope: &[String], level: CaptureLevel, at: &mut Block<'_, '_>) -> Option<[String; 2]> {
    if scope.is_empty() {
        return None;
    }
    let [first, last] = scope else {
        let fault = Fault::new(Kind::OutOfRange, format!("{} names", scope.len()))
            .expected("two names: the first and the last entry");
        at.error("scope", fault);
        return None;
    };
    let (example, fits): (_, fn(&str) -> bool) = match level {
        CaptureLevel::Debug => {
            at.idle("scope", true, "values are saved by name", "remove it");
            return None;
        }
        CaptureLevel::L0 => ("Module.layers.0.Linear.forward.0", is_module),
        CaptureLevel::L1 => ("Functional.linear.0.forward", is_function),
        CaptureLevel::L2 => ("Aten.mm.default.0.forward", is_function),
        CaptureLevel::Mix => ("Functional.linear.0.forward or Module.layers.0.Linear.forward.0", |name| {
            is_module(name) || is_function(name)
        }),
    };
    let mut is_good = true;
    for (index, name) in [first, last].into_iter().enumerate() {
        if !fits(name) {
            let fault = Fault::new(Kind::OutOfRange, format!("{name:?}"))
                .expected(format!("an entry's full name of the level {}", level.name()));
            let key = at.key("scope");
            at.report.error(at.report.place(&key), &format!("{key}[{index}]"), fault.hint(format!("like {example}")));
            is_good = false;
        }
    }
    is_good.then(|| [first.clone(), last.clone()])
}

/// `Module.….forward.0`.
fn is_module(name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let is_counted = parts.next().is_some_and(is_number);
    let goes = parts.next().is_some_and(|part| matches!(part, "forward" | "backward"));
    is_counted && goes && parts.count() >= 2 && (name.starts_with("Module.") || name.starts_with("Cell."))
}

/// `Functional.linear.0.forward`.
fn is_function(name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let goes = parts.next().is_some_and(|part| matches!(part, "forward" | "backward"));
    goes && parts.next().is_some_and(is_number) && parts.filter(|part| !part.is_empty()).count() >= 2
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn data_mode(listed: &[ModeFile], task: CaptureTask, at: &mut Block<'_, '_>) -> DataMode {
    let has = |mode| listed.contains(&mode);
    if has(ModeFile::All) && listed.len() > 1 {
        at.error(
            "data_mode",
            Fault::new(Kind::Conflict, "`all` cannot be combined with others").hint("write [\"all\"], or the others"),
        );
        return DataMode::default();
    }
    if listed.len() > 4 {
        at.error("data_mode", Fault::new(Kind::OutOfRange, format!("{} entries", listed.len())).expected("at most 4"));
    }
    // A part that is not listed is kept completely.
    let pair = |one: ModeFile, other: ModeFile| (has(one) || !has(other), has(other) || !has(one));
    let (forward, backward) = pair(ModeFile::Forward, ModeFile::Backward);
    let (input, output) = pair(ModeFile::Input, ModeFile::Output);
    if !output && matches!(task, CaptureTask::NanCheck | CaptureTask::OverflowCheck) {
        let fault = Fault::new(Kind::Conflict, format!("`{}` requires outputs", task.name()));
        at.error("data_mode", fault.hint("add \"output\""));
    }
    DataMode { forward, backward, input, output }
}
