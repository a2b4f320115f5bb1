use std::time::SystemTime;

use trainmon_core::{
    AlertPhase, AlertRule, AlertSeries, AlertSeverity, AlertSignal, Expectation, FirstMove, Incident, Kind, Step,
};

use super::*;

const BOTH: Channels = Channels::ALL;
const WEBHOOK: Channels = Channels { command: false, ..BOTH };
const SECOND: Duration = Duration::from_secs(1);

/// A finding about a loss.
fn alert(rank: u32, step: u64, phase: AlertPhase) -> Alert {
    Alert {
        rule: AlertRule::NonFinite,
        severity: AlertSeverity::Critical,
        phase,
        findings: 1,
        step: Step(step),
        rank: Rank(rank),
        time: SystemTime::UNIX_EPOCH,
        series: AlertSeries::global(AlertSignal::Loss, None),
        value: f64::NAN,
        expected: Expectation::default(),
        message: format!("NonFinite: loss NaN at step {step} on rank {rank}"),
        moved_first: None,
        incident: Some(Incident { step: Step(step), headline: true }),
    }
}

fn begins(rank: u32, step: u64) -> Alert {
    alert(rank, step, AlertPhase::Begins)
}

fn ends(rank: u32, step: u64) -> Alert {
    let message = format!("NonFinite: loss back to normal since step {step} on rank {rank}");
    Alert { message, ..alert(rank, step, AlertPhase::Ends) }
}

/// Found in the gradients after reduction: later in the step.
fn after_reduction(alert: Alert) -> Alert {
    let series = AlertSeries::global(AlertSignal::Kind(Kind::GradReduced), None);
    Alert { series, message: alert.message.replace("loss", "gradient norm"), ..alert }
}

/// Rank 0's incidents on a clock.
struct Job {
    incidents: JobIncidents,
    now: Instant,
}

impl Job {
    fn new() -> Self {
        Self { incidents: JobIncidents::default(), now: Instant::now() }
    }

    fn take(&mut self, alert: Alert) {
        self.incidents.take(SentAlert { alert, channels: WEBHOOK }, 0, self.now, 2 * SECOND);
    }

    /// What is sent after so many seconds.
    fn after(&mut self, seconds: u32) -> Vec<(String, Vec<u32>)> {
        self.now += seconds * SECOND;
        self.incidents.due(self.now).into_iter().map(|sent| (sent.alert.message, sent.ranks)).collect()
    }
}

#[test]
fn the_rank_that_it_came_from_is_the_headline_whoever_was_heard_first() {
    let mut job = Job::new();
    job.take(after_reduction(begins(0, 300)));
    assert_eq!(job.after(1), []);
    job.take(begins(2, 300));
    job.take(begins(1, 300));
    let text = "NonFinite: loss NaN at step 300 on rank 1; also on ranks 0 and 2".to_owned();
    assert_eq!(job.after(1), [(text, vec![0, 1, 2])]);
    // Later ones are part of it.
    job.take(after_reduction(begins(3, 301)));
    assert_eq!(job.after(9), []);
    // The end of the headline is sent, once all are well.
    for rank in [1, 0, 3] {
        job.take(if rank == 1 { ends(1, 305) } else { after_reduction(ends(rank, 306)) });
        assert_eq!(job.after(30), []);
    }
    job.take(ends(2, 307));
    assert_eq!(job.after(1), []);
    let text =
        "NonFinite: loss back to normal since step 305 on rank 1; also back to normal: ranks 0, 2 and 3".to_owned();
    assert_eq!(job.after(1), [(text, vec![0, 1, 2, 3])]);
    assert_eq!(job.incidents.next_due(), None);
}

#[test]
fn what_moved_first_counts_and_not_the_step_in_which_a_rule_spoke() {
    let mut job = Job::new();
    let signal = AlertSignal::Kind(Kind::Actv);
    let first = FirstMove {
        signal,
        layer: "h.1".to_owned(),
        tensor: Some("h.1.fc.output".to_owned()),
        ..first_move_of_loss(298)
    };
    job.take(begins(0, 300));
    job.take(Alert { moved_first: Some(first), rule: AlertRule::Dead, ..begins(1, 309) });
    assert_eq!(job.after(2)[0].1, [0, 1]);
    let mut job = Job::new();
    job.take(begins(0, 300));
    job.take(Alert { moved_first: Some(first_move_of_loss(301)), ..begins(1, 299) });
    assert!(job.after(2)[0].0.contains("on rank 0; also on rank 1"));
}

fn first_move_of_loss(step: u64) -> FirstMove {
    let (value, expected, before_reduction) = (9.0, 1.0, false);
    let signal = AlertSignal::Loss;
    FirstMove { step: Step(step), signal, layer: String::new(), tensor: None, value, expected, before_reduction }
}

#[test]
fn a_message_is_as_severe_as_the_worst_and_what_is_worse_is_sent_too() {
    let mut job = Job::new();
    let warning = |alert: Alert| Alert { severity: AlertSeverity::Warning, rule: AlertRule::Spike, ..alert };
    job.take(warning(begins(1, 10)));
    job.take(after_reduction(begins(0, 10)));
    job.now += 2 * SECOND;
    let sent = job.incidents.due(job.now);
    assert_eq!(
        (sent.len(), sent[0].alert.rule, sent[0].alert.severity),
        (1, AlertRule::Spike, AlertSeverity::Critical)
    );
    assert!(sent[0].alert.message.ends_with("rank 1; also on rank 0 (NonFinite of grad_reduced)"), "{sent:?}");
    let mut job = Job::new();
    job.take(warning(begins(1, 10)));
    assert_eq!(job.after(2).len(), 1);
    job.take(begins(0, 12));
    assert_eq!(job.after(2), [("NonFinite: loss NaN at step 12 on rank 0".to_owned(), vec![0, 1])]);
    let sent = SentAlert { alert: warning(begins(2, 13)), channels: BOTH };
    job.incidents.take(sent, 0, job.now, SECOND);
    job.now += SECOND;
    let sent = job.incidents.due(job.now);
    assert_eq!(sent.iter().map(|sent| sent.channels).collect::<Vec<_>>(), [Channels { webhook: false, ..BOTH }]);
}

#[test]
fn other_incidents_and_rules_that_stand_alone_have_messages_of_their_own() {
    let mut job = Job::new();
    let stall = |rank| Alert { rule: AlertRule::Stall, incident: None, ..begins(rank, 300) };
    job.take(begins(0, 300));
    (0..3).for_each(|rank| job.take(stall(rank)));
    job.take(begins(1, 340));
    let sent = job.after(2);
    let ranks: Vec<Vec<u32>> = sent.into_iter().map(|(_, ranks)| ranks).collect();
    assert_eq!(ranks, [vec![0], vec![0, 1, 2], vec![1]]);
}

#[test]
fn an_end_waits_for_other_ranks_two_minutes_at_most() {
    let mut job = Job::new();
    (0..2).for_each(|rank| job.take(begins(rank, 10)));
    assert_eq!(job.after(2).len(), 1);
    job.take(ends(0, 12));
    assert_eq!(job.after(119), []);
    let text = "NonFinite: loss back to normal since step 12 on rank 0; alerts of rank 1 are ongoing".to_owned();
    assert_eq!(job.after(1), [(text, vec![0, 1])]);
    job.take(ends(1, 90));
    assert_eq!(job.after(2).len(), 1, "it was told that it goes on");
}

#[test]
fn what_begins_after_all_was_well_is_another_incident_and_what_a_rank_tells_late_is_not() {
    let mut job = Job::new();
    job.take(begins(0, 130));
    assert_eq!(job.after(2).len(), 1);
    job.take(ends(0, 141));
    // Rank 1 was behind.
    job.take(begins(1, 130));
    job.take(ends(1, 141));
    job.take(begins(0, 155));
    let sent = job.after(2);
    assert_eq!(sent.iter().map(|(_, ranks)| ranks.clone()).collect::<Vec<_>>(), [vec![0, 1], vec![0]], "{sent:?}");
    assert!(sent[1].0.contains("at step 155"), "{sent:?}");
}

#[test]
fn an_alert_that_begins_again_without_an_end_is_sent_again() {
    let mut job = Job::new();
    (0..2).for_each(|rank| job.take(begins(rank, 1000)));
    assert_eq!(job.after(2).len(), 1);
    // The training went back to the checkpoint of step 900.
    job.now += 60 * SECOND;
    (0..2).for_each(|rank| job.take(begins(rank, 1000)));
    assert_eq!(job.after(2).len(), 1);
    job.incidents.forget(Rank(1));
    job.take(ends(0, 1001));
    let text = "NonFinite: loss back to normal since step 1001 on rank 0".to_owned();
    assert_eq!(job.after(2), [(text, vec![0, 1])], "rank 1 was started anew");
}

#[test]
fn an_alert_that_flaps_ends_at_its_last_end() {
    let mut job = Job::new();
    for step in [100, 112] {
        job.take(begins(0, step));
        job.take(ends(0, step + 11));
    }
    let sent = job.after(2);
    let text = "NonFinite: loss back to normal since step 123 on rank 0".to_owned();
    assert_eq!(sent.last(), Some(&(text, vec![0])), "{sent:?}");
}

#[test]
fn ends_of_what_began_before_a_resume_are_one_message() {
    let mut job = Job::new();
    (0..3).for_each(|rank| job.take(ends(rank, 10)));
    let text = "NonFinite: loss back to normal since step 10 on rank 0; also back to normal: ranks 1 and 2".to_owned();
    assert_eq!(job.after(2), [(text, vec![0, 1, 2])]);
    assert_eq!(job.incidents.next_due(), None);
}

/// A rank's part, and what it sends.
fn rank(rank: u32) -> (Arc<Shared>, Receiver<JobMessage>) {
    let part = match rank {
        0 => Part::Gathers(JobIncidents::default(), HashMap::new()),
        _ => Part::HandsOver(Handover::default()),
    };
    let state = State::new(part, WaitTimes::of(2), BOTH);
    let shared = Arc::new(Shared { state: Mutex::new(state), change: Condvar::new() });
    let (sender, sent) = bounded(100);
    let of_thread = Arc::clone(&shared);
    let run = move || of_thread.run(|message| sender.send(message).unwrap_or_default());
    std::thread::Builder::new().name(format!("rank-{rank}")).spawn(run).unwrap();
    (shared, sent)
}

fn send(shared: &Shared, alert: Alert) {
    shared.change(|state| state.push(SentAlert { alert, channels: WEBHOOK }, Instant::now()));
}

/// What carries messages does so once.
fn carry(from: &Shared, to: &Shared) -> Receipt {
    let receipt = to.take(1, "process", &from.waiting());
    from.receipt(receipt);
    receipt
}

fn sent(messages: &Receiver<JobMessage>) -> (String, Vec<u32>) {
    let message = messages.recv_timeout(Duration::from_mins(1)).unwrap();
    (message.alert.message, message.ranks)
}

#[test]
fn rank_0_sends_for_another_which_forgets_it_then() {
    let ((first, of_first), (second, of_second)) = (rank(0), rank(1));
    send(&second, begins(1, 300));
    assert_eq!(carry(&second, &first), Receipt { taken: 1, sent: 0 });
    send(&first, after_reduction(begins(0, 300)));
    assert_eq!(second.waiting().len(), 1, "rank 0 may end before it is sent");
    let text = "NonFinite: loss NaN at step 300 on rank 1; also on rank 0".to_owned();
    assert_eq!(sent(&of_first), (text, vec![0, 1]));
    assert_eq!(carry(&second, &first), Receipt { taken: 1, sent: 1 });
    assert_eq!((second.waiting().len(), of_second.len(), of_first.len()), (0, 0, 0));
}

#[test]
fn what_rank_0_never_takes_a_rank_sends_itself() {
    let (second, of_second) = rank(1);
    second.change(|state| state.wait_times.no_answer = Duration::from_millis(20));
    send(&second, begins(1, 300));
    assert_eq!(sent(&of_second), ("NonFinite: loss NaN at step 300 on rank 1".to_owned(), vec![1]));
    assert_eq!(second.waiting(), []);
}

#[test]
fn at_the_end_rank_0_sends_what_it_has_and_another_what_is_left() {
    let ((first, of_first), (second, of_second)) = (rank(0), rank(1));
    send(&second, begins(1, 300));
    carry(&second, &first);
    send(&second, ends(1, 301));
    let end = |shared: &Shared| shared.change(|state| state.end(Instant::now(), Instant::now() + 60 * SECOND));
    end(&second);
    end(&first);
    assert_eq!(sent(&of_first).0, "NonFinite: loss NaN at step 300 on rank 1");
    assert!(of_first.recv().is_err(), "it has ended");
    carry(&second, &first);
    // Rank 0 never heard of the other.
    assert_eq!(sent(&of_second).0, "NonFinite: loss back to normal since step 301 on rank 1");
    assert!(of_second.recv().is_err(), "it has ended");
    let late = RelayedMessage { number: 2, text: text_of(begins(1, 999)) };
    assert_eq!(first.take(1, "process", &[late]).taken, 1, "nobody would send it");
}

fn text_of(alert: Alert) -> String {
    serde_json::to_string(&SentAlert { alert, channels: WEBHOOK }).unwrap()
}

#[test]
fn a_number_that_is_none_survives_the_way_and_an_unreadable_message_is_left_to_its_rank() {
    let ((first, of_first), (second, _)) = (rank(0), rank(1));
    first.change(|state| state.wait_times.gathering = Duration::ZERO);
    send(&second, begins(1, 7));
    carry(&second, &first);
    assert!(of_first.recv_timeout(Duration::from_mins(1)).unwrap().alert.value.is_nan());
    let SentAlert { alert, .. } = serde_json::from_str(&text_of(begins(1, 900))).unwrap();
    let text = serde_json::to_string(&SentAlert { alert, channels: Channels { log: true, ..BOTH } }).unwrap();
    let unsendable = RelayedMessage { number: 2, text };
    assert_eq!(first.take(1, "process", &[unsendable]).taken, 1);
    let strange = RelayedMessage { number: 2, text: r#"{"later": "version"}"#.to_owned() };
    assert_eq!(first.take(1, "process", &[strange]), Receipt { taken: 1, sent: 1 });
    // A process that was started anew counts from the beginning.
    assert_eq!(first.take(1, "another", &[]), Receipt::default());
}

#[test]
fn of_many_messages_the_oldest_are_shown_and_none_is_lost() {
    let (second, of_second) = rank(1);
    (0..70).for_each(|number| send(&second, begins(1, 100 * number)));
    for number in 0..6 {
        assert_eq!(sent(&of_second).0, format!("NonFinite: loss NaN at step {} on rank 1", 100 * number));
    }
    let numbers: Vec<u64> = second.waiting().iter().map(|message| message.number).collect();
    assert_eq!(numbers, [7, 8, 9, 10]);
    second.receipt(Receipt { taken: 8, sent: 8 });
    assert_eq!(second.waiting()[0].number, 9);
}
