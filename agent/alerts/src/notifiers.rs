//! Everything that brings alerts and findings out of the process, and how it is closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::{AlertActions, Config};
use trainmon_core::{AlertTotals, Rank};
use trainmon_service::Notices;

use super::alert_file::AlertFile;
use super::anomaly_file::{self, AnomalyFile, Entry};
use super::command::CommandNotifier;
use super::delivery::{ClosingQueue, Notifier, NotifyQueue, Payload, QueueSpec};
use super::engine::{Outlet, RaisedAlert};
#[cfg(feature = "webhook")]
use super::webhook::WebhookNotifier;

/// Alerts that may wait for a notifier. A run that has more at once has one cause for them all.
const MAX_WAITING_ALERTS: usize = 256;

const fn queue_spec(thread: &'static str, name: &'static str) -> QueueSpec {
    // One more is in the notifier's hands.
    QueueSpec { thread, name, things: "alerts", messages: MAX_WAITING_ALERTS, most: MAX_WAITING_ALERTS as u64 + 1 }
}

/// The ways out.
#[derive(Default)]
pub(crate) struct Notifiers {
    webhook: Option<NotifyQueue<Arc<Payload>>>,
    command: Option<NotifyQueue<Arc<Payload>>>,
    anomalies: Option<NotifyQueue<Vec<Entry>>>,
    file: Option<AlertFile>,
}

impl Notifiers {
    /// Opens what the config describes; `base` is where the run directories are, `directory` that of the rank. What has no
    /// thread is reported and left out.
    pub(crate) fn open(
        config: &Config,
        rank: Rank,
        (base, directory): (&Path, Option<&Path>),
        book: &Arc<AlertTotals>,
        notices: &Notices,
    ) -> Self {
        fn post<C: Notifier>(
            queue_spec: QueueSpec,
            notifier: C,
            (book, notices): (&Arc<AlertTotals>, &Notices),
        ) -> Option<NotifyQueue<C::Message>> {
            let post = NotifyQueue::start(queue_spec, notifier, Arc::clone(book), notices.clone());
            post.map_err(|error| notices.warn(format!("{}: cannot start its thread: {error}", queue_spec.name), None))
                .ok()
        }
        let alert = &config.alert;
        let shared = (book, notices);
        let command = alert.command.clone().map(CommandNotifier::new);
        let anomalies = alert.dump.then(|| AnomalyFile::new(base, rank.0));
        #[cfg(feature = "webhook")]
        let webhook = alert.webhook.clone().map(WebhookNotifier::new);
        #[cfg(feature = "webhook")]
        let webhook = webhook.and_then(|webhook| post(queue_spec("webhook", "alert webhook"), webhook, shared));
        #[cfg(not(feature = "webhook"))]
        let webhook = alert.webhook.as_ref().and_then(|_| {
            let hint = "build trainmon with the feature `webhook`".to_owned();
            notices.warn("alert webhook: this build cannot send any; everything else goes on", Some(hint));
            None
        });
        Self {
            webhook,
            command: command.and_then(|runner| post(queue_spec("command", "alert command"), runner, shared)),
            anomalies: anomalies.and_then(|file| post(anomaly_file::QUEUE, file, shared)),
            file: directory.map(|directory| AlertFile::create(directory, book, notices)),
        }
    }

    /// Writes an alert down, and sends it where its rule wants it; what is to be said of it.
    pub(crate) fn send(&self, RaisedAlert { alert, actions, outlet }: &RaisedAlert, run: &str) -> Vec<String> {
        let file = self.file.as_ref().filter(|_| *outlet != Outlet::Sent);
        let complaint = file.and_then(|file| file.send(alert));
        // The manager itself writes the log and asks for captures.
        let AlertActions { log: _, webhook, command, dump: _, replay: _, stop: _ } = *actions;
        let targets = [self.webhook.as_ref().filter(|_| webhook), self.command.as_ref().filter(|_| command)];
        if *outlet == Outlet::Written || targets.iter().all(Option::is_none) {
            return complaint.into_iter().collect();
        }
        let payload = Arc::new(Payload::new(alert, run));
        let sent = targets.into_iter().flatten().filter_map(|post| post.send(Arc::clone(&payload)));
        complaint.into_iter().chain(sent).collect()
    }

    /// Sends a step's findings to the JSON file; what is to be said of it.
    pub(crate) fn note(&self, findings: Vec<Entry>) -> Option<String> {
        self.anomalies.as_ref().filter(|_| !findings.is_empty())?.send(findings)
    }

    /// Tells all that nothing more comes: none has to wait for another's end.
    pub(crate) fn close(self, deadline: Instant) -> Vec<ClosingQueue> {
        let Self { webhook, command, anomalies, file } = self;
        let posts = [
            webhook.map(|post| post.close(deadline)),
            command.map(|post| post.close(deadline)),
            anomalies.map(|post| post.close(deadline)),
            file.and_then(|file| file.close(deadline)),
        ];
        posts.into_iter().flatten().collect()
    }
}
