//! Everything that brings alerts and findings out of the process, and how it is closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::{AlertActions, Config};
use trainmon_core::{Alert, AlertBook, Rank};
use trainmon_service::Voice;

use super::anomaly_file::{self, AnomalyFile, Entry};
use super::command::Runner;
use super::delivery::{Carrier, ClosingPost, Letter, Post, Trade};
#[cfg(feature = "webhook")]
use super::webhook::Poster;

/// Alerts that may wait for a carrier. A run that has more at once has one cause for them all.
const LETTERS: usize = 256;

const fn trade(thread: &'static str, name: &'static str) -> Trade {
    // One more is in the carrier's hands.
    Trade { thread, name, things: "alerts", parcels: LETTERS, most: LETTERS as u64 + 1 }
}

/// The ways out.
#[derive(Default)]
pub(crate) struct Outlets {
    webhook: Option<Post<Arc<Letter>>>,
    command: Option<Post<Arc<Letter>>>,
    anomalies: Option<Post<Vec<Entry>>>,
}

impl Outlets {
    /// Opens what the config describes; `base` is where the run directories are. What has no thread is reported and left
    /// out.
    pub(crate) fn open(config: &Config, rank: Rank, base: &Path, book: &Arc<AlertBook>, voice: &Voice) -> Self {
        fn post<C: Carrier>(
            trade: Trade,
            carrier: C,
            (book, voice): (&Arc<AlertBook>, &Voice),
        ) -> Option<Post<C::Parcel>> {
            let post = Post::start(trade, carrier, Arc::clone(book), voice.clone());
            post.map_err(|error| voice.warn(format!("{}: cannot start its thread: {error}", trade.name), None)).ok()
        }
        let alert = &config.alert;
        let shared = (book, voice);
        let command = alert.command.clone().map(Runner::new);
        let anomalies = alert.dump.then(|| AnomalyFile::new(base, rank.0));
        #[cfg(feature = "webhook")]
        let webhook = alert.webhook.clone().map(Poster::new);
        #[cfg(feature = "webhook")]
        let webhook = webhook.and_then(|poster| post(trade("webhook", "alert webhook"), poster, shared));
        #[cfg(not(feature = "webhook"))]
        let webhook = alert.webhook.as_ref().and_then(|_| {
            let hint = "build trainmon with the feature `webhook`".to_owned();
            voice.warn("alert webhook: this build cannot send any; everything else goes on", Some(hint));
            None
        });
        Self {
            webhook,
            command: command.and_then(|runner| post(trade("command", "alert command"), runner, shared)),
            anomalies: anomalies.and_then(|file| post(anomaly_file::TRADE, file, shared)),
        }
    }

    /// Sends an alert where its rule wants it; what is to be said of it.
    pub(crate) fn send(&self, alert: &Alert, actions: AlertActions, run: &str) -> Vec<String> {
        // The log is the desk's business; a dump is refused by the config until there is somebody to take one.
        let AlertActions { log: _, webhook, command, dump: _, stop: _ } = actions;
        let targets = [self.webhook.as_ref().filter(|_| webhook), self.command.as_ref().filter(|_| command)];
        if targets.iter().all(Option::is_none) {
            return Vec::new();
        }
        let letter = Arc::new(Letter::new(alert, run));
        targets.into_iter().flatten().filter_map(|post| post.send(Arc::clone(&letter))).collect()
    }

    /// Sends a step's findings to the JSON file; what is to be said of it.
    pub(crate) fn note(&self, findings: Vec<Entry>) -> Option<String> {
        self.anomalies.as_ref().filter(|_| !findings.is_empty())?.send(findings)
    }

    /// Tells all that nothing more comes: none has to wait for another's end.
    pub(crate) fn close(self, deadline: Instant) -> Vec<ClosingPost> {
        let Self { webhook, command, anomalies } = self;
        let posts = [
            webhook.map(|post| post.close(deadline)),
            command.map(|post| post.close(deadline)),
            anomalies.map(|post| post.close(deadline)),
        ];
        posts.into_iter().flatten().collect()
    }
}
