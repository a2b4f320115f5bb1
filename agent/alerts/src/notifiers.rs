//! The notifiers and files that alerts and findings leave the process through, and their shutdown.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::Config;
use trainmon_core::{AlertTotals, Rank};
use trainmon_service::{Notices, Relay};

use super::alert_file::AlertFile;
use super::anomaly_file::{self, AnomalyFile, Entry};
use super::delivery::{ClosingQueue, NotifyQueue, Payload};
use super::engine::{Outlet, RaisedAlert};
use super::incident::Channels;
use super::job::{ClosingJob, JobQueue};
use super::senders::Senders;

/// The sender of alerts.
enum Out {
    /// This process.
    Own(Senders),
    /// Rank 0, for all ranks.
    Job(JobQueue, Channels),
}

/// The notifiers and files of a rank.
pub(crate) struct Notifiers {
    out: Out,
    anomalies: Option<NotifyQueue<Vec<Entry>>>,
    file: Option<AlertFile>,
    run: String,
}

impl Notifiers {
    /// Opens the configured notifiers. `base` is the directory of the runs, `directory` that of the rank. A notifier
    /// whose thread cannot start is reported and disabled.
    pub(crate) fn open(
        config: &Config,
        (rank, world, run): (Rank, u32, &str),
        (base, directory): (&Path, Option<&Path>),
        totals: &Arc<AlertTotals>,
        notices: &Notices,
    ) -> Self {
        let senders = Senders::open(config, totals, notices);
        let out = if world > 1 && config.alert.is_sent() {
            let ways = senders.among(Channels::ALL);
            JobQueue::start((rank, world), run.to_owned(), senders, (totals, notices)).map_or_else(
                |failed| {
                    let (error, senders) = *failed;
                    notices.warn(
                        format!("cannot start the thread for job alerts: {error}; each rank sends its own alerts"),
                        None,
                    );
                    Out::Own(senders)
                },
                |job| Out::Job(job, ways),
            )
        } else {
            Out::Own(senders)
        };
        let anomalies = config.alert.dump.then(|| AnomalyFile::new(base, rank.0));
        Self {
            out,
            anomalies: anomalies.and_then(|file| NotifyQueue::open(anomaly_file::QUEUE, file, (totals, notices))),
            file: directory.map(|directory| AlertFile::create(directory, totals, notices)),
            run: run.to_owned(),
        }
    }

    /// Records an alert, and sends it if its rule requests that. Returns messages about full queues.
    pub(crate) fn send(&self, RaisedAlert { alert, actions, outlet }: &RaisedAlert) -> Vec<String> {
        let file = self.file.as_ref().filter(|_| *outlet != Outlet::Sent);
        let complaint = file.and_then(|file| file.send(alert));
        // The manager writes the log and requests captures.
        let wanted = Channels { log: false, ..Channels::of(*actions) };
        let sent = match &self.out {
            _ if *outlet == Outlet::Written => Vec::new(),
            Out::Own(senders) => {
                let channels = senders.among(wanted);
                let payload = channels.is_any().then(|| Arc::new(Payload::new(alert, &self.run, None)));
                payload.map(|payload| senders.send(&payload, channels)).unwrap_or_default()
            }
            Out::Job(job, ways) => {
                let channels = wanted.only(ways.webhook, ways.command);
                if channels.is_any() {
                    job.send(alert.clone(), channels);
                }
                Vec::new()
            }
        };
        complaint.into_iter().chain(sent).collect()
    }

    /// The relay that carries alerts to rank 0, in a job that sends any.
    pub(crate) fn relay(&self) -> Option<Arc<dyn Relay>> {
        match &self.out {
            Out::Job(job, _) => Some(job.relay()),
            Out::Own(_) => None,
        }
    }

    /// Disables the relay to rank 0.
    pub(crate) fn stand_alone(&self) {
        if let Out::Job(job, _) = &self.out {
            job.stand_alone();
        }
    }

    /// Queues a step's findings for the JSON file. Returns a message if the queue is full.
    pub(crate) fn note(&self, findings: Vec<Entry>) -> Option<String> {
        self.anomalies.as_ref().filter(|_| !findings.is_empty())?.send(findings)
    }

    /// Closes all queues at once, so that none waits for another.
    pub(crate) fn close(self, deadline: Instant) -> Closing {
        let Self { out, anomalies, file, run: _ } = self;
        let (job, queues) = match out {
            Out::Own(senders) => (None, senders.close(deadline)),
            Out::Job(job, _) => (Some(job.close(deadline)), Vec::new()),
        };
        let files = [anomalies.map(|queue| queue.close(deadline)), file.and_then(|file| file.close(deadline))];
        Closing { job, queues: queues.into_iter().chain(files.into_iter().flatten()).collect() }
    }
}

/// The notifiers that deliver their remaining messages.
#[derive(Default)]
pub(crate) struct Closing {
    job: Option<ClosingJob>,
    queues: Vec<ClosingQueue>,
}

impl Closing {
    /// Waits until the messages of all ranks are handed over, until the deadline.
    pub(crate) fn hand_over(&mut self, deadline: Instant) {
        if let Some(job) = self.job.take() {
            self.queues.extend(job.hand_over(deadline));
        }
    }

    /// Waits until everything is delivered, until the deadline.
    pub(crate) fn finish(mut self, deadline: Instant) {
        self.hand_over(deadline);
        for queue in self.queues {
            queue.finish(deadline);
        }
    }
}
