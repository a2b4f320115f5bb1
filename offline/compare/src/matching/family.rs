//! Names of the same things in two frameworks: families of operators, functions, classes of modules, parameters.
//!
//! Sources: `MindSpore`'s table of PyTorch's functions and its own (`note/api_mapping` in its documentation, of 2.3 for
//! `mindspore.ops` and `Tensor`, of 1.8 for primitives, the newest for `mindspore.mint`). Also its pages on single functions,
//! and torch's documentation for functions with two names. Most names are the same; these tables have the others, as far as
//! they run in a training.

use std::borrow::Cow;

use trainmon_capture_files::Framework;

/// `MindSpore`'s families, and torch's for the same operators.
const FAMILIES: [(&str, &str); 4] =
    [("Mint", "Torch"), ("MintFunctional", "Functional"), ("MintDistributed", "Distributed"), ("Cell", "Module")];

/// Functions of `mindspore.ops` and methods of its tensors, and torch's with the same meaning; empty if torch's function of
/// that name differs and there is no other. (`mindspore.mint` has torch's names.)
const RENAMED: [(&str, &str); 22] = [
    ("Functional.bidense", "Functional.bilinear"),
    ("Functional.dense", "Functional.linear"),
    ("Functional.equal", "Torch.eq"),
    ("Functional.expand_dims", "Torch.unsqueeze"),
    ("Functional.floor_div", "Torch.floor_divide"),
    ("Functional.gather", ""),
    ("Functional.gather_d", "Torch.gather"),
    ("Functional.gather_elements", "Torch.gather"),
    ("Functional.reduce_max", "Torch.amax"),
    ("Functional.reduce_mean", "Torch.mean"),
    ("Functional.reduce_min", "Torch.amin"),
    ("Functional.reduce_sum", "Torch.sum"),
    ("Functional.select", "Torch.where"),
    ("Functional.tensor_scatter_elements", "Torch.scatter"),
    ("Functional.transpose", "Torch.permute"),
    ("Functional.unstack", "Torch.unbind"),
    ("Tensor.astype", "Tensor.to"),
    ("Tensor.broadcast_to", "Tensor.expand"),
    ("Tensor.equal", "Tensor.eq"),
    ("Tensor.expand_dims", "Tensor.unsqueeze"),
    ("Tensor.gather", ""),
    ("Tensor.gather_elements", "Tensor.gather"),
];

/// Primitives by class, and torch's functions with the same tensors in the same order.
const PRIMITIVES: [(&str, &str); 73] = [
    ("Abs", "abs"),
    ("Add", "add"),
    ("AllReduce", "Distributed.all_reduce"),
    ("Atan2", "atan2"),
    ("AvgPool", "avg_pool2d"),
    ("BatchMatMul", "matmul"),
    ("BinaryCrossEntropy", "binary_cross_entropy"),
    ("BitwiseAnd", "bitwise_and"),
    ("BitwiseOr", "bitwise_or"),
    ("BroadcastTo", "Tensor.expand"),
    ("Cast", "Tensor.to"),
    ("Ceil", "ceil"),
    ("Concat", "cat"),
    ("Conv2D", "conv2d"),
    ("Cos", "cos"),
    ("CumSum", "cumsum"),
    ("Div", "div"),
    ("Dropout", "dropout"),
    ("Elu", "elu"),
    ("Equal", "eq"),
    ("Erf", "erf"),
    ("Exp", "exp"),
    ("ExpandDims", "unsqueeze"),
    ("Flatten", "flatten"),
    ("Floor", "floor"),
    ("FloorDiv", "floor_divide"),
    ("GatherD", "gather"),
    ("GeLU", "gelu"),
    ("Greater", "gt"),
    ("GreaterEqual", "ge"),
    ("IsFinite", "isfinite"),
    ("IsInf", "isinf"),
    ("IsNan", "isnan"),
    ("L2Normalize", "normalize"),
    ("Less", "lt"),
    ("LessEqual", "le"),
    ("Log", "log"),
    ("Log1p", "log1p"),
    ("LogSoftmax", "log_softmax"),
    ("LogicalAnd", "logical_and"),
    ("LogicalNot", "logical_not"),
    ("LogicalOr", "logical_or"),
    ("MatMul", "matmul"),
    ("MaxPool", "max_pool2d"),
    ("Maximum", "maximum"),
    ("Minimum", "minimum"),
    ("Mul", "mul"),
    ("NLLLoss", "nll_loss"),
    ("Neg", "neg"),
    ("NotEqual", "ne"),
    ("OneHot", "one_hot"),
    ("Pow", "pow"),
    ("ReLU", "relu"),
    ("RealDiv", "div"),
    ("Reciprocal", "reciprocal"),
    ("ReduceMean", "mean"),
    ("ReduceSum", "sum"),
    ("Reshape", "reshape"),
    ("Rsqrt", "rsqrt"),
    ("SiLU", "silu"),
    ("Sigmoid", "sigmoid"),
    ("Sin", "sin"),
    ("Softmax", "softmax"),
    ("Softplus", "softplus"),
    ("Split", "split"),
    ("Sqrt", "sqrt"),
    ("Square", "square"),
    ("Squeeze", "squeeze"),
    ("Stack", "stack"),
    ("Sub", "sub"),
    ("Tanh", "tanh"),
    ("Transpose", "permute"),
    ("Unstack", "unbind"),
];

/// Second names of a function in torch or `MindSpore`, operators written as functions, and functions that equal another one for
/// some shapes or strides: ports exchange them.
const ALIASES: [(&str, &str); 43] = [
    ("__add__", "add"),
    ("__and__", "bitwise_and"),
    ("__div__", "div"),
    ("__eq__", "eq"),
    ("__floordiv__", "floor_divide"),
    ("__ge__", "ge"),
    ("__gt__", "gt"),
    ("__le__", "le"),
    ("__lt__", "lt"),
    ("__matmul__", "matmul"),
    ("__mul__", "mul"),
    ("__ne__", "ne"),
    ("__neg__", "neg"),
    ("__pow__", "pow"),
    ("__radd__", "add"),
    ("__rmul__", "mul"),
    ("__sub__", "sub"),
    ("__truediv__", "div"),
    ("_all_gather_base", "all_gather_into_tensor"),
    ("_reduce_scatter_base", "reduce_scatter_tensor"),
    ("absolute", "abs"),
    ("bmm", "matmul"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("divide", "div"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("mm", "matmul"),
    ("moveaxis", "movedim"),
    ("multiply", "mul"),
    ("ndimension", "dim"),
    ("negative", "neg"),
    ("not_equal", "ne"),
    ("special.expm1", "expm1"),
    ("subtract", "sub"),
    ("swapaxes", "transpose"),
    ("swapdims", "transpose"),
    ("tile", "repeat"),
    ("true_divide", "div"),
    ("view", "reshape"),
    ("view_as", "reshape_as"),
];

/// A callee in the common spelling of both frameworks; `own` ran it, `other` is the counterpart's. Names of one framework only
/// stay unchanged. Modules go by their path, because classes have other names (`Dense` is `Linear`). A function that torch has
/// in both `torch` and `torch.nn.functional` is one function.
pub(super) fn common_callee(callee: &str, own: Framework, other: Framework) -> Cow<'_, str> {
    if own == other {
        return Cow::Borrowed(callee);
    }
    let renamed = match own {
        Framework::MindSpore => of_torch(callee),
        Framework::PyTorch | Framework::MindTorch => callee.split_once('.'),
    };
    let Some((family, rest)) = renamed else { return Cow::Borrowed(callee) };
    let family = FAMILIES.iter().find(|(theirs, _)| *theirs == family).map_or(family, |(_, ours)| ours);
    let (family, rest) = match family {
        "Module" => ("Module", rest.rsplit_once('.').map_or("", |(path, _)| path)),
        "Functional" | "Torch" => ("Torch", found(&ALIASES, rest).unwrap_or(rest)),
        family => (family, found(&ALIASES, rest).unwrap_or(rest)),
    };
    Cow::Owned(format!("{family}.{rest}"))
}

/// Family and name in torch of a `MindSpore` function; `None` if torch has none.
fn of_torch(callee: &str) -> Option<(&str, &str)> {
    if let Some(primitive) = callee.strip_prefix("Primitive.") {
        let class = primitive.rsplit('.').next().unwrap_or(primitive);
        let name = found(&PRIMITIVES, class)?;
        return Some(name.split_once('.').unwrap_or(("Torch", name)));
    }
    found(&RENAMED, callee).unwrap_or(callee).split_once('.')
}

/// Collectives that take a result tensor in torch but not in `mindspore.communication`: the name there, torch's, and the
/// arguments.
pub(super) const COLLECTIVES: [(&str, &str, u32, u32); 4] = [
    ("Distributed.all_gather_into_tensor", "Distributed.all_gather_into_tensor", 0, 1),
    ("Distributed.all_to_all_single_with_output_shape", "Distributed.all_to_all_single", 1, 1),
    ("Distributed.all_to_all_with_output_shape", "Distributed.all_to_all", 1, 1),
    ("Distributed.reduce_scatter_tensor", "Distributed.reduce_scatter_tensor", 0, 1),
];

fn found<'n>(names: &[(&str, &'n str)], name: &str) -> Option<&'n str> {
    names.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

/// Names of parameters of the same layers.
const PARAMETERS: [(&str, &str); 5] = [
    ("gamma", "weight"),
    ("beta", "bias"),
    ("embedding_table", "weight"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
];

/// A parameter's name in torch's spelling; `None` if it is the same.
pub(super) fn common_parameter(name: &str, framework: Framework) -> Option<&'static str> {
    found(&PARAMETERS, name).filter(|_| framework == Framework::MindSpore)
}
