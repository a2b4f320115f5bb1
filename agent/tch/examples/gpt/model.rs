//! A small GPT with learned positions, pre-norm blocks and untied weights.

use tch::nn::{self, Module, VarStore};
use tch::{Kind, Tensor};
use trainmon_tch::Watch;

use crate::faults::Switches;

/// The context length. With an alphabet of 100 characters, the model has 1.3 million parameters.
pub(crate) const CONTEXT: i64 = 64;
const BLOCKS: usize = 4;
const WIDTH: i64 = 160;
const HEADS: i64 = 4;

/// The blocks in which faults are injected.
const POISONED_BLOCK: usize = 1;
const DEAD_BLOCK: usize = 2;
/// The weights that drift.
pub(crate) const DRIFTING: &str = "blocks.2.mlp.";

#[derive(Debug)]
struct Attention {
    qkv: nn::Linear,
    out: nn::Linear,
    faults: Option<Switches>,
}

impl Module for Attention {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let (batch, length, width) = xs.size3().unwrap_or_else(|why| panic!("[batch, length, width] expected: {why}"));
        let heads = self.qkv.forward(xs).view([batch, length, 3, HEADS, width / HEADS]).permute([2, 0, 3, 1, 4]);
        let [query, key, value] = [0, 1, 2].map(|index| heads.select(0, index));
        let no_mask = None::<Tensor>;
        let mixed = Tensor::scaled_dot_product_attention(&query, &key, &value, no_mask, 0.0, true, None, false);
        let output = self.out.forward(&mixed.transpose(1, 2).contiguous().view([batch, length, width]));
        match &self.faults {
            Some(faults) => faults.attention_output(output),
            None => output,
        }
    }
}

#[derive(Debug)]
struct Mlp {
    up: nn::Linear,
    down: nn::Linear,
    faults: Option<Switches>,
}

impl Module for Mlp {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let output = self.down.forward(&self.up.forward(xs).gelu("tanh"));
        match &self.faults {
            Some(faults) => faults.layer_output(output),
            None => output,
        }
    }
}

#[derive(Debug)]
struct Block {
    attention_norm: nn::LayerNorm,
    attention: Box<dyn Module>,
    mlp_norm: nn::LayerNorm,
    mlp: Box<dyn Module>,
}

impl Module for Block {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let xs = xs + self.attention.forward(&self.attention_norm.forward(xs));
        &xs + self.mlp.forward(&self.mlp_norm.forward(&xs))
    }
}

#[derive(Debug)]
pub(crate) struct Gpt {
    tokens: nn::Embedding,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: nn::LayerNorm,
    head: nn::Linear,
}

impl Gpt {
    /// Creates the variables in `vs`. The initial values come from libtorch's generator.
    pub(crate) fn new(vs: &VarStore, vocabulary: i64, faults: &Switches) -> Self {
        let root = vs.root();
        let linear = |path: nn::Path<'_>, from, to| nn::linear(path, from, to, nn::LinearConfig::default());
        let norm = |path: nn::Path<'_>| nn::layer_norm(path, vec![WIDTH], nn::LayerNormConfig::default());
        let tokens = nn::embedding(&root / "tokens", vocabulary, WIDTH, nn::EmbeddingConfig::default());
        let positions = root.randn("positions", &[CONTEXT, WIDTH], 0.0, 0.02);
        let block = |index: usize| {
            let path = &root / "blocks" / index;
            let switched = |block| (index == block).then(|| faults.clone());
            let attention = &path / "attn";
            let attention = Attention {
                qkv: linear(&attention / "qkv", WIDTH, 3 * WIDTH),
                out: linear(&attention / "out", WIDTH, WIDTH),
                faults: switched(POISONED_BLOCK),
            };
            let mlp = &path / "mlp";
            let mlp = Mlp {
                up: linear(&mlp / "up", WIDTH, 4 * WIDTH),
                down: linear(&mlp / "down", 4 * WIDTH, WIDTH),
                faults: switched(DEAD_BLOCK),
            };
            Block {
                attention_norm: norm(&path / "norm_1"),
                attention: Box::new(attention),
                mlp_norm: norm(&path / "norm_2"),
                mlp: Box::new(mlp),
            }
        };
        let blocks = (0..BLOCKS).map(block).collect();
        let (norm, head) = (norm(&root / "norm"), linear(&root / "head", WIDTH, vocabulary));
        Self { tokens, positions, blocks, norm, head }
    }

    /// Returns the same model with the attention and the MLP of every block watched.
    pub(crate) fn watched(mut self, watch: &Watch) -> Self {
        let wrap = |name: &str, module| -> Box<dyn Module> { Box::new(watch.module(name, Boxed(module))) };
        self.blocks = std::mem::take(&mut self.blocks)
            .into_iter()
            .enumerate()
            .map(|(index, block)| Block {
                attention: wrap(&format!("blocks.{index}.attn"), block.attention),
                mlp: wrap(&format!("blocks.{index}.mlp"), block.mlp),
                ..block
            })
            .collect();
        self
    }

    /// Returns the mean cross entropy of the next characters, in nats.
    pub(crate) fn loss(&self, inputs: &Tensor, targets: &Tensor) -> Tensor {
        let mut hidden = self.tokens.forward(inputs) + &self.positions;
        for block in &self.blocks {
            hidden = block.forward(&hidden);
        }
        let logits = self.head.forward(&self.norm.forward(&hidden)).flatten(0, 1);
        logits.to_kind(Kind::Float).cross_entropy_for_logits(&targets.flatten(0, 1))
    }
}

/// A module in a box, for which tch does not implement `Module`.
#[derive(Debug)]
struct Boxed(Box<dyn Module>);

impl Module for Boxed {
    fn forward(&self, xs: &Tensor) -> Tensor {
        self.0.forward(xs)
    }
}
