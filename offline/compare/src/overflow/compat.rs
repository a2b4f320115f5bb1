//! msprobe's answer: the first operator whose inputs contain neither NaN nor infinity and whose outputs do.

use trainmon_capture_files::{CaptureError, Json, Operator, Section, operator_json};

use super::non_finite::is_bad;
use crate::compat::{search, text};
use crate::input::{Capture, bytes};
use crate::name::OperatorName;
use crate::write_only::is_receive_buffer;

/// The content of `anomaly_analyze_….json`; `None` if msprobe finds nothing and writes no file. The order is that of its search
/// for the first difference: before the first communication on every rank, then from communication to communication.
///
/// # Errors
/// A capture cannot be read again.
pub fn msprobe_answer(ranks: &[(u64, &Capture)]) -> Result<Option<Json>, CaptureError> {
    let operators = ranks.iter().map(|&(rank, capture)| ((rank, capture), &capture.document.operators[..]));
    let found = search(operators, |operator| &operator.name, is_anomaly);
    let of_rank = |((rank, capture), operator): ((u64, &Capture), &Operator)| {
        Ok((format!("rank_{rank}").into(), Json::List(vec![node(operator, capture)?])))
    };
    let found = found.into_iter().map(of_rank).collect::<Result<Vec<_>, CaptureError>>()?;
    Ok((!found.is_empty()).then_some(Json::Object(found)))
}

fn is_anomaly(operator: &Operator) -> bool {
    let Some(name) = OperatorName::parse(&operator.name) else { return false };
    let bad = |inputs: bool| {
        let values = operator.values.iter().filter(|value| value.section.is_input() == inputs);
        values.filter(|value| !is_receive_buffer(name, &value.place)).any(is_bad)
    };
    // A module's parameters are not inputs for msprobe.
    let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
    bad(false) && !inputs.into_iter().any(is_bad)
}

fn node(operator: &Operator, capture: &Capture) -> Result<Json, CaptureError> {
    let file = bytes(&capture.path)?;
    let Some(Json::Object(mut values)) = operator_json(&file, &capture.path, &operator.name)? else {
        return Ok(Json::Object(Vec::new()));
    };
    let kept = ["input_args", "input_kwargs", "input", "output"];
    values.retain(|(key, _)| kept.contains(&&**key));
    let mut chain: Vec<&str> = capture.construct.ancestors(&operator.name);
    chain.reverse();
    chain.push(&operator.name);
    let texts = |texts: &mut dyn Iterator<Item = &str>| Json::List(texts.map(text).collect());
    let frames = capture.stacks.of(&operator.name).unwrap_or_default();
    Ok(Json::Object(vec![
        ("op_name".into(), text(operator.name.clone())),
        ("data_info".into(), Json::Object(values)),
        ("construct_info".into(), texts(&mut chain.into_iter())),
        ("stack_info".into(), texts(&mut frames.iter().map(|frame| &**frame))),
    ]))
}
