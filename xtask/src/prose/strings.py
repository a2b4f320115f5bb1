"""Prints every string and docstring of the Python files below the given folders: one JSON array a line, of file, line, text."""

import ast
import json
import sys
from pathlib import Path


def texts(tree: ast.AST):
    """Every string with its line; what an f-string fills in is `{}`."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_words":
            inside.update(map(id, node.args))  # a list of names
        elif isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


for folder in sys.argv[1:]:
    for file in sorted(Path(folder).rglob("*.py")):
        if {"tests", "node_modules"} & set(file.parts):
            continue
        for line, text in texts(ast.parse(file.read_text(encoding="utf-8"))):
            parts = [part for part in text.split("\n\n") if not part.lower().startswith("examples:\n")]
            paragraphs = ". ".join(part.strip().rstrip(".") for part in parts)
            print(json.dumps([str(file), line, paragraphs]))
