"""Which of the robot descriptions that come inside Python packages does jaxdyn load, and does it compute the same mechanics?

Method. Every *.urdf file and every *.xml file with MJCF in it is read. A URDF file that has no moving body on a fixed base gets a
free one; one that is refused for an unphysical inertia is read again with `unphysical="repair"`. Each model that loads is
compared with Pinocchio (URDF) or MuJoCo (MJCF) at random states, in float64. With Pinocchio, these are mass matrix, bias force and
forward dynamics; with MuJoCo, the accelerations of the system with its drives, springs, tendons and medium at random controls and
activations, without contacts, limits, equalities and dry friction, which are soft constraints in MuJoCo. The largest difference
is relative to the largest mass, force and acceleration. Repaired mechanisms are written with `save_system`, and Pinocchio reads
that file.

Expected. Each model that loads agrees to 1e-8; every other file is refused with the reason.

Packages with many descriptions: pybullet (pybullet_data), example-robot-data, dm_control, gymnasium, robosuite. Without any of
them, `own=[...]` takes mechanisms of jaxdyn's library, written as URDF.

Run time. Some seconds for a robot that is new, so half an hour for the 1300 files of the packages above.

    python experiments/robot_files.py [configs/robot_files.toml] [--out DIR] [--smoke] [key=value ...]
"""

import contextlib
import dataclasses
import importlib
import os
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import ConfigError, IgnoredContent, MujocoOrder, PinocchioOrder, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        folders: Folders to search recursively; empty for the installed Python packages.
        own: Names of mechanisms of `jaxdyn.library` to use instead, written as URDF.
        states: Number of random states at which the mechanics is compared.
        seed: Seed of the random states.
    """

    folders: tuple[Path, ...] = ()
    own: tuple[str, ...] = ()
    states: int = setting(3, positive=True)
    seed: int = seed_setting()


@dataclasses.dataclass(frozen=True)
class Row:
    """One file of the table: its outcome, its size, and the differences of the mechanics."""

    file: str
    outcome: str
    nv: int | None = None
    constraints: int | None = None
    mass_matrix: float | None = None
    bias_force: float | None = None
    acceleration: float | None = None
    remark: str = ""

    @property
    def differences(self) -> list[float]:
        """Differences of the quantities that were compared."""
        return [x for x in (self.mass_matrix, self.bias_force, self.acceleration) if x is not None]


def descriptions(folders: list[Path]) -> list[Path]:
    """URDF and MJCF files, by their content where the ending is ambiguous."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".urdf" or (path.suffix == ".xml" and b"<mujoco" in path.read_bytes()[:100_000]):
                found.append(path)
    return found


def load(path: Path, folder: Path) -> tuple[jaxdyn.System, str]:
    """The system and how it was read."""
    if path.suffix == ".xml":
        return jaxdyn.io.load_mjcf(path, folder=folder), "loaded"
    attempts: list[tuple[str, dict[str, Any]]] = [("loaded", {}), ("loaded, free base", {"base": "free"})]
    attempts += [
        ("repaired", {"unphysical": "repair"}),
        ("repaired, free base", {"base": "free", "unphysical": "repair"}),
    ]
    refusals = []
    for outcome, options in attempts:
        try:
            return jaxdyn.io.load_urdf(path, **options), outcome
        except (ConfigError, jaxdyn.MechanismError) as error:
            refusals.append(error)
            curable = "no joint moves" in str(error) or "inertia" in str(error)
            if not curable:
                raise
    raise refusals[0]


def nameless(model: jaxdyn.Model) -> jaxdyn.Model:
    """The model with indices for names, so that robots of equal structure share a compilation."""
    topology = model.topology
    names = tuple(map(str, range(topology.nb)))
    blank = dataclasses.replace(
        topology,
        name="",
        body_names=names,
        joint_names=names,
        frame_names=tuple(map(str, range(len(topology.frame_names)))),
    )
    return dataclasses.replace(model, topology=blank)


@jax.jit
def mechanics(model: jaxdyn.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> tuple[jax.Array, ...]:
    return (
        jaxdyn.mass_matrix(model, q),
        jaxdyn.bias_force(model, q, v),
        jaxdyn.forward_dynamics(model, q, v, tau),
    )


@jax.jit
def accelerations(system: jaxdyn.System, q: jax.Array, v: jax.Array, u: jax.Array, z: jax.Array) -> jax.Array:
    return jaxdyn.acceleration(system, jaxdyn.State(q, v, z if system.nz else None), u)


def without_constraints(system: jaxdyn.System) -> jaxdyn.System:
    """The system without loops, couplings and dry friction."""
    smooth = {"coulomb": lambda force: jnp.zeros_like(force.coulomb), "friction": lambda force: None}
    forces = tuple(
        dataclasses.replace(force, **{name: of(force) for name, of in smooth.items() if hasattr(force, name)})
        for force in system.forces
    )
    return system.changed(model=nameless(system.model), forces=forces, constraints=())


class InPinocchio:
    """The mechanics of a URDF file by Pinocchio."""

    def __init__(self, system: jaxdyn.System, path: Path, outcome: str):
        # By name, since the stubs of both libraries lack the names that are made in C++.
        self.pinocchio: Any = importlib.import_module("pinocchio")
        pinocchio = self.pinocchio
        free = (pinocchio.JointModelFreeFlyer(),) if outcome.endswith("free base") else ()
        with tempfile.TemporaryDirectory() as folder:
            if outcome.startswith("repaired"):
                path, free = Path(folder, "repaired.urdf"), ()
                jaxdyn.io.save_system(system, path)
            with quiet():
                self.model = pinocchio.buildModelFromUrdf(str(path), *free)
        if free:
            self.model.names[1] = system.model.topology.joint_names[0]
        self.data = self.model.createData()
        self.order = PinocchioOrder(system.model, self.model)

    def mechanics(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, ...]:
        pin, model, data = self.pinocchio, self.model, self.data
        matrix = np.triu(pin.crba(model, data, q))
        matrix = matrix + np.triu(matrix, 1).T - np.diag(model.armature)
        return matrix, pin.nonLinearEffects(model, data, q, v).copy(), pin.aba(model, data, q, v, tau).copy()


class InMujoco:
    """An MJCF file in MuJoCo, without contacts, limits, equalities and dry friction."""

    def __init__(self, system: jaxdyn.System, path: Path, outcome: str):
        self.mujoco: Any = importlib.import_module("mujoco")
        self.model = self.mujoco.MjModel.from_xml_path(str(path))
        self.model.opt.disableflags |= self.mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        self.order, self.data = MujocoOrder(system.model, self.model), self.mujoco.MjData(self.model)

    def accelerations(self, q: np.ndarray, v: np.ndarray, u: np.ndarray, z: np.ndarray) -> np.ndarray:
        self.data.qpos, self.data.qvel, self.data.act = q, v, z
        if self.model.nu:  # without actuators, the controls of jaxdyn are the generalized forces
            self.data.ctrl = u
        self.mujoco.mj_forward(self.model, self.data)
        return self.data.qacc.copy()


def compare_driven(system: jaxdyn.System, outsider: InMujoco, config: Config) -> list[float | None]:
    """Largest relative difference of the accelerations over random states, activations and controls."""
    plain, order, worst = without_constraints(system), outsider.order, 0.0
    for index in range(config.states):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index), 4)
        q, sizes = jaxdyn.configuration.random(system.model, keys[0]), (system.model.nv, system.nu, system.nz)
        v, u, z = (jax.random.normal(key, (size,)) for key, size in zip(keys[1:], sizes, strict=True))
        u = u if outsider.model.nu else jnp.zeros_like(u)
        if system.drives is not None and system.drives.state_bounds is not None:
            z = jnp.clip(z, *system.drives.state_bounds)
        theirs = outsider.accelerations(*map(np.array, (order.q_to(q), order.v_to(q, v), u, z)))
        ours = order.a_to(q, v, accelerations(plain, q, v, u, z))
        worst = max(worst, float(np.max(np.abs(ours - theirs)) / (np.max(np.abs(theirs)) or 1.0)))
    return [None, None, worst]


@contextlib.contextmanager
def quiet():
    """Suppresses the output of C++ libraries."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def compare(system: jaxdyn.System, outsider: Any, config: Config) -> list[float]:
    """Largest relative differences of mass matrix, bias force and accelerations, over the states."""
    model, order = system.model, outsider.order
    worst = np.zeros(3)
    for index in range(config.states):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index), 3)
        q = jaxdyn.configuration.random(model, keys[0])
        v, a = (jax.random.normal(key, (model.nv,)) for key in keys[1:])
        matrix, bias, _ = mechanics(nameless(model), q, v, jnp.zeros(model.nv))
        tau = matrix @ a + bias
        ours = mechanics(nameless(model), q, v, tau)
        arguments = (order.q_to(q), order.v_to(q, v), order.tau_to(q, tau))
        theirs = outsider.mechanics(*(np.array(x) for x in arguments))
        # Columns of the change of velocities turn their mass matrix into ours; the bias differs by the rate of that change.
        change = jax.vmap(lambda unit, q=q: order.v_to(q, unit))(jnp.eye(model.nv)).T
        rate = order.a_to(q, v, jnp.zeros(model.nv))
        expected = (
            change.T @ theirs[0] @ change,
            order.tau_from(q, jnp.asarray(theirs[1] + theirs[0] @ np.array(rate))),
            order.a_from(q, v, jnp.asarray(theirs[2])),
        )
        # Bias forces may cancel to nothing, as of a balanced wheel; then they are nothing beside the forces of inertia.
        scales = [np.max(np.abs(matrix)), np.max(np.abs(tau)) + np.max(np.abs(bias)), np.max(np.abs(a))]
        for k, (own, other, scale) in enumerate(zip(ours, expected, scales, strict=True)):
            worst[k] = max(worst[k], float(np.max(np.abs(own - other)) / scale))
    return worst.tolist()


def examine(path: Path, folder: Path, config: Config) -> Row:
    name = str(path.relative_to(folder))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", IgnoredContent)
        try:
            system, outcome = load(path, folder)
        except (ConfigError, jaxdyn.MechanismError) as error:
            return Row(name, "refused", remark=str(error).replace(str(path), "").lstrip(":, "))
    remark = "; ".join(str(w.message).split(": ", 1)[-1] for w in said if issubclass(w.category, IgnoredContent))
    sizes = (system.model.nv, len(system.constraints))
    library, outsider = ("MuJoCo", InMujoco) if path.suffix == ".xml" else ("Pinocchio", InPinocchio)
    try:
        other = outsider(system, path, outcome)
    except (ImportError, ValueError, RuntimeError, IndexError, jaxdyn.MechanismError) as error:
        reason = " ".join(str(error).split())[:120]
        return Row(name, outcome, *sizes, remark=f"not compared, {library}: {reason}; {remark}".rstrip("; "))
    driven = isinstance(other, InMujoco)
    found = compare_driven(system, other, config) if driven else compare(system, other, config)
    return Row(name, outcome, *sizes, *found, remark=remark)


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| file | outcome | nv | constraints | M | bias | acceleration | remark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = [row.nv, row.constraints, row.mass_matrix, row.bias_force, row.acceleration]
        texts = ["" if x is None else f"{x:.1e}" if isinstance(x, float) else str(x) for x in numbers]
        remark = row.remark if len(row.remark) <= 160 else row.remark[:157] + "..."
        lines.append(f"| {row.file} | {row.outcome} | {' | '.join(texts)} | {remark.replace('|', '/')} |")
    return "\n".join(lines)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as written:
        if config.own:
            for name in config.own:
                jaxdyn.io.save_system(jaxdyn.library.system(name), Path(written, f"{name}.urdf"))
            folders = [Path(written)]
        else:
            folders = list(config.folders) or [Path(sysconfig.get_path("purelib"))]
        files = [(folder, path) for folder in folders for path in descriptions([folder])]
        if not files:
            raise ConfigError(
                f"no *.urdf and no MJCF file in {', '.join(map(str, folders))}; install packages that have some"
            )
        rows = [examine(path, folder, config) for folder, path in tqdm(files, desc="descriptions", unit="file")]
    text = table(rows)
    print(text)
    directory.path("table.md").write_text(text + "\n", encoding="utf-8")
    compared = [row for row in rows if row.differences]
    apart = [row.file for row in compared if not max(row.differences) < TOLERANCE]
    loaded = [row for row in rows if row.outcome != "refused"]
    print(f"\n{len(rows)} files: {len(loaded)} loaded, {len(rows) - len(loaded)} refused with a reason")
    print(
        f"{len(compared)} compared, {len(compared) - len(apart)} agree to {TOLERANCE:g}; apart: {', '.join(apart) or 'none'}"
    )
    return {
        "files": len(rows),
        "loaded": len(loaded),
        "refused": len(rows) - len(loaded),
        "repaired": sum(row.outcome.startswith("repaired") for row in rows),
        "compared": len(compared),
        "apart": apart,
        "largest_difference": max((max(row.differences) for row in compared), default=None),
    }


JOB = Job("robot-files", __doc__ or "", Config, work)

if __name__ == "__main__":
    sys.exit(main(JOB, default_config="configs/robot_files.toml"))
