"""The command `jaxdyn new`: a commented config or mechanism file to start from."""

import os
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.robots import is_name
from jaxdyn.io.tables import keys_of
from jaxdyn.io.toml import toml_value
from jaxdyn.jobs.commands.arguments import NewArguments
from jaxdyn.jobs.settings import Form, forms_of, tables_of
from jaxdyn.jobs.source import load
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import first_sentence

_TEMPLATES = Path(__file__).with_name("templates")
_MECHANISM = "mechanism.toml"
_UPRIGHT = (3.14159265, 0.0)  # of the double pendulum of the template
_WIDTH = 110
_USAGE = """#
#   jaxdyn {verb} {file}
#   jaxdyn {verb} {file} key=value
#
# The second command changes values for a single run. Values are in SI units, or texts with another unit such as "30 deg".
# `jaxdyn {verb} --help` explains all keys, including those that are not in this file.
"""


def new(arguments: NewArguments) -> None:
    """Write the file, and also the mechanism file that it names if this mechanism file does not exist."""
    kind, own = arguments.kind, arguments.mechanism
    file: Path = arguments.file or Path(f"{kind}.toml")
    if kind == "mechanism" and own is not None:
        raise ConfigError("--mechanism is an option of configs; a new mechanism does not refer to another one")
    mechanism = file.parent / _MECHANISM if own is None else own
    if kind != "mechanism" and mechanism.resolve() == file.resolve():
        raise ConfigError(
            f"{file}: the config and its mechanism have the same name; choose another name for the config"
        )
    if file.exists() and not arguments.force:
        raise ConfigError(f"{file}: exists already; choose another name or give --force")
    if kind == "mechanism":
        _write_mechanism(file)
        print(f"Next:\n\n  jaxdyn show {file}\n  jaxdyn rollout {file}")
        return
    if own is None and not mechanism.exists():
        _write_mechanism(mechanism)
    model = load(mechanism, base=arguments.base, repair=arguments.repair).model
    # As in any config, a relative path is relative to the config.
    path = Path(os.path.relpath(mechanism.resolve(), file.resolve().parent)).as_posix()
    path = str(own) if is_name(str(own)) and not mechanism.exists() else path
    source = {"mechanism": path, "base": arguments.base, "repair": arguments.repair}
    values = {
        **_values(model, is_own=own is not None),
        "usage": _USAGE.format(verb=kind, file=file),
        "source": "\n".join(f"{key} = {toml_value(value)}" for key, value in source.items() if value),
    }
    text = explained(_filled(kind, values), pkgutil.resolve_name(f"jaxdyn.jobs.{kind}.config:{kind.title()}Config"))
    write_content(file, text)
    print(f"{file}: a config of `jaxdyn {kind}` for {mechanism}. Next:\n\n  jaxdyn {kind} {file}")


def explained(text: str, config: type) -> str:
    """Text of a config with a comment above each key, where the key appears first; each table lists its other keys.

    Args:
        text: TOML text, in which a key `kind` is the first one of its table.
        config: Class of the config.
    """
    lines: list[str] = []
    commented: set[tuple[str, str, str]] = set()  # keys by table and kind
    completed: set[tuple[str, str]] = set()  # tables whose other keys are listed
    top, tables = keys_of(config), set(re.findall(r"(?m)^\[+(\w+)", text))
    for block in re.split(r"(?m)^(?=\[)", text):
        header, kind = re.match(r"\[+(\w+)", block), re.search(r'(?m)^kind = "(\w+)"', block)
        table, kind = "" if header is None else header[1], "" if kind is None else kind[1]
        owners = tables_of(top[table].annotation) if table else [config]
        forms = [form for owner in owners for form in forms_of(owner)]
        keys = {name: key for form in forms if kind in (form.kinds or ("",)) for name, key in form.keys.items()}
        meanings = {name: _with_unit(key.explanation, key.rules.unit_text) for name, key in keys.items()}
        meanings["kind"] = _kinds(forms, kind)
        if table:
            meanings[f"[{table}]"] = meanings[f"[[{table}]]"] = top[table].meaning or first_sentence(owners[0])
        for line in block.rstrip().splitlines():
            name = line.partition(" = ")[0]
            if (table, kind, name) not in commented:
                lines += _comment(meanings.get(name, ""))
            commented.add((table, kind, name))
            lines.append(line)
        further = [name for name in keys if (table, kind, name) not in commented and (table or name not in tables)]
        if further and (table, kind) not in completed:
            lines += _comment(f"Further keys: {', '.join(further)}.")
        completed.add((table, kind))
        lines.append("")
    return "\n".join(lines)


def _kinds(forms: list[Form], kind: str) -> str:
    """Summary of a kind of table, and the names of the other kinds."""
    summary = " ".join(form.summary for form in forms if kind in form.kinds)
    others = [other for form in forms for other in form.kinds if other != kind]
    return f"{summary} Other kinds: {', '.join(others)}." if others else summary


def _with_unit(text: str, unit: str) -> str:
    return f"{text} ({unit})" if unit else text


def _comment(text: str) -> Iterator[str]:
    return (f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False))


def _write_mechanism(file: Path) -> None:
    write_content(file, _filled("mechanism", {"file": str(file)}))
    print(f"{file}: a mechanism to start from")


def _filled(kind: str, values: dict[str, str]) -> str:
    """The template of a kind of file, with values in their places."""
    text = (_TEMPLATES / f"{kind}.toml").read_text(encoding="utf-8")
    return re.sub("@([a-z]+)@", lambda place: values[place[1]], text)


def _values(model: Model, *, is_own: bool) -> dict[str, str]:
    """Values of the templates that depend on the mechanism."""
    rest = configuration.neutral(model)
    target = configuration.random(model, jax.random.key(0), spread=0.5) if is_own else _UPRIGHT
    digits = 2 if model.nq == model.nv else 15  # quaternions keep theirs
    motion = {
        name: np.round(np.asarray(q), digits if is_own else 8) for name, q in (("rest", rest), ("target", target))
    }
    counts = {"q": model.nq, "v": model.nv, "tau": model.nv}
    columns: dict[str, Any] = {letter: [f"{letter}{k + 1}" for k in range(count)] for letter, count in counts.items()}
    lists = columns | {name: q.tolist() for name, q in motion.items()}
    header = ",".join(["t", *(name for names in columns.values() for name in names)])
    return {name: toml_value(values) for name, values in lists.items()} | {"header": header, "nv": str(model.nv)}
