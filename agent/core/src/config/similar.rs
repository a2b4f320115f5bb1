//! Suggestions of similar names.

/// The minimum share of equal letters for a suggestion.
const LEAST_SIMILARITY: f64 = 0.66;
/// The minimum length of a prefix; a shorter one matches too many names.
const LEAST_PREFIX_LETTERS: usize = 5;

/// The candidate that `name` was probably meant to be.
///
/// Case, `-` and blanks are ignored; a typing error or a missing ending is recognised.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = simplify(name);
    candidates
        .into_iter()
        .map(|candidate| (similarity(&name, &simplify(candidate)), candidate))
        .filter(|(score, _)| *score >= LEAST_SIMILARITY)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate)
}

fn simplify(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

pub(super) fn similarity(name: &str, candidate: &str) -> f64 {
    let [letters, wanted] = [name, candidate].map(|one| one.chars().count());
    // Each extra letter is a difference: a name of megabytes is not compared letter by letter.
    if letters as f64 * LEAST_SIMILARITY > wanted as f64 {
        return 0.0;
    }
    let score = strsim::normalized_damerau_levenshtein(name, candidate);
    let is_beginning = name.len() >= LEAST_PREFIX_LETTERS && candidate.starts_with(name);
    if is_beginning { score.max(LEAST_SIMILARITY) } else { score }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 9] = [
        "wg_distribution",
        "mv_distribution",
        "ops",
        "eps",
        "start_step",
        "output_dir",
        "targets",
        "format",
        "xy_distribution",
    ];

    #[test]
    fn slips_case_and_cut_off_endings_are_recognised() {
        for (name, meant) in [
            ("wg_distribtion", "wg_distribution"),
            ("Targets", "targets"),
            ("start-step", "start_step"),
            ("output", "output_dir"),
            ("opps", "ops"),
            ("fromat", "format"),
        ] {
            assert_eq!(did_you_mean(name, KEYS), Some(meant), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_to_be_meant_is_not_compared() {
        let long = "wg_distribution".repeat(1 << 20);
        assert_eq!(did_you_mean(&long, KEYS), None);
        assert!(similarity("wg_distribution_of_l", "wg_distribution") > 0.0);
        assert!(similarity("wg_distribution_of_layer", "wg_distribution") == 0.0);
    }

    #[test]
    fn foreign_keys_resemble_nothing() {
        for name in ["batch_size", "lr", "comment", "o", "seed", "job_name", "start_iteration"] {
            assert_eq!(did_you_mean(name, KEYS), None, "{name}");
        }
    }
}
