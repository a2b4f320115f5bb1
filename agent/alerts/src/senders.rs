//! The channels through which an alert leaves the process: webhook and command, each with a queue and a thread.

use std::sync::Arc;
use std::time::Instant;

use trainmon_core::AlertTotals;
use trainmon_core::config::Config;
use trainmon_service::Notices;

use super::command::CommandNotifier;
use super::delivery::{ClosingQueue, NotifyQueue, Payload, QueueSpec};
use super::incident::Channels;
#[cfg(feature = "webhook")]
use super::webhook::WebhookNotifier;

/// The number of alerts that may wait for a notifier. A run with more at once has one cause for all of them.
const MAX_WAITING_ALERTS: usize = 256;

const fn queue_spec(thread: &'static str, name: &'static str) -> QueueSpec {
    // One more is being delivered.
    QueueSpec { thread, name, things: "alerts", messages: MAX_WAITING_ALERTS, most: MAX_WAITING_ALERTS as u64 + 1 }
}

/// The webhook and command notifiers.
#[derive(Default)]
pub(crate) struct Senders {
    webhook: Option<NotifyQueue<Arc<Payload>>>,
    command: Option<NotifyQueue<Arc<Payload>>>,
}

impl Senders {
    /// Opens the configured notifiers. One whose thread cannot start is reported and disabled.
    pub(crate) fn open(config: &Config, totals: &Arc<AlertTotals>, notices: &Notices) -> Self {
        let shared = (totals, notices);
        let command = config.alert.command.clone().map(CommandNotifier::new);
        #[cfg(feature = "webhook")]
        let webhook = config.alert.webhook.clone().map(WebhookNotifier::new);
        #[cfg(feature = "webhook")]
        let webhook = webhook.and_then(|it| NotifyQueue::open(queue_spec("webhook", "alert webhook"), it, shared));
        #[cfg(not(feature = "webhook"))]
        let webhook = config.alert.webhook.as_ref().and_then(|_| {
            let hint = "enable the feature `webhook` when building trainmon".to_owned();
            notices.warn("alert webhook: disabled, because this build does not support webhooks", Some(hint));
            None
        });
        let command = command.and_then(|it| NotifyQueue::open(queue_spec("command", "alert command"), it, shared));
        Self { webhook, command }
    }

    /// The channels among these that exist.
    pub(crate) fn among(&self, channels: Channels) -> Channels {
        Channels { log: false, ..channels }.only(self.webhook.is_some(), self.command.is_some())
    }

    /// Sends through these channels. Returns messages about full queues.
    pub(crate) fn send(&self, payload: &Arc<Payload>, channels: Channels) -> Vec<String> {
        let Channels { webhook, command, .. } = channels;
        let ways = [self.webhook.as_ref().filter(|_| webhook), self.command.as_ref().filter(|_| command)];
        ways.into_iter().flatten().filter_map(|way| way.send(Arc::clone(payload))).collect()
    }

    /// Closes both queues.
    pub(crate) fn close(self, deadline: Instant) -> Vec<ClosingQueue> {
        [self.webhook, self.command].into_iter().flatten().map(|way| way.close(deadline)).collect()
    }
}
