"""The command `jaxdyn new`: a commented config or mechanism file to start from."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdyn.dynamics.friction import JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.jobs import templates
from jaxdyn.jobs.arguments import NewArguments
from jaxdyn.jobs.source import load
from jaxdyn.mechanism import configuration

_MECHANISM = "mechanism.toml"
_TORQUE = 5.0  # N m, too little to lift the double pendulum at once


def new(arguments: NewArguments) -> None:
    """Write the file, and also the mechanism file that it names if this mechanism file does not exist."""
    file: Path = arguments.file or Path(f"{arguments.kind}.toml")
    if arguments.kind == "mechanism":
        if arguments.mechanism is not None:
            raise ConfigError("--mechanism is an option of configs; a new mechanism does not refer to another one")
        _write(file, templates.mechanism_template(file), arguments.force)
        print(f"{file}: a mechanism to start from. Next:\n\n  jaxdyn show {file}\n  jaxdyn rollout {file}")
        return
    own: Path | None = arguments.mechanism
    mechanism = file.parent / _MECHANISM if own is None else own
    if mechanism.resolve() == file.resolve():
        raise ConfigError(
            f"{file}: the config and its mechanism have the same name; choose another name for the config"
        )
    _check_absent(file, arguments.force)
    if own is None and not mechanism.exists():
        _write(mechanism, templates.mechanism_template(mechanism), force=False)
        print(f"{mechanism}: a mechanism to start from")
    system = load(mechanism, base=arguments.base, repair=arguments.repair)
    # As in any config, a relative path is relative to the config.
    source: dict[str, Any] = {"mechanism": Path(os.path.relpath(mechanism.resolve(), file.resolve().parent)).as_posix()}
    source |= {} if arguments.base is None else {"base": arguments.base}
    source |= {"repair": True} if arguments.repair else {}
    _write(file, _config(arguments.kind, file, source, system, own is not None), arguments.force)
    print(f"{file}: a config of `jaxdyn {arguments.kind}` for {mechanism}. Next:\n\n  jaxdyn {arguments.kind} {file}")


def _config(kind: str, file: Path, source: dict[str, Any], system: System, is_own: bool) -> str:
    model = system.model
    match kind:
        case "rollout":
            return templates.rollout_template(file, source, model)
        case "identify":
            return templates.identify_template(file, source, model)
    rest = configuration.neutral(model)
    if not is_own:
        return templates.optimize_template(file, source, [[angle, 0.0] for angle in (0.0, 1.57, 3.14159265)], _TORQUE)
    target = configuration.random(model, jax.random.key(0), spread=0.5)
    motion = [configuration.interpolate(model, rest, target, s) for s in (0.0, 0.5, 1.0)]
    digits = 2 if model.nq == model.nv else 15  # quaternions keep theirs
    rounded = [np.round(q, digits).tolist() for q in motion]
    is_stiff = any(isinstance(force, JointFriction) and np.any(force.coulomb) for force in system.forces)
    return templates.optimize_template(file, source, rounded, None, is_stiff=is_stiff)


def _check_absent(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise ConfigError(f"{file}: exists already; choose another name or give --force")


def _write(file: Path, text: str, force: bool) -> None:
    _check_absent(file, force)
    write_content(file, text)
