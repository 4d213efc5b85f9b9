"""Files of plants. A plant is a mechanism with sensors, inputs, processing of recordings, and estimates with their covariance.

A plant has three files. plant.json and plant.npz are an archive (`archive`), which `load_plant` reads exactly. plant.toml shows the
same values as readable text: the tables of a mechanism file, and [sensors], [inputs], [processing], [[parameter]]. Estimates that
violate the bounds of mechanism files, such as a negative stiffness, are listed in [[outside_bounds]].
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdyn.dynamics.sensors import ContactSensors, JointEncoders
from jaxdyn.identify import checks
from jaxdyn.identify.addresses import declared_at, gather, leaf_at
from jaxdyn.identify.charts import Bounded, Chart, PhysicalInertia, Positive, Real, Rotation, UnitVector
from jaxdyn.identify.estimates import Address, Follower, HeldOut, Uncertainty
from jaxdyn.identify.measurement import Inputs, Plant, Sensors
from jaxdyn.identify.processing import Processing, Smoothing
from jaxdyn.io.archive.checks import check_fields, check_system
from jaxdyn.io.archive.file import archive_content, archive_paths, read_structure, write_structure
from jaxdyn.io.archive.structure import StructureError, known_classes
from jaxdyn.io.config import record
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.mechanism.writer import tables_of_system
from jaxdyn.io.reading import content
from jaxdyn.io.tables import Place
from jaxdyn.io.toml import read_toml, toml_text
from jaxdyn.mechanism.messages import MechanismError

PLANT = "plant"
_ARCHIVE = "archive"  # key of plant.toml with the name of the archive
_LARGEST_TEXT = 2**24  # bytes
_CHECKS = tuple(cls for cls in vars(checks).values() if isinstance(cls, type) and issubclass(cls, checks.Check))
_CLASSES = (
    *(Plant, Sensors, Inputs, Processing, Smoothing, Uncertainty, Address, Follower, HeldOut),
    *(Real, Positive, Bounded, UnitVector, Rotation, PhysicalInertia),
    *(cls for cls in _CHECKS if cls is not checks.Check),
)

# Sensors that older files name as functions.
_ENCODERS, _TACHOMETERS = JointEncoders(), JointEncoders(velocities=True)
_FUNCTIONS_BEFORE = {
    "joint_positions": (_ENCODERS,),
    "joint_velocities": (_TACHOMETERS,),
    "joint_positions_and_velocities": (_ENCODERS, _TACHOMETERS),
    "contact_forces": (ContactSensors(),),
    "joint_positions_and_contact_forces": (_ENCODERS, ContactSensors()),
}


def save_plant(plant: Plant, path: Path | str, *, classes: Sequence[Any] = ()) -> None:
    """Write a plant as <path>.json, <path>.npz and <path>.toml; `load_plant` restores every bit of it.

    Args:
        plant: Plant to write.
        path: Path of the files without a suffix, or with one of their suffixes; in a folder, the files are plant.json, plant.npz
            and plant.toml.
        classes: User-defined classes of forces and joints, and the function of the sensors if it is user-defined.

    Raises:
        ConfigError: A part of the plant is of an unknown class, or the files cannot be written.
    """
    target = _stem(Path(path))
    structure_path, _ = archive_paths(target)
    write_structure("plant", plant, target, known_classes((*_CLASSES, *classes)))
    readable = structure_path.with_suffix(".toml")
    write_content(readable, _sealed(toml_text(_tables(plant, structure_path))))


def load_plant(path: Path | str, *, classes: Sequence[Any] = ()) -> Plant:
    """Read a plant, equal in structure and bit by bit in every value to the saved one.

    Double precision must be enabled (`jax.enable_x64`) if the plant contains arrays in double precision. Nothing in the files is
    executed.

    Args:
        path: Run directory of `jaxdyn identify`, or one of the three files of a plant.
        classes: User-defined classes and functions that the plant may contain, see `save_plant`.

    Raises:
        ConfigError: There is no plant, a file is damaged, or plant.toml was edited.
    """
    path = plant_archive(Path(path))
    readable = path.with_suffix(".toml")
    if readable.exists():
        text = content(readable, _LARGEST_TEXT, "give a plant").decode(errors="replace")
        if _sealed(text.rpartition(_SEAL)[0]) != text:
            raise ConfigError(
                f"{readable}: it was edited, but the values of the plant are in {path.name}; change them in Python and use "
                "jaxdyn.io.save_plant, or delete this file"
            )
    return read_structure("plant", path, _FUNCTIONS_BEFORE | known_classes((*_CLASSES, *classes)), _check)


def holds_plant(path: Path | str) -> bool:
    """Whether a path is a directory of a run of `jaxdyn identify`, or a file of a plant."""
    path = Path(path)
    if path.is_dir():
        return bool(_below(path))
    try:
        if path.suffix.lower() == ".toml":
            return _ARCHIVE in read_toml(path)
        return path.suffix.lower() in (".json", ".npz") and archive_content(path) == "plant"
    except ConfigError:  # the reader of mechanisms reports the error
        return False


def plant_archive(path: Path) -> Path:
    """Path of the .json file of a plant.

    Raises:
        ConfigError: A directory contains no plant, or several plants.
    """
    if path.is_dir():
        found = _below(path)
        if len(found) != 1:
            named = ", ".join(str(one.parent) for one in found)
            remedy = f"it contains several plants; give one of {named}" if found else "it contains no plant.json"
            raise ConfigError(f"{path}: {remedy}")
        return found[0]
    return archive_paths(path.with_suffix("") if path.suffix.lower() == ".toml" else path)[0]


def left_out(plant: Plant) -> str:
    """Description of all parts of a plant that its mechanism does not contain, such as sensors and filters."""
    beyond = [*plant.beyond_the_mechanism(), "noise of the sensors", "filters"]
    beyond += [] if plant.estimates is None else ["covariance of the estimates"]
    return f"{', '.join(beyond)}"


def outside_bounds(plant: Plant) -> list[tuple[str, float, str]]:
    """Estimates that violate the bounds of mechanism files: label, value, and bounds in words."""
    known, found, first = plant.estimates, [], 0
    for address in () if known is None else known.addresses:
        declared = [quantity for leaf in address.leaves for quantity in _each(plant, leaf, address)]
        labels = known.labels[first : first + address.count] if known is not None else ()
        values = np.asarray(gather(plant, address.leaves, address.rows))
        for (name, unit), quantity, value in zip(labels, declared, values.tolist(), strict=True):
            if not quantity.admits(value):
                found.append((f"{name} ({unit})" if unit else name, value, quantity.allowed or ""))
        first += address.count
    return found


def _each(plant: Plant, leaf: tuple[str, ...], address: Address) -> list[Any]:
    return [declared_at(plant, leaf)] * gather(plant, (leaf,), address.rows).size


def _below(folder: Path) -> list[Path]:
    """The archives of plants in a run directory: its own, or those of its studies."""
    own = folder / f"{PLANT}.json"
    return [own] if own.is_file() else sorted(folder.glob(f"*/{PLANT}.json"))


def _stem(path: Path) -> Path:
    if path.is_dir():
        return path / PLANT
    return path.with_suffix("") if path.suffix.lower() in (".toml", ".json", ".npz") else path


_SEAL = "# sha256 "


def _sealed(text: str) -> str:
    """The text, followed by its digest."""
    return f"{text}{_SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n"


def _tables(plant: Plant, archive: Path) -> dict[str, Any]:
    """The tables of plant.toml."""
    system, sensors = plant.system, plant.sensors
    stated = f"load_plant reads {archive.stem}.json and {archive.stem}.npz; this file shows their values"
    tables: dict[str, Any] = {_ARCHIVE: archive.name, "note": stated}
    try:
        tables |= tables_of_system(system, "identified by jaxdyn identify", Place(archive.with_suffix(".toml")))
    except (ConfigError, MechanismError) as error:
        tables |= {"mechanism": f"{archive.name} only, because {error}"}
    read = [{"measured": type(sensor).__name__} | record(sensor) for sensor in sensors.observe]
    tables["sensors"] = _values(sensors) | {"observe": read}
    tables["inputs"] = _values(plant.inputs)
    tables["processing"] = record(plant.processing)
    known = plant.estimates
    if known is not None:
        rows = zip(known.labels, np.asarray(known.values).tolist(), np.asarray(known.std).tolist(), strict=True)
        tables["parameter"] = [
            {"name": name, "unit": unit, "estimate": value, "standard_deviation": std}
            for (name, unit), value, std in rows
        ]
        tables["outside_bounds"] = [
            {"name": name, "estimate": value, "bounds": allowed} for name, value, allowed in outside_bounds(plant)
        ]
    return tables


def _values(part: Sensors | Inputs) -> dict[str, Any]:
    arrays = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: record(value) for name, value in arrays.items() if isinstance(value, jax.Array)}


def _check(plant: Any) -> None:
    """Refuse a plant from a file whose parts do not fit together."""
    if not isinstance(plant, Plant):
        raise StructureError("it is not a Plant; write the file again")
    check_system(plant.system)
    check_fields(plant.sensors, "sensors", {})
    check_fields(plant.inputs, "inputs", {})
    try:
        plant.sensors.__check_init__()
        plant.inputs.__check_init__()
        plant.__check_init__()
        if plant.estimates is not None:
            _check_estimates(plant, plant.estimates)
    except StructureError:
        raise
    except (ValueError, IndexError, TypeError) as error:
        raise StructureError(f"{error}; write the file again") from None


def _check_estimates(plant: Plant, known: Uncertainty) -> None:
    count = len(known.labels)
    if any(len(label) != 2 for label in known.labels):
        raise StructureError("estimates.labels: they are not pairs of a name and a unit; write the file again")
    check_fields(known, "estimates", {"values": count}, leave_out=("followers", "held_out", "charts"))
    if known.held_out is not None:
        channels = 0 if known.noise is None else known.noise.size
        check_fields(known.held_out, "estimates.held_out", {"channels": channels})
    for address in (*known.addresses, *(follower.address for follower in known.followers)):
        for path, leaf in zip(address.paths, address.leaves, strict=True):
            leaf_at(plant, leaf, path)
        values = gather(plant, address.leaves, address.rows)
        if values.size != address.count:
            raise StructureError(f"estimates.addresses: {', '.join(address.paths)} has another number of values")
    if len(known.charts) not in (0, len(known.addresses)) or not all(isinstance(c, Chart) for c in known.charts):
        raise StructureError("estimates.charts: they do not match the addresses")
    if sum(address.count for address in known.addresses) != count:
        raise StructureError("estimates.addresses: they do not match the labels")
    for follower in known.followers:
        size = np.shape(follower.factor)
        if not 0 <= follower.leader < len(known.addresses) or size != (follower.address.count,):
            raise StructureError("estimates.followers: they do not match the addresses")
