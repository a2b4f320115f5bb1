//! The text to learn: this repository's own sources and documents, character by character.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tch::Tensor;

const EXTENSIONS: [&str; 4] = ["rs", "md", "toml", "json"];
/// The share of the text that is kept back for validation: its end, one contiguous piece.
const VALIDATION_SHARE: f64 = 0.1;

/// A text as numbers, split in two.
pub(crate) struct Corpus {
    pub(crate) vocabulary: i64,
    pub(crate) files: usize,
    pub(crate) training: Vec<i64>,
    pub(crate) validation: Vec<i64>,
}

impl Corpus {
    /// Reads every source and document below `root`. Characters outside ASCII become one character.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect_files(root, &mut files)?;
        files.sort();
        let mut text = Vec::new();
        for file in &files {
            let content = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            text.extend(content.chars().map(|character| if character.is_ascii() { character as u8 } else { 0 }));
        }
        let alphabet: Vec<u8> = text.iter().copied().collect::<BTreeSet<u8>>().into_iter().collect();
        let mut number = [0; 256];
        for (index, &byte) in alphabet.iter().enumerate() {
            number[usize::from(byte)] = index as i64;
        }
        let mut training: Vec<i64> = text.into_iter().map(|byte| number[usize::from(byte)]).collect();
        let validation = training.split_off((training.len() as f64 * (1.0 - VALIDATION_SHARE)) as usize);
        ensure!(validation.len() > 1000, "{} holds too little text to learn from", root.display());
        Ok(Self { vocabulary: alphabet.len() as i64, files: files.len(), training, validation })
    }
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_generated = name.starts_with('.') || ["target", "node_modules", "monitor_output"].contains(&&*name);
        if is_generated || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Draws batches of windows from a text, the same ones for the same seed.
pub(crate) struct Batches {
    state: u64,
    size: usize,
    context: usize,
}

impl Batches {
    pub(crate) fn new(seed: u64, size: usize, context: usize) -> Self {
        Self { state: seed, size, context }
    }

    /// Inputs, and the same windows one character later.
    pub(crate) fn draw(&mut self, text: &[i64]) -> (Tensor, Tensor) {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for _window in 0..self.size {
            let start = (self.next() % (text.len() - self.context - 1) as u64) as usize;
            inputs.extend_from_slice(&text[start..start + self.context]);
            targets.extend_from_slice(&text[start + 1..=start + self.context]);
        }
        let shape = [self.size as i64, self.context as i64];
        (Tensor::from_slice(&inputs).view(shape), Tensor::from_slice(&targets).view(shape))
    }

    /// `SplitMix64`: small, and good enough to pick windows.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
