//! What the agent's tests share.

use trainmon_agent::core::config::{Config, Pipeline};

/// Weight gradients of every step, no files, no page, queues of two steps.
#[expect(clippy::unwrap_used, reason = "the text is a valid config")]
pub(crate) fn config() -> Config {
    let text = r#"{"wg_distribution": true, "ops": ["norm", "min"]}"#;
    let config = Config::parse(text, "test.json", &|_| None).unwrap().config;
    let pipeline = Pipeline { queue_steps: 2, shutdown_timeout_ms: 5_000 };
    Config { csv: None, prometheus: None, pipeline, ..config }
}
