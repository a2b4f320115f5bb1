"""trainmon's own client of the store that torch.distributed was started with."""

from __future__ import annotations

import os
import secrets
import weakref
from datetime import timedelta
from typing import Any

from trainmon.ranks.default_store import default_store

#: The timeout of a call of the store; after it the call is given up, and the check with it.
_TIMEOUT = timedelta(seconds=10)


class OwnStore:
    """Opens the client at first use, and again after a new process group.

    A pending call of this client blocks no call of the training, as it would on torch's own client. Stores without a
    server (`HashStore`) are used directly.

    Each of trainmon's threads has its own client. Torch's client serialises its calls by a lock, and a call that waits
    (`get` of a missing key, or any if the server does not answer) holds the lock up to the timeout. With a shared
    client, the hang watch would wait behind a comparison of copies when a job is in trouble.
    """

    def __init__(self) -> None:
        self._of: weakref.ref[Any] | None = None
        self._store: Any = None

    def get(self) -> Any:
        """The store, under a prefix that no other job or attempt has."""
        from torch.distributed import PrefixStore, TCPStore

        default = default_store()
        if self._of is not None and self._of() is default:
            return self._store
        # Under torch's own prefixes, which distinguish attempts: the first rank to come names ours.
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
        """Closes the connection."""
        self._store = self._of = None
