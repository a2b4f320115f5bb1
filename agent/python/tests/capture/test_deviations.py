"""Why dumps may differ from msprobe's: the table that users read, and the rules that the tests apply."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from support import dump_deviations, dumps
from support.dump_deviations import Why

DOCS = Path(__file__).resolve().parents[4] / "docs"
HEAD = "| reason | trainmon | msprobe |\n|---|---|---|\n"


def reasons_in_docs() -> list[str]:
    """The first column of the table in `docs/proof/capture-msprobe.md`."""
    text = (DOCS / "proof" / "capture-msprobe.md").read_text()
    assert text.count(HEAD) == 1
    rows = text.partition(HEAD)[2].partition("\n\n")[0].splitlines()
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    assert {len(row) for row in cells} == {3}
    assert all(cell.strip() for row in cells for cell in row)
    return [row[0].strip() for row in cells]


def reasons_of_rules() -> set[Why]:
    """What the rules' code may give."""
    sources = [inspect.getsource(rule) for rule in dump_deviations.RULES]
    return {Why[name] for source in sources for name in re.findall(r"\bWhy\.([A-Z]\w*)", source)}


def test_the_table_has_the_reasons_of_the_rules_and_no_others() -> None:
    documented = reasons_in_docs()
    assert len(documented) == len(set(documented))
    assert set(documented) == {why.value for why in reasons_of_rules()}
    assert set(Why) == reasons_of_rules(), "each reason has a rule"


def test_every_rule_is_asked() -> None:
    rules = {
        function
        for _, function in inspect.getmembers(dump_deviations, inspect.isfunction)
        if function.__module__ == dump_deviations.__name__ and function is not dump_deviations.reason
    }
    assert rules == set(dump_deviations.RULES)


def test_a_field_that_differs_is_given_the_words_of_the_table() -> None:
    path = ("data", "Torch.add.0.forward", "output", "0", "Mean")
    difference = dumps.Difference("step0/rank0/dump.json", path, 1.5, None, {"dtype": "torch.int64"})
    assert dump_deviations.reason("any", {}, difference) in reasons_in_docs()
    assert dump_deviations.reason("any", {"precision": "low"}, difference) is None


def test_what_is_said_to_be_missing_is_what_the_config_refuses() -> None:
    text = (DOCS / "msprobe-compatibility.md").read_text()
    section = text.partition("## Not supported")[2]
    listed = [line for line in section.splitlines() if line.startswith("- ")]
    said = set(re.findall(r"`(\w+)`", "\n".join(listed)))
    assert said == set(re.findall(r"`(\w+)` \(not yet\)", (DOCS / "configuration.md").read_text()))
