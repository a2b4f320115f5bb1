"""The base of every exchange between ranks: a thread beside the training, keys that are reused, waiting.

No collective is issued. Values go through the key-value store that torch.distributed was started with. The training's
thread hands them over and continues; no rank waits for another.
"""

from __future__ import annotations

import abc
import atexit
import threading
import weakref
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from trainmon.ranks.default_store import FileStoreError
from trainmon.ranks.surroundings import Surroundings

Item = TypeVar("Item")

_all: weakref.WeakSet[StoreThread[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends the threads: one inside torch's store must not run at the end of the interpreter."""
    for one in list(_all):
        one.stop(one.at_exit_s, one.call_s)


class StoreClient(Protocol):
    """Opens a store."""

    def get(self) -> Any:
        """The store. Raises `FileStoreError` if it is a file, and torch's error if there is none."""

    def close(self) -> None:
        """Closes trainmon's own connection, if there is one."""


class StoreThread(abc.ABC, Generic[Item]):
    """A thread that exchanges values with other ranks. The first submitted item starts it; it ends with the process.

    A subclass defines the items, when the thread wakes (`_await_work`), its work (`_advance`) and its end (`_ended`).
    This class has the rest: the store, the queue of items, the end of the process.
    """

    #: The thread's name after `trainmon-`.
    thread_name: ClassVar[str]
    #: Seconds that the end of the process waits for work in progress, and for a call of the store to return.
    at_exit_s: ClassVar[float] = 0.0
    call_s: ClassVar[float] = 2.0
    #: Whether an item that is submitted after the thread failed starts it again. Never if the store is a file.
    restarts: ClassVar[bool] = False

    def __init__(self, surroundings: Surroundings, client: StoreClient) -> None:
        """`client` opens the store if the surroundings have none."""
        self._clock = surroundings.clock
        self._open_store = surroundings.open_store or client.get
        self._close_store = client.close
        #: Held during changes of shared state; notified when the thread must check.
        self._changed = threading.Condition()
        self._submitted: list[Item] = []
        self._is_off = False
        self._thread: threading.Thread | None = None
        #: When the thread ends, once that is known.
        self._stop_at: float | None = None
        _all.add(self)

    def _submit(self, item: Item) -> bool:
        """Passes an item to the thread, and returns at once. False: the thread accepts no more."""
        with self._changed:
            if self._is_off or self._stop_at is not None:
                return False
            self._submitted.append(item)
            self._start()
            return True

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
        """Lets the thread work for `seconds`, then waits `further` (`call_s`) for it to end."""
        with self._changed:
            self._stop_at = self._clock.now() + seconds
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds + (self.call_s if further is None else further))

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            while self._await_work() and self._advance():
                pass
        except Exception as error:
            # The store is a file or ended with the job, or the process group was destroyed.
            failure = error
        self._close_store()
        with self._changed:
            self._is_off = not self.restarts or isinstance(failure, FileStoreError)
            left, self._submitted = self._submitted, []
        self._ended(failure, left)
        if self.restarts:
            with self._changed:
                self._thread = None

    @abc.abstractmethod
    def _await_work(self) -> bool:
        """Sleeps until there is work. False ends the thread."""

    @abc.abstractmethod
    def _advance(self) -> bool:
        """Does the work that is possible now. False, or an exception, ends the thread."""

    def _ended(self, failure: Exception | None, left: list[Item]) -> None:
        """Called by the thread before it ends. `left`: submitted items that were not processed. Raises nothing."""


def reason(failure: Exception) -> tuple[str, str | None]:
    """The reason why an exchange failed and a hint, for the log."""
    if isinstance(failure, FileStoreError):
        return str(failure), failure.hint
    return f"{type(failure).__name__}: {failure}", None


class Ring:
    """Keys that are used again after so many steps, so that the store does not grow. A value contains its step."""

    def __init__(self, size: int) -> None:
        #: Steps after which a key is used again.
        self.size = size

    def place(self, step: int) -> int:
        """The slot of a step in the ring."""
        return step % self.size

    @staticmethod
    def packed(step: int, value: float) -> str:
        """A value, in the stored format."""
        return f"{step} {value.hex()}"

    @staticmethod
    def unpacked(found: bytes | None, step: int) -> float | None:
        """The value if it is this step's, and not that of an earlier or later turn of the ring."""
        if found is None:
            return None
        number, _, value = found.decode().partition(" ")
        return float.fromhex(value) if int(number) == step else None


class Pause:
    """The pause between reads: doubled each time, up to a limit."""

    def __init__(self, first: float, longest: float) -> None:
        self._next = first
        self._longest = longest

    def next(self) -> float:
        """The next pause, in seconds."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return pause
