//! Finds the role of each column by the names that trainers use.

use trainmon_report::{first_of, quoted};

/// Columns named by the user; others are guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// The step column; [`Self::ROW`] counts rows.
    pub step: Option<String>,
    /// The loss.
    pub loss: Option<String>,
    /// The global gradient norm.
    pub grad_norm: Option<String>,
    /// The learning rate.
    pub learning_rate: Option<String>,
}

impl ColumnNames {
    /// The name that counts rows, unless a column has this name.
    pub const ROW: &'static str = "row";

    /// Whether any column is named.
    pub fn has_any(&self) -> bool {
        *self != Self::default()
    }
}

/// The role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Step,
    Loss,
    GradNorm,
    LearningRate,
    /// The time at which a row was written.
    Time,
}

/// The best column for a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) column: u32,
    /// A sentence about why the choice is uncertain.
    pub(crate) doubt: Option<String>,
}

/// Names as [`plain`] returns them, the best first.
const STEPS: [&str; 12] = [
    // A `step` column beside it restarts with each epoch.
    "global_step",
    "step",
    "iteration",
    "iter",
    "train/global_step",
    "trainer/global_step",
    "train/step",
    "train/iteration",
    "_step",
    "num_updates",
    "steps",
    "iterations",
];
const LOSSES: [&str; 24] = [
    "loss",
    "train/loss",
    "train_loss",
    "training_loss",
    "training/loss",
    "loss/train",
    "lm_loss",
    "train/lm_loss",
    "train/train_loss",
    "train_loss_step",
    "train/loss_step",
    "loss_step",
    "reduced_train_loss",
    "total_loss",
    "train/total_loss",
    "loss/total",
    "loss_metrics/global_avg_loss",
    "global_avg_loss",
    "train/ce_loss",
    "ce_loss",
    "train/cross_entropy_loss",
    "cross_entropy_loss",
    "nll_loss",
    "run/loss",
];
const GRAD_NORMS: [&str; 16] = [
    "grad_norm",
    "train/grad_norm",
    "gradient_norm",
    "global_grad_norm",
    "train/global_grad_norm",
    "total_grad_norm",
    "train/gradient_norm",
    "grad_norm/total",
    "optim/total_grad_norm",
    "optim/grad_norm",
    "train/optim/total_grad_norm",
    "gnorm",
    "train/gnorm",
    "grad_2.0_norm_total",
    "run/grad_norm",
    "gradnorm",
];
const LEARNING_RATES: [&str; 12] = [
    "learning_rate",
    "lr",
    "train/learning_rate",
    "train/lr",
    "lr/group_0",
    "optim/learning_rate_group0",
    "optim/lr",
    "learningrate",
    "lr_abs",
    "lr_adamw",
    "lr_adam",
    "run/learning_rate",
];
const TIMES: [&str; 8] =
    ["_timestamp", "timestamp", "unix_seconds", "wall_time", "time", "unix_time", "datetime", "created_at"];

/// Parts of names of numbers measured on other data than training batches.
const HELD_OUT: [&str; 8] = ["eval", "val", "valid", "validation", "test", "dev", "heldout", "holdout"];
/// Parts of names that contain `loss` and are not a loss.
const NO_LOSS: [&str; 4] = ["scale", "scaler", "scaling", "weight"];
/// A column with less than a tenth of another's numbers is a summary, not a series.
const SPARSE: u64 = 10;
/// The number of names listed in a sentence.
const SHOWN: usize = 4;

/// Whether a column's name is that of a time.
pub(crate) fn is_time(name: &str) -> bool {
    TIMES.contains(&plain(name).as_str())
}

/// The name in lower case, with underscores for spaces, hyphens and colons.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-', ':'], "_")
}

/// The words of a name.
fn words(name: &str) -> Vec<String> {
    plain(name).split(|character: char| !character.is_alphanumeric()).map(str::to_owned).collect()
}

/// Guesses the column for a role; `None` if no name matches. `counts`: the number of values in each column; `taken`:
/// columns that already have a role.
pub(crate) fn guess(role: Role, names: &[String], counts: &[u64], taken: &[u32]) -> Option<Guess> {
    let known: &[&str] = match role {
        Role::Step => &STEPS,
        Role::Loss => &LOSSES,
        Role::GradNorm => &GRAD_NORMS,
        Role::LearningRate => &LEARNING_RATES,
        Role::Time => &TIMES,
    };
    let is_free = |column: &u32| counts[*column as usize] > 0 && !taken.contains(column);
    let columns: Vec<u32> = (0..names.len() as u32).filter(is_free).collect();
    let plain_names: Vec<String> = names.iter().map(|name| plain(name)).collect();
    let of_name = |name: &&str| columns.iter().copied().find(|column| plain_names[*column as usize] == **name);
    let matches: Vec<u32> = known.iter().filter_map(of_name).collect();
    let most = matches.iter().map(|column| counts[*column as usize]).max().unwrap_or(0);
    // A row without a step is lost, so nearly all rows must have one.
    let needed = if role == Role::Step { most * (SPARSE - 1) } else { most };
    let full: Vec<u32> = matches.into_iter().filter(|column| counts[*column as usize] * SPARSE >= needed).collect();
    if let [best, others @ ..] = &full[..] {
        return Some(Guess { column: *best, doubt: also(role, *best, others, names) });
    }
    match role {
        Role::Loss => by_word(names, &columns, counts),
        Role::GradNorm => alone(names, &columns),
        Role::Step | Role::LearningRate | Role::Time => None,
    }
}

/// The remark if several columns match the role.
fn also(role: Role, best: u32, others: &[u32], names: &[String]) -> Option<String> {
    let (what, option) = match role {
        Role::Step => ("step", "--step"),
        Role::Loss => ("loss", "--loss"),
        Role::GradNorm => ("gradient norm", "--grad-norm"),
        Role::LearningRate => ("learning rate", "--lr"),
        Role::Time => return None,
    };
    let listed = first_of(others.iter().map(|column| quoted(&names[*column as usize])), SHOWN);
    let best = &names[best as usize];
    (!others.is_empty())
        .then(|| format!("several columns look like the {what}: using `{best}`, not {listed} (override with {option})"))
}

/// A loss by the word `loss` in its name: of training batches first, then of other data.
fn by_word(names: &[String], columns: &[u32], counts: &[u64]) -> Option<Guess> {
    let is_loss = |column: &u32| {
        let words = words(&names[*column as usize]);
        words.iter().any(|word| word == "loss") && !words.iter().any(|word| NO_LOSS.contains(&word.as_str()))
    };
    let is_held_out =
        |column: &u32| words(&names[*column as usize]).iter().any(|word| HELD_OUT.contains(&word.as_str()));
    let (held_out, own): (Vec<u32>, Vec<u32>) = columns.iter().copied().filter(is_loss).partition(is_held_out);
    if let Some(best) = own.iter().copied().max_by_key(|column| (counts[*column as usize], std::cmp::Reverse(*column)))
    {
        let others: Vec<u32> = own.into_iter().filter(|column| *column != best).collect();
        return Some(Guess { column: best, doubt: also(Role::Loss, best, &others, names) });
    }
    let best = held_out.into_iter().max_by_key(|column| (counts[*column as usize], std::cmp::Reverse(*column)))?;
    let name = &names[best as usize];
    let doubt =
        format!("no training loss found: using `{name}`, which is measured on other data (override with --loss)");
    Some(Guess { column: best, doubt: Some(doubt) })
}

/// A gradient norm by its words, if only one column matches: norms of layers are not the global norm.
fn alone(names: &[String], columns: &[u32]) -> Option<Guess> {
    let is_norm = |column: &u32| {
        let words = words(&names[*column as usize]);
        let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(&word.as_str()));
        has(&["grad", "gradient", "grads"]) && has(&["norm"])
    };
    let found: Vec<u32> = columns.iter().copied().filter(is_norm).collect();
    if let [only] = found[..] { Some(Guess { column: only, doubt: None }) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed<'a>(role: Role, names: &[&'a str], counts: &[u64]) -> Option<(&'a str, bool)> {
        let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let guess = guess(role, &owned, counts, &[])?;
        Some((names[guess.column as usize], guess.doubt.is_some()))
    }

    #[test]
    fn a_loss_of_the_training_goes_before_one_of_other_data() {
        for (names, expected) in [
            (&["step", "eval_loss", "loss"][..], Some(("loss", false))),
            (&["eval/loss", "train/loss"], Some(("train/loss", false))),
            (&["lm loss", "loss scale"], Some(("lm loss", false))),
            (&["loss scale", "grad norm"], None),
            (&["val_loss"], Some(("val_loss", true))),
            (&["Loss"], Some(("Loss", false))),
            (&["train/aux_loss", "val/aux_loss"], Some(("train/aux_loss", false))),
            (&["a_loss", "b_loss"], Some(("a_loss", true))),
            (&["loss", "train_loss"], Some(("loss", true))),
        ] {
            assert_eq!(guessed(Role::Loss, names, &vec![100; names.len()]), expected, "{names:?}");
        }
    }

    #[test]
    fn a_summary_is_no_series() {
        assert_eq!(guessed(Role::Loss, &["train_loss", "train/lm_loss"], &[1, 500]), Some(("train/lm_loss", false)));
    }

    #[test]
    fn norms_of_layers_are_no_global_norm() {
        assert_eq!(guessed(Role::GradNorm, &["grad norm"], &[9]), Some(("grad norm", false)));
        assert_eq!(guessed(Role::GradNorm, &["opt/grad/norm"], &[9]), Some(("opt/grad/norm", false)));
        assert_eq!(guessed(Role::GradNorm, &["grad_norm/layer.0", "grad_norm/layer.1"], &[9, 9]), None);
    }

    #[test]
    fn a_column_without_a_number_is_not_taken() {
        assert_eq!(guessed(Role::LearningRate, &["lr", "learning_rate"], &[7, 0]), Some(("lr", false)));
        assert_eq!(guessed(Role::Step, &["epoch"], &[7]), None);
    }
}
