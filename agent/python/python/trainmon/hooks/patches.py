"""Functions of torch that are wrapped while any watch lives: gradient clipping, the loss scaler, and `backward`.

Clipping is the last place where a script's gradients are as aggregated, and its result is the framework's own norm. The
scaler knows the factor of the loss, and the skipped steps. The tensor on which `backward` is called is the loss.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from trainmon.hooks.replacement import replace
from trainmon.hooks.torch_hooks import in_backward, is_compiling


class Listener(Protocol):
    """The events that a watch receives. No method raises."""

    def before_backward(self) -> None: ...
    def before_clipping(self, parameters: Any) -> None: ...
    def after_clipping(self, norm: Any) -> None: ...
    def loss_is_scaled(self, scaler: Any) -> None: ...
    def before_unscaling(self, optimizer: Any) -> None: ...
    def before_scaler_step(self, optimizer: Any) -> None: ...
    def after_scaler_step(self, optimizer: Any) -> None: ...
    def gradients_are_cleared(self, owner: Any) -> None: ...
    def loss_went_back(self, loss: Any) -> None: ...


_lock = threading.Lock()
#: Weak: a watch lives as long as its training.
_listeners: list[weakref.ref[Listener]] = []
_undo: list[Callable[[], object]] = []


def listen(listener: Listener) -> None:
    """Wraps the functions, if this is the first listener."""
    with _lock:
        _listeners.append(weakref.ref(listener, _forget))
        if len(_listeners) == 1:
            _wrap_all()


def unlisten(listener: Listener) -> None:
    """Restores the functions when the last listener goes. Idempotent."""
    with _lock:
        _listeners[:] = [one for one in _listeners if one() is not listener and one() is not None]
        _put_back_if_alone()


def _forget(gone: weakref.ref[Listener]) -> None:
    """Forgets a collected watch. Runs at any moment of garbage collection, possibly while the lock is held here."""
    if _lock.acquire(blocking=False):
        try:
            _listeners[:] = [one for one in _listeners if one is not gone]
            _put_back_if_alone()
        finally:
            _lock.release()


def _put_back_if_alone() -> None:
    if not _listeners:
        while _undo:
            _undo.pop()()


def listeners() -> list[Listener]:
    """The living listeners."""
    return [one for one in (reference() for reference in tuple(_listeners)) if one is not None]


def is_only_one() -> bool:
    """Whether exactly one watch lives."""
    return len(listeners()) == 1


def about_to_clip(parameters: list[Any]) -> None:
    """Receives the parameters that are about to be clipped, or their gradients if only these are known."""
    for listener in listeners():
        listener.before_clipping(parameters)


def has_clipped(norm: Any) -> None:
    """Receives their norm after clipping."""
    for listener in listeners():
        listener.after_clipping(norm)


def _wrap_all() -> None:
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        _replace(module, "clip_grad_norm_", _clipping)
        _replace(module, "clip_grad_value_", _clamping)
    scaler = _scaler_class()
    if scaler is not None:
        _replace(scaler, "scale", _scaling)
        _replace(scaler, "step", _stepping)
        _replace(scaler, "unscale_", _unscaling)
    # Functions that a script bound before the patch call these by their names in torch's module.
    for name, wrapper in (
        ("_get_total_norm", _norming),
        ("_clip_grads_with_norm_", _scaling_down),
        ("_group_tensors_by_device_and_dtype", _grouping),
    ):
        _replace(torch.nn.utils.clip_grad, name, wrapper)
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        _replace(module, "get_total_norm", _norming)
        _replace(module, "clip_grads_with_norm_", _scaling_down)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        _replace(owner, "zero_grad", _clearing)
    # `Tensor.backward` calls it by this name, and the `backward` of a scaler, an engine or a trainer calls that.
    _replace(torch.autograd, "backward", _going_back)


def _scaler_class() -> Any:
    """The base class of all torch loss scalers; before torch 2.3 only the CUDA one."""
    amp = getattr(torch, "amp", None)
    base = getattr(amp, "GradScaler", None)
    return base if base is not None else torch.cuda.amp.GradScaler


def _replace(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return
    # If other code has wrapped ours meanwhile it stays, without listeners.
    _undo.append(replace(owner, name, wrapper(original)))


class _Clip(threading.local):
    """The clipping in progress in this thread."""

    is_told = False
    norm_type = 2.0


_clip = _Clip()


class _Pass(threading.local):
    """The backward pass in progress in this thread."""

    is_told = False


_pass = _Pass()


def _clipping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not listeners():
            return original(parameters, *args, **kwargs)
        if not isinstance(parameters, torch.Tensor):
            # A generator can be read once only.
            parameters = list(parameters)
        about_to_clip(parameters)
        _clip.is_told = True
        try:
            norm = original(parameters, *args, **kwargs)
        finally:
            _clip.is_told = False
        if is_euclidean(kwargs.get("norm_type", args[1] if len(args) > 1 else 2.0)) and _is_whole(norm):
            has_clipped(norm)
        return norm

    return clip_grad_norm_


def _clamping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not listeners():
            return original(parameters, *args, **kwargs)
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        about_to_clip(parameters)
        return original(parameters, *args, **kwargs)

    return clip_grad_value_


def _grouping(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch's clipping looks up in its module. A script may have bound `clip_grad_value_` before the
    patch."""

    @functools.wraps(original)
    def _group_tensors_by_device_and_dtype(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling() and sys._getframe(1).f_code.co_name == "clip_grad_value_":
            about_to_clip([one for of_kind in tensors for one in of_kind])
        return original(tensors, *args, **kwargs)

    return _group_tensors_by_device_and_dtype


def _norming(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_total_norm(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            _clip.norm_type = kwargs.get("norm_type", args[0] if args else 2.0)
        return original(tensors, *args, **kwargs)

    return get_total_norm


def _scaling_down(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip_grads_with_norm_(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or _clip.is_told or not listeners():
            return original(parameters, max_norm, total_norm, *args, **kwargs)
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        about_to_clip(parameters)
        result = original(parameters, max_norm, total_norm, *args, **kwargs)
        if is_euclidean(_clip.norm_type) and _is_whole(total_norm):
            has_clipped(total_norm)
        return result

    return clip_grads_with_norm_


def is_euclidean(norm_type: Any) -> bool:
    """Whether a norm of this type is the one that trainmon measures."""
    return isinstance(norm_type, int | float) and norm_type == 2.0


def _clearing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not is_compiling():
            for listener in listeners():
                listener.gradients_are_cleared(self)
        return result

    return zero_grad


def _going_back(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        # Inside another backward pass it is activation checkpointing's, for a part of the model. Under a torch function
        # mode, torch's function calls itself once more, by its name.
        is_outermost = not is_compiling() and not in_backward() and not _pass.is_told
        if not is_outermost:
            return original(tensors, grad_tensors, *args, **kwargs)
        for listener in listeners():
            listener.before_backward()
        _pass.is_told = True
        try:
            result = original(tensors, grad_tensors, *args, **kwargs)
        finally:
            _pass.is_told = False
        if grad_tensors is None:
            for listener in listeners():
                listener.loss_went_back(tensors)
        return result

    return backward


def _is_whole(norm: Any) -> bool:
    """Whether this rank has the norm: of sharded gradients it is a DTensor that is not summed over ranks."""
    return all(placement.is_replicate() for placement in getattr(norm, "placements", ()))


def _scaling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scale(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            for listener in listeners():
                listener.loss_is_scaled(self)
        return original(self, *args, **kwargs)

    return scale


def _unscaling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def unscale_(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        for listener in listeners():
            listener.before_unscaling(optimizer)
        return original(self, optimizer, *args, **kwargs)

    return unscale_


def _stepping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        for listener in listeners():
            listener.before_scaler_step(optimizer)
        result = original(self, optimizer, *args, **kwargs)
        for listener in listeners():
            listener.after_scaler_step(optimizer)
        return result

    return step
