"""What every exchange between ranks is made of: a thread beside the training, keys that come round again, waiting.

No collective is issued. What ranks exchange goes through the key-value store that torch.distributed was started with.
The training's thread hands over what is to be exchanged and goes on; nobody waits for another rank.
"""

from __future__ import annotations

import abc
import atexit
import threading
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from trainmon.ranks.surroundings import PROCESS, Clock

_all: weakref.WeakSet[StoreThread] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread inside torch's store must not meet the end of the interpreter."""
    for one in list(_all):
        one.stop(one.at_exit_s, one.call_s)


class StoreThread(abc.ABC):
    """Has a thread that talks with other ranks. It is started by the first thing to do, and ended with the process."""

    #: The thread's name behind `trainmon-`.
    thread_name: ClassVar[str]
    #: How long the end of the process waits for work under way, and for a call of the store to return.
    at_exit_s: ClassVar[float] = 0.0
    call_s: ClassVar[float] = 2.0

    def __init__(self, clock: Clock = PROCESS.clock) -> None:
        self._clock = clock
        #: Held while what both threads see is changed; notified when the thread is to look.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: When the thread ends, once that is known.
        self._stop_at: float | None = None
        _all.add(self)

    def _start(self) -> None:
        """Starts the thread if none runs. Called while `_changed` is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"trainmon-{self.thread_name}", daemon=True)
            self._thread.start()
        self._changed.notify()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop_at is not None

    def stop(self, seconds: float, further: float | None = None) -> None:
        """Lets the thread work on for `seconds`, then waits `further` (`call_s`) for it to end."""
        with self._changed:
            self._stop_at = self._clock.now() + seconds
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds + (self.call_s if further is None else further))

    @abc.abstractmethod
    def _run(self) -> None:
        """What the thread does. Raises nothing."""


class Ring:
    """Keys that are used again after so many steps, so that the store does not grow. A value carries its step."""

    def __init__(self, size: int) -> None:
        #: Steps after which a key is used again.
        self.size = size

    def place(self, step: int) -> int:
        """Which place of the ring is a step's."""
        return step % self.size

    @staticmethod
    def packed(step: int, value: float) -> str:
        """A value, to be set."""
        return f"{step} {value.hex()}"

    @staticmethod
    def unpacked(found: bytes | None, step: int) -> float | None:
        """The value if it is this step's, and not that of a turn of the ring earlier or later."""
        if found is None:
            return None
        number, _, value = found.decode().partition(" ")
        return float.fromhex(value) if int(number) == step else None


class Pause:
    """How long to wait between looks: twice as long each time, up to a limit."""

    def __init__(self, first: float, longest: float) -> None:
        self._next = first
        self._longest = longest

    def next(self) -> float:
        """The next pause, in seconds."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return pause


def get_all(store: Any, keys: Sequence[str]) -> list[bytes]:
    """The values of keys that are there, with one call where the store can. Waits for a key that was never set."""
    if len(keys) > 1 and store.has_extended_api():
        return list(store.multi_get(list(keys)))
    return [store.get(key) for key in keys]


class FileStoreError(Exception):
    """The store is a file, which would grow with everything that is exchanged."""


def default_store() -> Any:
    """The store that torch.distributed was started with. Raises `FileStoreError` where that is a file."""
    from torch.distributed.distributed_c10d import _get_default_store

    store = _get_default_store()
    if is_file(store):
        raise FileStoreError
    return store


def is_file(store: Any) -> bool:
    """Whether a store, under whatever prefixes, appends to a file."""
    from torch.distributed import FileStore, PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, FileStore)
