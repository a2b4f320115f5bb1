//! Reads and summarizes one rank of a run.

use std::collections::BTreeSet;

use trainmon_core::config::Signal;
use trainmon_core::{Alert, DropReason, Kind, LedgerSnapshot, Phase, RunInfo, StatisticSet, Step, StepBatch};
use trainmon_history::{
    CostDocument, History, HistoryFiller, LedgerDocument, Limits, Overview, RunDocument, Status, VERSION,
};
use trainmon_runs::steps::{ReadRunError, RecordedRank, StepTimes};

/// The contents of one rank's files.
#[derive(Debug)]
pub struct RankHistory {
    /// The run and the rank.
    pub run: RunInfo,
    /// The rank's curves and tensors.
    pub history: History,
    /// All alerts, oldest first; `history` keeps only the newest.
    pub alerts: Vec<Alert>,
    /// Whether the run recorded its alerts in a file.
    pub alerts_are_recorded: bool,
    /// Whether the rank recorded a clean end; `None` if its files never record that.
    pub has_ended: Option<bool>,
    /// Seconds since the files last changed, if known.
    pub silent_for: Option<u64>,
    /// The number of steps.
    pub steps: u64,
    /// The number of steps in which tensors were measured.
    pub measured_steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The kinds of measurements in the files.
    pub kinds: BTreeSet<&'static str>,
    /// The number of steps in which only a part of the layers was measured.
    pub sampled_steps: u64,
    /// Whether every step has its own time.
    pub times: StepTimes,
    /// Problems found in the files, one sentence each.
    pub warnings: Vec<String>,
    counts: LedgerSnapshot,
    cost: CostDocument,
}

impl RankHistory {
    /// Reads a rank. Calls `progress` with the number of bytes read so far.
    ///
    /// Memory: that of a history, independent of the run's length. Every file is read once.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn read(rank: &RecordedRank, limits: Limits, progress: &mut dyn FnMut(u64)) -> Result<Self, ReadRunError> {
        let mut reader = rank.open()?;
        let config = reader.config().clone();
        let mut filler =
            HistoryFiller::of_recorded(|kind| config.signal(kind).map_or(StatisticSet::EMPTY, Signal::set));
        let mut read = Self {
            run: rank.run().clone(),
            history: History::new(limits),
            alerts: Vec::new(),
            alerts_are_recorded: false,
            has_ended: None,
            silent_for: rank.silent_for(),
            steps: 0,
            measured_steps: 0,
            range: None,
            kinds: BTreeSet::new(),
            sampled_steps: 0,
            times: StepTimes::Known,
            warnings: Vec::new(),
            counts: LedgerSnapshot::default(),
            cost: CostDocument::default(),
        };
        let mut batch = StepBatch::default();
        let mut measured: Vec<u64> = Vec::new();
        while reader.next(&mut batch)? {
            let figures = filler.figures(&batch);
            filler.add(&mut read.history, reader.names(), &batch, &figures);
            read.count(&batch);
            if !batch.records.is_empty() {
                measured.push(batch.step.0);
            }
            progress(reader.bytes_read());
        }
        read.times = reader.times();
        read.warnings = reader.warnings().to_vec();
        // Rules look at measured steps only: two measured steps are neighbours even with unmeasured steps between them.
        let place = |step: u64| measured.partition_point(|&other| other < step);
        let found = rank.alerts(&|a, b| place(b) <= place(a) + 1)?;
        read.warnings.extend(found.unread);
        for alert in &found.alerts {
            read.history.alert(alert.clone());
        }
        (read.alerts, read.alerts_are_recorded) = (found.alerts, found.are_recorded);
        read.has_ended = found.has_ended;
        Ok(read)
    }

    fn count(&mut self, batch: &StepBatch) {
        let Step(step) = batch.step;
        let (first, _) = self.range.unwrap_or((step, step));
        self.range = Some((first, step));
        self.steps += 1;
        self.measured_steps += u64::from(!batch.records.is_empty());
        self.sampled_steps += u64::from(batch.sampling_stride > 1);
        self.kinds.extend(
            batch.records.iter().map(|record| record.kind).filter(|&kind| kind != Kind::Scalar).map(Kind::name),
        );
        self.counts = batch.counts;
        let seconds = |phase| batch.cost.get(phase).as_secs_f64();
        self.cost.steps += 1;
        self.cost.step_seconds += batch.duration.map_or(0.0, |duration| duration.as_secs_f64());
        self.cost.measure_seconds += seconds(Phase::Measure);
        self.cost.launch_seconds += seconds(Phase::Launch);
        self.cost.offer_seconds += seconds(Phase::Offer);
        self.cost.bytes_read += batch.bytes_read;
        self.cost.sampling = Some(batch.sampling_ratio());
    }

    /// The number of dropped records.
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.into_iter().map(|reason| self.counts.dropped[reason as usize]).sum()
    }

    /// The rank's curves, worst tensors and alerts.
    pub fn overview(&self) -> Overview {
        self.history.overview()
    }

    /// Everything that a page or a terminal shows, without heat maps.
    pub fn document(&self) -> RunDocument {
        RunDocument { version: VERSION, overview: self.overview(), status: self.status(), heat_maps: Vec::new() }
    }

    /// The run's identity and the monitor's final counts.
    pub fn status(&self) -> Status {
        let LedgerSnapshot { observed, not_sampled, accepted, .. } = self.counts;
        let has_counts = self.counts != LedgerSnapshot::default();
        let has_cost = self.cost.bytes_read > 0 || self.cost.measure_seconds > 0.0;
        Status {
            run: self.run.run.clone(),
            rank: self.run.rank.0,
            world_size: self.run.world_size,
            step: self.range.map(|(_, last)| last),
            ledger: has_counts.then(|| LedgerDocument {
                observed,
                not_sampled,
                accepted,
                dropped: self.dropped(),
                ..LedgerDocument::default()
            }),
            cost: has_cost.then_some(self.cost),
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use trainmon_history::ABSENT;
    use trainmon_runs::steps::{RankChoice, RecordedRun};

    use super::*;

    #[test]
    fn statistics_that_were_changed_in_mid_run_are_read_by_the_columns_of_each_table() {
        let directory = tempfile::tempdir().unwrap();
        let rank = directory.path().join("run-a/rank_0");
        std::fs::create_dir_all(&rank).unwrap();
        let tables = [
            ("grad_reduced_0-1.csv", "vpp_stage,name,step,norm\n0,w,0,1.0\n0,w,1,2.0\n"),
            ("grad_reduced_2-3.csv", "vpp_stage,name,step,min,max\n0,w,2,-3.0,2.0\n0,w,3,-1.0,4.0\n"),
        ];
        for (name, text) in tables {
            std::fs::write(rank.join(name), text).unwrap();
        }
        let run = RecordedRun::open(&directory.path().join("run-a"), RankChoice::First).unwrap();
        let read = RankHistory::read(&run.ranks[0], Limits::default(), &mut |_| {}).unwrap();
        let values = |statistic| read.history.heat_map("grad_reduced", statistic, 0).unwrap().values;
        assert_eq!(values("norm"), [1.0, 2.0, ABSENT, ABSENT]);
        assert_eq!(values("absmax"), [ABSENT, ABSENT, 3.0, 4.0]);
        let worst = read.history.overview().tables.worst;
        assert!(worst.iter().all(|state| state.value.is_finite()), "what was not measured is not broken: {worst:?}");
    }
}
