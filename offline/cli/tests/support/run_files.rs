//! A monitored run's files, made by a test.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A training of three tensors whose gradients scatter a little, a step a second from 2026-11-20 on.
pub(crate) struct MadeRun {
    pub(crate) steps: u64,
    /// From this step on the gradient of `blocks.1.mlp.weight` is a hundred times as large, for one step.
    pub(crate) spike: Option<u64>,
    /// From this step on it is NaN.
    pub(crate) not_finite: Option<u64>,
}

/// Unix seconds of step 0.
pub(crate) const START: u64 = 1_795_190_400;
/// The tensors, in order.
pub(crate) const TENSORS: [&str; 3] = ["blocks.0.attn.qkv.weight", "blocks.1.mlp.weight", "head.weight"];

impl MadeRun {
    /// A value that scatters by some percent, the same every time.
    fn scatter(step: u64, tensor: usize) -> f64 {
        1.0 + 0.05 * (step as f64 * 1.7 + tensor as f64).sin()
    }

    fn norm(&self, step: u64, tensor: usize) -> f64 {
        let usual = Self::scatter(step, tensor) * (tensor + 1) as f64;
        match tensor {
            1 if self.not_finite.is_some_and(|from| step >= from) => f64::NAN,
            1 if self.spike == Some(step) => 100.0 * usual,
            _ => usual,
        }
    }

    /// Writes the files of one rank to a directory: CSV, two kinds and `steps.csv`.
    pub(crate) fn write_rank(&self, directory: &Path) {
        let mut steps =
            "step,unix_seconds,step_seconds,loss,learning_rate,grad_norm,measure_seconds,bytes_read,observed_total,\
                         not_sampled_total,dropped_total\n"
                .to_owned();
        let mut rows = "vpp_stage,name,step,min,max,mean,norm,nans,zeros,shape,dtype\n".to_owned();
        let mut ratios = "vpp_stage,name,step,update_ratio\n".to_owned();
        for step in 0..self.steps {
            let norms: Vec<f64> = (0..TENSORS.len()).map(|tensor| self.norm(step, tensor)).collect();
            let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
            let loss = 4.0 * (-0.01 * step as f64).exp() * Self::scatter(step, 5);
            let observed = (step + 1) * 6;
            writeln!(
                steps,
                "{step},{}.5,1.0,{},0.001,{},0.002,4096,{observed},0,0",
                START + step,
                shown(loss),
                shown(norm)
            )
            .expect("text");
            for (tensor, norm) in norms.iter().enumerate() {
                let name = TENSORS[tensor];
                let nans = u32::from(norm.is_nan());
                let norm = shown(*norm);
                writeln!(rows, "0,{name},{step},-1.0,{norm},0.01,{norm},{nans},0.25,\"[2, 2]\",torch.float32")
                    .expect("text");
                writeln!(ratios, "0,{name},{step},{}", shown(1e-3 * Self::scatter(step, tensor + 7))).expect("text");
            }
        }
        fs::create_dir_all(directory).expect("writable");
        for (name, text) in
            [("steps.csv", steps), ("grad_reduced_0-9999.csv", rows), ("update_ratio_0-9999.csv", ratios)]
        {
            fs::write(directory.join(name), text).expect("writable");
        }
    }

    /// Writes a run of these ranks: `run.json` and a directory each; the planted fault on the last of them only.
    pub(crate) fn write_run(&self, directory: &Path, ranks: u32) {
        let well = Self { spike: None, not_finite: None, ..*self };
        for rank in 0..ranks {
            let of_rank = if rank + 1 == ranks { self } else { &well };
            of_rank.write_rank(&directory.join(format!("rank_{rank}")));
        }
        let name = directory.file_name().expect("a name").to_string_lossy();
        let file = format!(r#"{{"run":"{name}","world_size":{ranks},"started":"2026-11-20T16:00:00Z"}}"#);
        fs::write(directory.join("run.json"), file).expect("writable");
    }

    /// Writes one finding of the alerts of a rank.
    pub(crate) fn write_finding(directory: &Path, rank: u32, step: u64, rule: &str, tensor: &str) {
        let tag = format!("0:{tensor}/rank{rank}/post_grad");
        let message = format!(
            "Rule {rule} reports anomaly signal in ('{tag}', 'norm') at step {step}, current value 200.0, history mean 2.0."
        );
        let finding = serde_json::json!({ format!("{tag}_step_{step}_call_0_norm_{rule}"): {
            "rank": rank, "step": step, "micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "call_id": 0, "tag_name": tag,
            "message": message, "group_mates": [rank],
        }});
        let place = directory.join("anomaly_detected").join(format!("rank{rank}"));
        fs::create_dir_all(&place).expect("writable");
        fs::write(place.join("anomaly.json"), finding.to_string()).expect("writable");
    }
}

/// As Python writes floats.
fn shown(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}
