"""Does every robot as its vendor describes it stay finite with the default integrator at 1 ms, as it does in MuJoCo?

Method. Each URDF file is read by jaxdyn, with damping and friction as they stand there, and by MuJoCo (integrator implicitfast,
no contacts, no limits). Samples start from random postures: at rest, with random speeds, and under PD control towards the middle
of the joint limits with several shares of critical damping. PD control is part of the machine on both sides: `JointServo` here,
springs and dampers in the joints there. Its stiffness is w^2 m and its damping 2 z w m, where w is the bandwidth, z the share and
m the diagonal of the mass matrix at the target. Couplings are exact here; in MuJoCo, whose constraints are soft, they are as
stiff as its step allows. Both run the same samples in double precision. Samples whose speeds grow beyond 1e6 rad/s are lost. They
are counted for the default integrator, for the form of it that takes friction and servos explicitly, for MuJoCo, and those that
the default integrator loses and MuJoCo keeps. As a check that both simulate the same machine, samples with random speeds run
without Coulomb friction, whose regularization differs, and positions are compared after a fifth of the duration.

Expected. With the default integrator no sample is lost that MuJoCo keeps. The explicit form loses samples of arms with light
wrists, of grippers and of hands. Positions agree to 1e-14 where MuJoCo reads the file itself, the base is fixed and no joints are
coupled. tables/compare_vendor_robots.md has the results.

Why random coordinates have a `reach`. Neither simulator takes centrifugal forces implicitly, so both need steps that resolve how
fast links spin. The limits of the virtual bases of the Inspire hands lie 20 m and 20 rad from the middle. From there PD control
of 0.1 of critical damping hurls the hand back, and its fingers of 1e-6 kg m^2 without damping whirl at up to 1960 rad/s (by steps
of 10 us, with which all samples are kept): 2 rad per step of 1 ms. Of 64 such samples of the left hand (`reach=20`, PD 0.1) 29
are lost here and 27 in MuJoCo, 4 of them only here and 2 only there; with the usual soft couplings of MuJoCo 24 are lost there.
Without couplings, when both have the same equations, it is 53 here and 55 there, none only here. At steps of 0.2 ms the coupled
hand loses no sample in either.

Packages with such files: example-robot-data, mani-skill, genesis-world, robosuite. Nothing of them needs to be installed:

    pip download --no-deps example-robot-data mani-skill genesis-world robosuite
    for wheel in *.whl; do unzip -q "$wheel" '*.urdf' -d robots; done

Without a folder, the robot is an arm with a light wrist that stands in this file.

Run time. About a minute for a robot, most of it compilation; half an hour for the robots of the config.

    python experiments/compare_vendor_robots.py [configs/compare_vendor_robots.toml] [--out DIR] [--smoke] [folder=robots] ...
"""

import dataclasses
import importlib
import sys
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import ConfigError, IgnoredContent, MujocoOrder, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

INTEGRATORS = {"default": jaxdyn.SemiImplicitEuler(), "explicit": jaxdyn.SemiImplicitEuler(damping="explicit")}
RECORDS = 5
LOST_BEYOND = 1e6

ARM = """
<robot name="arm_with_light_wrist">
  <link name="ground"/>
  <link name="upper">
    <inertial><origin xyz="0 0 -0.2"/><mass value="2.5"/>
      <inertia ixx="0.03" iyy="0.03" izz="0.004" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <link name="wrist">
    <inertial><mass value="0.3"/><inertia ixx="2e-4" iyy="2e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="ground"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="30" velocity="3"/><dynamics damping="10" friction="1"/>
  </joint>
  <joint name="roll" type="revolute">
    <parent link="upper"/><child link="wrist"/><origin xyz="0 0 -0.4"/><axis xyz="0 0 1"/>
    <limit lower="-3" upper="3" effort="20" velocity="3"/><dynamics damping="10" friction="1"/>
  </joint>
</robot>
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        folder: Folder of the robots; without it, the arm defined in the experiment is used.
        robots: Path patterns below the folder, with * and **; the first file that matches each pattern is used.
        floating: Stems of the names of files of robots with a floating base.
        samples: Number of random postures per case.
        reach: Largest distance of random coordinates from the middle of their limits, rad or m.
        speed: Standard deviation of random speeds.
        bandwidth: Bandwidth of PD control.
        ratios: Damping of PD control as fractions of critical damping.
        duration: Simulated time.
        step: Time step of both simulators.
        seed: Seed of the random postures.
    """

    folder: Path | None = None
    robots: tuple[str, ...] = ("**/*.urdf",)
    floating: tuple[str, ...] = ()
    samples: int = setting(64, positive=True)
    reach: float = setting(3.0, positive=True)
    speed: float = setting(1.0, unit="rad/s", positive=True)
    bandwidth: float = setting(10.0, unit="rad/s", positive=True)
    ratios: tuple[float, ...] = setting((0.1, 1.0, 10.0), positive=True)
    duration: float = setting(0.5, unit="s", positive=True)
    step: float = setting(1e-3, unit="s", positive=True)
    seed: int = seed_setting()

    def __post_init__(self):
        if self.steps < RECORDS or self.steps % RECORDS:
            raise ValueError(f"duration / step is {self.steps} steps; choose a multiple of {RECORDS}")

    @property
    def steps(self) -> int:
        """Steps of a sample."""
        return round(self.duration / self.step)


class Machine(NamedTuple):
    """Parameters that differ from case to case: of friction and of PD control, per velocity component."""

    viscous: Any
    coulomb: Any
    stiffness: Any
    damping: Any


class Case(NamedTuple):
    """A machine and the states from which its samples start."""

    name: str
    machine: Machine
    starts: jaxdyn.State


class Runs(NamedTuple):
    """Positions of all samples at the records, which samples are lost, and the speeds at the end."""

    q: np.ndarray
    lost: np.ndarray
    speed: np.ndarray


@dataclasses.dataclass(frozen=True)
class Row:
    """One robot.

    Attributes:
        lost: Number of samples lost per case and simulator.
        only_here: Number of samples of all cases that the default integrator loses and MuJoCo keeps.
        difference: Largest difference of positions after a fifth of the duration without Coulomb friction.
        fastest: Joint whose speed diverged most often with the default integrator, if any.
    """

    robot: str
    nv: int
    couplings: int
    lost: dict[str, dict[str, int]]
    only_here: int
    difference: float | None
    fastest: str
    remark: str = ""


def robots(config: Config, written: Path) -> Iterator[Path]:
    """The files of the config."""
    if config.folder is None:
        path = written / "arm.urdf"
        path.write_text(ARM, encoding="utf-8")
        yield path
        return
    for pattern in config.robots:
        found = sorted(config.folder.glob(pattern))
        if not found:
            raise ConfigError(
                f"{config.folder}: there is no {pattern}; download the packages that the experiment names"
            )
        yield from found if pattern == "**/*.urdf" else found[:1]


def load(path: Path, config: Config) -> jaxdyn.System:
    """The system with friction and a servo in every joint, both perhaps zero."""
    base = "free" if path.stem in config.floating else "fixed"
    system = jaxdyn.io.load_urdf(path, base=base, unphysical="repair")
    none, rest = jnp.zeros(system.model.nv), middle(system)
    kinds = [type(force) for force in system.forces]
    friction = () if jaxdyn.JointFriction in kinds else (jaxdyn.JointFriction(none, none, none + 0.01),)
    return dataclasses.replace(system, forces=(*system.forces, *friction, jaxdyn.JointServo(none, none, rest)))


def without_servo(system: jaxdyn.System) -> jaxdyn.System:
    forces = tuple(force for force in system.forces if not isinstance(force, jaxdyn.JointServo))
    return dataclasses.replace(system, forces=forces)


def middle(system: jaxdyn.System) -> jax.Array:
    """Coordinates in the middle of the limits, with coupled joints where they belong."""
    q = jaxdyn.configuration.random(system.model, jax.random.key(0), spread=0.0)
    return jaxdyn.assemble(system, system.at_rest(q)).q


def within_reach(model: jaxdyn.Model, reach: float) -> jaxdyn.Model:
    """The model with narrower limits where they lie further than `reach` from their middle."""
    lower, upper = model.limits.lower, model.limits.upper
    wide = jnp.isfinite(lower) & jnp.isfinite(upper) & (upper - lower > 2.0 * reach)
    center = jnp.where(wide, 0.5 * (lower + upper), 0.0)
    narrow = jnp.where(wide, center - reach, lower), jnp.where(wide, center + reach, upper)
    return eqx.tree_at(lambda m: (m.limits.lower, m.limits.upper), model, narrow)


def numbers(system: jaxdyn.System) -> tuple[Any, ...]:
    """The leaves of the system that a `Machine` replaces."""
    (friction,) = (force for force in system.forces if isinstance(force, jaxdyn.JointFriction))
    (servo,) = (force for force in system.forces if isinstance(force, jaxdyn.JointServo))
    return friction.viscous, friction.coulomb, servo.stiffness, servo.damping


def cases(system: jaxdyn.System, config: Config) -> list[Case]:
    model = system.model
    viscous, coulomb, none, _ = numbers(system)
    rest = middle(system)
    # A floating base is not a joint with a drive.
    driven = np.array([model.topology.joint_classes[body].nv == 1 for body in model.topology.body_of_column])
    inertia = jnp.where(driven, jnp.diag(jaxdyn.mass_matrix(model, rest)), 0.0)
    w, near = config.bandwidth, within_reach(model, config.reach)

    def start(key: jax.Array) -> jaxdyn.State:
        of_q, of_v = jax.random.split(key)
        q = jaxdyn.assemble(system, system.at_rest(jaxdyn.configuration.random(near, of_q))).q
        v = config.speed * jax.random.normal(of_v, (model.nv,))
        return jaxdyn.State(q, jaxdyn.project_velocity(system, jaxdyn.State(q, v)))

    moving = jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(config.seed), config.samples))
    resting = jaxdyn.State(moving.q, jnp.zeros_like(moving.v))
    free = Machine(viscous, coulomb, none, none)
    found = [Case("at rest", free, resting), Case("moving", free, moving)]
    for ratio in config.ratios:
        controlled = Machine(viscous, coulomb, w**2 * inertia, 2.0 * ratio * w * inertia)
        found.append(Case(f"PD {ratio:g}", controlled, moving))
    return [*found, Case("smooth", Machine(viscous, 0.0 * coulomb, none, none), moving)]


def in_jaxdyn(system: jaxdyn.System, machines: Machine, starts: jaxdyn.State, integrator: Any, config: Config) -> Runs:
    """All samples at once: leaves of machines and starts have a leading axis."""

    def sample(machine: Machine, start: jaxdyn.State) -> jaxdyn.Trajectory:
        changed = eqx.tree_at(numbers, system, tuple(machine))
        return jaxdyn.rollout(
            changed,
            start,
            dt=config.step,
            steps=config.steps,
            save_every=config.steps // RECORDS,
            integrator=integrator,
            divergence_limit=LOST_BEYOND,
        )

    trajectories = jax.jit(jax.vmap(sample))(machines, starts)
    lost = np.asarray(trajectories.result) != jaxdyn.simulate.RolloutResult.SUCCESSFUL
    return Runs(np.asarray(trajectories.saved.q), lost, np.abs(trajectories.final.v))


class InMujoco:
    """A URDF file in MuJoCo, without contacts and limits.

    The file itself if MuJoCo takes it, else as jaxdyn writes it, with physical inertias and 1e-6 kg for bodies without mass.
    """

    def __init__(self, system: jaxdyn.System, path: Path, floating: bool, config: Config):
        # By name, since its stubs lack the names that are made in C.
        self.mujoco: Any = importlib.import_module("mujoco")
        self.mujoco.set_mju_user_warning(lambda text: None)  # lost samples are counted instead
        try:
            self.model, self.remark = self._compiled(prepared(path, floating), system, config.step), ""
            self.order = MujocoOrder(system.model, self.model)
        except (ValueError, jaxdyn.MechanismError):
            with tempfile.TemporaryDirectory() as folder:
                rewritten = Path(folder, "rewritten.urdf")
                jaxdyn.io.save_system(without_servo(system), rewritten)
                text = prepared(rewritten, False, boundmass="1e-6", boundinertia="1e-9")
                self.model, self.remark = self._compiled(text, system, config.step), "rewritten"
            self.order = MujocoOrder(system.model, self.model)
        self.model.opt.timestep = config.step
        self.model.opt.integrator = self.mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        for name in ("CONTACT", "LIMIT", "AUTORESET"):
            self.model.opt.disableflags |= getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{name}")
        self.system, self.rest = system, np.asarray(self.order.q_to(middle(system)))

    def _compiled(self, text: str, system: jaxdyn.System, step: float) -> Any:
        spec = self.mujoco.MjSpec.from_string(text)
        names, count = system.model.topology.joint_names, system.model.topology.body_of_coordinate
        for equality in list(spec.equalities):
            spec.delete(equality)
        for coupling in system.constraints:
            assert isinstance(coupling, jaxdyn.Coupling)  # `mimic` becomes this; a URDF has no other constraints
            equality = spec.add_equality()
            equality.type = self.mujoco.mjtEq.mjEQ_JOINT
            equality.name1, equality.name2 = names[count[coupling.driven]], names[count[coupling.driver]]
            equality.solref[0], equality.solimp[:2] = 2.0 * step, 0.9999
            equality.data[:5] = np.pad(coupling.coefficients, (0, 5 - len(coupling.coefficients)))
        return spec.compile()

    def run(self, machines: Machine, starts: jaxdyn.State, config: Config) -> Runs:
        """One sample after the other."""
        order, neutral = self.order, jaxdyn.configuration.neutral(self.system.model)

        def converted(machine: Machine, start: jaxdyn.State) -> tuple[jax.Array, ...]:
            # Forces along single coordinates do not depend on the position.
            return *(order.v_to(neutral, x) for x in machine), order.q_to(start.q), order.v_to(start.q, start.v)

        samples = zip(*map(np.asarray, jax.jit(jax.vmap(converted))(machines, starts)), strict=True)
        found = [self._sample(sample, config) for sample in samples]
        q, lost, speed = (np.array(x) for x in zip(*found, strict=True))
        return Runs(np.asarray(jax.jit(jax.vmap(jax.vmap(order.q_from)))(q)), lost, speed)

    def _sample(self, sample: tuple[np.ndarray, ...], config: Config) -> tuple[np.ndarray, bool, np.ndarray]:
        viscous, coulomb, stiffness, damping, q, v = sample
        model = self.model
        model.dof_damping, model.dof_frictionloss = viscous + damping, coulomb
        model.jnt_stiffness, model.qpos_spring = stiffness[model.jnt_dofadr], self.rest
        data = self.mujoco.MjData(model)
        data.qpos, data.qvel = q, v
        records = [q]
        for _ in range(RECORDS):
            self.mujoco.mj_step(model, data, config.steps // RECORDS)
            records.append(data.qpos.copy())
        speed = np.abs(data.qvel)
        return np.array(records), not np.all(speed < LOST_BEYOND), speed


def prepared(path: Path, floating: bool, **options: str) -> str:
    """The file without shapes, so that no mesh is missed, and without the inertia of fixed links; or on a floating joint.

    Args:
        options: Options of the compiler of MuJoCo.
    """
    robot = ET.parse(path).getroot()
    for link in robot.iter("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            link.remove(shape)
    children = {child.get("link") for child in robot.iter("child")}
    (root,) = (link for link in robot.iter("link") if link.get("name") not in children)
    if floating:
        ET.SubElement(robot, "link", name="mujoco_world")
        joint = ET.SubElement(robot, "joint", name=f"{root.get('name')}_joint", type="floating")
        ET.SubElement(joint, "parent", link="mujoco_world")
        ET.SubElement(joint, "child", link=root.get("name", ""))
    else:
        for inertial in root.findall("inertial"):
            root.remove(inertial)
    for settings in robot.findall("mujoco"):
        robot.remove(settings)
    settings = ET.SubElement(robot, "mujoco")
    ET.SubElement(settings, "compiler", {"fusestatic": "true", **options})
    return ET.tostring(robot, encoding="unicode")


def examine(path: Path, config: Config) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredContent)
        system = load(path, config)
    listed = cases(system, config)
    machines = Machine(
        *(jnp.repeat(jnp.stack(x), config.samples, 0) for x in zip(*(c.machine for c in listed), strict=True))
    )
    starts = jax.tree.map(lambda *x: jnp.concatenate(x), *(case.starts for case in listed))
    runs = {name: in_jaxdyn(system, machines, starts, i, config) for name, i in INTEGRATORS.items()}
    other = InMujoco(system, path, path.stem in config.floating, config)
    runs["MuJoCo"] = other.run(machines, starts, config)
    lost = {
        case.name: {
            name: int(np.sum(run.lost[k * config.samples : (k + 1) * config.samples])) for name, run in runs.items()
        }
        for k, case in enumerate(listed)
    }
    return Row(
        path.stem,
        system.model.nv,
        len(system.constraints),
        lost,
        int(np.sum(runs["default"].lost & ~runs["MuJoCo"].lost)),
        difference(system, runs["default"], runs["MuJoCo"], config),
        fastest_joint(system, runs["default"]),
        other.remark,
    )


def difference(system: jaxdyn.System, ours: Runs, theirs: Runs, config: Config) -> float | None:
    """Difference of the positions of samples without Coulomb friction, the last case, at the first record; None if all are lost."""
    kept = ~(ours.lost | theirs.lost)[-config.samples :]
    if not np.any(kept):
        return None
    pairs = (run.q[-config.samples :, 1][kept] for run in (ours, theirs))
    steps = jax.vmap(lambda a, b: jaxdyn.configuration.difference(system.model, a, b))(*map(jnp.asarray, pairs))
    return float(jnp.max(jnp.abs(steps)))


def fastest_joint(system: jaxdyn.System, run: Runs) -> str:
    """The joint that was fastest when a sample was lost, of most samples; empty if none was lost."""
    if not np.any(run.lost):
        return ""
    columns, counts = np.unique(np.argmax(run.speed[run.lost], axis=1), return_counts=True)
    topology = system.model.topology
    return topology.joint_names[topology.body_of_column[columns[np.argmax(counts)]]]


def table(rows: list[Row]) -> str:
    """The rows in Markdown; samples lost by the simulators one after the other."""
    names = list(rows[0].lost)
    simulators = list(rows[0].lost[names[0]])
    lines = [
        f"Samples lost: {' / '.join(simulators)}.",
        "",
        f"| robot | nv | couplings | {' | '.join(names)} | only here | difference | fastest when lost | remark |",
        f"|---|---|---|{'---|' * len(names)}---|---|---|---|",
    ]
    for row in rows:
        counts = " | ".join(" / ".join(str(n) for n in lost.values()) for lost in row.lost.values())
        apart = "" if row.difference is None else f"{row.difference:.1e}"
        lines.append(
            f"| {row.robot} | {row.nv} | {row.couplings} | {counts} | {row.only_here} | {apart} | {row.fastest} | {row.remark} |"
        )
    return "\n".join(lines)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as written:
        paths = list(robots(config, Path(written)))
        rows: list[Row] = []
        for path in tqdm(paths, desc="robots", unit="robot"):
            rows.append(examine(path, config))
            directory.path("table.md").write_text(table(rows) + "\n", encoding="utf-8")
    print(table(rows))
    lost_only_here = [row.robot for row in rows if row.only_here]
    print(f"\n{len(rows)} robots; samples that MuJoCo keeps are lost of: {', '.join(lost_only_here) or 'none'}")
    return {"robots": [dataclasses.asdict(row) for row in rows], "lost_only_here": lost_only_here}


JOB = Job("compare-vendor-robots", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
