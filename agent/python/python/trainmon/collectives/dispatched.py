"""Operations that no Python method announces: DDP's reducer in C++, functional collectives, compiled graphs.

All of them go through torch's dispatcher. trainmon registers a kernel where every call passes on its way to the backend
(`BackendSelect`: below autograd and below modes, which are not affected); the kernel forwards the call. It costs some
twenty microseconds. DDP's own operations are `c10d`'s. So are a script's calls, which have been announced and skip the
kernel:

- Buckets (`all_reduce`) are sent in a backward pass, from any thread. Their kernel is registered at a key that a thread
  may exclude without another effect (`ADInplaceOrView`: its kernels count the writes of operators, while backends write
  memory). A script's call excludes it.
- Buffers, parameters and the order of buckets (`broadcast`) are sent by a few functions of C++, in inference mode too.
  Their kernel is registered at a key (`PreDispatch`) that only the operations of these functions pass, on their thread.
"""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from trainmon._trainmon import Collectives, OpenCall
from trainmon.collectives.operations import called
from trainmon.common.guard import Guard
from trainmon.hooks.replacement import replace

#: Functional collectives and the operation that each is counted as; in-place variants are counted as the same.
_FUNCTIONAL = {
    name: name.removesuffix("_out").removesuffix("_")
    for name in (
        *("all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_"),
        *("all_gather_into_tensor", "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced"),
        *("reduce_scatter_tensor", "reduce_scatter_tensor_out", "reduce_scatter_tensor_coalesced"),
        *("all_to_all_single", "broadcast", "broadcast_"),
    )
}
#: The maximum number of results without a wait; beyond it the oldest are given up.
_MOST_OPEN = 1024


class Dispatched:
    """The kernels, from `attach` to `detach`."""

    def __init__(self, hooks: Collectives, guard: Guard, *, has_ddp: bool) -> None:
        self._hooks = hooks
        self._guard = guard
        self._has_ddp = has_ddp
        self._libraries: list[Any] = []
        self._put_back: list[Callable[[], object]] = []
        #: DDP's own operations that have not been reported as ended.
        self._of_reducer: OrderedDict[int, tuple[OpenCall, Any]] = OrderedDict()
        #: Functional operations in flight, by the address of a result, with all their results.
        self._open: OrderedDict[int, tuple[OpenCall, list[weakref.ref[torch.Tensor]]]] = OrderedDict()

    def attach(self) -> None:
        """Registers the kernels, if this torch can forward a call to the kernel below (from 2.6 on)."""
        if self._libraries or "with_keyset" not in inspect.signature(torch.library.Library.impl).parameters:
            return
        if self._has_ddp:
            self._attach_ddp()
        self._add("_c10d_functional", _FUNCTIONAL, self._functional)
        self._add("_c10d_functional", {"wait_tensor": ""}, self._waiting)

    def _attach_ddp(self) -> None:
        self._add("c10d", {"allreduce_": "all_reduce"}, self._of_ddp, "ADInplaceOrView")
        left_out = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
        self._hooks.bypass_kernel(functools.partial(torch._C._ExcludeDispatchKeyGuard, left_out))
        self._add("c10d", {"broadcast_": "broadcast"}, self._of_ddp, "PreDispatch")
        for owner, name in _spreaders():
            self._put_back.append(replace(owner, name, _seen(vars(owner)[name])))

    def detach(self) -> None:
        """Restores everything."""
        self._hooks.bypass_kernel(None)
        while self._put_back:
            self._put_back.pop()()
        while self._libraries:
            self._libraries.pop()._destroy()
        while self._open:
            self._open.popitem()[1][0].release()
        # A backend's thread reports an end when the GIL is free: the training may have waited for it and continued.
        for key in list(self._of_reducer):
            one = self._of_reducer.pop(key, None)
            if one is None:
                continue
            call, work = one
            if work.is_completed():
                call.ended()
            else:
                call.release()

    def _add(
        self,
        namespace: str,
        names: dict[str, str],
        kernel: Callable[[Any, str, Any], Any],
        key: str = "BackendSelect",
    ) -> None:
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, key))
        library = torch.library.Library(namespace, "IMPL")
        self._libraries.append(library)
        operators = getattr(torch.ops, namespace)
        for name, op in names.items():
            packet = getattr(operators, name, None)
            overload = getattr(packet, "default", None)
            if overload is not None:
                library.impl(name, kernel(overload, op, below), key, with_keyset=True)

    def _of_ddp(self, overload: Any, op: str, below: Any) -> Callable[..., Any]:
        hooks, guard = self._hooks, self._guard
        from torch.distributed import ProcessGroup, Work

        def kernel(keys: Any, tensors: Any, group: Any, *others: Any) -> Any:
            if hooks.is_inside():
                # A script's call, which has been announced.
                return overload.redispatch(keys & below, tensors, group, *others)
            call = guard.run(
                "operations of DDP",
                lambda: hooks.begin(op, ProcessGroup.unbox(group), list(tensors), None, in_place=True),
            )
            if call is None:
                return overload.redispatch(keys & below, tensors, group, *others)
            hooks.enter()
            try:
                result = overload.redispatch(keys & below, tensors, group, *others)
            finally:
                hooks.leave()
            # DDP waits for each of them in C++, before the backward pass returns.
            guard.run("ends of DDP's operations", lambda: self._tell_end(Work.unbox(result[1]), call))
            return result

        return kernel

    def _tell_end(self, work: Any, call: OpenCall) -> None:
        # First: without a future nothing would end the entry, which keeps the bucket alive.
        future, open_calls, key = work.get_future(), self._of_reducer, id(call)
        open_calls[key] = call, work

        def ended(_future: Any) -> None:
            if open_calls.pop(key, None) is not None:
                call.ended()

        future.add_done_callback(ended)
        while len(open_calls) > _MOST_OPEN:
            open_calls.popitem(last=False)[1][0].release()

    def _functional(self, overload: Any, op: str, below: Any) -> Callable[..., Any]:
        hooks, guard = self._hooks, self._guard

        def kernel(keys: Any, *arguments: Any, **keywords: Any) -> Any:
            call = guard.run("functional collectives", lambda: self._begin(op, arguments))
            if call is None:
                return overload.redispatch(keys & below, *arguments, **keywords)
            hooks.enter()
            try:
                result = overload.redispatch(keys & below, *arguments, **keywords)
            finally:
                hooks.leave()
            guard.run("functional collectives", lambda: self._keep(call, result))
            return result

        return kernel

    def _begin(self, op: str, arguments: tuple[Any, ...]) -> OpenCall | None:
        from torch.distributed.distributed_c10d import _resolve_process_group

        # The group comes last, as its name or as itself; after it only the tensor that is filled.
        named = [one for one in arguments if not isinstance(one, torch.Tensor)][-1]
        tensors = arguments[0] if isinstance(arguments[0], torch.Tensor) else list(arguments[0])
        group = _resolve_process_group(named) if isinstance(named, str) else torch.distributed.ProcessGroup.unbox(named)
        return self._hooks.begin(op, group, tensors, _larger(op, tensors, group), in_place=False)

    def _keep(self, call: OpenCall, result: Any) -> None:
        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        addresses = {one.data_ptr() for one in tensors if one.numel()}
        if not addresses:
            call.ended()
        filled = [weakref.ref(one) for one in tensors]
        for address in addresses:
            earlier = self._open.pop(address, None)
            if earlier is not None:
                earlier[0].release()
            self._open[address] = call, filled
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1][0].release()

    def _waiting(self, overload: Any, _op: str, below: Any) -> Callable[..., Any]:
        guard = self._guard

        def kernel(keys: Any, tensor: Any) -> Any:
            known = guard.run("waits for functional collectives", lambda: self._open.pop(tensor.data_ptr(), None))
            if known is None:
                return overload.redispatch(keys & below, tensor)
            begun = time.perf_counter()
            result = overload.redispatch(keys & below, tensor)
            waited = time.perf_counter() - begun
            guard.run(
                "waits for functional collectives", lambda: known[0].ended_after(waited, _alive(known[1], tensor))
            )
            return result

        return kernel


def _spreaders() -> list[tuple[Any, str]]:
    """The references to DDP's C++ functions that broadcast: the object that holds each, and the name."""
    distributed = torch.distributed
    known = [
        (distributed, "_broadcast_coalesced"),
        (distributed, "_verify_params_across_processes"),
        (getattr(distributed, "Reducer", None), "_rebuild_buckets"),
    ]
    return [(owner, name) for owner, name in known if name in vars(owner or object)]


def _seen(original: Any) -> Callable[..., Any]:
    """The original function; its operations pass the kernel at `PreDispatch`."""
    function = called(original)

    @functools.wraps(function)
    def seen(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.PreDispatch):
            return function(*arguments, **keywords)

    return seen


def _alive(filled: list[weakref.ref[torch.Tensor]], waited_for: torch.Tensor) -> list[torch.Tensor] | None:
    """The results of an operation, which all end at once. The tensor that is waited for may be another Python object of
    the same memory. None if one of them no longer exists: the rest is not reported."""
    if len(filled) == 1:
        return [waited_for]
    alive = [one() for one in filled]
    return None if any(one is None for one in alive) else [one for one in alive if one is not None]


def _larger(op: str, tensors: Any, group: Any) -> Any:
    """The results of an operation if they are larger than its inputs: tensors of that size without memory."""
    if not op.startswith("all_gather"):
        return None
    one_or_all = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    of_all = [
        torch.empty((one.shape[0] * group.size(), *one.shape[1:]), dtype=one.dtype, device="meta")
        for one in one_or_all
        if one.dim()
    ]
    return of_all or None
