//! The rank of this process: from the caller, or from the launcher's environment.

use trainmon_core::Rank;

/// This process's place in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The rank in the job.
    pub rank: Rank,
    /// The rank on this machine.
    pub local_rank: Rank,
    /// The number of processes in the job.
    pub world_size: u32,
}

impl Ranks {
    /// A job of one process.
    pub const SINGLE: Self = Self { rank: Rank(0), local_rank: Rank(0), world_size: 1 };
}

/// A launcher's variable has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RankError {
    /// The value is not a number.
    #[error("environment variable `{variable}`: expected a rank or size, found `{found}`")]
    NotANumber { variable: &'static str, found: String },
    /// The rank is not below the number of processes.
    #[error("environment variable `{variable}`: rank {rank} is outside the job of {world_size} processes")]
    OutsideWorld { variable: &'static str, rank: u32, world_size: u32 },
}

/// One launcher's names for rank, local rank and size.
struct Launcher {
    rank: &'static str,
    local_rank: &'static str,
    world_size: &'static str,
}

/// The launchers in order of precedence: torchrun's variables are also set manually, and are more specific in Slurm or MPI jobs.
const LAUNCHERS: [Launcher; 3] = [
    Launcher { rank: "RANK", local_rank: "LOCAL_RANK", world_size: "WORLD_SIZE" },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
    },
    Launcher { rank: "SLURM_PROCID", local_rank: "SLURM_LOCALID", world_size: "SLURM_NTASKS" },
];

impl Ranks {
    /// Reads the variables of torchrun, OpenMPI or Slurm, in this order. Returns a job of one process if none gives a rank.
    ///
    /// # Errors
    /// The launcher's values are not numbers, or its rank lies outside its size.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, RankError> {
        let number = |name: &'static str| -> Result<Option<u32>, RankError> {
            variable(name)
                .map(|found| {
                    found.trim().parse().map_err(|_not_a_number| RankError::NotANumber { variable: name, found })
                })
                .transpose()
        };
        for launcher in &LAUNCHERS {
            let Some(rank) = number(launcher.rank)? else { continue };
            let world_size = number(launcher.world_size)?.unwrap_or(rank.saturating_add(1));
            if rank >= world_size {
                return Err(RankError::OutsideWorld { variable: launcher.rank, rank, world_size });
            }
            let local_rank = number(launcher.local_rank)?.unwrap_or(rank);
            return Ok(Self { rank: Rank(rank), local_rank: Rank(local_rank), world_size });
        }
        Ok(Self::SINGLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Ranks, RankError> {
        Ranks::from_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_launcher_is_understood() {
        let expected = Ranks { rank: Rank(5), local_rank: Rank(1), world_size: 8 };
        assert_eq!(from(&[("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")]), Ok(expected));
        let mpi = [("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "8")];
        assert_eq!(from(&mpi), Ok(expected));
        assert_eq!(from(&[("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "8")]), Ok(expected));
        assert_eq!(from(&[]), Ok(Ranks::SINGLE));
    }

    #[test]
    fn torchrun_inside_slurm_wins() {
        let ranks = from(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("RANK", "3"), ("WORLD_SIZE", "4")]);
        assert_eq!(ranks.map(|ranks| ranks.rank), Ok(Rank(3)));
    }

    #[test]
    fn nonsense_is_named() {
        let error = from(&[("RANK", "five")]).unwrap_err();
        assert_eq!(error.to_string(), "environment variable `RANK`: expected a rank or size, found `five`");
        assert!(matches!(from(&[("RANK", "4"), ("WORLD_SIZE", "4")]), Err(RankError::OutsideWorld { rank: 4, .. })));
    }
}
