//! Every environment variable the agent reads, but for the launchers' ranks and `OTEL_…`.

use std::path::PathBuf;

use trainmon_core::config::Dialect;

/// msprobe's variable for the base directory of V1.
const OUTPUT_DIR: &str = "MONITOR_OUTPUT_DIR";
/// Whether only warnings are to be said: `0` and `false` are no.
pub fn is_quiet() -> bool {
    variable(QUIET).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// The run's name; a launcher's job id is the next best.
const RUN_NAMES: [&str; 3] = ["TRAINMON_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// Says warnings only.
const QUIET: &str = "TRAINMON_QUIET";

/// A variable's value; `None` where it is unset, empty or no UTF-8.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The base directory if neither the config nor the caller names one.
pub fn default_output_dir(dialect: Dialect) -> PathBuf {
    match dialect {
        Dialect::V1 => variable(OUTPUT_DIR).unwrap_or_else(|| "./monitor_output".to_owned()).into(),
        Dialect::V2 => "./".into(),
    }
}

/// The run's name; `none` is torchrun's word for "no id was given".
pub fn run_name() -> String {
    let named = RUN_NAMES.into_iter().filter_map(variable).find(|name| name != "none");
    named.unwrap_or_else(|| "trainmon".to_owned())
}
