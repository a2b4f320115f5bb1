//! Encodes and decodes a whole step.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use trainmon_core::config::Plan;
use trainmon_core::{GradNorm, LedgerSnapshot, Phase, PhaseTimes, Step, StepBatch, TensorId, TensorInfo};

use super::bytes::{ByteSink, Cursor, Malformed};
use super::names::MAX_TENSORS;
use super::number_names::{NumberNames, statistic_code};
use super::record::{MIN_RECORD, put_record, read_record};

/// A step as stored in a frame.
#[derive(Clone, Debug)]
pub(super) struct StepContent {
    pub(super) batch: StepBatch,
    /// The number of tensors registered when the step was written.
    pub(super) names_known: u32,
    /// Names that did not fit into the log of names.
    pub(super) late_names: Vec<(TensorId, TensorInfo)>,
}

/// Encodes a step into `out`. Names from index `names_stored` on are not in the log of names: those that the step uses
/// are included.
pub(super) fn encode_step(out: &mut Vec<u8>, names: &[TensorInfo], names_stored: usize, batch: &StepBatch) {
    let StepBatch {
        step,
        time,
        duration,
        collected,
        skipped_steps,
        loss,
        learning_rate,
        grad_norm,
        framework_grad_norm,
        ops,
        plan,
        sampling_stride,
        records,
        cost,
        bytes_read,
        counts,
    } = batch;
    out.clear();
    out.put_u64(step.0);
    put_time(out, *time);
    out.put_option(*duration, ByteSink::put_duration);
    out.put_u8(u8::from(*collected));
    out.put_u64(*skipped_steps);
    out.put_option(*loss, ByteSink::put_f64);
    out.put_option(*learning_rate, ByteSink::put_f64);
    match grad_norm {
        GradNorm::OfRecords => out.put_u8(0),
        GradNorm::Unknown => out.put_u8(1),
        GradNorm::Known(norm) => {
            out.put_u8(2);
            out.put_f64(*norm);
        }
    }
    out.put_option(*framework_grad_norm, ByteSink::put_f64);
    out.put_option(ops.as_deref(), |out, ops| {
        out.put_u8(ops.len() as u8);
        for &op in ops {
            out.put_u8(statistic_code(op));
        }
    });
    out.put_option(plan.as_deref(), put_plan);
    out.put_u32(*sampling_stride);
    for phase in Phase::ALL {
        out.put_duration(cost.get(phase));
    }
    out.put_u64(*bytes_read);
    put_counts(out, counts);
    out.put_u32(names.len() as u32);
    put_late_names(out, names, names_stored, batch);
    out.put_u32(records.len() as u32);
    for record in records {
        put_record(out, record);
    }
}

/// Decodes the bytes that [`encode_step`] wrote.
pub(super) fn decode_step(bytes: &[u8], number_names: &NumberNames) -> Result<StepContent, Malformed> {
    let cursor = &mut Cursor::new(bytes);
    let mut batch = StepBatch {
        step: Step(cursor.u64()?),
        time: read_time(cursor)?,
        duration: cursor.option(Cursor::duration)?,
        collected: cursor.flag()?,
        skipped_steps: cursor.u64()?,
        loss: cursor.option(Cursor::f64)?,
        learning_rate: cursor.option(Cursor::f64)?,
        grad_norm: match cursor.u8()? {
            0 => GradNorm::OfRecords,
            1 => GradNorm::Unknown,
            2 => GradNorm::Known(cursor.f64()?),
            _ => return Err(cursor.malformed("an unknown source of the gradient norm")),
        },
        framework_grad_norm: cursor.option(Cursor::f64)?,
        ops: None,
        plan: None,
        sampling_stride: 1,
        records: Vec::new(),
        cost: PhaseTimes::default(),
        bytes_read: 0,
        counts: LedgerSnapshot::default(),
    };
    batch.ops = cursor.option(|cursor| {
        let count = cursor.u8()?;
        let op = |cursor: &mut Cursor<'_>| {
            let code = cursor.u8()?;
            number_names.statistic(code).ok_or_else(|| cursor.malformed("an unknown statistic"))
        };
        (0..count).map(|_| op(cursor)).collect()
    })?;
    batch.plan = cursor.option(read_plan)?;
    batch.sampling_stride = cursor.u32()?;
    for &phase in &number_names.phases {
        let time = cursor.duration()?;
        if let Some(phase) = phase {
            batch.cost.add(phase, time);
        }
    }
    batch.bytes_read = cursor.u64()?;
    batch.counts = read_counts(cursor, number_names)?;
    let names_known = cursor.u32()?;
    if u64::from(names_known) > MAX_TENSORS {
        return Err(cursor.malformed("more tensors than any model has"));
    }
    let late_names = read_late_names(cursor, names_known)?;
    let records = cursor.u32()? as usize;
    if records > cursor.remaining() / MIN_RECORD {
        return Err(cursor.malformed("more records than the bytes can hold"));
    }
    batch.records.reserve_exact(records);
    for _ in 0..records {
        let record = read_record(cursor, number_names)?;
        if record.tensor.0 >= names_known {
            return Err(cursor.malformed("an unregistered tensor"));
        }
        batch.records.push(record);
    }
    cursor.finish()?;
    Ok(StepContent { batch, names_known, late_names })
}

/// Appends a time; one before 1970 is written as a negative count.
fn put_time(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    out.put_u8(u8::from(since.is_err()));
    out.put_duration(since.unwrap_or_else(|before| before.duration()));
}

fn read_time(cursor: &mut Cursor<'_>) -> Result<SystemTime, Malformed> {
    let is_before = cursor.flag()?;
    let distance: Duration = cursor.duration()?;
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if is_before { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.ok_or_else(|| cursor.malformed("a time that this machine cannot represent"))
}

/// Appends a plan as JSON: it is rare, and its structure is the config's.
fn put_plan(out: &mut Vec<u8>, plan: &Plan) {
    // A plan contains nothing that JSON cannot represent.
    let text = serde_json::to_vec(plan).unwrap_or_default();
    out.put_u32(text.len() as u32);
    out.put(&text);
}

fn read_plan(cursor: &mut Cursor<'_>) -> Result<Arc<Plan>, Malformed> {
    let length = cursor.u32()? as usize;
    let text = cursor.take(length)?;
    let plan = serde_json::from_slice(text).ok().ok_or_else(|| cursor.malformed("an unreadable plan"))?;
    Ok(Arc::new(plan))
}

fn put_counts(out: &mut Vec<u8>, counts: &LedgerSnapshot) {
    let LedgerSnapshot { observed, not_sampled, offered, accepted, dropped } = counts;
    for count in [observed, not_sampled, offered, accepted] {
        out.put_u64(*count);
    }
    for &count in dropped {
        out.put_u64(count);
    }
}

fn read_counts(cursor: &mut Cursor<'_>, number_names: &NumberNames) -> Result<LedgerSnapshot, Malformed> {
    let mut counts = LedgerSnapshot {
        observed: cursor.u64()?,
        not_sampled: cursor.u64()?,
        offered: cursor.u64()?,
        accepted: cursor.u64()?,
        ..LedgerSnapshot::default()
    };
    for &reason in &number_names.drop_reasons {
        let count = cursor.u64()?;
        if let Some(reason) = reason {
            counts.dropped[reason as usize] = count;
        }
    }
    Ok(counts)
}

fn put_late_names(out: &mut Vec<u8>, names: &[TensorInfo], names_stored: usize, batch: &StepBatch) {
    let mut late: Vec<TensorId> = Vec::new();
    if names_stored < names.len() {
        let tensors = batch.records.iter().map(|record| record.tensor);
        late.extend(tensors.filter(|tensor| (names_stored..names.len()).contains(&tensor.index())));
        late.sort_unstable();
        late.dedup();
    }
    out.put_u32(late.len() as u32);
    for tensor in late {
        out.put_u32(tensor.0);
        put_name(out, &names[tensor.index()]);
    }
}

fn read_late_names(cursor: &mut Cursor<'_>, names_known: u32) -> Result<Vec<(TensorId, TensorInfo)>, Malformed> {
    let count = cursor.u32()?;
    let name = |cursor: &mut Cursor<'_>| {
        let tensor = TensorId(cursor.u32()?);
        if tensor.0 >= names_known {
            return Err(cursor.malformed("the name of an unregistered tensor"));
        }
        Ok((tensor, read_name(cursor)?))
    };
    (0..count).map(|_| name(cursor)).collect()
}

/// Appends a name.
pub(super) fn put_name(out: &mut Vec<u8>, info: &TensorInfo) {
    let TensorInfo { name, vpp_stage } = info;
    out.put_u32(*vpp_stage);
    out.put_u32(name.len() as u32);
    out.put(name.as_bytes());
}

/// Reads a name from the front.
pub(super) fn read_name(cursor: &mut Cursor<'_>) -> Result<TensorInfo, Malformed> {
    let vpp_stage = cursor.u32()?;
    let length = cursor.u32()? as usize;
    let bytes = cursor.take(length)?;
    let name = std::str::from_utf8(bytes).ok().ok_or_else(|| cursor.malformed("a name that is not UTF-8"))?;
    Ok(TensorInfo { name: name.into(), vpp_stage })
}

#[cfg(test)]
mod tests;
