"""What a `.wandb` file holds, which is what Weights & Biases would upload: records in the format of LevelDB's log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.waiting import eventually

#: `:W&B`, a magic number, a version.
_FILE_HEADER = 7
_BLOCK = 32768
#: CRC, length, type of a piece: whole, first, middle, last.
_PIECE = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _messages(data: bytes) -> Iterator[bytes]:
    assert data[:4] in (b":W&B", b"")
    at, message = _FILE_HEADER, b""
    while at + _PIECE.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _PIECE.size:
            at += left
            continue
        _, length, kind = _PIECE.unpack_from(data, at)
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or at + _PIECE.size + length > len(data):
            return
        at += _PIECE.size
        piece = data[at : at + length]
        at += length
        message = piece if kind in (_WHOLE, _FIRST) else message + piece
        if kind in (_WHOLE, _LAST):
            yield message


def records(path: Path) -> list[Any]:
    """The records of a run that has finished, in order. Its own process writes them: they may come a little later."""
    from wandb.proto import wandb_internal_pb2

    def whole() -> list[Any]:
        found = []
        for message in _messages(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            found.append(record)
        return found if any(record.WhichOneof("record_type") == "exit" for record in found) else []

    return eventually(whole, what="the run's end")


def history(path: Path) -> list[dict[str, Any]]:
    """The rows of the run's history; `_step` is the counter of Weights & Biases."""
    rows = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    return rows
