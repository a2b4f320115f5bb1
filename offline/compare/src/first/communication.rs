//! Pairs communication operators of different ranks: collectives by function, group and order, sends and receives by both ends
//! and order. One pass over each rank.

use std::collections::HashMap;

use trainmon_capture_files::{Leaf, Operator, Plain, Section};

use crate::input::Capture;
use crate::name::{Direction, OperatorName};

/// A communication in which ranks met.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Rendezvous {
    /// Function, group, and number of earlier ones.
    Collective(String, String, u32),
    /// Sender, receiver, and number of earlier ones between the two.
    Transfer(u64, u64, u32),
}

/// The communications of a step and their participants.
#[derive(Debug, Default)]
pub(crate) struct Communication {
    /// The rank and operator index (in the target) of each participant.
    meetings: HashMap<Rendezvous, Vec<(u64, u32)>>,
    of: HashMap<(u64, u32), Vec<Rendezvous>>,
}

impl Communication {
    /// Collects them from the target captures of a step, one per rank.
    pub(crate) fn of<'c>(ranks: impl IntoIterator<Item = (u64, &'c Capture)>) -> Self {
        let mut communication = Self::default();
        for (rank, capture) in ranks {
            let mut counts: HashMap<(String, String), u32> = HashMap::new();
            let mut transfers: HashMap<(u64, u64), u32> = HashMap::new();
            for (operator, index) in capture.document.operators.iter().zip(0..) {
                let Some(name) = OperatorName::parse(&operator.name) else { continue };
                if !name.is_communication() || name.direction != Direction::Forward {
                    continue;
                }
                let ends = ends(operator, name.function(), rank);
                let mut meetings = Vec::new();
                if ends.is_empty() {
                    let key = (name.function().to_owned(), group(operator));
                    let count = counts.entry(key.clone()).or_insert(0);
                    meetings.push(Rendezvous::Collective(key.0, key.1, *count));
                    *count += 1;
                }
                for (from, to) in ends {
                    let count = transfers.entry((from, to)).or_insert(0);
                    meetings.push(Rendezvous::Transfer(from, to, *count));
                    *count += 1;
                }
                communication.join(rank, index, meetings);
            }
        }
        communication
    }

    fn join(&mut self, rank: u64, operator: u32, meetings: Vec<Rendezvous>) {
        for meeting in &meetings {
            self.meetings.entry(meeting.clone()).or_default().push((rank, operator));
        }
        self.of.insert((rank, operator), meetings);
    }

    /// Whether an operator is a communication.
    pub(crate) fn is_meeting(&self, rank: u64, operator: u32) -> bool {
        self.of.contains_key(&(rank, operator))
    }

    /// The other participants of an operator's communications: ranks and operator indexes.
    pub(crate) fn others(&self, rank: u64, operator: u32) -> Vec<(u64, u32)> {
        let meetings = self.of.get(&(rank, operator)).into_iter().flatten();
        let all = meetings.filter_map(|meeting| self.meetings.get(meeting)).flatten();
        all.copied().filter(|&(other, _)| other != rank).collect()
    }

    /// The number of communications before `operator` on a rank: the common time of the ranks.
    pub(crate) fn time(&self, rank: u64, operator: u32) -> usize {
        self.of.keys().filter(|&&(other, index)| other == rank && index < operator).count()
    }
}

fn group(operator: &Operator) -> String {
    let groups = operator.values.iter().filter_map(|value| match &value.leaf {
        Leaf::Group { ranks, .. } if value.section == Section::Input => Some(crate::python::text(ranks)),
        _ => None,
    });
    groups.into_iter().next().unwrap_or_default()
}

/// Sender and receiver of each transfer of an operator; empty for a collective.
fn ends(operator: &Operator, function: &str, rank: u64) -> Vec<(u64, u64)> {
    let inputs = || operator.values.iter().filter(|value| value.section == Section::Input);
    let number = |place: &str| {
        let found = inputs().find(|value| &*value.place == place)?;
        if let Leaf::Plain { value: Plain::Int(number), .. } = found.leaf { u64::try_from(number).ok() } else { None }
    };
    let towards = |other: Option<u64>| other.map(|other| (rank, other)).into_iter().collect::<Vec<_>>();
    let from = |other: Option<u64>| other.map(|other| (other, rank)).into_iter().collect::<Vec<_>>();
    match function {
        "send" | "isend" => towards(number(".input.dst").or_else(|| number(".input.1"))),
        "recv" | "irecv" => from(number(".input.src").or_else(|| number(".input.1"))),
        "batch_isend_irecv" => inputs()
            .filter_map(|value| value.tensor()?.peer.as_deref())
            .flat_map(|peer| {
                let other = if let Plain::Int(rank) = peer.rank { u64::try_from(rank).ok() } else { None };
                if peer.operation.text().is_some_and(|text| text.contains("recv")) {
                    from(other)
                } else {
                    towards(other)
                }
            })
            .collect(),
        _ => Vec::new(),
    }
}
