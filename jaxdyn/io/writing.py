"""Base of the writers of URDF and MJCF files: checks, elements with all digits, and parts that are left out by name."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from xml.sax.saxutils import quoteattr

import numpy as np

from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forces import Force
from jaxdyn.dynamics.system import System
from jaxdyn.errors import check_name, one_line
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.parts import part_classes
from jaxdyn.io.shapes.mesh_files import Color
from jaxdyn.io.shapes.visuals import Shape, Visual
from jaxdyn.io.xml import IgnoredContent, problem_with_name, shortened
from jaxdyn.mechanism.joint import Joint

# Value for "no limit", for readers that do not support infinity; `load_urdf` and `load_mjcf` read it as no limit.
UNLIMITED = 1e30


class Writer:
    """Base of a writer of one system.

    Args:
        system: System to write.
        path: Path of the file.
        drop: Parts that are left out if the format lacks them: names of tables of mechanism files, or of classes of the user.
        others: Names of further parts.

    Raises:
        ConfigError: The model is a batch, or a name cannot be written.
        UnknownName: There is no such part to drop.
    """

    format: ClassVar[str]

    def __init__(self, system: System, path: Path, drop: Sequence[str], others: Sequence[str]):
        self.system, self.path, self.drop = system, path, drop
        self.model, self.topology = system.model, system.model.topology
        self.dropped: list[str] = []
        if self.model.mass.ndim != 1:
            raise self.refused(
                f"the model is a batch of shape {self.model.mass.shape[:-1]}; write one mechanism per file"
            )
        topology = self.topology
        constraints = [constraint.name for constraint in system.constraints]
        for name in (self.model.name, *topology.body_names, *topology.joint_names, *topology.frame_names, *constraints):
            problem = problem_with_name(name)
            if problem is not None:
                raise self.refused(f"the name {shortened(name)!r} {problem}")
        known = (*others, *part_classes(), *map(table_name, (*system.forces, *system.constraints)))
        for name in drop:
            check_name("part to drop", name, known)

    def refused(self, message: str) -> ConfigError:
        return ConfigError(f"{self.path}: {message}")

    def refused_joint(self, name: str, joint: type[Joint]) -> ConfigError:
        return self.refused(
            f"joint {name!r} is of class {joint.__name__}, which {self.format} does not support; save as TOML, or write "
            "jaxdyn.decompose_joints(model)"
        )

    def stays(self, name: str) -> bool:
        """Whether a part is written although the format lacks it; its name is noted if it is dropped."""
        dropped = name in self.drop or "jaxdyn" in self.drop
        self.dropped += [name] * dropped
        return not dropped

    def name_of_file(self, file: Path) -> str:
        """Path of another file from the folder of the file that is written."""
        return Path(os.path.relpath(file, os.path.realpath(self.path.parent))).as_posix()

    def warn(self) -> None:
        """Warn of all that is left out."""
        if self.dropped:
            text = one_line(f"{self.path}: left out {', '.join(dict.fromkeys(self.dropped))}")
            warnings.warn(text, IgnoredContent, stacklevel=3)


def stated_shapes(visuals: Sequence[Visual]) -> dict[tuple[Any, ...], set[Color]]:
    """Colors of each shape that a file states, by its body, position, quaternion and `Shape`."""
    colors: dict[tuple[Any, ...], set[Color]] = {}
    for visual in visuals:
        shape = visual.shape or Shape("shape of a program", ())
        key = visual.body, tuple(visual.position.tolist()), tuple(visual.quaternion.tolist()), shape
        colors.setdefault(key, set()).add(visual.color)
    return colors


def table_name(part: Force | Constraint) -> str:
    """Name of the table of a part; the name of its class if it is a class of the user without a table."""
    return type(part).__dict__.get("table_name") or type(part).__name__


def element(tag: str, *children: list[str], **attributes: Any) -> list[str]:
    """Lines of an element; its attributes are texts, or values that are written with all digits."""
    words = "".join(f" {key}={quoteattr(_text(value))}" for key, value in attributes.items())
    if not children:
        return [f"<{tag}{words}/>"]
    return [f"<{tag}{words}>", *(f"  {line}" for child in children for line in child), f"</{tag}>"]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return " ".join(
        repr(float(x)) for x in np.clip(np.atleast_1d(np.asarray(value, float)), -UNLIMITED, UNLIMITED) + 0.0
    )
