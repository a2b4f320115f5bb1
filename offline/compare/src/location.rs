//! The place of a call in the model and its code, and the names of its arguments.

use trainmon_capture_files::Section;

use super::input::Capture;
use super::name::OperatorName;

/// The place of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The module in which it ran, by its name in the model: `blocks.1.ln2`.
    pub module: Option<String>,
    /// The line of model or script code that made the call: `nets.py, line 94`.
    pub source: Option<String>,
    /// For a call outside of all modules: the module in which its effect first appears.
    pub seen_in: Option<String>,
}

impl Location {
    /// Finds the place of a call in its capture. A backward call has the source of its forward call, and its module if it has
    /// none of its own. `value`: the first differing value, even of another call.
    pub(crate) fn of(capture: &Capture, operator: &str, value: Option<&str>) -> Self {
        let calls = [operator.to_owned(), operator.replacen(".backward", ".forward", 1)];
        let module = module(capture, operator);
        let mut frames = calls.iter().filter_map(|call| capture.stacks.of(call)).flatten();
        let source = frames.find_map(|frame| line(frame));
        let other = value.filter(|_| module.is_none()).map(call_of);
        let seen_in = other.and_then(|call| self::module(capture, call));
        Self { module, source, seen_in }
    }
}

/// The module that a call is or ran in; a backward call ran in the module of its forward call.
fn module(capture: &Capture, operator: &str) -> Option<String> {
    let forward = operator.replacen(".backward", ".forward", 1);
    let parent = |call: &str| capture.parent(call).and_then(|parent| parent.name.clone());
    if operator.starts_with("Module.") {
        return path(operator).map(str::to_owned);
    }
    path(&parent(operator).or_else(|| parent(&forward))?).map(str::to_owned)
}

/// `Aten.t.default.10.forward` of `Aten.t.default.10.forward.input.0`.
fn call_of(value: &str) -> &str {
    let ends = [".input", ".output", ".parameters"].into_iter().filter_map(|section| value.find(section));
    &value[..ends.min().unwrap_or(value.len())]
}

/// `Module.blocks.1.ln2.LayerNorm.forward.0` is `blocks.1.ln2`.
fn path(module: &str) -> Option<&str> {
    let callee = OperatorName::parse(module)?.callee.strip_prefix("Module.")?;
    callee.rsplit_once('.').map(|(path, _)| path)
}

/// Whether a frame belongs to a library or to Python itself.
pub(crate) fn is_foreign(frame: &str) -> bool {
    let file = frame.split_once(", line ").map_or(frame, |(file, _)| file);
    let has_version = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let is_pythons = file.split("/lib/python").skip(1).any(has_version);
    is_pythons || ["/site-packages/", "/dist-packages/"].iter().any(|part| file.contains(part))
}

/// The file and line of a frame of the user's code.
fn line(frame: &str) -> Option<String> {
    let (file, rest) = frame.trim_start().strip_prefix("File ")?.split_once(", line ")?;
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let name = file.trim_matches('"').rsplit('/').next()?;
    (!is_foreign(frame) && !number.is_empty()).then(|| format!("{name}, line {number}"))
}

/// The documented name of a call's value: `eps` for `.input.4` of a layer norm; otherwise its place, `input.4`.
pub(crate) fn argument(operator: &str, section: Section, place: &str) -> String {
    let place = place.trim_start_matches('.');
    let name = OperatorName::parse(operator);
    let known = name.filter(|_| section == Section::Input).and_then(|name| {
        let at: usize = place.strip_prefix("input.")?.parse().ok()?;
        parameters_of(name).split(' ').nth(at).filter(|name| !name.is_empty())
    });
    known.or_else(|| keyword(place)).unwrap_or(place).to_owned()
}

/// The name of a keyword argument: `value` of `input.value`.
fn keyword(place: &str) -> Option<&str> {
    let name = place.strip_prefix("input.").or_else(|| place.strip_prefix("parameters."))?;
    (!name.contains('.') && !name.starts_with(|first: char| first.is_ascii_digit())).then_some(name)
}

/// The positional parameters of a forward call of a function, in order; empty if unknown.
pub(crate) fn parameters_of(name: OperatorName<'_>) -> &'static str {
    let is_call = name.is_operator && name.direction == super::name::Direction::Forward;
    parameters(name.function()).filter(|_| is_call).unwrap_or_default()
}

/// The positional parameters of torch's functions, in order.
fn parameters(function: &str) -> Option<&'static str> {
    Some(match function {
        "linear" => "input weight bias",
        "conv1d" | "conv2d" | "conv3d" => "input weight bias stride padding dilation groups",
        "layer_norm" => "input normalized_shape weight bias eps",
        "rms_norm" => "input normalized_shape weight eps",
        "group_norm" => "input num_groups weight bias eps",
        "batch_norm" => "input running_mean running_var weight bias training momentum eps",
        "instance_norm" => "input running_mean running_var weight bias use_input_stats momentum eps",
        "dropout" => "input p training inplace",
        "leaky_relu" => "input negative_slope inplace",
        "softmax" | "log_softmax" => "input dim",
        "embedding" => "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
        "cross_entropy" => "input target weight size_average ignore_index reduce reduction label_smoothing",
        "nll_loss" => "input target weight size_average ignore_index reduce reduction",
        "scaled_dot_product_attention" => "query key value attn_mask dropout_p is_causal scale",
        "max_pool2d" => "input kernel_size stride padding dilation ceil_mode return_indices",
        "masked_fill" | "masked_fill_" => "self mask value",
        "lerp" | "lerp_" => "self end weight",
        "addcmul" | "addcmul_" | "addcdiv" | "addcdiv_" => "self tensor1 tensor2 value",
        "triu" | "tril" => "self diagonal",
        "clamp" | "clamp_" => "self min max",
        "add" | "add_" | "sub" | "sub_" | "mul" | "mul_" | "div" | "div_" | "matmul" | "bmm" | "__add__"
        | "__sub__" | "__mul__" | "__truediv__" | "__matmul__" => "self other",
        "all_reduce" => "tensor op group",
        "broadcast" => "tensor src group",
        "send" | "isend" => "tensor dst group tag",
        "recv" | "irecv" => "tensor src group tag",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_names_of_their_documentation() {
        let of = |operator: &str, place: &str| argument(operator, Section::Input, place);
        assert_eq!(of("Functional.layer_norm.3.forward", ".input.4"), "eps");
        assert_eq!(of("Functional.layer_norm.3.forward", ".input.eps"), "eps");
        assert_eq!(of("Tensor.lerp_.0.forward", ".input.2"), "weight");
        // A gradient is no argument, and a list's element has no name of its own.
        assert_eq!(of("Functional.layer_norm.3.backward", ".input.0"), "input.0");
        assert_eq!(of("Torch.stack.0.forward", ".input.0.1"), "input.0.1");
        assert_eq!(argument("Functional.linear.0.forward", Section::Output, ".output.0"), "output.0");
    }

    #[test]
    fn a_line_of_the_models_own_code_is_shown_and_no_librarys() {
        assert_eq!(
            line("File /src/nets.py, line 94, in forward, \n hidden = block(hidden)").unwrap(),
            "nets.py, line 94"
        );
        assert_eq!(
            line("File /venv/lib/python3.11/site-packages/torch/nn/modules/module.py, line 7, in x, \n y"),
            None
        );
        assert_eq!(line("File /usr/lib/python3.12/threading.py, line 7, in run, \n run()"), None);
        assert_eq!(line("File /home/me/lib/python-models/gpt.py, line 7, in f, \n g()").unwrap(), "gpt.py, line 7");
        assert_eq!(line("no frame"), None);
        assert_eq!(path("Module.blocks.1.ln2.LayerNorm.backward.0"), Some("blocks.1.ln2"));
        assert_eq!(path("Module.Net.forward.0"), None);
        for value in ["Aten.t.default.1.forward.input.0", "Aten.t.default.1.forward"] {
            assert_eq!(call_of(value), "Aten.t.default.1.forward");
        }
    }
}
