//! Gradient clipping, with tch's arithmetic.

use tch::{Tensor, no_grad};

use super::{Optimizer, OptimizerError, doing};

/// The number that tch adds to the norm against division by zero.
const NORM_EPSILON: f64 = 1e-6;

impl Optimizer {
    /// Clamps each gradient element to `-max ..= max`.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn clip_grad_value(&self, max: f64) -> Result<(), OptimizerError> {
        for mut grad in self.gradients() {
            let _clamped =
                grad.f_clamp_(-max, max).map_err(|why| doing("cannot clip the gradients")(why.to_string()))?;
        }
        Ok(())
    }

    /// Scales all gradients so that their common Euclidean norm is at most `max`. Returns the norm before the scaling,
    /// or 0 without gradients. Waits for the gradients: on a device this synchronises, as in tch.
    ///
    /// # Errors
    /// libtorch reports an error.
    pub fn clip_grad_norm(&self, max: f64) -> Result<f64, OptimizerError> {
        let refuse = |why: tch::TchError| doing("cannot clip the gradients")(why.to_string());
        no_grad(|| {
            let gradients = self.gradients();
            if gradients.is_empty() {
                return Ok(0.0);
            }
            let norms: Vec<Tensor> = gradients.iter().map(Tensor::f_norm).collect::<Result<_, _>>().map_err(refuse)?;
            let norm = Tensor::f_stack(&norms, 0).and_then(|norms| norms.f_norm()).map_err(refuse)?;
            let norm = norm.f_double_value(&[]).map_err(refuse)?;
            let factor = max / (norm + NORM_EPSILON);
            if factor < 1.0 {
                for mut grad in gradients {
                    let _scaled = grad.f_mul_scalar_(factor).map_err(refuse)?;
                }
            }
            Ok(norm)
        })
    }

    fn gradients(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|parameter| parameter.tensor.grad()).filter(Tensor::defined).collect()
    }
}
