"""The reference of configs and mechanism files, from the same classes as the help pages of the command line.

    python tests/config_reference.py

renews it in configs/README.md, below the introduction, which is written by hand; tests/test_config_reference.py checks that it is
up to date.
"""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

from jaxdyn.io.mechanism.entries import JointEntry, MechanismEntry
from jaxdyn.io.tables import Key, keys_of
from jaxdyn.jobs import verbs
from jaxdyn.jobs.settings import describe_parts, describe_settings, table_lines, wrapped
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import first_sentence

PAGE = Path(__file__).parents[1] / "configs" / "README.md"
MARK = "<!-- The rest is made by `python tests/config_reference.py`. -->\n"


def introduction() -> str:
    """The part of the page that is written by hand."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0]


def reference() -> str:
    """All settings of the commands, and all tables of mechanism files, as Markdown."""
    parts = [_section(f"Settings of `jaxdyn {job.name}`", describe_settings(job.config_class)) for job in _JOBS]
    return "\n".join(
        [
            *parts,
            _section("Bodies, joints, frames, rotors and drives of mechanism files", describe_bodies()),
            _section("Forces and constraints of mechanism files", describe_parts()),
        ]
    )


def describe_bodies() -> str:
    """The keys of mechanism files except those of forces and constraints."""
    joint = [
        f"[body.joint]: {first_sentence(JointEntry)}",
        *table_lines(JointEntry, "joint"),
        "",
        "[body.joint], further keys by kind:",
        *table_lines(_Kinds(Joint), "joint"),
        "",
        "[body.joint.motion]: Prescribed motion of the joint.",
        *table_lines(_Kinds(PrescribedMotion), "motion"),
    ]
    return "\n".join([describe_settings(MechanismEntry), "", *joint])


class _Kinds:
    """A table whose key `kind` names a subclass of a class, in the form that `table_lines` describes."""

    def __init__(self, base: type):
        self._classes = named_subclasses(base)

    def kinds(self) -> tuple[str, ...]:
        return tuple(self._classes)

    def summary(self, kind: str) -> str:
        """The docstring up to its lists, because it states the coordinates of a joint."""
        text = inspect.cleandoc(self._classes[kind].__doc__ or "")
        return " ".join(re.split(r"Attributes:|Source:", text)[0].split())

    def keys(self, kind: str) -> Mapping[str, Key]:
        return keys_of(self._classes[kind])


_JOBS = (verbs.ROLLOUT, verbs.IDENTIFY, verbs.OPTIMIZE)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{wrapped(text).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(f"{introduction()}{MARK}\n{reference()}", encoding="utf-8")
    print(PAGE)
