//! Every environment variable the agent reads, but for the launchers' ranks and `OTEL_…`.

use std::path::PathBuf;

/// msprobe's variable for the base directory of V1.
const OUTPUT_DIR: &str = "MONITOR_OUTPUT_DIR";
/// The run's name: as the user calls it, under the variable's present name or its first one.
const RUN_NAMES: [&str; 2] = ["TRAINMON_RUN_NAME", "TRAINMON_RUN"];
/// torchrun's id of a job.
const TORCHRUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// Slurm's id of a job.
const SLURM_ID: &str = "SLURM_JOB_ID";

/// Says warnings only.
const QUIET: &str = "TRAINMON_QUIET";

/// Whether only warnings are to be said: `0` and `false` are no.
pub fn is_quiet() -> bool {
    variable(QUIET).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// A variable's value; `None` where it is unset, empty or no UTF-8.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The base directory if neither the config nor the caller names one.
pub fn default_output_dir() -> PathBuf {
    variable(OUTPUT_DIR).unwrap_or_else(|| "./monitor_output".to_owned()).into()
}

/// The same in msprobe's layout V2.
pub fn msprobes_v2_output_dir() -> PathBuf {
    "./".into()
}

/// A run's name out of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenRunName {
    /// The variable it comes from.
    pub variable: &'static str,
    /// The name, as it stands there.
    pub name: String,
}

impl GivenRunName {
    /// Whether it is an id that `torchrun --standalone` made up: unique, and nothing anybody can read.
    pub fn is_made_up(&self) -> bool {
        let groups = self.name.split('-').map(str::len);
        let is_hexadecimal = self.name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        self.variable == TORCHRUN_ID && is_hexadecimal && groups.eq([8, 4, 4, 4, 12])
    }
}

/// The run's name: the user's, else a launcher's job id. `none` is torchrun's word for "no id was given".
pub fn run_name() -> Option<GivenRunName> {
    run_name_of(&variable)
}

fn run_name_of(variable: &dyn Fn(&str) -> Option<String>) -> Option<GivenRunName> {
    let given = |name: &'static str| Some(GivenRunName { variable: name, name: variable(name)? });
    let named = RUN_NAMES.into_iter().find_map(given);
    let torchrun = || given(TORCHRUN_ID).filter(|id| id.name != "none");
    named.or_else(torchrun).or_else(|| given(SLURM_ID))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_name(variables: &[(&str, &str)]) -> Option<String> {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        run_name_of(&value).map(|given| given.name)
    }

    #[test]
    fn the_users_name_goes_before_the_launchers_ids() {
        let all = [
            ("SLURM_JOB_ID", "77"),
            ("TORCHELASTIC_RUN_ID", "job"),
            ("TRAINMON_RUN", "old"),
            ("TRAINMON_RUN_NAME", "mine"),
        ];
        for (known, expected) in [(0, None), (1, Some("77")), (2, Some("job")), (3, Some("old")), (4, Some("mine"))] {
            assert_eq!(run_name(&all[..known]).as_deref(), expected);
        }
        assert_eq!(run_name(&[("TORCHELASTIC_RUN_ID", "none")]), None);
        assert_eq!(run_name(&[("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "77")]).as_deref(), Some("77"));
        assert_eq!(run_name(&[("TRAINMON_RUN_NAME", "none")]).as_deref(), Some("none"));
    }

    #[test]
    fn only_torchruns_own_ids_are_made_up() {
        let is_made_up = |variable, name: &str| GivenRunName { variable, name: name.to_owned() }.is_made_up();
        let id = "0b2f4c1e-93d7-4a55-8f0e-6c1d2a3b4c5d";
        assert!(is_made_up(TORCHRUN_ID, id));
        assert!(!is_made_up("TRAINMON_RUN_NAME", id));
        for other in ["job-7", "0b2f4c1e-93d7-4a55-8f0e", "zb2f4c1e-93d7-4a55-8f0e-6c1d2a3b4c5d", ""] {
            assert!(!is_made_up(TORCHRUN_ID, other), "{other}");
        }
    }
}
