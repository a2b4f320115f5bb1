//! The columns of msprobe's files, for writers and readers.

use crate::config::{Config, Dialect};
use crate::{Kind, Statistic};

/// Whether rows of this kind have a micro-batch column: V1 by kind, V2 for weight gradients only.
#[inline]
pub fn micro_step_column(config: &Config, kind: Kind) -> bool {
    let is_gradient = kind.is_gradient();
    match config.dialect {
        Dialect::V1 => {
            let every_micro_batch = config.signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch);
            matches!(kind, Kind::Actv | Kind::ActvGrad | Kind::AttentionHook | Kind::MoeRouterLogitHook)
                || (kind == Kind::GradUnreduced && every_micro_batch)
        }
        Dialect::V2 => is_gradient,
    }
}

/// Whether a column holds numbers to compute with or draw; checksums do not survive a float32.
#[inline]
pub fn is_number_column(column: &str) -> bool {
    column != Statistic::Crc32.name() && column != Statistic::Xor64.name()
}
