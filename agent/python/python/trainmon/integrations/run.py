"""`python -m trainmon run`: watches a training script without editing it."""

from __future__ import annotations

import argparse
import importlib.machinery
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from trainmon.integrations.attach import AttachOptions, checked

_EXAMPLES = """\
examples:
  python -m trainmon run train.py --epochs 3
  python -m trainmon run --config monitor.json --name wide train.py --epochs 3
  python -m trainmon run --config monitor.json -m my_package.train --epochs 3
  python -m trainmon run --config monitor.json --grad-acc-steps 4 -- train.py
  torchrun --nproc_per_node=8 -m trainmon run --config monitor.json train.py
`trainmon run` is the same as `python -m trainmon run`.

The script runs as without trainmon: its arguments, its exit status, its tracebacks. Every torch optimizer that steps
parameters of a model is watched from the model's first forward pass on, each in its own run directory.
Megatron's optimizer is not found this way: call `trainmon.TrainerMon` in the script.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """The program that becomes `__main__`."""

    code: CodeType
    attributes: dict[str, Any]
    """Attributes of the module `__main__`, as Python itself would set them."""
    path: str
    """The first entry of the module search path."""


def main(arguments: Sequence[str], program_name: str) -> None:
    """Runs the arguments after `run` on the command line of a program of this name. Ends as the script ends; with exit
    status 2 if the command line, the config or the run's name is invalid, or there is no such script."""
    options = _parser(f"{program_name} run").parse_args(arguments)
    try:
        attach_options = checked(
            AttachOptions(options.config, options.output_dir, options.name, options.quiet), "trainmon run"
        )
    except ValueError as error:
        # A line per fault; other lines belong to the previous one.
        _end(
            "".join(
                f"{'' if line.startswith(('hint:', ' ')) else 'error: '}{line}\n" for line in str(error).splitlines()
            )
        )
    words = options.module if options.module is not None else _without_dashes(options.script)
    if not words:
        _fail("no script on the command line", f"{program_name} run train.py")
    program = _module(words[0]) if options.module is not None else _script(words[0])
    sys.argv[:] = [program.attributes["__file__"] if options.module is not None else words[0], *words[1:]]

    from trainmon.integrations.autodetect import Discovery

    discovery = Discovery(attach_options, options.grad_acc_steps)
    _run(program, discovery.start, discovery.finish)


def _run(program: Program, start: Callable[[], None], finish: Callable[[], None]) -> None:
    module = ModuleType("__main__")
    vars(module).update(program.attributes)
    vars(module)["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    # Python has put the current directory there (with -m), or nothing (in safe-path mode).
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = program.path
    _trim_tracebacks(program.code)
    start()
    try:
        exec(program.code, vars(module))  # noqa: S102 - running the user's program is the purpose
    finally:
        finish()


def _script(name: str) -> Program:
    path = Path(name)
    if path.is_dir():
        _fail(f"`{name}` is a directory", "pass a script, or a module with -m")
    try:
        # As Python reads it: in the file's encoding.
        with io.open_code(str(path.absolute())) as opened:
            source = opened.read()
    except OSError as error:
        _fail(
            f"cannot read the script `{name}`: {error}",
            "put trainmon's options before the script, the script's after it",
        )
    file = str(path.absolute())
    attributes = {
        "__file__": file,
        "__spec__": None,
        "__package__": None,
        "__cached__": None,
        "__doc__": None,
        "__loader__": importlib.machinery.SourceFileLoader("__main__", file),
    }
    return Program(_compiled(source, file), attributes, str(path.resolve().parent))


def _module(name: str) -> Program:
    # Python searches the current directory first.
    place = str(Path.cwd())
    sys.path[0:1] = [place] if not getattr(sys.flags, "safe_path", False) else sys.path[0:1]
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        _fail(f"cannot find the module `{name}`: {error}", "pass a module's name after -m, without .py")
    loader: Any = None if spec is None else spec.loader
    code = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        _fail(f"cannot find the module `{name}`", "pass a module's name after -m, without .py")
    attributes = {
        "__file__": spec.origin,
        "__spec__": spec,
        "__package__": spec.parent,
        "__cached__": spec.cached,
        "__doc__": None,
        "__loader__": loader,
    }
    return Program(code, attributes, place)


def _compiled(source: bytes, name: str) -> CodeType:
    try:
        return compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        # Python's own message and exit status.
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)


def _trim_tracebacks(code: CodeType) -> None:
    """Begins an uncaught exception's traceback at the script."""
    original = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        own = trace
        while own is not None and own.tb_frame.f_code is not code:
            own = own.tb_next
        shown = trace if own is None else own
        original(kind, error.with_traceback(shown), shown)

    sys.excepthook = excepthook


def _without_dashes(words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["--"] else words


def _fail(message: str, hint: str) -> NoReturn:
    _end(f"error: {message}\nhint: {hint}\n")


def _end(message: str) -> NoReturn:
    sys.stderr.write(message)
    sys.exit(2)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, found {text!r}")
    return int(text)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description="Watch a training script without editing it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"{name} [options] [--] SCRIPT [ARGUMENT...]\n       {name} [options] -m MODULE [ARGUMENT...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a JSON config file (docs/configuration.md); by default gradients, moments and parameters are measured",
    )
    parser.add_argument("--name", help="the run's name (default: the script's name and the time)")
    parser.add_argument("--quiet", action="store_true", help="print warnings only, as with TRAINMON_QUIET=1")
    parser.add_argument(
        "--grad-acc-steps",
        type=_positive,
        default=1,
        metavar="N",
        help="backward passes per optimizer step (default: detected)",
    )
    parser.add_argument("--output-dir", metavar="DIR", help="overrides the config's `output_dir`")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as `python -m` does"
    )
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser
