//! No panic of a hook reaches the host: the hook is disabled, and says so once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use trainmon_service::{Notices, panic_text};

/// Runs hooks and disables those that panic.
#[derive(Debug)]
pub(crate) struct HookGuard {
    /// Whether any hook is disabled: keeps the common path free of the lock.
    any_disabled: AtomicBool,
    disabled: Mutex<Vec<&'static str>>,
    notices: Notices,
}

impl HookGuard {
    pub(crate) fn new(notices: Notices) -> Self {
        Self { any_disabled: AtomicBool::new(false), disabled: Mutex::default(), notices }
    }

    /// Runs `body` unless `hook` is disabled. `None`: it was, or it panicked just now.
    pub(crate) fn run<R>(&self, hook: &'static str, body: impl FnOnce() -> R) -> Option<R> {
        if self.is_disabled(hook) {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.disable(hook, &panic_text(&*panic));
                None
            }
        }
    }

    pub(crate) fn is_disabled(&self, hook: &str) -> bool {
        // Relaxed: a hook that runs once more on another thread does no harm.
        self.any_disabled.load(Ordering::Relaxed) && self.lock().contains(&hook)
    }

    fn disable(&self, hook: &'static str, why: &str) {
        let mut disabled = self.lock();
        if disabled.contains(&hook) {
            return;
        }
        disabled.push(hook);
        drop(disabled);
        self.any_disabled.store(true, Ordering::Relaxed);
        self.notices.warn(
            format!("hook `{hook}` failed and is off from now on; training goes on: {why}"),
            Some("please report this with the lines above; what was collected before is kept".to_owned()),
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<&'static str>> {
        self.disabled.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panicking_hook_is_disabled_and_says_so_once() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let guard = HookGuard::new(Notices::new(move |notice| heard.lock().unwrap().push(notice.message.clone())));
        assert_eq!(guard.run("grad", || 1), Some(1));
        for _ in 0..3 {
            assert_eq!(guard.run("grad", || -> i32 { panic!("broken tensor") }), None);
        }
        assert_eq!(guard.run("param", || 2), Some(2));
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`grad`") && said[0].contains("broken tensor"), "{}", said[0]);
    }
}
