"""The captured functions of torch, and their names.

The names are msprobe's: prefix, and the last part of the function's own. The functions are those that torch allows to
override (`torch.overrides`), without those that only query a tensor, move its memory, or are internal.
"""

from __future__ import annotations

import fnmatch
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from trainmon.common.places import directory_of

#: The directory of torch's own code.
_TORCH = directory_of(torch.__file__)


def _words(text: str) -> list[str]:
    return text.split()


class Operator(NamedTuple):
    """A captured function."""

    prefix: str
    """`Functional`, `Tensor`, `Torch`, `VF`."""
    api: str
    """The name in a dump."""
    owner: Any
    """The object with the function as an attribute."""
    function: Any
    """The function itself."""


#: Methods that query a tensor or expose its memory, and internal ones, by pattern.
_NO_METHODS = _words(
    "is_* q_* qscheme dequantize int_repr *storage* *dense* *sparse* *coalesce* *indices values to_mkldnn"
    # Queries and conversions to Python.
    " data_ptr const_data_ptr dim dim_order element_size get_device item ndimension nelement numel size tolist type"
    # Copies and moves of memory.
    " apply_ as_strided* clone contiguous copy_ cpu cuda detach detach_ ipu module_load mtia pin_memory record_stream"
    " requires_grad_ resize resize_as retain_grad set_ share_memory_ view xpu zero_ slice_inverse resolve_conj conj"
    " conj_physical_ select_scatter"
    # Graphs and hooks.
    " backward register_hook register_post_accumulate_grad_hook"
    # Functions of which msprobe captures the inner calls, or which it does not know.
    " cdouble chalf cross hash_tensor index index_reduce* istft nonzero_static positive put random_ scatter_reduce*"
    " subtract_ swapaxes_ trace uniform_"
)

#: The double-underscore methods that are operators. The others serve Python.
_DUNDERS = [
    f"__{name}__"
    for name in _words(
        "add and bool div eq floordiv ge gt iadd iand idiv ifloordiv ilshift imod imul ior ipow irshift isub ixor"
        " le lshift lt matmul mod mul ne nonzero or pow radd rmod rmul ror rpow rshift rsub rxor setitem sub truediv"
        " xor"
    )
]

#: Methods that `torch.overrides` does not name.
_MORE_METHODS = ["eig", "lstsq", "q_zero_point", "solve", "stride", "symeig", "unflatten"]

#: Functions of `torch` that are no operators, by pattern.
_NO_FUNCTIONS = _words(
    "_* *_copy sym_* q_* quantize* fake_quantize* fbgemm* *fake_quant miopen* is_* *indices rnn_* *_like view_as_*"
    " adjoint allclose as_strided_* autocast batch_norm bitwise_left_shift bitwise_right_shift complex conj"
    " conj_physical* corrcoef dequantize detach* get_device gradient hash_tensor imag index_reduce int_repr isreal"
    " lobpcg lu meshgrid native_channel_shuffle native_dropout nonzero_static numel orgqr ormqr pca_lowrank positive"
    " put quantized_* resize_as_sparse_ resolve_conj rms_norm scatter_reduce select_scatter slice_inverse slice_scatter"
    " svd_lowrank trace trapezoid unique unravel_index zero_"
    # `torch.gru` is what `nn.GRU` calls as `_VF.gru`, which msprobe does not see.
    " gru"
)

#: Functions of `torch` that `torch.overrides` does not name (most create a tensor), or that a pattern above would
#: exclude.
_MORE_FUNCTIONS = _words(
    "_adaptive_avg_pool2d _add_relu _add_relu_ _aminmax _batch_norm_impl_index _convolution _foreach_norm"
    " _fused_adamw_ _softmax_backward_data arange bartlett_window blackman_window eig eye full full_like"
    " hamming_window hann_window index_copy kaiser_window linspace logspace lstsq matrix_rank"
    " max_pool1d_with_indices narrow_copy normal range scalar_tensor solve sparse_coo_tensor symeig tril_indices"
    " triu_indices vander"
)

#: Functions of `torch.linalg` that are no operators.
_NO_LINALG = _words("LinAlgError cholesky eig eigh eigvals eigvalsh ldl_solve lu_solve solve_triangular tensorinv")

#: Functions of `torch.nn.functional` that are no operators, and those that `torch.overrides` does not name.
_NO_FUNCTIONAL = ["_threshold", "linear_cross_entropy", "log_sigmoid", "native_channel_shuffle", "rms_norm"]
_MORE_FUNCTIONAL = _words(
    "celu_ elu_ hardsigmoid hardswish hardtanh_ leaky_relu_ logsigmoid relu_ rrelu_ selu_ sigmoid tanh threshold"
    " threshold_ upsample upsample_bilinear upsample_nearest"
)

#: The function names of `a + b` and the like: torch passes only the method to a mode.
SPELLED_AS = {
    **{f"__{name}__": name for name in _words("add div ge gt le lt matmul mul ne sub")},
    **{f"__i{name}__": f"{name}_" for name in _words("add div mul sub")},
    **{f"__r{name}__": name for name in _words("add mul")},
    "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_",
    "__mod__": "remainder",
    "__nonzero__": "__bool__",
    "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
    "__truediv__": "div",
}


def allocations() -> Iterator[Any]:
    """Functions that allocate uninitialised memory. They are no operators, as in msprobe."""
    for owner, names in (
        (torch, ("empty", "empty_like", "empty_permuted", "empty_strided")),
        (torch.Tensor, ("new_empty", "new_empty_strided")),
    ):
        yield from (getattr(owner, name) for name in names if hasattr(owner, name))


def unseen_methods() -> Iterator[tuple[str, Any]]:
    """Operators' methods that msprobe does not see (`-a`, `a /= b`), and the functions that a mode receives for them:
    their calls are none of the methods they are made of."""
    named = tensor_names()
    methods = {id(getattr(torch.Tensor, name, None)) for name in named}
    for name in dir(torch.Tensor):
        if name.startswith("__") and name not in named and id(getattr(torch.Tensor, name)) in methods:
            yield name, getattr(torch.Tensor, name)
    yield "__itruediv__", torch.Tensor.div_
    yield "__rand__", torch.Tensor.bitwise_and


#: The same for functions: they do nothing but call another.
CALLS = {
    "sigmoid": torch.Tensor.sigmoid,
    "tanh": torch.Tensor.tanh,
    "upsample": torch.nn.functional.interpolate,
    "upsample_bilinear": torch.nn.functional.interpolate,
    "upsample_nearest": torch.nn.functional.interpolate,
}


def operators() -> Iterator[Operator]:
    """All operators. Of a function with several names (`F.conv1d` is `torch.conv1d`), the first is used."""
    yield Operator("VF", "lstm", torch._VF, torch._VF.lstm)
    yield from _bound("Functional", torch.nn.functional, functional_names())
    yield from _bound("Tensor", torch.Tensor, tensor_names())
    yield from _bound("Torch", torch, torch_names())
    yield from _bound("Torch", torch.linalg, linalg_names())


def functional_names() -> list[str]:
    """Of `torch.nn.functional`."""
    named = _overridable(torch.nn.functional)
    return sorted((named - set(_NO_FUNCTIONAL)) | set(_MORE_FUNCTIONAL))


def tensor_names() -> list[str]:
    """Methods of tensors."""
    named = {name for name in _overridable(torch.Tensor) if not name.startswith("_") and not _any(name, _NO_METHODS)}
    return sorted(named | set(_DUNDERS) | set(_MORE_METHODS))


def torch_names() -> list[str]:
    """Of `torch` itself."""
    in_place = {name for name in dir(torch._C._VariableFunctions) if name.endswith("_") and not name.startswith("_")}
    named = _overridable(torch) | _overridable(torch.functional) | in_place
    return sorted({name for name in named if not _any(name, _NO_FUNCTIONS)} | set(_MORE_FUNCTIONS))


def linalg_names() -> list[str]:
    """Of `torch.linalg`."""
    public = {name for name in dir(torch.linalg) if not name.startswith("_") and callable(getattr(torch.linalg, name))}
    return sorted(name for name in public - set(_NO_LINALG) if not isinstance(getattr(torch.linalg, name), type))


def _overridable(owner: Any) -> set[str]:
    functions = torch.overrides.get_overridable_functions().get(owner, [])
    return {name for name in (getattr(one, "__name__", "") for one in functions) if name}


def _any(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _bound(prefix: str, owner: Any, names: list[str]) -> Iterator[Operator]:
    for name in names:
        function = getattr(owner, name, None)
        if callable(function):
            yield Operator(prefix, name, owner, _without_keeping(function))


def _without_keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """The C++ function that `seed_all(rm_dropout=True)` has wrapped: a mode is called with it."""
    inner = getattr(function, "__wrapped__", None)
    if hasattr(function, "_keeps_everything") and isinstance(inner, types.BuiltinFunctionType):
        return inner
    return function


#: The checks that a Python function of torch makes before its own work.
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

#: Methods whose inner calls are not captured: they print, copy or store a tensor.
_QUIET = _words("__repr__ __format__ __deepcopy__ __reduce_ex__ __setstate__ __array__ __dlpack__ storage")


def inside_of(function: types.FunctionType) -> Any:
    """The body of a Python function of torch without its check for a mode; None if it has no such check.
    `Tensor.backward` and `torch.autograd.grad` are such: recomputation inside them must be seen."""
    if function.__name__ in _QUIET or not _is_torchs(function):
        return None
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):
        # A method of an operator, with the check around it; or a logger around a function that checks.
        return inside_of(wrapped) or (None if _asks(wrapped) else wrapped)
    if wrapped is not None:
        return wrapped
    asked = [name for name in _CHECKS if name in function.__code__.co_names]
    if not asked:
        return None
    names = {**function.__globals__, **dict.fromkeys(asked, _never)}
    body = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    body.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(body, function)


def _is_torchs(function: types.FunctionType) -> bool:
    """Whether torch wrote it. The host may have replaced torch's function by its own: it is called unchanged, because
    the wrapped function would ask the mode, which receives the host's function again."""
    return function.__code__.co_filename.startswith(_TORCH)


def _asks(function: types.FunctionType) -> bool:
    return any(name in function.__code__.co_names for name in (*_CHECKS, "handle_torch_function"))


def _never(*_arguments: Any) -> bool:
    return False
