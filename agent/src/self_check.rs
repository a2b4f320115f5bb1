//! Our gradient norm against the framework's: two ways to one number. Runs in the worker.

use trainmon_core::{GRAD_NORM_TOLERANCE, GradNormCheck, Step, StepBatch};

use crate::notice::Voice;

/// Says when the norms begin to part and when they agree again, not in between.
#[derive(Debug)]
pub(crate) struct SelfCheck {
    voice: Voice,
    /// Checked steps since the norms parted, the first included; `None` while they agree.
    parted_steps: Option<u64>,
}

impl SelfCheck {
    pub(crate) fn new(voice: Voice) -> Self {
        Self { voice, parted_steps: None }
    }

    /// Looks at a step; one that lacks either norm changes nothing.
    pub(crate) fn look_at(&mut self, batch: &StepBatch) {
        let Some(check) = batch.grad_norm_check() else { return };
        match (check.agrees(), self.parted_steps) {
            (true, None) => {}
            (true, Some(steps)) => {
                self.parted_steps = None;
                let figures = figures(batch.step, check);
                self.voice.info(format!("the gradient norms agree again after {steps} steps: {figures}"));
            }
            (false, Some(steps)) => self.parted_steps = Some(steps + 1),
            (false, None) => {
                self.parted_steps = Some(1);
                self.voice.warn(
                    format!(
                        "the gradient norm parts from the framework's by more than {:.0} %: {}",
                        100.0 * GRAD_NORM_TOLERANCE,
                        figures(batch.step, check)
                    ),
                    Some(HINT.to_owned()),
                );
            }
        }
    }
}

const HINT: &str = "one of the two leaves out or doubles parameters or ranks, or was taken at another moment (before \
                    unscaling, after clipping); `framework_grad_norm` and `grad_norm_ratio` in steps.csv show every step";

fn figures(step: Step, check: GradNormCheck) -> String {
    let GradNormCheck { ours, framework } = check;
    format!("step {step}: ours {ours:.6e}, the framework's {framework:.6e}, ratio {:.6}", check.ratio())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use trainmon_core::GradNorm;

    use super::*;

    #[test]
    fn it_speaks_when_the_norms_part_and_when_they_agree_again() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let mut check = SelfCheck::new(Voice::new(move |notice| heard.lock().unwrap().push(notice.to_string())));
        let norms = [(1.0, 1.0), (1.0, 2.0), (f64::NAN, 2.0), (2.0, 2.001), (3.0, 3.0)];
        for (step, (ours, framework)) in (10..).zip(norms) {
            let (grad_norm, framework_grad_norm) = (GradNorm::Known(ours), Some(framework));
            check.look_at(&StepBatch { step: Step(step), grad_norm, framework_grad_norm, ..StepBatch::default() });
            check.look_at(&StepBatch { grad_norm, ..StepBatch::default() });
        }
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 2, "{said:?}");
        let parting = "warning: the gradient norm parts from the framework's by more than 1 %: step 11: \
                       ours 1.000000e0, the framework's 2.000000e0, ratio 0.500000\n  hint: ";
        assert!(said[0].contains(parting), "{}", said[0]);
        assert!(said[1].contains("agree again after 2 steps: step 13: ours 2.000000e0"), "{}", said[1]);
    }
}
