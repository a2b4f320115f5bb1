"""As much of a Weights & Biases server as a run needs that is not offline: here, and it keeps the history."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PROJECT = {"name": "p", "entity": {"name": "e"}}
_BUCKET = {"id": "b", "name": "run", "displayName": "run", "config": "{}", "historyLineCount": 0, "project": _PROJECT}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.rows: list[dict[str, Any]] = []

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """The run's process drops its connections when it ends."""

    def answer(self, path: str, body: Any) -> dict[str, Any]:
        if path.endswith("/file_stream"):
            lines = body.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.rows += map(json.loads, lines)
        query = body.get("query", "") if path.endswith("/graphql") else ""
        if "upsertBucket" in query:
            return {"data": {"upsertBucket": {"bucket": _BUCKET, "inserted": True}}}
        if "createRunFiles" in query:
            names = body["variables"]["files"]
            files = [{"name": name, "uploadUrl": f"{self.address}/uploads/{name}"} for name in names]
            return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
        return {"data": {}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        is_json = not self.path.startswith("/uploads/") and body.startswith(b"{")
        answer = json.dumps(self.server.answer(self.path, json.loads(body) if is_json else {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = _serve


@contextmanager
def serving() -> Iterator[_Server]:
    """A server, which ends with the block. `rows` is the history it was sent, in the order of arrival."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, name="wandb-server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
