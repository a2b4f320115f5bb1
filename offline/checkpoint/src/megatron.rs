//! Megatron-LM's own layout: `iter_0000005/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt`, with one file per tensor,
//! pipeline and expert rank. A rank numbers its layers and experts from 0 and holds its slice of each partitioned
//! tensor.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use trainmon_tensor_files::{Item, TensorFile};

use super::contents::Checkpoint;
use super::directory::{names_in, pointed, pointer};
use super::error::CheckpointError;
use super::layout::Dialect;
use super::layout::Layout;
use super::megatron_name::{Numbering, core_name, with_expert, with_layer};
use super::megatron_split::{Shard, join};

const LATEST: &str = "latest_checkpointed_iteration.txt";
const FILES: [&str; 2] = ["model_optim_rng.pt", "model_rng.pt"];

/// The directory with the ranks' directories: `path` itself, the one it points to, or the last one in it.
pub(super) fn iteration_of(path: &Path, names: &[String]) -> Result<Option<PathBuf>, CheckpointError> {
    if names.iter().any(|name| RankName::parse(name).is_some_and(|_| holds_a_file(&path.join(name)))) {
        return Ok(Some(path.to_path_buf()));
    }
    if let Some(iteration) = pointer(&path.join(LATEST))? {
        let name = match iteration.parse::<u64>() {
            Ok(number) => format!("iter_{number:07}"),
            Err(_) => iteration,
        };
        return pointed(path, LATEST, &name).map(Some);
    }
    let last = names.iter().rev().find(|name| name.starts_with("iter_") && path.join(name).is_dir());
    Ok(last.map(|name| path.join(name)))
}

fn holds_a_file(directory: &Path) -> bool {
    FILES.iter().any(|file| directory.join(file).is_file())
}

/// The numbers in a rank's directory name: the tensor rank, then the pipeline and expert ranks if there are several.
struct RankName {
    tensor: u32,
    others: Vec<u32>,
}

impl RankName {
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("mp_rank_")?.split('_').map(|part| part.parse().ok());
        let tensor = numbers.next()??;
        let others: Vec<u32> = numbers.collect::<Option<_>>()?;
        (others.len() <= 2).then_some(Self { tensor, others })
    }
}

/// One rank's file.
struct RankFile {
    tensor: u32,
    pipeline: u32,
    expert: u32,
    file: usize,
}

/// Assembles the checkpoint from its ranks.
pub(super) fn open(path: &Path, directory: &Path, dialect: Dialect) -> Result<Checkpoint, CheckpointError> {
    let mut checkpoint = Checkpoint::new(path, Layout::Megatron);
    let ranks = open_ranks(&mut checkpoint, directory)?;
    let is_gated =
        argument(&checkpoint, &ranks, "swiglu").or_else(|| argument(&checkpoint, &ranks, "gated_linear_unit"));
    let is_gated = is_gated.and_then(Item::as_bool).unwrap_or(false) && dialect == Dialect::Ours;
    let mut grouped: BTreeMap<String, Vec<Shard>> = BTreeMap::new();
    let mut numbering = Numbering::default();
    for virtual_stage in 0..virtual_stages(&checkpoint) {
        for pipeline in ranks.iter().map(|rank| rank.pipeline).collect::<BTreeSet<_>>() {
            let here: Vec<&RankFile> = ranks.iter().filter(|rank| rank.pipeline == pipeline).collect();
            collect_stage(&mut checkpoint, &here, virtual_stage, &numbering, &mut grouped);
            let names = here.iter().flat_map(|rank| local_names(&checkpoint, rank.file, virtual_stage));
            let counts = Numbering::of(names.map(|(_, name)| name));
            numbering.add(&counts);
        }
    }
    if grouped.is_empty() {
        let expected = "a model under `model` or `model0`";
        return Err(CheckpointError::Structure { path: directory.to_path_buf(), expected, found: "none".to_owned() });
    }
    for (name, shards) in grouped {
        let recipe = join(&mut checkpoint, &name, &shards, is_gated, dialect)?;
        checkpoint.tensors.insert(name, recipe);
    }
    checkpoint.notes.push("optimizer states are not compared".to_owned());
    Ok(checkpoint)
}

/// Collects the tensors of a pipeline rank's virtual stage, by their names in the whole model.
fn collect_stage(
    checkpoint: &mut Checkpoint,
    ranks: &[&RankFile],
    virtual_stage: usize,
    numbering: &Numbering,
    grouped: &mut BTreeMap<String, Vec<Shard>>,
) {
    let experts_per_rank = {
        let names = ranks.iter().flat_map(|rank| local_names(checkpoint, rank.file, virtual_stage));
        Numbering::experts(names.map(|(_, name)| name))
    };
    let stage = (virtual_stage, ranks.first().map_or(0, |rank| rank.pipeline));
    for rank in ranks {
        for (index, name) in local_names(checkpoint, rank.file, virtual_stage) {
            let global = with_layer(&name, numbering);
            let with_expert = with_expert(&global, u64::from(rank.expert).saturating_mul(experts_per_rank));
            // Tensors outside experts are equal on every expert rank.
            if with_expert.is_none() && rank.expert != ranks[0].expert {
                continue;
            }
            let shard = Shard { tensor_rank: rank.tensor, stage, file: rank.file, index };
            let shards = grouped.entry(with_expert.unwrap_or(global)).or_default();
            // A tied embedding is stored on the first and the last stage: one copy is enough.
            if shards.first().is_none_or(|first: &Shard| first.stage == stage) {
                shards.push(shard);
            }
        }
        let prefix = prefix_of(checkpoint, virtual_stage);
        let unreadable: Vec<(String, String)> = checkpoint.files[rank.file]
            .unreadable()
            .iter()
            .filter_map(|one| Some((core_name(one.name.strip_prefix(&prefix)?), one.error.to_string())))
            .collect();
        for (name, reason) in unreadable {
            checkpoint.unreadable.insert(with_layer(&name, numbering), reason);
        }
    }
}

/// The model's tensors in a file, with their Megatron-Core names and the file's numbering.
fn local_names(checkpoint: &Checkpoint, file: usize, virtual_stage: usize) -> Vec<(usize, String)> {
    let prefix = prefix_of(checkpoint, virtual_stage);
    let entries = checkpoint.files[file].entries().iter().enumerate();
    entries
        .filter_map(|(index, entry)| Some((index, entry.name.strip_prefix(&prefix)?)))
        // Scales of 8-bit kernels, in a private packed format.
        .filter(|(_, name)| !name.ends_with("_extra_state"))
        .map(|(index, name)| (index, core_name(name)))
        .collect()
}

fn prefix_of(checkpoint: &Checkpoint, virtual_stage: usize) -> String {
    if has_virtual_stages(checkpoint) { format!("model{virtual_stage}.") } else { "model.".to_owned() }
}

fn has_virtual_stages(checkpoint: &Checkpoint) -> bool {
    checkpoint.files.iter().any(|file| file.root().is_some_and(|root| root.get("model0").is_some()))
}

fn virtual_stages(checkpoint: &Checkpoint) -> usize {
    if !has_virtual_stages(checkpoint) {
        return 1;
    }
    let keys = checkpoint.files.iter().filter_map(TensorFile::root).flat_map(Item::pairs);
    let stage = |key: Item<'_>| key.as_text()?.strip_prefix("model")?.parse::<usize>().ok();
    let stages: BTreeSet<usize> = keys.filter_map(|(key, _)| stage(key)).collect();
    stages.len()
}

/// A training argument, as stored in the first rank's file.
fn argument<'a>(checkpoint: &'a Checkpoint, ranks: &[RankFile], name: &str) -> Option<Item<'a>> {
    checkpoint.files[ranks.first()?.file].root()?.get("args")?.attribute(name)
}

fn open_ranks(checkpoint: &mut Checkpoint, directory: &Path) -> Result<Vec<RankFile>, CheckpointError> {
    let mut found = Vec::new();
    for name in names_in(directory)? {
        let Some(rank) = RankName::parse(&name) else { continue };
        let file = FILES.iter().map(|file| directory.join(&name).join(file)).find(|file| file.is_file());
        let file = file.ok_or_else(|| CheckpointError::Structure {
            path: directory.join(&name),
            expected: "model_optim_rng.pt",
            found: "none".to_owned(),
        })?;
        found.push((rank, checkpoint.open(&file)?));
    }
    let mut ranks: Vec<RankFile> = Vec::with_capacity(found.len());
    for (RankName { tensor, others }, file) in found {
        let size = |name: &str| {
            let args = checkpoint.files[file].root().and_then(|root| root.get("args"));
            args.and_then(|args| args.attribute(name)).and_then(Item::as_int).unwrap_or(1)
        };
        // A second number is the pipeline rank, unless the training had expert ranks and no pipeline.
        let is_expert = size("expert_model_parallel_size") > 1 && size("pipeline_model_parallel_size") == 1;
        let (pipeline, expert) = match others[..] {
            [] => (0, 0),
            [one] if is_expert => (0, one),
            [one] => (one, 0),
            [pipeline, expert, ..] => (pipeline, expert),
        };
        ranks.push(RankFile { tensor, pipeline, expert, file });
    }
    ranks.sort_by_key(|rank| (rank.pipeline, rank.expert, rank.tensor));
    check_complete(directory, &ranks)?;
    Ok(ranks)
}

/// Checks that the directories of all ranks are present: a gap would look like a difference.
fn check_complete(directory: &Path, ranks: &[RankFile]) -> Result<(), CheckpointError> {
    let mut tensors: HashMap<(u32, u32), u32> = HashMap::new();
    for rank in ranks {
        *tensors.entry((rank.pipeline, rank.expert)).or_default() += 1;
    }
    let sizes = [
        ranks.iter().map(|rank| rank.tensor + 1).max(),
        ranks.iter().map(|rank| rank.pipeline + 1).max(),
        ranks.iter().map(|rank| rank.expert + 1).max(),
    ];
    let expected: u64 = sizes.iter().map(|size| u64::from(size.unwrap_or(0))).product();
    if ranks.len() as u64 == expected && !ranks.is_empty() {
        return Ok(());
    }
    let found = format!("{} of {expected} directories `mp_rank_*`", ranks.len());
    Err(CheckpointError::Structure { path: directory.to_path_buf(), expected: "one directory per rank", found })
}
