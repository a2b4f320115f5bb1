"""Device meshes: the ranks that hold the elements of a DTensor, and of plain tensors in a model that has DTensors.

A line is the ranks that differ in one dimension of a mesh. Over some lines the batch is split: data parallelism, the
dimensions that `fully_shard` received. Over the others, those of tensor parallelism, ranks compute one model together.
A tensor that is not split over such a line is the same on all of its ranks. That includes a plain parameter beside
DTensors, and one that `fully_shard` splits over the data-parallel line alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

Ranks = tuple[int, ...]

#: The names of a dimension of pipeline stages: each stage has parameters of its own.
_STAGES = frozenset({"pp", "pipe", "pipeline"})


def is_dtensor(tensor: object) -> bool:
    """Whether it is a DTensor, in any version of torch."""
    return getattr(tensor, "_local_tensor", None) is not None and hasattr(tensor, "placements")


def is_summand(tensor: Any) -> bool:
    """Whether it is a DTensor of which each rank has a term of a sum."""
    return is_dtensor(tensor) and any(placement.is_partial() for placement in tensor.placements)


def holders(tensor: Any) -> Ranks:
    """The ranks over which a DTensor's elements are split; none for any other tensor. Read from the mesh."""
    return _along(tensor, lambda placement: not placement.is_replicate())


def sharers(tensor: Any) -> Ranks:
    """The ranks that hold the same elements of a DTensor, along its own mesh; none for any other tensor, and if each
    has a term of a sum."""
    if is_summand(tensor):
        return ()
    return _along(tensor, lambda placement: bool(placement.is_replicate()))


def _along(tensor: Any, varies: Callable[[Any], bool]) -> Ranks:
    """The ranks of a DTensor's mesh that differ from this one in the dimensions of some placements only."""
    if not is_dtensor(tensor):
        return ()
    mesh, place = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if place is None:
        return ()
    index = tuple(
        slice(None) if varies(placement) else own for own, placement in zip(place, tensor.placements, strict=True)
    )
    return _ranks_of(mesh.mesh[index])


def lines_of(mesh: Any, but: Collection[str] = ()) -> list[Ranks]:
    """For each dimension the ranks that differ from this one in it alone; without those of one rank, and dimensions of
    some names."""
    place, names = mesh.get_coordinate(), mesh.mesh_dim_names
    if place is None:
        return []
    lines = []
    for dim in range(mesh.mesh.ndim):
        if names is not None and names[dim] in but:
            continue
        index = tuple(slice(None) if at == dim else own for at, own in enumerate(place))
        lines.append(_ranks_of(mesh.mesh[index]))
    return [line for line in lines if len(line) > 1]


def _ranks_of(part: Any) -> Ranks:
    return tuple(sorted(int(rank) for rank in part.flatten().tolist()))


def crossed(own: int, groups: Iterable[Sequence[int]]) -> Ranks:
    """The ranks reachable from this one along all of these groups, each of which contains it: of two lines of a grid
    the rectangle. Ranks of a grid are equally far apart in each of its lines, so distances add up."""
    found = {own}
    for group in groups:
        found = {rank + other - own for rank in found for other in group}
    return tuple(sorted(found))


def root_lines(mesh: Any) -> list[Ranks]:
    """The lines of the root mesh of this one, without pipeline stages; its own if torch has no root."""
    from torch.distributed import device_mesh

    # Older versions of torch keep it outside of the mesh.
    of_torch: Any = getattr(device_mesh, "_mesh_resources", None)
    ask = getattr(mesh, "_get_root_mesh", None) or functools.partial(getattr(of_torch, "get_root_mesh", _itself), mesh)
    return lines_of(ask(), _STAGES)


def _itself(mesh: Any) -> Any:
    return mesh


class Meshes:
    """The lines over which the ranks of a job compute one model together, determined from its DTensors."""

    def __init__(self, own: int, tensors: Iterable[Any], data_of: Mapping[int, Ranks]) -> None:
        """`data_of`: by id of a tensor, the ranks over which `fully_shard` splits the batch."""
        self._own = own
        #: The lines of tensor parallelism.
        self.lines: list[Ranks] = []
        # Thousands of parameters have few meshes, and reading one is slow.
        meshes = {
            (id(tensor.device_mesh), data_of.get(id(tensor), ())): tensor.device_mesh
            for tensor in tensors
            if is_dtensor(tensor)
        }
        for (_, data), mesh in meshes.items():
            for line in lines_of(mesh):
                if line not in self.lines and not set(data).issuperset(line):
                    self.lines.append(line)

    def across(self, ranks: Iterable[int]) -> list[Ranks]:
        """The lines that cross these ranks only at this one: over them, the ranks' contents are replicated."""
        covered, found = set(ranks) | {self._own}, []
        for line in self.lines:
            if covered.intersection(line) == {self._own}:
                found.append(line)
                covered = set(crossed(self._own, [sorted(covered), line]))
        return found


def mesh_ranks(tensor: Any) -> Ranks:
    """Every rank of a DTensor's mesh; none for any other tensor."""
    return ranks_in(tensor.device_mesh) if is_dtensor(tensor) else ()


def ranks_in(mesh: Any) -> Ranks:
    """Every rank of a mesh, in order."""
    return _ranks_of(mesh.mesh)
