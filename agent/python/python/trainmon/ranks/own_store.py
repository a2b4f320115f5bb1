"""A client of our own to the store that torch.distributed was started with."""

from __future__ import annotations

import os
import secrets
import weakref
from datetime import timedelta
from typing import Any

from trainmon.ranks.default_store import default_store

#: A call to the store may take so long; then it is given up, and the check with it.
_TIMEOUT = timedelta(seconds=10)


class OwnStore:
    """Opens the client when it is first asked for, and anew when the process group was made anew.

    A call of ours that waits for an answer keeps nobody of the training from the store, as it would on torch's own
    client. Stores that are no servers (`HashStore`) are used as they are.

    Each thread of ours has a client for itself. Torch's makes its calls one after the other under a lock, and one that
    waits (`get` of a key that is not there, any where the server does not answer) holds the lock up to the timeout: the
    hang watch, which is asked when a job is in trouble, would wait behind a comparison of copies.
    """

    def __init__(self) -> None:
        self._of: weakref.ref[Any] | None = None
        self._store: Any = None

    def get(self) -> Any:
        """The store, under a prefix of ours that no other job or attempt has."""
        from torch.distributed import PrefixStore, TCPStore

        default = default_store()
        if self._of is not None and self._of() is default:
            return self._store
        # Under torch's own prefixes, which tell attempts apart: the first to come names ours.
        nonce = default.compare_set("trainmon/replicas", "", secrets.token_hex(8)).decode()
        base = default
        while isinstance(base, PrefixStore):
            base = base.underlying_store
        client = base
        if isinstance(base, TCPStore):
            client = TCPStore(base.host, base.port, None, False, _TIMEOUT, False)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = PrefixStore(f"trainmon/replicas/{nonce}/{attempt}", client)
        self._of = weakref.ref(default)
        return self._store

    def close(self) -> None:
        """Lets go of the connection."""
        self._store = self._of = None
