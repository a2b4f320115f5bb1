//! Tensors of which Megatron's tensor-parallel ranks hold slices.

use super::contents::Checkpoint;
use super::error::CheckpointError;
use super::layout::Dialect;
use super::recipe::Recipe;
use super::slices::{self, Joint};

/// One rank's part of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shard {
    pub(super) tensor_rank: u32,
    /// Virtual stage and pipeline rank.
    pub(super) stage: (usize, u32),
    pub(super) file: usize,
    pub(super) index: usize,
}

/// Layers with partitioned outputs: weights and biases are joined along axis 0.
const BY_ROWS: [&str; 5] = ["linear_qkv", "linear_fc1", "linear_q_up_proj", "linear_kv_up_proj", "linear_q_proj"];
const BY_ROWS_WHOLE: [&str; 2] = ["word_embeddings.weight", "output_layer.weight"];
/// Layers with partitioned inputs: weights are joined along axis 1, biases are complete on every rank.
const BY_COLUMNS: [&str; 2] = ["linear_fc2.weight", "linear_proj.weight"];
/// The layers that msprobe joins.
const BY_ROWS_MSPROBE: [&str; 4] = ["linear_qkv", "linear_fc1", "word_embeddings.weight", "output_layer.weight"];

/// The axis along which the ranks' slices of a tensor are joined; `None` if each rank has the whole tensor.
pub(super) fn axis_of(name: &str, dialect: Dialect) -> Option<usize> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&BY_COLUMNS) {
        return Some(1);
    }
    let is_by_rows = match dialect {
        Dialect::Msprobe => has(&BY_ROWS_MSPROBE),
        // The norm that is fused into a linear layer is complete on every rank.
        Dialect::Ours => (has(&BY_ROWS) && !name.contains("layer_norm")) || has(&BY_ROWS_WHOLE),
    };
    is_by_rows.then_some(0)
}

/// Joins the shards of the ranks. `is_gated`: each rank's `linear_fc1` is its half of the gate above its half of the
/// rest, so the halves are joined separately.
pub(super) fn join(
    checkpoint: &mut Checkpoint,
    name: &str,
    shards: &[Shard],
    is_gated: bool,
    dialect: Dialect,
) -> Result<Recipe, CheckpointError> {
    let first = shards[0];
    let Some(axis) = axis_of(name, dialect).filter(|_| shards.len() > 1) else {
        note_differing(checkpoint, name, shards)?;
        return Ok(checkpoint.whole(first.file, first.index));
    };
    let slices: Vec<Recipe> = shards.iter().map(|shard| checkpoint.whole(shard.file, shard.index)).collect();
    let joint = Joint { axis, is_gated: is_gated && name.contains("linear_fc1") };
    slices::join(&slices, joint).map_err(|source| checkpoint.piece_error(name, source))
}

/// Adds a note if a tensor that every rank holds completely differs between ranks.
fn note_differing(checkpoint: &mut Checkpoint, name: &str, shards: &[Shard]) -> Result<(), CheckpointError> {
    let first = checkpoint.files[shards[0].file].read_at(shards[0].index)?;
    for shard in &shards[1..] {
        let other = checkpoint.files[shard.file].read_at(shard.index)?;
        if other.shape() != first.shape() || other.bytes() != first.bytes() {
            let note =
                format!("`{name}` differs between tensor ranks 0 and {}: comparing that of rank 0", shard.tensor_rank);
            checkpoint.notes.push(note);
            return Ok(());
        }
    }
    Ok(())
}
