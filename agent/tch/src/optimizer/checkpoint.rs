//! Optimizer state on disk: one safetensors file with moments as `<parameter>/<moment>` and everything else as
//! metadata.
//!
//! Loading checks the whole file against the optimizer before it changes anything.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor, no_grad};

use super::kind::MomentKind;
use super::{CheckpointError, GroupOptions, Optimizer, OptimizerError, OptimizerKind, doing};
use crate::ffi::DEFAULTS;
use crate::names::NamedParameter;

/// The metadata entry that contains everything but the tensors.
const KEY: &str = "trainmon_optimizer";
/// The version of the layout.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    kind: OptimizerKind,
    defaults: GroupOptions,
    groups: Vec<GroupOptions>,
    parameters: Vec<SavedParameter>,
}

#[derive(Serialize, Deserialize)]
struct SavedParameter {
    name: String,
    group: usize,
    /// The number of steps, if this kind of optimizer counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<i64>,
}

/// The checked content of a file, ready to be restored.
struct Loaded {
    header: Header,
    /// The moments of each parameter.
    moments: Vec<Vec<(MomentKind, Tensor)>>,
}

impl Optimizer {
    /// Writes options, step counts and moments. Replaces the file atomically. Copies device state to the host, and so
    /// waits for the device.
    ///
    /// # Errors
    /// The file cannot be written, or a moment has an element type that the format lacks.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), OptimizerError> {
        let path = path.as_ref();
        let refuse = |source| OptimizerError::Checkpoint { path: path.to_owned(), source };
        let header = serde_json::to_string(&self.header()?)
            .map_err(|why| refuse(CheckpointError::NotACheckpoint { key: KEY, why: why.to_string() }))?;
        let tensors = self.stored_moments().map_err(refuse)?;
        let bytes = safetensors::serialize(tensors, Some(HashMap::from([(KEY.to_owned(), header)])))
            .map_err(|source| refuse(CheckpointError::Damaged { source }))?;
        replace_file(path, &bytes).map_err(|source| OptimizerError::Io { path: path.to_owned(), source })
    }

    fn header(&self) -> Result<Header, OptimizerError> {
        let groups = (0..self.raw.groups()).map(|group| self.group_options(group)).collect::<Result<_, _>>()?;
        let saved = |parameter: &NamedParameter| {
            let (name, group) = (parameter.name.to_string(), parameter.group);
            Ok(SavedParameter { name, group, steps: self.steps_taken(&parameter.tensor)? })
        };
        Ok(Header {
            format: FORMAT,
            kind: self.kind,
            defaults: self.raw.options(DEFAULTS).map_err(doing("cannot read the options"))?,
            groups,
            parameters: self.parameters.iter().map(saved).collect::<Result<_, OptimizerError>>()?,
        })
    }

    fn stored_moments(&self) -> Result<Vec<(String, Stored)>, CheckpointError> {
        let mut stored = Vec::new();
        for parameter in &self.parameters {
            for moment in self.kind.moments() {
                let name = tensor_name(&parameter.name, *moment);
                let unstorable = |why: String| CheckpointError::Unstorable { tensor: name.clone(), why };
                let tensor = self
                    .raw
                    .with_moment(&parameter.tensor, moment.slot, |tensor| tensor.as_tensor().shallow_clone())
                    .map_err(unstorable)?;
                if let Some(tensor) = tensor {
                    let tensor = Stored::new(&tensor).map_err(unstorable)?;
                    stored.push((name, tensor));
                }
            }
        }
        Ok(stored)
    }

    /// Restores what [`save`](Self::save) wrote: training continues bitwise as if it had not stopped. Nothing changes
    /// unless the whole file fits.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or belongs to another optimizer or model; see [`CheckpointError`].
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), OptimizerError> {
        let path = path.as_ref();
        self.add_new_variables()?;
        let bytes = fs::read(path).map_err(|source| OptimizerError::Io { path: path.to_owned(), source })?;
        let loaded =
            self.check(&bytes).map_err(|source| OptimizerError::Checkpoint { path: path.to_owned(), source })?;
        self.put_in_place(loaded).map_err(doing("cannot restore the state"))
    }

    fn check(&self, bytes: &[u8]) -> Result<Loaded, CheckpointError> {
        let damaged = |source| CheckpointError::Damaged { source };
        let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let header = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let header = header.ok_or(CheckpointError::NotACheckpoint { key: KEY, why: "missing".to_owned() })?;
        let header = parse_header(header)?;
        self.check_header(&header)?;
        let mut moments = Vec::with_capacity(self.parameters.len());
        let mut known = HashSet::new();
        for (parameter, saved) in self.parameters.iter().zip(&header.parameters) {
            moments.push(self.read_moments(parameter, saved, &header, &tensors, &mut known)?);
        }
        if let Some(name) = tensors.names().into_iter().find(|name| !known.contains(*name)) {
            return Err(CheckpointError::Unexpected { tensor: name.to_owned() });
        }
        Ok(Loaded { header, moments })
    }

    fn check_header(&self, header: &Header) -> Result<(), CheckpointError> {
        if header.kind != self.kind {
            return Err(CheckpointError::WrongKind { found: header.kind.name(), expected: self.kind.name() });
        }
        let (found, expected) = (header.parameters.len(), self.parameters.len());
        if found != expected {
            return Err(CheckpointError::WrongParameterCount { found, expected });
        }
        let (found, expected) = (header.groups.len(), self.raw.groups());
        if found != expected {
            return Err(CheckpointError::WrongGroupCount { found, expected });
        }
        for (index, (saved, parameter)) in header.parameters.iter().zip(&self.parameters).enumerate() {
            if saved.name != *parameter.name || saved.group != parameter.group {
                return Err(CheckpointError::WrongParameter {
                    index,
                    found: saved.name.clone(),
                    found_group: saved.group,
                    expected: parameter.name.to_string(),
                    group: parameter.group,
                });
            }
        }
        Ok(())
    }

    /// Reads a parameter's moments: all that its options require if it was stepped, otherwise none.
    fn read_moments(
        &self,
        parameter: &NamedParameter,
        saved: &SavedParameter,
        header: &Header,
        tensors: &SafeTensors<'_>,
        known: &mut HashSet<String>,
    ) -> Result<Vec<(MomentKind, Tensor)>, CheckpointError> {
        let mut moments = Vec::new();
        for moment in self.kind.moments() {
            let name = tensor_name(&parameter.name, *moment);
            if let Ok(view) = tensors.tensor(&name) {
                moments.push((*moment, restore(&name, &view, &parameter.tensor)?));
            } else if saved.steps.is_some() && header.groups[parameter.group].needs(moment.kind) {
                return Err(CheckpointError::MissingMoment { tensor: name });
            }
            known.insert(name);
        }
        let counted = self.kind.counts_steps();
        if counted && saved.steps.is_none() && !moments.is_empty() {
            let why = format!("`{}` has moments but no step count", parameter.name);
            return Err(CheckpointError::NotACheckpoint { key: KEY, why });
        }
        Ok(moments)
    }

    fn put_in_place(&mut self, loaded: Loaded) -> Result<(), String> {
        let Loaded { header, moments } = loaded;
        self.raw.clear_state()?;
        for (group, options) in header.groups.iter().enumerate().chain([(DEFAULTS, &header.defaults)]) {
            self.raw.set_options(group, options)?;
        }
        for ((parameter, saved), moments) in self.parameters.iter().zip(&header.parameters).zip(moments) {
            for (moment, value) in moments {
                self.raw.set_moment(&parameter.tensor, moment.slot, &value)?;
            }
            if let Some(steps) = saved.steps {
                self.raw.set_step_count(&parameter.tensor, steps)?;
            }
        }
        Ok(())
    }
}

fn parse_header(text: &str) -> Result<Header, CheckpointError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable = |why: serde_json::Error| CheckpointError::NotACheckpoint { key: KEY, why: why.to_string() };
    let Format { format } = serde_json::from_str(text).map_err(unreadable)?;
    if format != FORMAT {
        return Err(CheckpointError::UnknownFormat { found: format, supported: FORMAT });
    }
    serde_json::from_str(text).map_err(unreadable)
}

fn tensor_name(parameter: &str, moment: MomentKind) -> String {
    format!("{parameter}/{}", moment.kind)
}

fn restore(
    name: &str,
    view: &safetensors::tensor::TensorView<'_>,
    parameter: &Tensor,
) -> Result<Tensor, CheckpointError> {
    let unstorable = |why: tch::TchError| CheckpointError::Unstorable { tensor: name.to_owned(), why: why.to_string() };
    let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
    let kind = kind_of(view.dtype()).ok_or_else(|| CheckpointError::Unstorable {
        tensor: name.to_owned(),
        why: format!("unsupported element type {}", view.dtype()),
    })?;
    if shape != parameter.size() || kind != parameter.kind() {
        return Err(CheckpointError::WrongShape {
            tensor: name.to_owned(),
            found: format!("{kind:?} {shape:?}"),
            expected: format!("{:?} {:?}", parameter.kind(), parameter.size()),
        });
    }
    let host = Tensor::f_from_data_size(view.data(), &shape, kind).map_err(unstorable)?;
    // The strides are those that torch would choose, so that later steps run the same kernels in the same order.
    no_grad(|| {
        let mut moment = parameter.detach().f_empty_like()?;
        moment.f_copy_(&host)?;
        Ok(moment)
    })
    .map_err(unstorable)
}

const KINDS: [(tch::Kind, safetensors::Dtype); 4] = [
    (tch::Kind::Float, safetensors::Dtype::F32),
    (tch::Kind::Double, safetensors::Dtype::F64),
    (tch::Kind::Half, safetensors::Dtype::F16),
    (tch::Kind::BFloat16, safetensors::Dtype::BF16),
];

fn kind_of(dtype: safetensors::Dtype) -> Option<tch::Kind> {
    KINDS.iter().find(|(_, stored)| *stored == dtype).map(|(kind, _)| *kind)
}

/// A contiguous copy of a moment on the host.
struct Stored {
    tensor: Tensor,
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    bytes: usize,
}

impl Stored {
    fn new(tensor: &Tensor) -> Result<Self, String> {
        let kind = tensor.f_kind().map_err(|why| why.to_string())?;
        let (_, dtype) = KINDS
            .iter()
            .find(|(known, _)| *known == kind)
            .ok_or_else(|| format!("unsupported element type {kind:?}"))?;
        let tensor = tensor.detach().f_to_device(Device::Cpu).and_then(|tensor| tensor.f_contiguous());
        let tensor = tensor.map_err(|why| why.to_string())?;
        let shape = tensor.size().iter().map(|&size| size as usize).collect();
        let bytes = tensor.numel() * kind.elt_size_in_bytes();
        Ok(Self { tensor, dtype: *dtype, shape, bytes })
    }
}

impl safetensors::View for Stored {
    fn dtype(&self) -> safetensors::Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    #[expect(unsafe_code, reason = "a contiguous host tensor's bytes")]
    fn data(&self) -> Cow<'_, [u8]> {
        if self.bytes == 0 {
            return Cow::Borrowed(&[]);
        }
        // SAFETY: the tensor is contiguous, on the host, `bytes` long and lives as long as `self`.
        Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.tensor.data_ptr().cast::<u8>(), self.bytes) })
    }

    fn data_len(&self) -> usize {
        self.bytes
    }
}

/// Writes a temporary file in the same directory and renames it: a crash leaves the old file or the new one.
fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        // Only the first error is reported.
        drop(fs::remove_file(&temporary));
    }
    written
}
