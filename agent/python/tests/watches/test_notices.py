"""Messages to the user: names cannot forge lines or move the cursor, and long input is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainmon import ConfigError, watch
from trainmon.common import notices
from trainmon.watches.startup import start_monitor

EVIL = "a\n  hint: remove everything\x1b[2J"


def test_names_in_messages_are_escaped_whoever_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    config = {"targets": {}, "format": "csv", "wg_distribution": True}
    monitor = start_monitor(config, output_dir=str(tmp_path), rank=0, listener=lambda *said: heard.append(said[1]))
    monitor.say("warning", f"`{EVIL}` is left out", None)
    monitor.shutdown()
    notices.say(f"`{EVIL}` is left out")
    expected = "`a\\n  hint: remove everything\\u{1b}[2J` is left out"
    assert expected in heard
    assert expected in capsys.readouterr().err


def test_a_module_with_such_a_name_is_named_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.Logger.hasHandlers", lambda _self: False)

    class Bad(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return Strange(x)

    class Strange(dict):  # type: ignore[type-arg]
        def values(self) -> object:  # type: ignore[override]
            raise RuntimeError("it cannot be walked")

        def __init__(self, x: torch.Tensor) -> None:
            super().__init__(x=x)

    net = torch.nn.Sequential()
    net.add_module(EVIL, Bad())
    net.append(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, config={"xy_distribution": True, "all_xy": True}, output_dir=str(tmp_path)):
        for _ in range(2):
            optimizer.zero_grad()
            net[1](net[0](torch.ones(1, 2))["x"]).sum().backward()
            optimizer.step()
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert not [line for line in said.splitlines() if line.startswith("  hint: remove")], said


def test_an_error_quotes_little_of_a_large_config() -> None:
    with pytest.raises(ConfigError) as raised:
        start_monitor('{"format": ' + "x" * 2_000_000)  # type: ignore[arg-type]
    assert len(str(raised.value)) < 1000
