//! Assembles the slices of DeepSpeed's tensor-parallel ranks. A checkpoint does not reliably record how a tensor was
//! cut up. The sources are, in this order: the patterns for DeepSpeed's universal checkpoints, Megatron's names,
//! whether all ranks have equal tensors, and the names of Hugging Face's layers. Tensors that none of them covers stay
//! separate.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use regex::Regex;
use trainmon_tensor_files::Item;

use super::contents::Checkpoint;
use super::error::CheckpointError;
use super::layout::Dialect;
use super::megatron_name::core_name;
use super::megatron_split::axis_of;
use super::recipe::Recipe;
use super::slices::{Joint, join};
use trainmon_report::{first_of, quoted};

/// The number of names in a note.
const NAMES_SHOWN: usize = 3;
/// Hugging Face's names of layers with partitioned outputs, and of those with partitioned inputs.
const BY_ROWS: [&str; 5] = [".q_proj.", ".k_proj.", ".v_proj.", ".gate_proj.", ".up_proj."];
const BY_COLUMNS: [&str; 2] = [".o_proj.weight", ".down_proj.weight"];

/// The prefix of the names of a rank's own tensors.
pub(super) fn rank_prefix(rank: u64) -> String {
    format!("mp_rank_{rank:02}.")
}

/// How the ranks hold a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Each rank has the whole tensor.
    Whole,
    /// Each rank has a slice.
    Sliced(Joint),
}

const ROWS: Held = Held::Sliced(Joint { axis: 0, is_gated: false });
const COLUMNS: Held = Held::Sliced(Joint { axis: 1, is_gated: false });
const GATED: Held = Held::Sliced(Joint { axis: 0, is_gated: true });

/// Name patterns, anchored at the beginning of the name.
#[derive(Debug, Default)]
struct Patterns {
    exact: HashSet<String>,
    others: Vec<Regex>,
}

impl Patterns {
    /// The patterns of a list. An invalid pattern matches nothing.
    fn of(list: Option<Item<'_>>) -> Self {
        let mut patterns = Self::default();
        for text in list.iter().flat_map(|list| list.items()).filter_map(Item::as_text) {
            match literal(text) {
                Some(name) => {
                    patterns.exact.insert(name);
                }
                None => patterns.others.extend(Regex::new(&format!("^(?:{text})"))),
            }
        }
        patterns
    }

    fn has(&self, name: &str) -> bool {
        self.exact.contains(name) || self.others.iter().any(|pattern| pattern.is_match(name))
    }
}

/// The only name that a pattern matches, if there is only one.
fn literal(pattern: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = pattern.strip_prefix('^')?.strip_suffix('$')?.chars();
    while let Some(sign) = rest.next() {
        match sign {
            '\\' => name.push(rest.next().filter(|escaped| !escaped.is_ascii_alphanumeric())?),
            '_' | '-' => name.push(sign),
            _ if sign.is_ascii_alphanumeric() => name.push(sign),
            _ => return None,
        }
    }
    Some(name)
}

/// The checkpoint's own data about its slices.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    whole: Patterns,
    rows: Patterns,
    columns: Patterns,
    gated: Patterns,
    /// Tensors that are cut up in another way.
    special: Patterns,
    /// Whether the first linear layer of a Megatron block is gated.
    is_gated: bool,
}

impl Knowledge {
    /// The data in the first rank's file.
    pub(super) fn of(root: Option<Item<'_>>) -> Self {
        let Some(root) = root else { return Self::default() };
        let argument = |name| root.get("args").and_then(|args| args.attribute(name)).and_then(Item::as_bool);
        let is_gated = argument("swiglu").or_else(|| argument("gated_linear_unit")).unwrap_or(false);
        let Some(info) = root.get("universal_checkpoint_info") else { return Self { is_gated, ..Self::default() } };
        let list = |name| Patterns::of(info.get(name));
        let mut whole = list("tp_replicated_parameter_patterns");
        let Patterns { exact, others } = list("parameter_to_average_patterns");
        whole.exact.extend(exact);
        whole.others.extend(others);
        let mut special = Patterns::default();
        for parameters in info.get("parameter_with_sub_params").iter().flat_map(|list| list.items()) {
            let Patterns { exact, others } = Patterns::of(parameters.get("patterns"));
            special.exact.extend(exact);
            special.others.extend(others);
        }
        Self {
            whole,
            rows: list("vocabulary_parameter_patterns"),
            columns: list("parameter_with_row_parallelism_patterns"),
            gated: list("parameter_with_2_sub_params_cat_dim_0"),
            special,
            is_gated,
        }
    }

    /// Whether the patterns apply to these names: patterns for another implementation of the model match none of them.
    fn is_about<'n>(&self, mut names: impl Iterator<Item = &'n String>) -> bool {
        let lists = [&self.whole, &self.rows, &self.columns, &self.gated, &self.special];
        names.any(|name| lists.iter().any(|patterns| patterns.has(plain(name).as_ref())))
    }

    /// How a tensor is held, as far as its name determines it. `Err` if it is cut up in another way.
    fn of_name(&self, name: &str) -> Result<Option<Held>, ()> {
        let plain = plain(name);
        let found = [(&self.whole, Held::Whole), (&self.gated, GATED), (&self.columns, COLUMNS), (&self.rows, ROWS)];
        if let Some((_, held)) = found.into_iter().find(|(patterns, _)| patterns.has(&plain)) {
            return Ok(Some(held));
        }
        if self.special.has(&plain) {
            return Err(());
        }
        let core = core_name(name);
        let is_gated = self.is_gated && core.contains("linear_fc1");
        let of_megatron = axis_of(&core, Dialect::Ours).map(|axis| Held::Sliced(Joint { axis, is_gated }));
        let is_head = name.starts_with("layer_") && name.ends_with("lm_head.weight");
        Ok(of_megatron.or(is_head.then_some(ROWS)))
    }
}

/// The name as the patterns have it: a pipeline layer is a number.
fn plain(name: &str) -> Cow<'_, str> {
    match name.strip_prefix("layer_").map(|rest| rest.trim_start_matches('0')) {
        Some(rest) if rest.starts_with('.') => Cow::Owned(format!("0{rest}")),
        Some(rest) => Cow::Borrowed(rest),
        None => Cow::Borrowed(name),
    }
}

fn of_hugging_face(name: &str) -> Option<Held> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&BY_COLUMNS) { Some(COLUMNS) } else { has(&BY_ROWS).then_some(ROWS) }
}

/// Replaces the ranks' tensors, which are stored under their prefixes, by whole ones.
pub(super) fn put_together(
    checkpoint: &mut Checkpoint,
    ranks: &BTreeSet<u64>,
    knowledge: &Knowledge,
) -> Result<(), CheckpointError> {
    let mut names: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for &rank in ranks {
        let prefix = rank_prefix(rank);
        for name in checkpoint.tensors.keys().filter_map(|name| name.strip_prefix(&prefix)) {
            names.entry(name.to_owned()).or_default().push(rank);
        }
    }
    // DeepSpeed cuts tensors without a pattern along the first axis.
    let otherwise = knowledge.is_about(names.keys()).then_some(ROWS);
    let mut apart = Vec::new();
    for (name, holders) in names {
        let of_all = holders.len() == ranks.len();
        let held = if of_all { held(checkpoint, &name, &holders, knowledge, otherwise)? } else { None };
        let slices: Vec<Recipe> = holders.iter().map(|&rank| slice(checkpoint, rank, &name).clone()).collect();
        let whole = match held {
            Some(Held::Whole) => slices.into_iter().next(),
            Some(Held::Sliced(joint)) => join(&slices, joint).ok(),
            None => None,
        };
        let Some(whole) = whole else {
            apart.push(name);
            continue;
        };
        for rank in holders {
            checkpoint.tensors.remove(&format!("{}{name}", rank_prefix(rank)));
        }
        checkpoint.tensors.insert(name, whole);
    }
    if !apart.is_empty() {
        checkpoint.notes.push(format!(
            "unknown tensor-parallel layout of {}: each rank's slice is compared separately, under \
             `mp_rank_NN.`",
            first_of(apart.iter().map(quoted), NAMES_SHOWN)
        ));
    }
    Ok(())
}

fn slice<'a>(checkpoint: &'a Checkpoint, rank: u64, name: &str) -> &'a Recipe {
    &checkpoint.tensors[&format!("{}{name}", rank_prefix(rank))]
}

/// How the ranks hold a tensor, if that can be determined.
fn held(
    checkpoint: &mut Checkpoint,
    name: &str,
    ranks: &[u64],
    knowledge: &Knowledge,
    otherwise: Option<Held>,
) -> Result<Option<Held>, CheckpointError> {
    let by_name = match knowledge.of_name(name) {
        Err(()) => return Ok(None),
        Ok(Some(Held::Sliced(joint))) => return Ok(Some(Held::Sliced(joint))),
        Ok(found) => found,
    };
    let first = checkpoint.read(&format!("{}{name}", rank_prefix(ranks[0])))?;
    for &rank in &ranks[1..] {
        let other = checkpoint.read(&format!("{}{name}", rank_prefix(rank)))?;
        if other.shape() == first.shape() && other.bytes() == first.bytes() {
            continue;
        }
        if by_name.is_some() {
            let note =
                format!("`{name}` differs between tensor ranks {0} and {rank}: comparing that of rank {0}", ranks[0]);
            checkpoint.notes.push(note);
        }
        return Ok(by_name.or_else(|| of_hugging_face(name)).or(otherwise));
    }
    // A slice of zeros fits both a whole and a sliced tensor.
    let width = first.dtype().size().max(1);
    let is_one_number = first.bytes().chunks_exact(width).all(|element| element == &first.bytes()[..width]);
    let by_layer = of_hugging_face(name).filter(|_| is_one_number);
    Ok(Some(by_name.or(by_layer).unwrap_or(Held::Whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_one_name_is_that_name() {
        for (pattern, expected) in [
            (r"^model\.layers\.0\.o_proj\.weight$", Some("model.layers.0.o_proj.weight")),
            (r"^a\-b$", Some("a-b")),
            (r"^layers\.\d+\.weight$", None),
            (r"^a.b$", None),
            (r"a\.b", None),
        ] {
            assert_eq!(literal(pattern).as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn names_of_megatron_say_how_a_tensor_is_cut_up() {
        let knowledge = Knowledge { is_gated: true, ..Knowledge::default() };
        for (name, expected) in [
            ("language_model.encoder.layers.0.self_attention.query_key_value.bias", Some(ROWS)),
            ("language_model.encoder.layers.0.self_attention.dense.weight", Some(COLUMNS)),
            ("language_model.encoder.layers.0.self_attention.dense.bias", None),
            ("language_model.encoder.layers.0.mlp.dense_h_to_4h.weight", Some(GATED)),
            ("layer_03.mlp.dense_4h_to_h.weight", Some(COLUMNS)),
            ("layer_40.lm_head.weight", Some(ROWS)),
            ("lm_head.weight", None),
        ] {
            assert_eq!(knowledge.of_name(name), Ok(expected), "{name}");
        }
    }

    #[test]
    fn patterns_come_before_names_and_know_a_layer_by_its_number() {
        let patterns = |text: &str| Patterns { exact: HashSet::new(), others: vec![Regex::new(text).unwrap()] };
        let knowledge = Knowledge { whole: patterns(r"^(?:\d+.mlp.dense_4h_to_h.weight)"), ..Knowledge::default() };
        assert_eq!(knowledge.of_name("layer_00.mlp.dense_4h_to_h.weight"), Ok(Some(Held::Whole)));
        assert_eq!(knowledge.of_name("layer_10.mlp.dense_4h_to_h.weight"), Ok(Some(Held::Whole)));
        assert_eq!(knowledge.of_name("mlp.dense_4h_to_h.weight"), Ok(Some(COLUMNS)));
        let knowledge = Knowledge { special: patterns(r"^(?:qkv)"), ..Knowledge::default() };
        assert_eq!(knowledge.of_name("qkv.weight"), Err(()));
    }
}
