//! The Rust call stack of an operator call.

use std::backtrace::Backtrace;

/// The text before a frame's source location in a backtrace.
const PLACE: &str = "at ";

/// Returns the callers, innermost first, in the form of `stack.json`. Only frames with a source location count; those
/// of the standard library and of the capture itself are skipped. The list is empty if the program has no debug
/// information.
pub(super) fn lines() -> Vec<String> {
    of_text(&Backtrace::force_capture().to_string())
}

fn of_text(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut function = "";
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix(PLACE) {
            let is_ours = place.contains("/agent/tch/src/capture/") || place.contains("/agent/tch/src/ffi/");
            if place.starts_with("/rustc/")
                || place.contains("/rustlib/")
                || is_ours
                || place.starts_with("./src/capture/")
                || place.starts_with("./src/ffi/")
            {
                continue;
            }
            let mut parts = place.rsplitn(3, ':');
            let (_column, line, file) = (parts.next(), parts.next().unwrap_or("0"), parts.next().unwrap_or(place));
            found.push(format!("File {file}, line {line}, in {function}, \n "));
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            function = name;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_with_a_place_are_kept_and_the_tools_own_are_not() {
        let text = "   0: std::backtrace::Backtrace::force_capture\n             at /rustc/5980/library/std/src/backtrace.rs:312:5\n   \
            1: trainmon_tch::capture::stack::lines\n             at /x/agent/tch/src/capture/stack.rs:14:5\n   2: at::_ops::mm::call\n   \
            3: model::Gpt::forward\n             at /x/model.rs:41:9\n   4: model::main\n             at /x/main.rs:7:1\n";
        let expected =
            ["File /x/model.rs, line 41, in model::Gpt::forward, \n ", "File /x/main.rs, line 7, in model::main, \n "];
        assert_eq!(of_text(text), expected);
    }
}
