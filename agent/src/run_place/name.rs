//! The run's name: from the caller, from the environment, or from the program and the start time or address.

use jiff::Zoned;
use trainmon_core::LATEST_RUN;
use trainmon_run_files::is_rank_directory;
use trainmon_service::{Notices, environment};

use super::launcher;
use crate::options::Options;
use crate::rank::Ranks;

/// The maximum length of a run's name. File names of up to 255 bytes are built from it.
const MAX_NAME_BYTES: usize = 128;
/// The maximum length of each part of a generated name, before and after the dash.
const MAX_PART_BYTES: usize = 60;
/// The program in a generated name if the program's own name is unknown.
const NO_PROGRAM: &str = "run";

/// A run's name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RunNameError {
    /// The name is empty.
    #[error("the run's name is empty")]
    Empty,
    /// The name contains a slash or a control character, so it cannot be the name of one directory.
    #[error("the run's name {name:?} contains {found:?}")]
    Character { name: String, found: char },
    /// The name has another meaning for the file system or for trainmon.
    #[error("a run cannot have the name `{name}`: {means}")]
    Reserved { name: String, means: &'static str },
    /// The name is too long for a directory.
    #[error("the run's name has {bytes} bytes; the limit is {MAX_NAME_BYTES}")]
    TooLong { bytes: usize },
}

impl RunNameError {
    /// The suggested fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "omit the name to use the program's name and the time",
            Self::Character { .. } => "use letters, digits, dashes and dots: the run's directory has the same name",
            Self::Reserved { .. } => "use another name, such as `baseline`",
            Self::TooLong { .. } => "use a shorter name",
        }
    }
}

/// Checks the name of a run, which is also that of its directory.
///
/// # Errors
/// It is invalid for a directory, or has another meaning.
pub fn check_run_name(name: &str) -> Result<(), RunNameError> {
    let reserved = |means| RunNameError::Reserved { name: name.to_owned(), means };
    match name {
        "" => return Err(RunNameError::Empty),
        "." | ".." => return Err(reserved("it refers to an existing directory")),
        LATEST_RUN => return Err(reserved("it is the link to the newest run")),
        _ if name.starts_with('.') => return Err(reserved("directories that start with a dot are hidden")),
        _ if is_rank_directory(name) => return Err(reserved("it is the name of a rank's directory")),
        _ => {}
    }
    if let Some(found) = name.chars().find(|&c| is_refused(c)) {
        return Err(RunNameError::Character { name: name.to_owned(), found });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(RunNameError::TooLong { bytes: name.len() });
    }
    Ok(())
}

fn is_refused(c: char) -> bool {
    c == '/' || c.is_control()
}

/// The name with invalid parts replaced.
fn sanitised(name: &str) -> String {
    let mut fit: String = name.chars().map(|c| if is_refused(c) { '_' } else { c }).collect();
    if fit.starts_with('.') {
        fit.insert(0, '_');
    }
    fit.truncate(fit.floor_char_boundary(MAX_NAME_BYTES));
    if check_run_name(&fit).is_err() {
        fit.push('_');
    }
    fit
}

/// The run's name, equal on all ranks of the job, and whether it was given.
///
/// # Errors
/// The caller's name is invalid. An invalid name from the environment is replaced by a similar one, with a warning.
pub(super) fn of_run(options: &Options, ranks: Ranks, now: &Zoned) -> Result<(String, bool), RunNameError> {
    if let Some(name) = &options.run {
        return check_run_name(name).map(|()| (name.clone(), true));
    }
    let is_one_node = is_one_node(ranks.world_size);
    let given = environment::run_name().filter(|given| !(given.is_made_up() && is_one_node));
    if let Some(given) = given {
        return Ok((fitting(given.variable, given.name, &options.notices), true));
    }
    // Several nodes share no start time, but the address of their rendezvous.
    let meeting = ["MASTER_ADDR", "MASTER_PORT"].map(environment::variable);
    let apart = match meeting {
        [Some(address), Some(port)] if !is_one_node => format!("{address}-{port}"),
        _ => started(ranks, now).strftime("%m%d-%H%M%S").to_string(),
    };
    Ok((readable(options.program.as_deref(), &apart), false))
}

/// The number of ranks that the launcher starts on this node: the variables of torchrun, OpenMPI and DeepSpeed.
const RANKS_HERE: [&str; 3] = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_SIZE"];

fn told_ranks_here() -> Option<u32> {
    RANKS_HERE.into_iter().find_map(environment::variable).and_then(|size| size.trim().parse().ok())
}

/// The largest number of ranks on a node in Slurm's variable, such as `8(x2),4`.
fn slurm_ranks_of_a_node() -> Option<u32> {
    let told = environment::variable("SLURM_TASKS_PER_NODE")?;
    told.split(',').filter_map(|part| part.split('(').next()?.trim().parse().ok()).max()
}

/// The number of ranks on this node, from the launcher; all ranks if it is unknown.
pub(crate) fn ranks_here(world_size: u32) -> u32 {
    told_ranks_here().or_else(slurm_ranks_of_a_node).unwrap_or(world_size).clamp(1, world_size.max(1))
}

/// Whether all ranks are known to be on this node: from their number, or because the rendezvous is on a local address.
fn is_one_node(world_size: u32) -> bool {
    let is_own = |address: String| matches!(address.as_str(), "localhost" | "::1") || address.starts_with("127.");
    match told_ranks_here() {
        Some(here) => here == world_size,
        None => world_size == 1 || environment::variable("MASTER_ADDR").is_some_and(is_own),
    }
}

/// Identifies this job among others that write to the same directory: by the rendezvous address, the launcher's job id and
/// restart count and, on one node, the start time. A job of one rank is identified by its process.
pub(super) fn of_job(world_size: u32) -> String {
    if world_size == 1 {
        let machine = environment::variable("HOSTNAME").unwrap_or_default();
        return format!("{machine} {}", std::process::id());
    }
    let told = OF_JOB.into_iter().filter_map(environment::variable);
    let launched = is_one_node(world_size).then(launcher::started).flatten().map(|time| time.to_string());
    told.chain(launched).collect::<Vec<_>>().join(" ")
}

/// The variables that are equal on all ranks of a job, and different in another job or after a restart.
const OF_JOB: [&str; 8] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "PMIX_NAMESPACE",
];

fn fitting(variable: &str, name: String, notices: &Notices) -> String {
    let Err(error) = check_run_name(&name) else { return name };
    let fit = sanitised(&name);
    notices.warn(
        format!("environment variable `{variable}`: {error}; trainmon uses `{fit}`"),
        Some(error.hint().to_owned()),
    );
    fit
}

/// The start time of the run, equal on all ranks of a node.
fn started(ranks: Ranks, now: &Zoned) -> Zoned {
    let launched = (ranks.world_size > 1).then(launcher::started).flatten();
    launched.map_or_else(|| now.clone(), |time| time.to_zoned(now.time_zone().clone()))
}

/// Generates a name such as `train-1123-043812`.
fn readable(program: Option<&str>, apart: &str) -> String {
    let own = || {
        let argument = std::env::args_os().next()?;
        Some(std::path::Path::new(&argument).file_stem()?.to_string_lossy().into_owned())
    };
    let program = program.map(str::to_owned).or_else(own).unwrap_or_default();
    let program = as_word(&program);
    let program = if program.is_empty() { NO_PROGRAM } else { &program };
    format!("{program}-{}", as_word(apart))
}

/// The text as a short part of a name: letters, digits, dashes, underscores and dots.
fn as_word(text: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let mut word: String = text.chars().map(letter).skip_while(|c| matches!(c, '-' | '.')).collect();
    word.truncate(word.floor_char_boundary(MAX_PART_BYTES));
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_directory_are_refused_with_a_hint() {
        let long = "x".repeat(129);
        for (name, expected) in [
            ("", "the run's name is empty"),
            ("a/b", "the run's name \"a/b\" contains '/'"),
            ("a\nb", "the run's name \"a\\nb\" contains '\\n'"),
            (".", "a run cannot have the name `.`: it refers to an existing directory"),
            ("..", "a run cannot have the name `..`: it refers to an existing directory"),
            ("latest", "a run cannot have the name `latest`: it is the link to the newest run"),
            (".hidden", "a run cannot have the name `.hidden`: directories that start with a dot are hidden"),
            ("rank_0", "a run cannot have the name `rank_0`: it is the name of a rank's directory"),
            (long.as_str(), "the run's name has 129 bytes; the limit is 128"),
        ] {
            let error = check_run_name(name).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(!error.hint().is_empty());
        }
        for name in ["baseline", "lr=3e-4, größer", "Nov 20", &long[..128], "-", "lora-rank8-lr3", "rank_a", "late"] {
            assert_eq!(check_run_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_environments_names_are_made_to_fit() {
        for (name, expected) in [
            ("org/job\t7", "org_job_7".to_owned()),
            ("..", "_..".to_owned()),
            ("rank_3", "rank_3_".to_owned()),
            ("latest", "latest_".to_owned()),
            ("ü".repeat(100).as_str(), "ü".repeat(64)),
            ("fine", "fine".to_owned()),
        ] {
            assert_eq!(sanitised(name), expected);
            assert_eq!(check_run_name(&sanitised(name)), Ok(()));
        }
    }

    #[test]
    fn a_run_that_nobody_named_is_called_by_its_program_and_the_time() {
        let time = "1123-043812";
        assert_eq!(readable(Some("train"), time), "train-1123-043812");
        assert_eq!(readable(Some("my train/er"), time), "my_train_er-1123-043812");
        assert_eq!(readable(Some("-c"), time), "c-1123-043812");
        assert_eq!(readable(Some(""), time), "run-1123-043812");
        assert_eq!(readable(Some("train"), "[fe80::1]-29500"), "train-_fe80__1_-29500");
        let longest = readable(Some(&"ü".repeat(99)), &"x".repeat(99));
        assert_eq!(check_run_name(&longest), Ok(()), "{longest}");
        // This test's own program.
        assert!(readable(None, time).starts_with("trainmon_agent"), "{}", readable(None, time));
    }
}
