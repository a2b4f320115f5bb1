//! What a run is called: by its caller, by the environment, or by its program and when or where it was started.

use jiff::Zoned;
use trainmon_core::LATEST_RUN;
use trainmon_run_files::is_rank_directory;
use trainmon_service::{Notices, environment};

use super::launcher;
use crate::options::Options;
use crate::rank::Ranks;

/// A file name may have 255 bytes; what is made of a run's name has some more than the name.
const MAX_NAME_BYTES: usize = 128;
/// What a made-up name has before and behind its dash.
const MAX_PART_BYTES: usize = 60;
/// What a run is called that nobody named, of a program without a name.
const NO_PROGRAM: &str = "run";

/// A run cannot be called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RunNameError {
    /// There is nothing.
    #[error("the run's name is empty")]
    Empty,
    /// It would be no directory, or several.
    #[error("the run's name {name:?} holds {found:?}")]
    Character { name: String, found: char },
    /// It means something else to a file system, or to trainmon.
    #[error("a run cannot be called `{name}`: that {means}")]
    Reserved { name: String, means: &'static str },
    /// It is too long for a directory's name.
    #[error("the run's name has {bytes} bytes, at most {MAX_NAME_BYTES} are possible")]
    TooLong { bytes: usize },
}

impl RunNameError {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "leave the name out: the run is then called by its program and the time",
            Self::Character { .. } => "a run's directory is called so: use letters, digits, dashes and dots",
            Self::Reserved { .. } => "take another name, such as `baseline`",
            Self::TooLong { .. } => "take a shorter one",
        }
    }
}

/// Whether a run may be called so: its directory is.
///
/// # Errors
/// It cannot be the name of a directory, or means something else.
pub fn check_run_name(name: &str) -> Result<(), RunNameError> {
    let reserved = |means| RunNameError::Reserved { name: name.to_owned(), means };
    match name {
        "" => return Err(RunNameError::Empty),
        "." | ".." => return Err(reserved("is a directory everywhere")),
        LATEST_RUN => return Err(reserved("is the link to the newest run")),
        _ if name.starts_with('.') => return Err(reserved("is hidden")),
        _ if is_rank_directory(name) => return Err(reserved("is what a rank's directory is called")),
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

/// The nearest name that a run may have.
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

/// The run's name, the same on every rank of the job; and whether anybody gave it.
///
/// # Errors
/// The caller's own cannot be taken. One of the environment's is made to fit, which is said.
pub(super) fn of_run(options: &Options, ranks: Ranks, now: &Zoned) -> Result<(String, bool), RunNameError> {
    if let Some(name) = &options.run {
        return check_run_name(name).map(|()| (name.clone(), true));
    }
    let is_one_node = is_one_node(ranks.world_size);
    let given = environment::run_name().filter(|given| !(given.is_made_up() && is_one_node));
    if let Some(given) = given {
        return Ok((fitting(given.variable, given.name, &options.notices), true));
    }
    // Several nodes have no time in common, but the address at which they meet.
    let meeting = ["MASTER_ADDR", "MASTER_PORT"].map(environment::variable);
    let apart = match meeting {
        [Some(address), Some(port)] if !is_one_node => format!("{address}-{port}"),
        _ => started(ranks, now).strftime("%m%d-%H%M%S").to_string(),
    };
    Ok((readable(options.program.as_deref(), &apart), false))
}

/// How many ranks a launcher starts on this node: torchrun's variable, OpenMPI's, DeepSpeed's.
const RANKS_HERE: [&str; 3] = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_SIZE"];

fn told_ranks_here() -> Option<u32> {
    RANKS_HERE.into_iter().find_map(environment::variable).and_then(|size| size.trim().parse().ok())
}

/// Of Slurm's, as `8(x2),4`: the most of any node.
fn slurm_ranks_of_a_node() -> Option<u32> {
    let told = environment::variable("SLURM_TASKS_PER_NODE")?;
    told.split(',').filter_map(|part| part.split('(').next()?.trim().parse().ok()).max()
}

/// How many ranks share this node: as the launcher tells, or all of them.
pub(crate) fn ranks_here(world_size: u32) -> u32 {
    told_ranks_here().or_else(slurm_ranks_of_a_node).unwrap_or(world_size).clamp(1, world_size.max(1))
}

/// Whether all ranks are known to be on this node: by their number, or because they meet at this machine's own address.
fn is_one_node(world_size: u32) -> bool {
    let is_own = |address: String| matches!(address.as_str(), "localhost" | "::1") || address.starts_with("127.");
    match told_ranks_here() {
        Some(here) => here == world_size,
        None => world_size == 1 || environment::variable("MASTER_ADDR").is_some_and(is_own),
    }
}

/// What tells the ranks of this job from those of another, in a directory both may write to: where they meet, the ids and
/// restarts that launchers count, and on one node when they were launched. A job of one rank is its process.
pub(super) fn of_job(world_size: u32) -> String {
    if world_size == 1 {
        let machine = environment::variable("HOSTNAME").unwrap_or_default();
        return format!("{machine} {}", std::process::id());
    }
    let told = OF_JOB.into_iter().filter_map(environment::variable);
    let launched = is_one_node(world_size).then(launcher::started).flatten().map(|time| time.to_string());
    told.chain(launched).collect::<Vec<_>>().join(" ")
}

/// The variables that all ranks of a job have alike, and another job, or a restart, has otherwise.
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
        format!("environment variable `{variable}`: {error}: the run is called `{fit}`"),
        Some(error.hint().to_owned()),
    );
    fit
}

/// When the run began, the same on all ranks of a node.
fn started(ranks: Ranks, now: &Zoned) -> Zoned {
    let launched = (ranks.world_size > 1).then(launcher::started).flatten();
    launched.map_or_else(|| now.clone(), |time| time.to_zoned(now.time_zone().clone()))
}

/// `train-1123-043812`.
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

/// Letters, digits, dashes and dots, and not many of them.
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
            ("a/b", "the run's name \"a/b\" holds '/'"),
            ("a\nb", "the run's name \"a\\nb\" holds '\\n'"),
            (".", "a run cannot be called `.`: that is a directory everywhere"),
            ("..", "a run cannot be called `..`: that is a directory everywhere"),
            ("latest", "a run cannot be called `latest`: that is the link to the newest run"),
            (".hidden", "a run cannot be called `.hidden`: that is hidden"),
            ("rank_0", "a run cannot be called `rank_0`: that is what a rank's directory is called"),
            (long.as_str(), "the run's name has 129 bytes, at most 128 are possible"),
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
