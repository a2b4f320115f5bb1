//! All metrics, defined once: exporters, dashboards, rules and `docs/metrics.md` take names, types and units from here.
//!
//! Target labels (`run`, `rank`) are not defined here: service discovery or the OpenTelemetry resource adds them.

use std::fmt::Write as _;

trainmon_record::named_enum! {
    /// How a metric's values relate to each other over time; its name is the word in a `# TYPE` line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MetricType: name {
        /// A current value: may go up and down.
        Gauge = "gauge",
        /// A sum that only grows; restarts at 0 with the process.
        Counter = "counter",
        /// Counts by bucket, with sum and count.
        Histogram = "histogram",
    }
}

/// Whether a metric has a source today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Served.
    Available,
    /// Sent over OpenTelemetry on request; too many series for a page.
    Pushed,
    /// Reserved for rules and dashboards; not served yet.
    Planned,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// The Prometheus name, with its unit and `_total` suffix.
    pub name: &'static str,
    /// The OpenTelemetry name; empty where resource attributes carry the same facts.
    pub otel_name: &'static str,
    /// The OpenTelemetry unit (UCUM). Empty for a norm: `1` would become `_ratio` on its way to Prometheus.
    pub unit: &'static str,
    /// Gauge, counter or histogram.
    pub metric_type: MetricType,
    /// The labels of a sample, without target labels.
    pub labels: &'static [&'static str],
    /// Whether it is served today.
    pub status: Status,
    /// The `# HELP` text: one sentence.
    pub help: &'static str,
}

macro_rules! catalog {
    ($($constant:ident: $status:ident $metric_type:ident $name:literal {$($label:literal),*}
       otel $otel_name:literal unit $unit:literal $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                otel_name: $otel_name,
                unit: $unit,
                metric_type: MetricType::$metric_type,
                labels: &[$($label),*],
                status: Status::$status,
                help: $help,
            };
        )*

        /// Every metric, in the order of the documentation.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

catalog! {
    BUILD_INFO: Available Gauge "trainmon_build_info" {"version"} otel "" unit ""
        "Version of trainmon as a label; the value is always 1.";
    RANK_INFO: Available Gauge "trainmon_rank_info" {"host"} otel "" unit ""
        "Host of the rank as a label, for joins with other series; the value is always 1.";
    WORLD_SIZE: Available Gauge "trainmon_world_size" {} otel "training.world.size" unit "{rank}"
        "Number of ranks in the run.";

    STEP: Available Gauge "trainmon_step" {} otel "training.step" unit "{step}"
        "Number of the last completed optimizer step; decreases when a run resumes from a checkpoint.";
    STEPS: Available Counter "trainmon_steps_total" {} otel "training.steps" unit "{step}"
        "Number of optimizer steps observed by this process.";
    SKIPPED_STEPS: Available Counter "trainmon_skipped_steps_total" {} otel "training.steps.skipped" unit "{step}"
        "Number of optimizer steps skipped by a loss scaler, `skip_step()`, or a loop that clears non-finite gradients.";
    LAST_STEP_TIMESTAMP: Available Gauge "trainmon_last_step_timestamp_seconds" {}
        otel "training.step.last_time" unit "s" "Unix time of the last completed step in seconds.";
    STEP_DURATION: Available Histogram "trainmon_step_duration_seconds" {} otel "training.step.duration" unit "s"
        "Time from the end of one step to the end of the next in seconds.";
    LOSS: Available Gauge "trainmon_loss" {} otel "training.loss" unit ""
        "Latest loss that the training script logged.";
    LEARNING_RATE: Available Gauge "trainmon_learning_rate" {} otel "training.learning_rate" unit ""
        "Latest learning rate that the training script logged.";
    SCALAR: Available Gauge "trainmon_scalar" {"name"} otel "training.scalar" unit ""
        "Latest value of a number that the training script logs under its own name.";
    LOSS_SCALE: Planned Gauge "trainmon_loss_scale" {} otel "training.loss_scale" unit ""
        "Loss scale of mixed-precision training.";
    LOSS_SCALING_ENABLED: Planned Gauge "trainmon_loss_scaling_enabled" {}
        otel "training.loss_scaling.enabled" unit ""
        "1 if the loss is scaled, so that some non-finite gradients are normal; else 0.";

    GRAD_NORM: Available Gauge "trainmon_grad_norm" {} otel "training.grad.norm" unit ""
        "L2 norm over all measured gradients of the last measured step, before clipping if that is measured.";
    GRAD_NORM_INTERVAL_MAX: Available Gauge "trainmon_grad_norm_interval_max" {}
        otel "training.grad.norm.interval_max" unit ""
        "Largest gradient norm in the configured window, so that no scrape misses a peak; NaN counts as largest.";
    GRAD_NORM_INTERVAL_MAX_STEP: Available Gauge "trainmon_grad_norm_interval_max_step" {}
        otel "training.grad.norm.interval_max_step" unit "{step}"
        "Step of the largest gradient norm in the configured window.";
    GRAD_NORM_SELF_CHECK: Available Gauge "trainmon_grad_norm_self_check_ratio" {}
        otel "training.grad.norm.self_check" unit "1"
        "Gradient norm measured by trainmon divided by the framework's, if known; NaN if either is.";
    GRAD_NORM_MISMATCHES: Available Counter "trainmon_grad_norm_mismatches_total" {}
        otel "training.grad.norm.mismatches" unit "{step}"
        "Number of steps in which the two gradient norms differ by more than 1 %, or only one is finite.";
    GRAD_NORM_SPIKES: Available Counter "trainmon_grad_norm_spikes_total" {}
        otel "training.grad.norm.spikes" unit "{spike}"
        "Number of steps in which rule `Spike` found the run's gradient norm.";
    GRAD_NORM_ZSCORE: Available Gauge "trainmon_grad_norm_zscore" {} otel "training.grad.norm.zscore" unit ""
        "Distance of the gradient norm from its recent mean in standard deviations.";
    UPDATE_NORM: Available Gauge "trainmon_update_norm" {} otel "training.update.norm" unit ""
        "L2 norm of the change of all parameters in the last measured step.";
    UPDATE_RATIO: Available Gauge "trainmon_update_ratio" {"agg"} otel "training.update.ratio" unit "1"
        "Norm of the change of a parameter divided by its norm: largest and median over parameters.";
    UPDATE_NORM_SPIKES: Available Counter "trainmon_update_norm_spikes_total" {}
        otel "training.update.norm.spikes" unit "{spike}"
        "Number of steps in which rule `Spike` found the run's update norm.";
    ALERTS: Available Counter "trainmon_alerts_total" {"rule"} otel "training.alerts" unit "{finding}"
        "Number of findings of each alert rule, one per series and step, whether reported or not.";
    ALERT_FIRST_MOVE: Available Gauge "trainmon_alert_first_move" {"rule", "signal", "layer", "tensor_name"}
        otel "training.alert.first_move" unit "{step}"
        "Step of the quantity that moved first in the latest incident of each rule, until 15 minutes after its end; \
         the fraction is the position in the order of a step.";
    ALERTS_LOST: Available Counter "trainmon_alerts_lost_total" {} otel "training.monitor.alerts.lost" unit "{alert}"
        "Number of alerts not delivered to an exporter, webhook, command or file, or beyond the limit per step.";
    ALERT_OVERFLOW: Available Counter "trainmon_alert_values_ignored_total" {}
        otel "training.monitor.alerts.ignored" unit "{value}"
        "Number of values that no alert rule checked, because there are more series than `alert.max_series`.";
    TOP_GRAD_NORM: Available Gauge "trainmon_top_grad_norm" {"slot"} otel "training.grad.norm.top" unit ""
        "Largest gradient norms, with the largest in slot 0; /top lists the parameters.";
    GROUP_GRAD_NORM_SHARE: Available Gauge "trainmon_group_grad_norm_share" {"group"}
        otel "training.grad.norm.share" unit "1" "Share of a group in the squared gradient norm, 0 to 1.";

    LAYER_NORM: Available Gauge "trainmon_layer_norm" {"layer", "group", "tensor", "scope"}
        otel "training.layer.norm" unit "" "L2 norm over one layer and group.";
    LAYER_ABS_MAX: Available Gauge "trainmon_layer_abs_max" {"layer", "group", "tensor", "scope"}
        otel "training.layer.abs_max" unit "" "Largest magnitude in one layer and group; NaN if any element is.";
    LAYER_MEAN: Available Gauge "trainmon_layer_mean" {"layer", "group", "tensor", "scope"}
        otel "training.layer.mean" unit "" "Mean element of one layer and group.";
    ZERO_ELEMENTS_RATIO: Available Gauge "trainmon_zero_elements_ratio" {"layer", "group", "tensor", "scope"}
        otel "training.zero.elements" unit "1" "Share of elements with a magnitude below eps, 0 to 1.";
    LAYER_PART_NORM: Available Gauge "trainmon_layer_part_norm" {"layer", "group", "tensor", "scope"}
        otel "training.layer.part.norm" unit ""
        "L2 norm of this rank's part of one layer and group, if ranks hold different parts; equal parts count on the lowest rank.";
    LAYER_PART_ABS_MAX: Available Gauge "trainmon_layer_part_abs_max" {"layer", "group", "tensor", "scope"}
        otel "training.layer.part.abs_max" unit ""
        "Largest magnitude in this rank's part of one layer and group; NaN if any element is.";
    LAYER_PART_MEAN: Available Gauge "trainmon_layer_part_mean" {"layer", "group", "tensor", "scope"}
        otel "training.layer.part.mean" unit "" "Mean element of this rank's part of one layer and group.";
    LAYER_PART_ZEROS_RATIO: Available Gauge "trainmon_layer_part_zero_elements_ratio"
        {"layer", "group", "tensor", "scope"} otel "training.layer.part.zero_elements" unit "1"
        "Share of elements with a magnitude below eps in this rank's part of one layer and group, 0 to 1.";
    LAYER_PART_ELEMENTS: Available Gauge "trainmon_layer_part_elements" {"layer", "group", "tensor", "scope"}
        otel "training.layer.part.elements" unit "{element}" "Number of elements in this rank's part of one layer and group.";
    PARAMETER_PART_NORM: Available Gauge "trainmon_parameter_part_norm" {"name", "tensor", "scope"}
        otel "training.parameter.part.norm" unit ""
        "L2 norm of this rank's part of one tensor, with `per_parameter`; equal parts count on the lowest rank.";
    PARAMETER_NORM: Available Gauge "trainmon_parameter_norm" {"name", "vpp_stage", "tensor", "scope"}
        otel "training.parameter.norm" unit "" "L2 norm of one tensor, with `per_parameter`.";
    PARAMETER_MIN: Pushed Gauge "trainmon_parameter_min" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.min" unit "" "Smallest element of one tensor; NaN if any is.";
    PARAMETER_MAX: Pushed Gauge "trainmon_parameter_max" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.max" unit "" "Largest element of one tensor; NaN if any is.";
    PARAMETER_MEAN: Pushed Gauge "trainmon_parameter_mean" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.mean" unit "" "Mean element of one tensor.";
    PARAMETER_ABS_MAX: Pushed Gauge "trainmon_parameter_abs_max"
        {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.abs_max" unit "" "Largest magnitude in one tensor; NaN if any element is.";
    PARAMETER_STD: Pushed Gauge "trainmon_parameter_std" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.std" unit "" "Sample standard deviation of one tensor's elements.";
    PARAMETER_NANS: Pushed Gauge "trainmon_parameter_nans" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.nans" unit "{element}" "Number of NaN elements in one tensor.";
    PARAMETER_INFS: Pushed Gauge "trainmon_parameter_infs" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.infs" unit "{element}" "Number of infinite elements in one tensor.";
    PARAMETER_ZEROS: Pushed Gauge "trainmon_parameter_zeros" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.zeros" unit "1" "Share of one tensor's elements with a magnitude below eps, 0 to 1.";
    PARAMETER_COUNT: Pushed Gauge "trainmon_parameter_count" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.count" unit "{element}" "Number of elements in one tensor.";
    PARAMETER_CRC32: Pushed Gauge "trainmon_parameter_crc32" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.crc32" unit "" "CRC-32 of one tensor's bytes.";
    PARAMETER_XOR64: Pushed Gauge "trainmon_parameter_xor64" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.xor64" unit "" "XOR of one tensor's 64-bit words, as a signed number.";
    PARAMETER_ID: Pushed Gauge "trainmon_parameter_id" {"name", "vpp_stage", "tensor", "scope", "micro_step"}
        otel "training.parameter.id" unit "" "Value of a tensor without dimensions.";
    PARAMETER_VALUE: Pushed Gauge "trainmon_parameter_value" {"name", "vpp_stage", "tensor", "value", "micro_step"}
        otel "training.parameter.value" unit ""
        "Number that is measured instead of statistics: an update ratio, an entropy, a stable rank.";
    NONFINITE_ELEMENTS: Available Counter "trainmon_nonfinite_elements_total" {"tensor"}
        otel "training.nonfinite.elements" unit "{element}"
        "Number of NaN and infinite elements in measured tensors; at least 1 per affected tensor if they are not counted.";
    SPIKED_ELEMENTS: Planned Counter "trainmon_spiked_elements_total" {"group"}
        otel "training.spiked.elements" unit "{element}" "Number of gradient elements far above their second moment.";
    REPLICA_MISMATCHES: Planned Counter "trainmon_replica_mismatches_total" {"process_group"}
        otel "training.replica.mismatches" unit "{mismatch}" "Number of replicas that should be bitwise equal and are not.";
    FP8_UNDERFLOW: Planned Gauge "trainmon_fp8_underflow_ratio" {"layer", "tensor"}
        otel "training.fp8.underflow" unit "1" "Share of elements that the cast to fp8 turns into zero, 0 to 1.";
    FP8_AMAX: Planned Gauge "trainmon_fp8_amax" {"layer", "tensor"} otel "training.fp8.amax" unit ""
        "Largest magnitude before the cast to fp8.";

    COLLECTIVE_OPERATIONS: Available Counter "trainmon_collective_operations_total" {"op", "process_group"}
        otel "training.collective.operations" unit "{operation}" "Number of collective operations started.";
    COLLECTIVE_FAILURES: Available Counter "trainmon_collective_failures_total" {"op", "process_group"}
        otel "training.collective.failures" unit "{operation}"
        "Number of collective operations that failed or were abandoned.";
    COLLECTIVE_PAYLOAD: Available Counter "trainmon_collective_payload_bytes_total" {"op", "process_group"}
        otel "training.collective.payload" unit "By" "Number of bytes passed to collective operations.";
    COLLECTIVE_DURATION: Available Histogram "trainmon_collective_duration_seconds" {"op", "process_group"}
        otel "training.collective.duration" unit "s" "Time inside collective operations in seconds.";
    COLLECTIVE_QUANTILE: Available Gauge "trainmon_collective_duration_quantile_seconds"
        {"op", "process_group", "share"}
        otel "training.collective.duration.quantile" unit "s"
        "Quantiles of the time inside collective operations since the start in seconds, within 1 %.";
    COLLECTIVE_WAITED: Available Counter "trainmon_collective_waited_seconds_total" {"op", "process_group"}
        otel "training.collective.waited" unit "s"
        "Time in seconds in which the caller of collective operations only waited; the rest overlapped with other work.";
    COLLECTIVE_GROUP: Available Gauge "trainmon_collective_group_info" {"process_group", "role", "ranks"} otel "" unit ""
        "Number of ranks in a process group, with labels for joins with other series.";
    STRAGGLER_RANK: Available Gauge "trainmon_collective_straggler_rank" {"process_group"}
        otel "training.collective.straggler.rank" unit "{rank}"
        "Rank that arrives last at the group's operations and so spends the least time inside; only on the group's first rank.";
    STRAGGLER_LAG: Available Gauge "trainmon_collective_straggler_lag_seconds" {"process_group"}
        otel "training.collective.straggler.lag" unit "s"
        "Time in seconds per step that the others wait for the straggler: their median time inside minus its own.";

    COLLECT_DURATION: Available Histogram "trainmon_collect_duration_seconds" {"phase"}
        otel "training.monitor.collect.duration" unit "s"
        "Time of the monitor on the training thread per step in seconds, by phase.";
    COLLECT_DEVICE_TIME: Planned Counter "trainmon_collect_device_seconds_total" {}
        otel "training.monitor.device.time" unit "s" "Device time for statistics in seconds.";
    BYTES_READ: Available Counter "trainmon_bytes_read_total" {} otel "training.monitor.read" unit "By"
        "Size of the tensor memory read in bytes.";
    RECORDS_OBSERVED: Available Counter "trainmon_records_observed_total" {}
        otel "training.monitor.records.observed" unit "{record}" "Number of tensors observed by the hooks.";
    RECORDS_NOT_SAMPLED: Available Counter "trainmon_records_not_sampled_total" {}
        otel "training.monitor.records.not_sampled" unit "{record}"
        "Number of observed tensors that were not measured: outside the step window, or of an unsupported form.";
    RECORDS_ACCEPTED: Available Counter "trainmon_records_accepted_total" {"sink"}
        otel "training.monitor.records.accepted" unit "{record}" "Number of records for a sink.";
    RECORDS_EXPORTED: Available Counter "trainmon_records_exported_total" {"sink"}
        otel "training.monitor.records.exported" unit "{record}" "Number of records that a sink delivered.";
    RECORDS_DROPPED: Available Counter "trainmon_records_dropped_total" {"sink", "reason"}
        otel "training.monitor.records.dropped" unit "{record}"
        "Number of dropped records; the sink `worker` is the queue from the training thread.";
    QUEUE_LENGTH: Available Gauge "trainmon_queue_length" {"sink"} otel "training.monitor.queue.length" unit "{step}"
        "Number of step batches in the queue.";
    QUEUE_CAPACITY: Available Gauge "trainmon_queue_capacity" {"sink"}
        otel "training.monitor.queue.capacity" unit "{step}" "Capacity of the queue in step batches.";
    SERIES: Available Gauge "trainmon_series" {} otel "training.monitor.series.served" unit "{series}"
        "Number of series on this page.";
    SERIES_LIMIT: Available Gauge "trainmon_series_limit" {} otel "training.monitor.series.limit" unit "{series}"
        "Configured maximum number of series on this page.";
    SERIES_OVERFLOW: Available Counter "trainmon_series_overflow_total" {}
        otel "training.monitor.series.overflow" unit "{series}"
        "Number of values dropped at the series limit, counted per step, and per scrape for collective operations.";
    SCRAPE_DURATION: Available Histogram "trainmon_scrape_duration_seconds" {}
        otel "training.monitor.scrape.duration" unit "s" "Time to render this page in seconds.";
    OVERHEAD_BUDGET: Available Gauge "trainmon_overhead_budget_ratio" {} otel "training.monitor.budget" unit "1"
        "Share of the step time that measuring may take, 0 to 1; absent without a budget.";
    SAMPLING: Available Gauge "trainmon_sampling_ratio" {} otel "training.monitor.sampling" unit "1"
        "Share of layers and groups measured per step to stay within the overhead budget, 0 to 1; absent without a budget.";
    HOST_SYNCS: Planned Counter "trainmon_host_syncs_total" {} otel "training.monitor.host_syncs" unit "{sync}"
        "Number of times that the monitor made the host wait for a device; must stay 0.";
    DUMPS: Planned Counter "trainmon_dumps_total" {"trigger"} otel "training.monitor.dumps" unit "{dump}"
        "Number of dumps.";
    DUMP_BYTES: Planned Counter "trainmon_dump_bytes_total" {} otel "training.monitor.dump.size" unit "By"
        "Number of bytes written to dumps.";
    JOURNAL_BYTES: Available Counter "trainmon_journal_bytes_total" {} otel "training.monitor.journal.size" unit "By"
        "Number of bytes written to the journal.";
    JOURNAL_ERRORS: Available Counter "trainmon_journal_errors_total" {}
        otel "training.monitor.journal.errors" unit "{error}" "Number of failed writes to the journal.";
}

/// The catalogue as the document `docs/metrics.md`.
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for (heading, status) in SECTIONS {
        let heading = format!(
            "\n## {heading}\n\n| Prometheus | type | OpenTelemetry | unit | meaning |\n|---|---|---|---|---|\n"
        );
        text.push_str(&heading);
        for metric in ALL.iter().filter(|metric| metric.status == status) {
            push_row(&mut text, metric);
        }
    }
    text.push_str(CLOSING);
    text
}

const SECTIONS: [(&str, Status); 3] = [
    ("Available", Status::Available),
    ("Over OpenTelemetry only, with `otlp.per_parameter`", Status::Pushed),
    ("Planned", Status::Planned),
];

fn push_row(text: &mut String, metric: &Metric) {
    let Metric { name, otel_name, unit, metric_type, labels, help, .. } = metric;
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let code = |word: &str| if word.is_empty() { "–".to_owned() } else { format!("`{word}`") };
    // Writing to a String cannot fail.
    writeln!(text, "| `{name}{labels}` | {} | {} | {} | {help} |", metric_type.name(), code(otel_name), code(unit))
        .unwrap_or_default();
}

const INTRODUCTION: &str = "\
# Metrics

Generated from `agent/core/src/catalog.rs`. To update this page, run `TRAINMON_REGENERATE=1 cargo test -p trainmon-core catalog`.

The samples on a page have no `run` and no `rank` label: these are labels of the target, and the alert rules group by them.
The target files that trainmon writes (`prometheus.target_file`) contain both. There is one file per rank on a host:

```yaml
scrape_configs:
- job_name: trainmon
  file_sd_configs:
  - files: ['/var/run/trainmon/targets.rank*.json']
```

If you list targets yourself, add the labels:

```yaml
  static_configs:
  - {targets: ['127.0.0.1:9464'], labels: {run: my-run, rank: '0'}}
```

For dashboards and alert rules on these metrics, see [on-call.md](on-call.md).

The step is never a label. The name of a parameter is a label only with `per_parameter`. `/top` lists the parameters with the
largest gradient norms as JSON.
";

const CLOSING: &str = "
## Labels

| Label | Values |
|---|---|
| `layer` | the name up to its first number (`model.layers.7`), else its first component; with the prefix `1:`, `2:`, … for later virtual-pipeline stages |
| `group` | `attn`, `mlp`, `norm`, `embed`, `head`, `moe`, `other` |
| `tensor` | `grad`, `actv`, `actv_grad`, `param` (after the step), `param_origin` (before it), `update`, `mg_direction`, or the optimizer's name of a moment: `exp_avg`, `exp_avg_sq`, … |
| `scope` | `unreduced` or `reduced` for gradients; else absent |
| `op` | `all_reduce`, `all_gather`, `reduce_scatter`, …, as in `torch.distributed` |
| `process_group` | the group of ranks, as named by the training loop |
| `agg` | `max`, `median` |
| `name` | the name of a parameter; for `trainmon_scalar`, the name of the number in the script |
| `slot` | `0` to `k-1` |
| `rule` | the name of an alert rule: `Spike`, `NonFinite`, … |
| `phase` | `measure`, `launch`, `offer`, all on the training thread |
| `value` | the name of the number: `update_ratio`, `entropy`, `softmax_max`, … |
| `micro_step` | the micro-batch, from 1; absent for the first |
| `sink` | `worker` (the queue from the training thread) or an exporter: `csv`, `prometheus`, `otlp`, … |
| `reason` | `queue_full`, `worker_gone`; for an exporter also `failed`, `abandoned` |
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn catalog_and_document_agree() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        if std::env::var_os("TRAINMON_REGENERATE").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == markdown(),
            "docs/metrics.md is out of date; run `TRAINMON_REGENERATE=1 cargo test -p trainmon-core catalog`"
        );
    }

    #[test]
    fn names_are_unique_and_follow_the_conventions_of_prometheus() {
        let mut names = HashSet::new();
        for metric in ALL {
            assert!(names.insert(metric.name), "{} twice", metric.name);
            assert!(metric.name.starts_with("trainmon_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.metric_type == MetricType::Counter, "{}", metric.name);
            let base = metric.name.trim_end_matches("_total");
            match metric.unit {
                "s" => assert!(base.ends_with("_seconds"), "{}", metric.name),
                "By" => assert!(base.ends_with("_bytes") || base.ends_with("bytes_read"), "{}", metric.name),
                _ => {}
            }
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '|']), "{}", metric.name);
        }
    }

    #[test]
    fn neither_step_nor_target_labels_are_sample_labels() {
        for metric in ALL {
            for label in metric.labels {
                assert!(!["step", "run", "rank", "job", "instance", "le"].contains(label), "{}", metric.name);
                let is_of_parameters = metric.name.starts_with("trainmon_parameter_");
                assert!(*label != "name" || is_of_parameters || metric.name == SCALAR.name, "{}", metric.name);
            }
        }
    }

    #[test]
    fn opentelemetry_names_are_unique_and_carry_no_unit() {
        let mut names = HashSet::new();
        for metric in ALL.iter().filter(|metric| !metric.otel_name.is_empty()) {
            assert!(names.insert(metric.otel_name), "{} twice", metric.otel_name);
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '_';
            assert!(metric.otel_name.chars().all(allowed), "{}", metric.otel_name);
            assert!(!metric.otel_name.ends_with("total") && !metric.otel_name.ends_with("seconds"));
        }
    }
}
