//! Files of tensors: real ones, written by torch, numpy and safetensors (`generate.py`), and hostile ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod corpus;
mod fuzz_corpus;
mod hostile;
mod pickles;
mod support;
mod written;
