//! Keeps panics of hooks away from the host: trainmon disables the hook and reports it once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use trainmon_service::Notices;

/// The disabled hooks; [`Monitor::guard`](crate::Monitor::guard) runs the others.
#[derive(Debug)]
pub(crate) struct HookGuard {
    /// Whether any hook is disabled; avoids the lock in the common case.
    any_disabled: AtomicBool,
    disabled: Mutex<Vec<&'static str>>,
    notices: Notices,
}

impl HookGuard {
    pub(crate) fn new(notices: Notices) -> Self {
        Self { any_disabled: AtomicBool::new(false), disabled: Mutex::default(), notices }
    }

    /// Whether a hook is disabled.
    pub(crate) fn is_disabled(&self, hook: &str) -> bool {
        // Relaxed: a hook that runs once more on another thread does no harm.
        self.any_disabled.load(Ordering::Relaxed) && self.lock().contains(&hook)
    }

    /// Disables a hook that failed.
    pub(crate) fn disable(&self, hook: &'static str, why: &str) {
        let mut disabled = self.lock();
        if disabled.contains(&hook) {
            return;
        }
        disabled.push(hook);
        drop(disabled);
        self.any_disabled.store(true, Ordering::Relaxed);
        self.notices.warn(
            format!("hook `{hook}` failed and is off from now on; training continues: {why}"),
            Some("please report this with the lines above; earlier measurements are kept".to_owned()),
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
    fn a_hook_that_failed_is_disabled_and_says_so_once() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let guard = HookGuard::new(Notices::new(move |notice| heard.lock().unwrap().push(notice.message.clone())));
        assert!(!guard.is_disabled("grad"));
        for _ in 0..3 {
            guard.disable("grad", "broken tensor");
        }
        assert!(guard.is_disabled("grad") && !guard.is_disabled("param"));
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`grad`") && said[0].contains("broken tensor"), "{}", said[0]);
    }
}
