"""Reading and writing of mechanisms in all supported formats, selected by the suffix of the file name.

.toml                 mechanism file (`mechanism.file`), readable and editable
.json (and .npz)      archive (`archive`), exact
.urdf                 URDF (`urdf`)
.xacro                URDF after the expansion of its macros (`xacro`)
.xml                  MJCF (`mjcf`); when read, also URDF, depending on the outermost element

A word without a suffix is the name of a robot (`robots`). A run directory is read as the mechanism of the run. From a plant
(`archive.plant`), only the mechanism is read; a warning names the parts that are left out.
"""

import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from jaxdyn.dynamics.system import System
from jaxdyn.errors import check_name
from jaxdyn.io.archive.file import archive_paths, load_archive, save_archive
from jaxdyn.io.config import default_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.limits import LimitsUse, with_limits
from jaxdyn.io.locking import Positions, lock_joints
from jaxdyn.io.mechanism.file import load_mechanism, save_mechanism
from jaxdyn.io.mjcf.reader import load_mjcf
from jaxdyn.io.mjcf.writer import save_mjcf
from jaxdyn.io.robots import robot_file
from jaxdyn.io.runs.directory import MECHANISM
from jaxdyn.io.shapes.colliders import ContactUse
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.io.urdf.reader import load_urdf
from jaxdyn.io.urdf.writer import save_urdf
from jaxdyn.io.xacro import expanded
from jaxdyn.io.xml import CONVERT_SDF, IgnoredContent, read_xml

# Options of the readers of URDF and MJCF files. Other files state these properties themselves, and do not name a folder.
_OPTIONS = {
    ".urdf": ("base", "unphysical", "contact", "folder", "kinematic"),
    ".xml": ("contact", "folder", "kinematic", "ignore"),
}
_OF_OTHERS = ("folder",)
_NAMES = {".urdf": "URDF", ".xml": "MJCF"}
_READ = ".toml, .urdf, .xacro, .xml (URDF or MJCF) or .json"
_WRITTEN = ".toml, .urdf, .xml (MJCF) or .json"


def load_system(
    path: Path | str,
    *,
    base: Literal["fixed", "free"] | None = None,
    unphysical: Literal["refuse", "repair"] = "refuse",
    folder: Path | str | None = None,
    limits: LimitsUse = "data",
    contact: ContactUse = "none",
    kinematic: bool = False,
    lock: Positions = types.MappingProxyType({}),
    ignore: Sequence[str] = (),
) -> System:
    """Read the system that a file in any of the formats describes.

    The home pose of an MJCF file is `state, u = load_keyframes(system, path)["home"]`; `neutral_state` is the pose in which a file
    describes the bodies.

    Args:
        path: File with a known suffix, run directory, or name of a robot of the package robot_descriptions, such as
            "panda_description".
        base, unphysical: Options of URDF files, see `load_urdf`. `base` is "fixed" by default; files of other formats state whether
            their base is fixed.
        folder: Folder of the files that an MJCF or URDF file names, see `load_mjcf` and `load_urdf`.
        limits: "enforced" stops joints at their position limits by `JointLimits`, whose stiffness is derived from the mechanism;
            "data" only stores the limits in `Model.limits`. A force `JointLimits` that a file contains is not changed.
        contact: "ground" turns the colliders of a URDF or MJCF file into contacts with the ground, see `load_urdf` and `load_mjcf`.
            Files of other formats contain their contacts and have no colliders.
        kinematic: If true, masses and inertias of a URDF or MJCF file are not read, so that a file without them can be used for
            kinematics and pictures.
        lock: Positions (rad or m) by the names of joints that are fixed there, as by `lock_joints`.
        ignore: Elements of an MJCF file that are left out if they are not supported, by their names or kinds, see `load_mjcf`.

    Raises:
        UnknownName: An option has another value, or there is no joint of a name in `lock`.
        ConfigError: The file cannot be used, or its suffix is unknown; the message is one line with the file, the entry and the
            remedy.
        MechanismError: A value is not physically valid; the message is one line with the file, the body and the remedy.
    """
    path = _in_run(Path(path))
    check_name("option limits", limits, get_args(LimitsUse), where=str(path))
    options = {"base": base, "unphysical": unphysical, "contact": contact, "folder": folder, "kinematic": kinematic}
    options |= {"ignore": tuple(ignore)}
    given = {name: value for name, value in options.items() if value != default_of(load_system, name)}
    if not (path.suffix or path.exists()):
        raise ConfigError(f"{path}: there is no such file or run directory; check the path")
    ending = _format(path)
    for name in given:
        if name not in _OPTIONS.get(ending, _OF_OTHERS):
            formats = " and ".join(_NAMES[known] for known, names in _OPTIONS.items() if name in names)
            raise ConfigError(f"{path}: {name} is an option of {formats} files; leave it out")
    if ending == ".urdf":
        return _completed(load_urdf(path, **given), lock, limits)
    if ending == ".xml":
        return _completed(load_mjcf(path, **given), lock, limits)
    from jaxdyn.io.archive.plant import holds_plant, left_out, load_plant  # the package identify takes time to import

    if not holds_plant(path):
        return _completed(load_mechanism(path) if ending == ".toml" else load_archive(path), lock, limits)
    plant = load_plant(path)
    warnings.warn(
        f"{path}: only the mechanism of this plant is read, without {left_out(plant)}; jaxdyn.io.load_plant reads all",
        IgnoredContent,
        stacklevel=3,
    )
    return _completed(plant.system, lock, limits)


def _completed(system: System, lock: Positions, limits: LimitsUse) -> System:
    return with_limits(lock_joints(system, lock) if lock else system, limits)


def _format(path: Path) -> str:
    """The suffix of the format of a file: ".urdf", ".xml" for MJCF, ".toml", or ".json" for an archive."""
    match path.suffix.lower():
        case ".xml":
            outermost = read_xml(path)
            if outermost.tag not in ("robot", "mujoco"):
                raise outermost.error("a URDF file begins with <robot>, an MJCF file with <mujoco>; check the path")
            return ".urdf" if outermost.tag == "robot" else ".xml"
        case ".urdf" | ".toml" | ".json" as ending:
            return ending
        case ".npz":
            return ".json"
        case ".xacro":
            return ".urdf"
        case ".sdf":
            raise ConfigError(f"{path}: {CONVERT_SDF}")
        case other:
            raise ConfigError(f"{path}: {_ending(other)}; a mechanism file ends in {_READ}")


def _in_run(path: Path) -> Path:
    """The archive of the mechanism or the plant in a run directory, or the file of a robot that is given by its name; another path
    is not changed."""
    path = robot_file(path)
    if not path.is_dir():
        return path
    if (path / f"{MECHANISM}.json").is_file():
        return path / f"{MECHANISM}.json"
    from jaxdyn.io.archive.plant import plant_archive

    return plant_archive(path)


def save_system(
    system: System,
    path: Path | str,
    *,
    source: str = "written by jaxdyn.io.save_system",
    drop: Sequence[str] = (),
    visuals: Sequence[Visual] = (),
) -> None:
    """Write a system in the format that the suffix of the file name selects; .xml is MJCF.

    Args:
        system: System to write.
        path: Path of the file.
        source: Origin of the values; it is written to mechanism files (.toml) only.
        drop: Parts that are left out if the format lacks them, see `save_urdf` and `save_mjcf`: for example ("actuator",), or
            ("jaxdyn",) for a plain URDF file.
        visuals: Shapes of bodies for a URDF or MJCF file, see `save_urdf`; other formats have none.

    Raises:
        ImportError: The `mujoco` package is not installed, which writes MJCF files.
        UnknownName: There is no such part to drop.
        ConfigError: The format cannot express a part of the system, or the file cannot be written; in both cases nothing is
            written.
        MechanismError: The parameters are not physically valid.
    """
    path = Path(path)
    for name, given in (("drop", drop), ("visuals", visuals)):
        if given and path.suffix.lower() not in (".urdf", ".xml"):
            raise ConfigError(f"{path}: {name} is an option of URDF and MJCF files; leave it out")
    match path.suffix.lower():
        case ".toml":
            save_mechanism(system, path, source=source)
        case ".json" | ".npz":
            save_archive(system, path)
        case ".urdf":
            save_urdf(system, path, drop=drop, visuals=visuals)
        case ".xml":
            save_mjcf(system, path, drop=drop, visuals=visuals)
        case other:
            raise ConfigError(f"{path}: {_ending(other)}; a mechanism is written to {_WRITTEN}")


def files_of(path: Path | str) -> list[Path]:
    """Paths of the files that describe a system: the given file, and all existing files that it refers to."""
    path = _in_run(Path(path))
    match path.suffix.lower():
        case ".toml":  # the archive of a plant has the same name
            return [path, *(other for other in archive_paths(path.with_suffix("")) if other.is_file())]
        case ".json" | ".npz":
            return [path.with_suffix(".json"), path.with_suffix(".npz")]
        case ".xml":
            return _with_included(path)
        case ".xacro":
            return expanded(path)[1]
    return [path]


def _with_included(main: Path) -> list[Path]:
    """An MJCF file, the files that it includes, and meshes, from which MuJoCo computes inertias."""
    found, left = [main], [main]
    while left:
        file = left.pop()
        if file.suffix.lower() != ".xml":
            continue
        try:
            elements = list(read_xml(file).below())
        except ConfigError:  # `load_system` reports the error
            continue
        attributes = [item for element in elements for item in element.attributes.items()]
        folders = {main.parent / value for name, value in attributes if name in ("meshdir", "assetdir")}
        folders |= {main.parent, file.parent}
        named = {folder / value for folder in folders for name, value in attributes if name == "file"}
        new = sorted(path for path in named if path.is_file() and path not in found)
        found, left = found + new, left + new
    return found


def _ending(ending: str) -> str:
    return f"the ending {ending!r} is not known" if ending else "the file name has no ending"
