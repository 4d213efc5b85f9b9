"""Packages of ROS, for which `package://name` and `$(find name)` stand, and the folders from which files of a robot are opened.

Descriptions are untrusted. They can name files in one folder (`tree_of`), from which links must not lead out, and files in the
folders of ROS_PACKAGE_PATH and AMENT_PREFIX_PATH, which the user trusts; `colcon build --symlink-install` fills them with links.
"""

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from jaxdyn.io.reading import content

_LARGEST = 2**20  # bytes of a package.xml


def cache_of_robots() -> Path:
    """Folder in which robot_descriptions keeps the repositories that it has fetched."""
    named = os.environ.get("ROBOT_DESCRIPTIONS_CACHE") or "~/.cache/robot_descriptions"
    return Path(os.path.realpath(os.path.expanduser(named)))


def cache_with(file: Path) -> Path | None:
    """That folder, if it contains a file."""
    cache = cache_of_robots()
    return cache if Path(os.path.realpath(file)).is_relative_to(cache) else None


def tree_of(file: Path) -> Path:
    """Folder that contains the files of the robot that a file describes."""
    home = Path(os.path.realpath(file)).parent
    found = next((folder for folder in (home, *home.parents) if (folder / "package.xml").is_file()), None)
    beside = home.name == "urdf" and (home.parent / "meshes").is_dir()
    return cache_with(file) or found or (home.parent if beside else home)


def reached(path: Path, tree: Path) -> Path | None:
    """The path of a file that may be opened: in `tree`, with all links resolved, or in a folder of ROS; None for another file."""
    resolved, plain = Path(os.path.realpath(path)), Path(os.path.abspath(path))
    if resolved.is_relative_to(tree):
        return resolved
    return plain if any(plain.is_relative_to(folder) for folder in _folders_of_ros()) else None


def packages(name: str, home: Path, tree: Path) -> Iterator[Path]:
    """Folders that a package can be: those between the folder `home` of a description and `tree`, and those in ROS and `tree`."""
    for folder in (home, *home.parents):
        if not folder.is_relative_to(tree):
            break
        if folder.name == name or _declares(folder / "package.xml", name):
            yield folder
        yield folder / name
    for folder in (*_folders_of_ros(), tree):
        yield from (folder / name, *map(Path, glob.glob(f"{glob.escape(str(folder))}/*/{glob.escape(name)}")))


def _declares(file: Path, name: str) -> bool:
    """Whether a package.xml states a name, from which the name of its folder may differ."""
    text = content(file, _LARGEST, "correct it") if file.is_file() else b""
    return re.search(rb"<name>\s*%s\s*</name>" % re.escape(name.encode()), text) is not None


def _folders_of_ros() -> list[Path]:
    """Folders that contain packages, or repositories with packages."""
    variables = (("ROS_PACKAGE_PATH", ""), ("AMENT_PREFIX_PATH", "share"))
    named = [(entry, end) for name, end in variables for entry in os.environ.get(name, "").split(os.pathsep) if entry]
    return [Path(os.path.abspath(entry)) / end for entry, end in named]
