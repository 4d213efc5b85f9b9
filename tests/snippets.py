"""Runs the snippets of one text, as a reader would who types them one after the other: `python tests/snippets.py README.md`.

Blocks of `python` share one namespace per page (each docstring has its own). In blocks of `sh`, the lines that call `jaxdyn` run
in this process, and jobs with the `[smoke]` table of their config; scripts and extras that other lines name must exist. A block
of `text` right after one of these is its output: values agree to a relative 1e-2, and `...` stands for any words. Pictures need
no screen. Everything runs in the current folder, where `robot.urdf` is a robot of the reader, and `configs` and `experiments` are
those of the project.
"""

import ast
import contextlib
import io
import math
import re
import shlex
import sys
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line where it begins."""

    language: str
    code: str
    line: int


def pages() -> list[str]:
    """All texts that hold snippets which can run, relative to the root of the project."""
    guides = [
        ROOT / "README.md",
        *ROOT.glob("*/README.md"),
        *ROOT.glob("jaxdyn/*/README.md"),
        ROOT / "jaxdyn" / "theory.md",
    ]
    texts = [*sorted(guides), *sorted(ROOT.glob("jaxdyn/**/*.py"))]
    return [
        path.relative_to(ROOT).as_posix() for path in texts if any(b.language in ("python", "sh") for b in blocks(path))
    ]


def blocks(path: Path) -> list[Block]:
    return [block for document in _documents(path) for block in document]


def _documents(path: Path) -> Iterator[list[Block]]:
    """The blocks of a page, or of each docstring of a module."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield _fenced(content, 1)
        return
    for node in ast.walk(ast.parse(content)) if "```" in content else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node, clean=True)
            if text and "```" in text:
                yield _fenced(text, node.body[0].lineno)


def _fenced(content: str, first: int) -> list[Block]:
    found = []
    for match in _FENCE.finditer(content):
        margin, language, code = match.groups()
        code = "".join(line.removeprefix(margin) for line in code.splitlines(keepends=True))
        found.append(Block(language, code, first + content.count("\n", 0, match.start()) + 1))
    return found


def run(page: str) -> int:
    """Run all snippets of a page; returns how many. A failure is reported with its line and raised."""
    count = 0
    for document in _documents(ROOT / page):
        names = {"__name__": "__main__"}
        for block, after in zip(document, [*document[1:], None], strict=True):
            if block.language not in ("python", "sh"):
                continue
            count += 1
            try:
                printed = _python(block, names, page) if block.language == "python" else _shell(block)
                if after is not None and after.language == "text":
                    compare(printed, after.code)
            except BaseException:
                print(f"{page}:{block.line}: this snippet fails:\n{block.code}", file=sys.stderr)
                raise
    return count


def _python(block: Block, names: dict, page: str) -> str:
    code = compile("\n" * block.line + block.code, page, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()


def _shell(block: Block) -> str:
    printed = ""
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in line.split("#")[0].split("&&"):
            printed += _command(shlex.split(command))
    return printed


def _command(words: list[str]) -> str:
    words = [word.removeprefix(".venv/bin/") for word in words]
    for word in words:
        if word.startswith("experiments/"):
            assert (ROOT / word).exists(), f"{word} does not exist"
        _check_extras(word)
    if not words or words[0] != "jaxdyn":
        return ""
    from jaxdyn.cli import main

    verb, *arguments = words[1:]
    if verb in ("rollout", "identify", "optimize") and arguments and _has_smoke_table(Path(arguments[0])):
        arguments.append("--smoke")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            status = main([verb, *arguments])
        except SystemExit as end:  # --help
            status = end.code
    assert not status, f"jaxdyn {shlex.join([verb, *arguments])} ends with status {status}"
    return printed.getvalue()


def _has_smoke_table(config: Path) -> bool:
    return config.suffix == ".toml" and config.exists() and "smoke" in tomllib.loads(config.read_text(encoding="utf-8"))


def _check_extras(word: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"^(?:\.|jaxdyn)\[([\w,]+)\]$", word):
        for extra in extras.split(","):
            assert extra in project["optional-dependencies"], f"there is no extra {extra!r}"


def compare(printed: str, expected: str) -> None:
    """Raises AssertionError unless the words agree, the numbers to a relative 1e-2; `...` stands for any words."""
    parts = [part.split() for part in expected.split("...")]
    words = printed.split()
    at = 0
    for k, part in enumerate(parts):
        free = k > 0  # an ellipsis is before this part
        last = k == len(parts) - 1
        places = range(at, len(words) - len(part) + 1) if free else [at]
        if free and last:
            places = [len(words) - len(part)] if part else [len(words)]
        found = next((p for p in places if p >= at and _agree(words[p : p + len(part)], part)), None)
        assert found is not None, f"prints\n{printed}\nwhere the text has\n{expected}"
        at = found + len(part)
    assert at == len(words), f"prints\n{printed}\nwhere the text has\n{expected}"


def _agree(words: list[str], expected: list[str]) -> bool:
    return len(words) == len(expected) and all(map(_same_word, words, expected))


def _same_word(word: str, expected: str) -> bool:
    if _NUMBER.sub("0", word) != _NUMBER.sub("0", expected):
        return False
    values = zip(_NUMBER.findall(word), _NUMBER.findall(expected), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-2, abs_tol=1e-6) for a, b in values)


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    sys.path.insert(0, str(ROOT))
    try:
        print(f"{run(sys.argv[1])} snippets ran")
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
