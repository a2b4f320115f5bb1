"""The tutorials, followed to the letter: each in a fresh directory, block by block, as a reader does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import program

TUTORIALS = Path(__file__).resolve().parents[4] / "docs" / "tutorials"

#: What the text announces of a command: it exits with 1, or prints this.
FINDS = {
    "trainmon alerts monitor_output/spike --config monitor.json": (1, ["at step 40"]),
    "trainmon compare monitor_output/faulty monitor_output/clean": (1, ["step 30"]),
    "trainmon compare captures/faulty captures/clean": (1, ["step 30", "layer_norm", "0.1"]),
    "trainmon compare captures/faulty captures/clean -o report": (1, ["layer_norm"]),
    "cat monitor_output/spike/rank_0/alerts.jsonl": (0, ['"Spike"', "40"]),
}


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Every fenced block: its language, what it is saved as (nothing for commands), its text."""
    found = []
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        saved = re.findall(r"Save this \w+ as `([^`]+)`", page[: match.start()])
        found.append((match[1], saved[-1] if saved else "", match[2]))
    return found


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a reader: `python` is the tests' own, `trainmon` the program built with them."""
    commands = tmp_path_factory.mktemp("bin")
    (commands / "trainmon").symlink_to(program())
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "TRAINMON_QUIET": ""}


def as_pattern(shown: str) -> str:
    """A line that a page shows, whose `…` stands for anything."""
    return ".*".join(re.escape(part) for part in shown.split("…"))


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    last = ""
    for language, name, text in blocks(page.read_text()):
        if language in ("python", "json"):
            (tmp_path / name).write_text(text)
        elif language == "text":
            for line in text.splitlines():
                assert re.search(as_pattern(line.rstrip()), last), (line, last)
        elif language == "sh":
            last = ""
            for command in text.splitlines():
                ended = subprocess.run(
                    ["bash", "-c", command],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                last += ended.stdout + ended.stderr
                code, parts = FINDS.get(command, (0, []))
                assert ended.returncode == code, (command, ended)
                assert all(part in last for part in parts), (command, last)
        else:
            # Only the installation is shown so: the tests have installed the package already.
            assert language == "console", language
            assert "pip install" in text


def follow(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """Saves a tutorial's files and runs its trainings; its other commands have their own test."""
    for language, name, text in blocks(page.read_text()):
        if name and language in ("python", "json"):
            (tmp_path / name).write_text(text)
        for command in text.splitlines() if language == "sh" else []:
            if command.startswith("python "):
                subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True, capture_output=True)


def test_the_transcripts_for_agents_are_what_the_commands_print(tmp_path: Path, environment: dict[str, str]) -> None:
    """Each `$` line of docs/agents.md is run; the lines below it appear in this order in its output."""
    for page in ("first-divergence.md", "first-alert.md"):
        follow(TUTORIALS / page, tmp_path, environment)
    transcripts = [
        text for language, _, text in blocks((TUTORIALS.parent / "agents.md").read_text()) if language == "console"
    ]
    assert len(transcripts) == 5
    for line in "".join(transcripts).splitlines():
        if line.startswith("$ "):
            ended = subprocess.run(
                ["bash", "-c", line[2:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            json.loads(ended.stdout)
            rest = ended.stdout
        elif line.startswith("exit "):
            assert ended.returncode == int(line[5:]), (line, ended)
        else:
            assert line in rest, (line, rest)
            rest = rest[rest.index(line) + len(line) :]


def test_every_command_with_an_expected_answer_is_in_a_tutorial() -> None:
    text = "\n".join(page.read_text() for page in TUTORIALS.glob("*.md"))
    assert [command for command in FINDS if f"{command}\n" not in text] == []
