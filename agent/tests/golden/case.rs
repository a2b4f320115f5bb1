//! One golden case: its config, its tensors, msprobe's files.

use std::path::{Path, PathBuf};

use safetensors::{Dtype as FileDtype, SafeTensors};
use serde_json::Value;
use trainmon_agent::core::config::{Config, DYNAMIC_VARIABLE, DiagnosticKind, Dialect};
use trainmon_agent::core::{Dtype, Statistic, TensorView};

/// Why a case is not walked.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) json: Value,
    /// Raw tensors in file order, 16-byte aligned copies.
    pub(crate) tensors: Vec<Recorded>,
}

/// A recorded tensor under its key `<prefix>/<step>/<name>[/<micro step>]`.
pub(crate) struct Recorded {
    pub(crate) key: String,
    dtype: Dtype,
    dims: Vec<i64>,
    /// As 64-bit words, so that every dtype is aligned.
    words: Vec<u64>,
    bytes: usize,
}

impl Recorded {
    pub(crate) fn view(&self) -> TensorView<'_> {
        TensorView::from_bytes(self.dtype, &self.dims, &bytes_of(&self.words)[..self.bytes]).unwrap()
    }

    /// How many elements it has.
    pub(crate) fn elements(&self) -> f64 {
        self.dims.iter().map(|&size| size as f64).product()
    }

    /// The elements as float64; float32 tensors only.
    pub(crate) fn as_f64(&self) -> Vec<f64> {
        assert_eq!(self.dtype, Dtype::F32);
        let bytes = &bytes_of(&self.words)[..self.bytes];
        bytes.chunks_exact(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect()
    }
}

#[expect(unsafe_code, reason = "64-bit words read as the bytes they were copied from")]
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any initialised memory may be read as bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) }
}

impl Case {
    pub(crate) fn load(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join("case.json")).unwrap();
        let tensors =
            std::fs::read(directory.join("tensors.safetensors")).map_or_else(|_| Vec::new(), |d| read_tensors(&d));
        Self {
            name: directory.file_name().unwrap().to_string_lossy().into_owned(),
            directory: directory.to_path_buf(),
            json: serde_json::from_str(&text).unwrap(),
            tensors,
        }
    }

    /// Whether this walk can say anything about the case.
    pub(crate) fn check_replayable(&self) -> Result<(), Skipped> {
        let skip = |reason: &str| Err(Skipped(reason.to_owned()));
        if self.tensors.is_empty() {
            return skip("the case keeps no tensors");
        }
        Ok(())
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> u64 {
        self.json.get(key).map_or(default, |value| value.as_u64().unwrap())
    }

    pub(crate) fn is_v2(&self) -> bool {
        self.json["monitor"] == "v2"
    }

    /// msprobe's number of decimals: 6 where the config is silent. Ours would then write the shortest digits, so the
    /// walk says it aloud.
    pub(crate) fn ndigits(&self) -> Option<u32> {
        if self.is_v2() {
            return None;
        }
        Some(self.json["config"].get("ndigits").map_or(6, |value| value.as_u64().unwrap() as u32))
    }

    /// The case's config as ours, for CSV files: msprobe falls back to them whatever the format. What this version refuses by name is switched off, unknown statistics are left out
    /// as msprobe left them out; both are said.
    pub(crate) fn config(&self) -> Result<Config, Skipped> {
        let mut json = self.json["config"].clone();
        if json.get("format").is_some_and(|format| format != "csv") {
            println!("{:<32} format {} is answered by msprobe in csv", self.name, json["format"]);
            json["format"] = "csv".into();
        }
        for _ in 0..8 {
            let errors = match Config::parse(&json.to_string(), &self.name, &|name| self.variable(name)) {
                Ok(parsed) => return Ok(self.adapted(parsed.config)),
                Err(errors) => errors.errors,
            };
            for error in errors {
                println!("{:<32} refused: {}", self.name, error.message());
                let top = error.key.split(['.', '[']).next().unwrap().to_owned();
                let repaired = match (error.kind, top.as_str()) {
                    (DiagnosticKind::UnknownValue, "ops") => leave_out_unknown_ops(&mut json),
                    (DiagnosticKind::NotImplemented, key) => json.as_object_mut().unwrap().remove(key).is_some(),
                    _ => false,
                };
                if !repaired {
                    return Err(Skipped(format!("its config is refused: {error}")));
                }
                if json.get(&top).is_none() {
                    break;
                }
            }
        }
        Err(Skipped("its config is refused".to_owned()))
    }

    /// The environment the case was recorded in.
    fn variable(&self, name: &str) -> Option<String> {
        (name == DYNAMIC_VARIABLE && self.json["dynamic"] == true).then(|| "True".to_owned())
    }

    /// The keys that are changed in the config file before a step.
    pub(crate) fn changes_before(&self, step: u64) -> Option<&serde_json::Map<String, Value>> {
        let events = self.json["config_events"].as_array()?;
        events.iter().find(|event| event["step"] == step)?["set"].as_object()
    }

    fn adapted(&self, config: Config) -> Config {
        let csv = config.csv.map(|csv| trainmon_agent::core::config::Csv {
            ndigits: self.ndigits(),
            output_dir: None,
            ..csv
        });
        // No step may be dropped here: the walk feeds steps as fast as it can.
        let pipeline = trainmon_agent::core::config::Pipeline { queue_steps: 4_096, shutdown_timeout_ms: 60_000 };
        Config { csv, prometheus: None, pipeline, ..config }
    }

    /// The directory with msprobe's CSV files; `None` if it wrote none.
    pub(crate) fn answer_directory(&self) -> Option<PathBuf> {
        run_directory(&self.directory.join("msprobe_out"))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        if self.is_v2() { Dialect::V2 } else { Dialect::V1 }
    }
}

/// The one directory below `base` that holds CSV files.
pub(crate) fn run_directory(base: &Path) -> Option<PathBuf> {
    let has_csv = |path: &PathBuf| {
        std::fs::read_dir(path).is_ok_and(|files| {
            files.into_iter().any(|file| file.unwrap().path().extension().is_some_and(|extension| extension == "csv"))
        })
    };
    std::fs::read_dir(base).ok()?.map(|entry| entry.unwrap().path()).find(has_csv)
}

fn leave_out_unknown_ops(json: &mut Value) -> bool {
    let Some(ops) = json["ops"].as_array_mut() else { return false };
    ops.retain(|op| op.as_str().is_some_and(|op| Statistic::from_name(op).is_some()));
    if ops.is_empty() {
        ops.push("norm".into());
    }
    true
}

fn read_tensors(data: &[u8]) -> Vec<Recorded> {
    let file = SafeTensors::deserialize(data).unwrap();
    let mut tensors: Vec<(String, safetensors::tensor::TensorView<'_>)> = file.tensors();
    let header_order = header_keys(data);
    let position = |key: &str| header_order.iter().position(|known| known == key).unwrap();
    tensors.sort_by_key(|(key, _)| position(key));
    tensors
        .into_iter()
        .map(|(key, tensor)| {
            let mut words = vec![0u64; tensor.data().len().div_ceil(8)];
            for (word, bytes) in words.iter_mut().zip(tensor.data().chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(padded);
            }
            let dims = tensor.shape().iter().map(|&size| size as i64).collect();
            Recorded { key, dtype: dtype(tensor.dtype()), dims, words, bytes: tensor.data().len() }
        })
        .collect()
}

/// The keys in the order of the file's header: the order in which the recorder kept them, which the library forgets.
fn header_keys(data: &[u8]) -> Vec<String> {
    let length = u64::from_le_bytes(data[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&data[8..8 + length]).unwrap();
    header.into_iter().map(|(key, _)| key).filter(|key| key != "__metadata__").collect()
}

fn dtype(file: FileDtype) -> Dtype {
    match file {
        FileDtype::F64 => Dtype::F64,
        FileDtype::F32 => Dtype::F32,
        FileDtype::F16 => Dtype::F16,
        FileDtype::BF16 => Dtype::Bf16,
        FileDtype::I64 => Dtype::I64,
        FileDtype::I32 => Dtype::I32,
        FileDtype::I16 => Dtype::I16,
        FileDtype::I8 => Dtype::I8,
        FileDtype::U8 => Dtype::U8,
        FileDtype::BOOL => Dtype::Bool,
        other => panic!("the golden data holds {other:?}, which this walk does not know"),
    }
}
