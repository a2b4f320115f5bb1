"""The two documents for who is on call: their links lead somewhere, their examples work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import dashboards, rules
from support.on_call import check_config

DOCUMENTS = [rules.RUNBOOK, rules.ROOT / "docs/on-call.md"]
TEXT = DOCUMENTS[1].read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_links_lead_to_files_and_headings_that_are_there(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text(encoding="utf-8")):
        file = (document.parent / target).resolve() if target else document
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in known, f"{target}#{anchor}"


def test_the_config_of_the_first_step_is_accepted(tmp_path: Path) -> None:
    (config,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    check_config(config, tmp_path)


def test_the_table_names_the_dashboards_as_grafana_does() -> None:
    titles = {dashboards.model(file)["title"].removeprefix("trainmon / ") for file in dashboards.FILES}
    table = TEXT.split("| dashboard |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| ([A-Z][\w ]*) \|", table, re.MULTILINE)) == titles


def test_the_command_moves_every_link_of_the_rules(tmp_path: Path) -> None:
    shutil.copytree(rules.ALERTING, tmp_path / "configs/alerting")
    (command,) = re.findall(r"^ +(sed .*)$", TEXT, re.MULTILINE)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    moved = "".join(file.read_text() for file in (tmp_path / "configs/alerting").glob("*.rules.yml"))
    place = "https://git.example.com/ml/trainmon/blob/main/docs/runbook.md#"
    assert moved.count(place) == len(rules.alerts()) == moved.count("runbook_url: ")


def test_files_that_are_named_in_code_are_there() -> None:
    named = re.findall(r"\bconfigs/[\w./-]+\.(?:yml|yaml|json|sbatch|alloy)\b", TEXT)
    assert named
    for name in {name for name in named if "targets/" not in name}:
        assert (rules.ROOT / name).is_file(), name
