//! The text to learn, character by character: an old version of this project's documents, so that trainings stay the
//! same when the documents change.

use std::collections::BTreeSet;
use std::io::Read as _;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;
use tch::Tensor;

/// README.md and docs/, concatenated and compressed with gzip; a NUL replaces each character outside ASCII.
const TEXT: &[u8] = include_bytes!("text.txt.gz");
/// The share of the text for validation: one contiguous piece at its end.
const VALIDATION_SHARE: f64 = 0.1;

/// A text as numbers, split for training and validation.
pub(crate) struct Corpus {
    pub(crate) vocabulary: i64,
    pub(crate) training: Vec<i64>,
    pub(crate) validation: Vec<i64>,
}

impl Corpus {
    /// Unpacks the demo's text.
    pub(crate) fn unpack() -> Result<Self> {
        let mut text = Vec::new();
        GzDecoder::new(TEXT).read_to_end(&mut text).context("the text of the demo is damaged")?;
        let alphabet: Vec<u8> = text.iter().copied().collect::<BTreeSet<u8>>().into_iter().collect();
        let mut number = [0; 256];
        for (index, &byte) in alphabet.iter().enumerate() {
            number[usize::from(byte)] = index as i64;
        }
        let mut training: Vec<i64> = text.into_iter().map(|byte| number[usize::from(byte)]).collect();
        let validation = training.split_off((training.len() as f64 * (1.0 - VALIDATION_SHARE)) as usize);
        Ok(Self { vocabulary: alphabet.len() as i64, training, validation })
    }
}

/// Draws batches of windows from a text; the same seed draws the same windows.
pub(crate) struct Batches {
    state: u64,
    size: usize,
    context: usize,
}

impl Batches {
    pub(crate) fn new(seed: u64, size: usize, context: usize) -> Self {
        Self { state: seed, size, context }
    }

    /// Draws inputs, and the same windows one character later as targets.
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

    /// Returns the next number of `SplitMix64`, which is small and good enough to select windows.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
