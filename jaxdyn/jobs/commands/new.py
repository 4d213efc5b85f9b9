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
from jaxdyn.jobs.commands import templates
from jaxdyn.jobs.commands.arguments import NewArguments
from jaxdyn.jobs.source import load
from jaxdyn.mechanism import configuration

_MECHANISM = "mechanism.toml"
_TORQUE = 5.0  # N m, too little to lift the double pendulum at once


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
        write_content(file, templates.mechanism_template(file))
        print(f"{file}: a mechanism to start from. Next:\n\n  jaxdyn show {file}\n  jaxdyn rollout {file}")
        return
    if own is None and not mechanism.exists():
        write_content(mechanism, templates.mechanism_template(mechanism))
        print(f"{mechanism}: a mechanism to start from")
    system = load(mechanism, base=arguments.base, repair=arguments.repair)
    # As in any config, a relative path is relative to the config.
    path = Path(os.path.relpath(mechanism.resolve(), file.resolve().parent)).as_posix()
    options = {"base": arguments.base, "repair": arguments.repair}
    source = {"mechanism": path} | {key: value for key, value in options.items() if value}
    write_content(file, _config(kind, file, source, system, own is not None))
    print(f"{file}: a config of `jaxdyn {kind}` for {mechanism}. Next:\n\n  jaxdyn {kind} {file}")


def _config(kind: str, file: Path, source: dict[str, Any], system: System, is_own: bool) -> str:
    model = system.model
    if kind != "optimize":
        template = templates.rollout_template if kind == "rollout" else templates.identify_template
        return template(file, source, model)
    rest = configuration.neutral(model)
    if not is_own:
        return templates.optimize_template(file, source, [[angle, 0.0] for angle in (0.0, 1.57, 3.14159265)], _TORQUE)
    target = configuration.random(model, jax.random.key(0), spread=0.5)
    motion = [configuration.interpolate(model, rest, target, s) for s in (0.0, 0.5, 1.0)]
    digits = 2 if model.nq == model.nv else 15  # quaternions keep theirs
    rounded = [np.round(q, digits).tolist() for q in motion]
    is_stiff = any(isinstance(force, JointFriction) and np.any(force.coulomb) for force in system.forces)
    return templates.optimize_template(file, source, rounded, None, is_stiff=is_stiff)
