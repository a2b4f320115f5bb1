"""docs/api.md, made from the docstrings of what users import."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from trainmon.hooks.patches import Listener

HEAD = """\
# Python API

<!-- Generated from the docstrings (agent/python/python/trainmon). Regenerate:
     TRAINMON_REGENERATE=1 pytest agent/python/tests/package/test_api_page.py -->

Only the names on this page are public: all others may change. Commands: `trainmon --help`. In Rust:
`cargo doc -p trainmon --open`.
"""

#: Methods that the package's own modules call.
OF_THE_PACKAGE = {"about_to_step", "deliver"}

#: What users import, by module; what a class inherits is not shown.
PAGE = {
    "trainmon": [
        *("watch", "Watch", "capture", "Capturing", "TrainerMon", "TrainerMonitorV2"),
        *("PrecisionDebugger", "module_dump", "module_dump_end", "seed_all", "random_save", "RandomCalls"),
        *("SingleSave", "save_tensor"),
        "ConfigError",
    ],
    "trainmon.vllm": ["register", "WorkerExtension"],
    "trainmon.integrations.transformers": ["TrainmonCallback"],
    "trainmon.integrations.lightning": ["TrainmonCallback"],
}


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(part for module, names in PAGE.items() for part in of_module(module, names))])


def of_module(module: str, names: list[str]) -> Iterator[str]:
    yield f"## `{module}`\n"
    loaded = importlib.import_module(module)
    for name in names:
        yield from of_member(name, getattr(loaded, name))


def of_member(name: str, member: Any) -> Iterator[str]:
    yield f"### `{name}`\n"
    if inspect.isclass(member):
        yield from of_class(name, member)
    else:
        yield signature(name, member)
        yield text(member)


def of_class(name: str, member: type) -> Iterator[str]:
    made = getattr(member, "__init__", None)
    if made is not None and made.__doc__ is not None and inspect.isfunction(made):
        yield signature("__init__", made, of=name)
    yield text(member)
    if made is not None and inspect.isfunction(made) and made.__doc__:
        yield text(made)
    for key, value in vars(member).items():
        if key.startswith("_") or is_hook(member, key):
            continue
        if isinstance(value, property) and value.__doc__:
            yield f"#### `{name}.{key}`\n"
            yield text(value)
        elif inspect.isfunction(value) and value.__doc__:
            yield f"#### `{name}.{key}`\n"
            yield signature(key, value)
            yield text(value)


def is_hook(member: type, key: str) -> bool:
    """Whether torch's functions, a framework or the package itself calls it, not the user."""
    is_declared_elsewhere = any(key in vars(base) for base in member.__mro__[1:] if base is not object)
    return key.startswith("on_") or is_declared_elsewhere or key in vars(Listener) or key in OF_THE_PACKAGE


def signature(name: str, function: Any, of: str = "") -> str:
    """Python, an argument a line where one line is too short; inside of a class where it is of one."""
    found = inspect.signature(function)
    arguments = [value for key, value in found.parameters.items() if key != "self"]
    shown = unquoted(str(found.replace(parameters=arguments, return_annotation=found.return_annotation)))
    if len(name + shown) > 90:
        lines = [*separated(arguments)]
        result = "" if found.return_annotation in (found.empty, "None") else f" -> {found.return_annotation}"
        shown = "(\n" + "".join(f"    {line},\n" for line in lines) + ")" + result
    declared = f"def {name}{shown}: ..."
    if of:
        declared = f"class {of}:\n{textwrap.indent(declared, '    ')}"
    return f"```python\n{declared}\n```\n"


def separated(arguments: list[inspect.Parameter]) -> Iterator[str]:
    is_behind_star = False
    for one in arguments:
        if one.kind is one.KEYWORD_ONLY and not is_behind_star:
            yield "*"
            is_behind_star = True
        yield unquoted(str(one))


def unquoted(signature: str) -> str:
    """Annotations are strings here; defaults keep their quotes."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)


def text(member: Any) -> str:
    """Its docstring; indented parts become code."""
    lines = (inspect.getdoc(member) or "").splitlines()
    shown: list[str] = []
    is_code = False
    for number, line in enumerate(lines):
        if line.startswith("    ") and not is_code and (number == 0 or not lines[number - 1]):
            shown.append("```python")
            is_code = True
        elif line and not line.startswith("    ") and is_code:
            while not shown[-1]:
                shown.pop()
            shown += ["```", ""]
            is_code = False
        shown.append(line[4:] if is_code else line)
    return "\n".join([*shown, *(["```"] if is_code else []), ""])
