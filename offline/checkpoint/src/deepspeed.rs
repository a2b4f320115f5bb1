//! DeepSpeed's layout: one directory per tag. The weights are complete in `mp_rank_00_model_states.pt`, or with ZeRO-3
//! partitioned in fp32 among the ranks' `zero_pp_rank_N_mp_rank_00_optim_states.pt`. A pipeline has one file per layer,
//! a mixture of experts one per expert. Each tensor-parallel rank has its own files, with its number after `mp_rank_`
//! or `model_`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trainmon_tensor_files::Item;

use super::contents::Checkpoint;
use super::deepspeed_zero3::Partitioned;
use super::directory::{names_in, pointed, pointer};
use super::error::CheckpointError;
use super::layout::Layout;
use super::tensor_parallel::{Knowledge, put_together, rank_prefix};

const LATEST: &str = "latest";
const MODEL: &str = "_model_states.pt";
const OPTIMIZER: &str = "_optim_states.pt";

/// The directory of the tag: `path` itself, the one that the file `latest` names, or the last one in `path`.
pub(super) fn tag_of(path: &Path, names: &[String]) -> Result<Option<PathBuf>, CheckpointError> {
    if names.iter().any(|name| Part::parse(name).is_some()) {
        return Ok(Some(path.to_path_buf()));
    }
    if let Some(tag) = pointer(&path.join(LATEST))? {
        return pointed(path, LATEST, &tag).map(Some);
    }
    let step = |name: &String| name.strip_prefix("global_step")?.parse::<u64>().ok();
    let last = names.iter().filter_map(|name| Some((step(name)?, name))).max();
    Ok(last.map(|(_, name)| path.join(name)))
}

/// The content of a tag's file by its name, with the tensor-parallel rank.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A pipeline layer with its number.
    Layer(&'a str, u64),
    /// The weights of one expert.
    Expert(u64),
    /// The model; with ZeRO-3, that of a data-parallel rank.
    Model(Option<u64>, u64),
    /// A data-parallel rank's part of the optimizer.
    Optimizer(u64, u64),
}

impl<'a> Part<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        if let Some(stem) = name.strip_suffix("-model_states.pt") {
            let layer = stem.strip_prefix("layer_")?;
            return match layer.split_once("-model_") {
                Some((layer, rank)) => Some(Self::Layer(layer, rank.parse().ok()?)),
                None => Some(Self::Layer(layer, 0)),
            };
        }
        let (stem, is_model) = match name.strip_suffix(MODEL) {
            Some(stem) => (stem, true),
            None => (name.strip_suffix(OPTIMIZER)?, false),
        };
        let stem = stem.strip_prefix("bf16_").or(stem.strip_prefix("fp16_")).unwrap_or(stem);
        if let Some(rank) = stem.strip_prefix("mp_rank_") {
            return is_model.then_some(Self::Model(None, rank.parse().ok()?));
        }
        let (front, rank) = stem.split_once("_mp_rank_")?;
        let rank = rank.parse().ok()?;
        match front.strip_prefix("zero_pp_rank_") {
            Some(data) if is_model => Some(Self::Model(Some(data.parse().ok()?), rank)),
            Some(data) => Some(Self::Optimizer(data.parse().ok()?, rank)),
            None => (is_model && front.contains("expert_")).then_some(Self::Expert(rank)),
        }
    }
}

/// The files of a tag.
#[derive(Default)]
struct Files {
    /// Number, tensor-parallel rank, file.
    layers: Vec<(String, u64, PathBuf)>,
    experts: Vec<(u64, PathBuf)>,
    /// By tensor-parallel rank: data-parallel rank and file.
    models: BTreeMap<u64, Vec<(Option<u64>, PathBuf)>>,
    /// By tensor-parallel rank, then by data-parallel rank.
    partitions: BTreeMap<u64, BTreeMap<u64, PathBuf>>,
}

impl Files {
    fn of(directory: &Path, names: &[String]) -> Self {
        let mut files = Self::default();
        for name in names {
            let path = directory.join(name);
            match Part::parse(name) {
                Some(Part::Layer(layer, rank)) => files.layers.push((layer.to_owned(), rank, path)),
                Some(Part::Expert(rank)) => files.experts.push((rank, path)),
                Some(Part::Model(data, rank)) => files.models.entry(rank).or_default().push((data, path)),
                Some(Part::Optimizer(data, rank)) => {
                    files.partitions.entry(rank).or_default().insert(data, path);
                }
                None => {}
            }
        }
        files
    }

    /// The tensor-parallel ranks. A pipeline's model files hold no weights, and their numbers also count the stages.
    fn ranks(&self) -> BTreeSet<u64> {
        if self.layers.is_empty() {
            return self.models.keys().copied().collect();
        }
        self.layers.iter().map(|(_, rank, _)| *rank).collect()
    }
}

pub(super) fn open(path: &Path, directory: &Path) -> Result<Checkpoint, CheckpointError> {
    let mut checkpoint = Checkpoint::new(path, Layout::Deepspeed);
    let names = names_in(directory)?;
    let files = Files::of(directory, &names);
    let ranks = files.ranks();
    if ranks.is_empty() {
        let found = super::directory::shown(&names);
        return Err(CheckpointError::NotACheckpoint { path: directory.to_path_buf(), found });
    }
    let is_split = ranks.len() > 1;
    let prefix = |rank: u64| if is_split { rank_prefix(rank) } else { String::new() };
    for (layer, rank, path) in &files.layers {
        let file = checkpoint.open(path)?;
        let prefix = format!("{}layer_{layer}.", prefix(*rank));
        checkpoint.take_all(file, &|tensor| Some(format!("{prefix}{tensor}")));
    }
    for (rank, path) in &files.experts {
        let (file, prefix) = (checkpoint.open(path)?, prefix(*rank));
        checkpoint.take_all(file, &|tensor| Some(format!("{prefix}{tensor}")));
    }
    let first = files.models.values().next().and_then(|files| files.first());
    let first = first.map(|(_, path)| checkpoint.open(path)).transpose()?;
    if files.layers.is_empty() {
        take_models(&mut checkpoint, directory, &files, &prefix)?;
    }
    check_complete(&checkpoint, directory, &files, first)?;
    if is_split {
        let knowledge = Knowledge::of(first.and_then(|file| checkpoint.files[file].root()));
        put_together(&mut checkpoint, &ranks, &knowledge)?;
    }
    checkpoint.notes.push("optimizer states are not compared".to_owned());
    Ok(checkpoint)
}

fn take_models(
    checkpoint: &mut Checkpoint,
    directory: &Path,
    files: &Files,
    prefix: &dyn Fn(u64) -> String,
) -> Result<(), CheckpointError> {
    let mut is_partitioned = false;
    for (&rank, models) in &files.models {
        let prefix = prefix(rank);
        if let Some((_, whole)) = models.iter().find(|(data, _)| data.is_none()) {
            let file = checkpoint.open(whole)?;
            checkpoint.take_all(file, &|name| Some(format!("{prefix}{}", name.strip_prefix("module.")?)));
        } else {
            is_partitioned = true;
            Partitioned::new(checkpoint, directory, models, files.partitions.get(&rank))?.take_all(&prefix)?;
        }
    }
    if is_partitioned {
        let note = "comparing the optimizer's fp32 weights, the only ones that ZeRO-3 stores";
        checkpoint.notes.push(note.to_owned());
    }
    Ok(())
}

/// Checks that the files of all ranks are present: a gap would look like a difference. `first`: the file with the
/// number of ranks.
fn check_complete(
    checkpoint: &Checkpoint,
    directory: &Path,
    files: &Files,
    first: Option<usize>,
) -> Result<(), CheckpointError> {
    let ranks = files.ranks();
    let (expected, present) = if files.layers.is_empty() {
        let told = first.and_then(|file| checkpoint.files[file].root()?.get("mp_world_size")).and_then(Item::as_int);
        let told = told.and_then(|told| u64::try_from(told).ok()).unwrap_or(1);
        (told.max(ranks.last().map_or(0, |last| last.saturating_add(1))), ranks.len())
    } else {
        let layers: BTreeSet<&String> = files.layers.iter().map(|(layer, ..)| layer).collect();
        let of_layer = ranks.last().map_or(0, |last| last.saturating_add(1));
        (of_layer.saturating_mul(layers.len() as u64), files.layers.len())
    };
    if present as u64 == expected {
        return Ok(());
    }
    let found = format!("{present} of {expected}");
    let expected = "the files of every tensor-parallel rank";
    Err(CheckpointError::Structure { path: directory.to_path_buf(), expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_says_what_it_holds() {
        for (name, expected) in [
            ("mp_rank_03_model_states.pt", Some(Part::Model(None, 3))),
            ("zero_pp_rank_2_mp_rank_01_model_states.pt", Some(Part::Model(Some(2), 1))),
            ("bf16_zero_pp_rank_2_mp_rank_01_optim_states.pt", Some(Part::Optimizer(2, 1))),
            ("layer_07-model_01-model_states.pt", Some(Part::Layer("07", 1))),
            ("layer_07-model_states.pt", Some(Part::Layer("07", 0))),
            ("layer_0_expert_5_mp_rank_01_model_states.pt", Some(Part::Expert(1))),
            ("expert_5_mp_rank_00_model_states.pt", Some(Part::Expert(0))),
            ("expp_rank_0_mp_rank_00_optim_states.pt", None),
            ("latest", None),
        ] {
            assert_eq!(Part::parse(name), expected, "{name}");
        }
    }
}
