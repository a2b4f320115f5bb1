//! msprobe's answer: the first operator whose inputs have neither NaN nor infinity and whose outputs have.

use trainmon_capture_files::{CaptureError, Operator, Section, operator_json};

use super::non_finite::is_bad;
use crate::compat::{Node, between_communications};
use crate::input::{Capture, bytes};
use crate::name::OperatorName;
use crate::write_only::is_receive_buffer;

/// The content of `anomaly_analyze_….json`; `None` if msprobe finds nothing, where it writes no file. The order is that of its
/// search for the first difference: before the first communication on every rank, then from communication to communication.
///
/// # Errors
/// A capture cannot be read again.
pub fn msprobe_answer(ranks: &[(u64, &Capture)]) -> Result<Option<Node>, CaptureError> {
    let parts: Vec<Vec<&[Operator]>> = ranks
        .iter()
        .map(|(_, capture)| between_communications(&capture.document.operators, |operator| &operator.name))
        .collect();
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    for part in 0..longest {
        let mut found = Vec::new();
        for ((rank, capture), parts) in ranks.iter().zip(&parts) {
            if let Some(operator) = parts.get(part).and_then(|part| part.iter().find(|operator| is_anomaly(operator))) {
                found.push((format!("rank_{rank}"), Node::List(vec![node(operator, capture)?])));
            }
        }
        if !found.is_empty() {
            return Ok(Some(Node::Object(found)));
        }
    }
    Ok(None)
}

fn is_anomaly(operator: &Operator) -> bool {
    let Some(name) = OperatorName::parse(&operator.name) else { return false };
    let bad = |inputs: bool| {
        let values = operator.values.iter().filter(|value| value.section.is_input() == inputs);
        values.filter(|value| !is_receive_buffer(name, &value.place)).any(is_bad)
    };
    // A module's parameters are no inputs to msprobe.
    let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
    bad(false) && !inputs.into_iter().any(is_bad)
}

fn node(operator: &Operator, capture: &Capture) -> Result<Node, CaptureError> {
    let text = bytes(&capture.path)?;
    let Node::Object(values) =
        operator_json(&text, &capture.path, &operator.name)?.map_or(Node::Object(Vec::new()), Node::from)
    else {
        return Ok(Node::Object(Vec::new()));
    };
    let kept = ["input_args", "input_kwargs", "input", "output"];
    let values = values.into_iter().filter(|(key, _)| kept.contains(&key.as_str())).collect();
    let mut chain: Vec<&str> = capture.construct.ancestors(&operator.name);
    chain.reverse();
    chain.push(&operator.name);
    let texts = |texts: &mut dyn Iterator<Item = &str>| Node::List(texts.map(Node::text).collect());
    let frames = capture.stacks.of(&operator.name).unwrap_or_default();
    Ok(Node::Object(vec![
        ("op_name".to_owned(), Node::text(operator.name.clone())),
        ("data_info".to_owned(), Node::Object(values)),
        ("construct_info".to_owned(), texts(&mut chain.into_iter())),
        ("stack_info".to_owned(), texts(&mut frames.iter().map(|frame| &**frame))),
    ]))
}
