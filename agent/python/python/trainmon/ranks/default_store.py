"""The key-value store that torch.distributed was started with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def get_all(store: Any, keys: Sequence[str]) -> list[bytes]:
    """The values of existing keys, with one call if the store supports it. Waits for a key that was never set."""
    if len(keys) > 1 and store.has_extended_api():
        return list(store.multi_get(list(keys)))
    return [store.get(key) for key in keys]


class FileStoreError(Exception):
    """The store is a file: it never shrinks, so each exchange would make it longer."""

    hint = 'start torch.distributed with `init_method="env://"` (torchrun does) or "tcp://"'

    def __init__(self) -> None:
        super().__init__("torch.distributed was started with a file as its store, which grows with every exchange")


def default_store() -> Any:
    """The store that torch.distributed was started with. Raises `FileStoreError` if it is a file."""
    from torch.distributed.distributed_c10d import _get_default_store

    store = _get_default_store()
    if is_file(store):
        raise FileStoreError
    return store


def is_file(store: Any) -> bool:
    """Whether a store, under any prefixes, appends to a file."""
    from torch.distributed import FileStore, PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, FileStore)
