//! A device that takes its time: training never waits for it, and its readings still reach the right step.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Collected, loss, monitor, two_layers};
use tch::{Tensor, nn};
use trainmon_agent::{Monitor, Report};
use trainmon_tch::{DevicePlan, DeviceRow, DeviceStatistics, InFlight, LibtorchStatistics, Optimizer, Watch};

/// Libtorch's statistics, delivered once the flag is up.
struct SlowDevice(Arc<AtomicBool>);

struct SlowFlight(Box<dyn InFlight>, Arc<AtomicBool>);

impl DeviceStatistics for SlowDevice {
    fn launch(&mut self, tensors: &[&Tensor], plan: DevicePlan) -> Result<Box<dyn InFlight>, String> {
        Ok(Box::new(SlowFlight(LibtorchStatistics.launch(tensors, plan)?, Arc::clone(&self.0))))
    }
}

impl InFlight for SlowFlight {
    fn is_ready(&self) -> Result<bool, String> {
        Ok(self.1.load(Ordering::Relaxed))
    }

    fn rows(&self) -> Vec<DeviceRow> {
        self.0.rows()
    }
}

const CONFIG: &str = r#"{"ops": ["norm"], "wg_distribution": true, "mv_distribution": true}"#;

/// Trains `steps` steps; the device delivers from `ready_at` on.
fn train(steps: i64, ready_at: i64) -> (Report, Collected) {
    let (monitor, collected): (Monitor, Collected) = monitor(CONFIG);
    let (vs, net) = two_layers(3);
    let mut optimizer = Optimizer::new(&nn::AdamW::default(), &vs, 1e-2).unwrap();
    let is_ready = Arc::new(AtomicBool::new(false));
    let builder = Watch::builder(monitor).model(&vs).device_statistics(SlowDevice(Arc::clone(&is_ready)));
    let mut watch = builder.everything_through_the_device_path().build().unwrap();
    for step in 0..steps {
        is_ready.store(step >= ready_at, Ordering::Relaxed);
        optimizer.zero_grad().unwrap();
        loss(&net, step).backward();
        watch.step(&mut optimizer).unwrap();
    }
    is_ready.store(true, Ordering::Relaxed);
    (watch.finish(), collected)
}

#[test]
fn readings_that_come_late_belong_to_the_step_they_were_launched_in() {
    let (prompt_report, prompt) = train(6, 0);
    let (report, late) = train(6, 3);
    assert!(report.balances() && prompt_report.balances(), "{report}");
    assert_eq!(report.counts.not_sampled, 0, "{report}");
    let steps: Vec<u64> = late.batches().iter().map(|batch| batch.step.0).collect();
    assert_eq!(steps, [0, 1, 2, 3, 4, 5], "in order, none lost");
    assert_eq!(late.rows(), prompt.rows());
}

#[test]
fn a_device_that_falls_behind_for_good_costs_readings_not_training() {
    let (report, collected) = train(12, 12);
    assert!(report.balances() && report.counts.not_sampled > 0, "{report}");
    assert_eq!(collected.batches().len(), 12, "every step is told, with or without its readings");
    let notices = collected.notices.lock().unwrap();
    assert!(notices.iter().any(|notice| notice.contains("steps behind")), "{notices:?}");
}
