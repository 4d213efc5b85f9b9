"""Systems written as URDF come back, and what URDF cannot say is refused by name before anything is written."""

import tomllib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pinocchio
import pytest
from random_trees import random_model, random_unit
from scipy.spatial.transform import Rotation
from urdf_systems import random_system, same

import jaxdyn
from jaxdyn import (
    Coupling,
    Cylindrical,
    Fixed,
    Free,
    JointFriction,
    MechanismBuilder,
    MechanismError,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    System,
    UnknownName,
)
from jaxdyn.dynamics import Actuator, Actuators, Waypoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import drives_of_joints
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.io import ConfigError, IgnoredContent, PinocchioOrder, load_urdf
from jaxdyn.io.mechanism.file import load_mechanism, save_mechanism
from jaxdyn.io.mechanism.parts import part_classes, read_parts
from jaxdyn.io.tables import Place
from jaxdyn.io.urdf.writer import save_urdf
from jaxdyn.mechanism.quantity import quantities


def there_and_back(system: System, path) -> System:
    save_urdf(system, path)
    return load_urdf(path)


@pytest.mark.parametrize("seed", range(6))
def test_everything_comes_back(tmp_path, seed):
    kinds = "RP" + "".join(np.random.default_rng(seed).permutation(list("RPLFSRL")))
    system = random_system(seed, kinds)
    once = there_and_back(system, tmp_path / "once.urdf")
    same(once, system)
    same(there_and_back(once, tmp_path / "twice.urdf"), once)


def test_couplings_that_could_be_mimics_keep_their_order(tmp_path):
    system = random_system(0, "RPR")
    first, second, again = (
        Coupling(f"joint {i} {name}", i, 2, [0.1, 0.2]) for i, name in ((0, "&"), (1, "&"), (0, "<"))
    )
    for couplings in ((first, second), (second, first), (second, first, again), (first, again)):
        coupled = System(system.model, constraints=couplings)
        same(there_and_back(coupled, tmp_path / "coupled.urdf"), coupled)


def test_half_and_quarter_turns_come_back(tmp_path):
    """Where roll, pitch and yaw are not unique, and where a quaternion has two signs."""
    builder, root = MechanismBuilder("turns"), np.sqrt(0.5)
    turns = [np.eye(4)[k] for k in range(4)]
    turns += [root * (np.eye(4)[i] + sign * np.eye(4)[j]) for i in range(4) for j in range(i) for sign in (1, -1)]
    turns += [0.5 * np.array([1, 1, sign, 1]) for sign in (1, -1)]
    for i, turn in enumerate(turns):
        builder.add_body(f"b{i}", joint=Revolute((0, 0, 1)), orientation=turn, mass=1, inertia=(1, 1, 1))
    system = System(builder.build())
    same(there_and_back(system, tmp_path / "turns.urdf"), system)


# Tables of all kinds that a mechanism file can have, for the joints b0 to b4 of `full`, without those of forces in joints.
TABLES = """
spring = [{body_a = "ground", point_a = [0, 0, 1], body_b = "b1", point_b = [0.1, 0, 0], stiffness = 3, free_length = 0.4}]
damper = [{body_a = "b0", point_a = [0, 0, 1], body_b = "b1", point_b = [0.1, 0, 0], coefficient = 3}]
applied_force = [{body = "b3", axes = "body", force = [1, 2, 3]}]
gravity_compensation = [{body = "b1", share = 0.7}]
box_drag = [{body = "b2", center = [0, 0, 0.1], edges = [[1, 0, 0], [0, 2, 0], [0, 0, 3]], density = 2, viscosity = 3}]
ellipsoid_drag = [{body = "b2", center = [0, 0, 0.1], edges = [[1, 0, 0], [0, 2, 0], [0, 0, 3]], density = 2, viscosity = 3}]
tendon = [{joints = {b0_joint = 2, b1_joint = -3}, stiffness = 2, rest = [-0.1, 0.2], friction = 0.3}]
ground_contact = [{points = [{body = "b2", radius = 0.1}], surface = {kind = "plane", normal = [0, 0.6, 0.8]}}]
sphere_contact = [{pairs = [{a = {body = "b2", radius = 0.1}, b = {body = "ground", radius = 0.2}}]}]
loop = [{name = "l", kind = "spherical", a = {body = "b1"}, b = {body = "ground", position = [0, 0, 1]}}]
rod = [{name = "r", body_a = "b1", point_a = [0, 0, 1], body_b = "ground", point_b = [0, 0, 3], length = 0.4}]
coupling = [{name = "c", driven = "b0_joint", driver = "b1_joint", coefficients = [0, 1, 2]}]
touching = [{name = "t", body = "b2", radius = 0.1}]
rolling = [{name = "o", body = "b2", radius = 0.1}]
knife_edge = [{name = "k", body = "b2", direction = [0, 1, 0]}]
"""


def full() -> System:
    builder = MechanismBuilder("full")
    joints = {"b0": Revolute((0, 0, 1)), "b1": Prismatic((0, 1, 0)), "b2": Free(), "b3": Spherical(), "b4": Planar()}
    several = {
        "b0": {"position_limits": (-1, 2)},
        "b3": {"armature": (0.1, 0.2, 0.3)},
        "b4": {"effort_limit": (1, 2, 3)},
    }
    for name, joint in joints.items():
        builder.add_body(name, joint=joint, mass=1.0, inertia=(1, 1, 1), **several.get(name, {}))
    builder.add_rotor("rotor", carrier="ground", joint="b0_joint", inertia=0.01, ratio=50.0, axis=(0, 0, 1))
    model, motor = builder.build(), {"control_range": (-1.0, 1.0), "stall_force": 2.0, "no_load_speed": 3.0}
    actuators = (
        Actuator("motor", {"b0_joint": (30.0,)}, time_constant=0.1, **motor),
        Actuator.position_servo("b1_joint", 80.0, 4.0, force_range=(-20.0, 20.0)),
        Actuator("thruster", body="b2", point=(0.0, 1.0, 0.0), force=(0.0, 0.0, 1.0)),
        Actuator("cable", path=(Waypoint("ground", (0.0, 0.0, 1.0)), Waypoint("b1", (0.0, 0.2, 0.0)))),
    )
    known = {name: cls for name, cls in part_classes().items() if cls.__module__.startswith("jaxdyn.")}
    in_joints = {name: cls for name, cls in known.items() if issubclass(cls, JointForce)}
    tables = {name: {field: {"b0_joint": 0.5} for field in quantities(cls)} for name, cls in in_joints.items()}
    tables["joint_friction"]["viscous"]["b3_joint"] = [1.0, 2.0, 3.0]  # URDF has one value for each joint
    forces, constraints = read_parts(model, tables | tomllib.loads(TABLES), Place(Path("tables")))
    assert {type(part) for part in (*forces, *constraints)} == set(known.values())
    return System(model, forces, Actuators.of(model, actuators, {"b0_joint": (-9.0, 8.0)}), constraints=constraints)


def test_every_force_drive_and_constraint_comes_back(tmp_path):
    puck = with_joint(Planar(), position_limits=((-1, 2), (-np.inf, 1), (-1, np.inf)))
    start = JointFriction(np.zeros(3), np.zeros(3), np.full(3, 0.1))  # of an identification
    for system in (puck, puck.changed(forces=(start,)), full()):
        same(there_and_back(system, tmp_path / "full.urdf"), system)


def test_what_urdf_lacks_is_dropped_by_name(tmp_path):
    system, path = full(), tmp_path / "plain.urdf"
    with_unknown = system.changed(constraints=(*system.constraints, Unknown()))
    with pytest.warns(IgnoredContent, match=r"left out actuator, tendon, Unknown$"):
        jaxdyn.io.save_system(with_unknown, path, drop=("actuator", "tendon", "Unknown"))
    rest = tuple(force for force in system.forces if type(force) is not Tendon)
    same(load_urdf(path), system.changed(drives=drives_of_joints(system.model), forces=rest))
    with pytest.warns(IgnoredContent, match="left out joint, rotor, actuator, spring, damper"):
        save_urdf(system, path, drop=("jaxdyn",))
    assert "jaxdyn" not in path.read_text()
    without = system.changed(drives=Actuators.of(system.model, ()))
    with pytest.warns(IgnoredContent, match="left out drives, spring$"):
        save_urdf(without, path, drop=("drives", "spring"))
    for name in ("tendons", "Tendon"):
        with pytest.raises(UnknownName, match="did you mean 'tendon'"):
            save_urdf(system, path, drop=(name,))


def test_the_extension_of_earlier_versions_is_read():
    same(load_urdf(Path(__file__).parent / "written_before" / "extension.urdf"), random_system(3, "RPLFS"))


# Welded links between, mimics in an order of their own, angles beyond half a turn, a rest position without stiffness.
BODY = '<inertial><origin xyz="0.1 0 0" rpy="1 2 4"/><mass value="1"/><inertia ixx="1" iyy="2" izz="2.5"/></inertial>'
MIMICS = [
    ("plate", '<mimic joint="j2"/>'),
    ("root", ""),
    ("root", '<mimic joint="j1"/>'),
    ("l2", '<mimic joint="j0"/>'),
]
JOINTS = "".join(
    f'<link name="l{i}">{BODY}</link><joint name="j{i}" type="revolute"><parent link="{parent}"/><child link="l{i}"/>'
    f'<origin rpy="0 0 4"/><axis xyz="1 {i} 3"/>{mimic}</joint>'
    for i, (parent, mimic) in enumerate(MIMICS)
)
BRANCHED = f"""<robot name="branched"><link name="root">{BODY}</link><link name="plate"/>
<joint name="weld" type="fixed"><parent link="root"/><child link="plate"/><origin xyz="0 0 1" rpy="4 5 6"/></joint>
{JOINTS}
<jaxdyn><joint name="j1" stiffness="0" rest="0.4"/><joint name="j2" stiffness="2"/>
<loop_joint name="pin" type="planar"><link1 link="l3" rpy="4 -5 6"/><link2 link="plate" rpy="0 3 3"/>
<axis xyz="1 2 -3"/></loop_joint></jaxdyn>
</robot>"""


@pytest.mark.parametrize("base", ["fixed", "free"])
def test_read_write_read_is_the_identity(tmp_path, base):
    path = tmp_path / "branched.urdf"
    path.write_text(BRANCHED)
    first = load_urdf(path, base=base)
    same(there_and_back(first, tmp_path / "again.urdf"), first)


@pytest.mark.parametrize(("save", "load"), [(save_urdf, load_urdf), (save_mechanism, load_mechanism)])
@pytest.mark.parametrize("seed", range(4))
def test_flat_bodies_in_single_precision_come_back(tmp_path, save, load, seed):
    """Their moments satisfy the triangle inequality with equality, which rounding breaks."""
    rng = np.random.default_rng(seed)
    turn = Rotation.from_quat(random_unit(rng, 4)).as_matrix()
    builder = MechanismBuilder("flat")
    builder.add_body("b", joint=Revolute((0, 0, 1)), mass=1.0, inertia=turn @ np.diag([0.3, 0.5, 0.8]) @ turn.T)
    model = jaxdyn.as_dtype(builder.build(), jnp.float32)
    save(System(model), tmp_path / "flat")
    np.testing.assert_array_equal(load(tmp_path / "flat").model.inertia.astype(jnp.float32), model.inertia)


@pytest.mark.parametrize("seed", range(4))
def test_a_welded_particle_comes_back(tmp_path, seed):
    """A particle away from the link that carries it has no inertia about itself, also after rounding."""
    rng = np.random.default_rng(seed)
    builder = MechanismBuilder("particle")
    builder.add_body("carrier", joint=Revolute((0, 0, 1)))
    placement = {"position": rng.normal(size=3), "orientation": random_unit(rng, 4)}
    builder.add_body("particle", parent="carrier", joint=Fixed(), mass=0.7, com=rng.normal(size=3), **placement)
    system = System(builder.build())
    np.testing.assert_array_equal(system.model.inertia, 0.0)
    same(there_and_back(system, tmp_path / "particle.urdf"), system)


def test_pinocchio_reads_what_is_written(tmp_path):
    """But for ball joints and turned planar ones, which it does not know."""
    model = random_model(np.random.default_rng(1), 5, kinds="FRPRP", parents=[-1, 0, 1, 0, 3], gravity=False)
    path = tmp_path / "written.urdf"
    save_urdf(System(model), path)
    pin = pinocchio.buildModelFromUrdf(str(path))
    order, data = PinocchioOrder(model, pin), pin.createData()
    q = jaxdyn.configuration.random(model, jax.random.key(1), spread=0.8)
    pinocchio.crba(pin, data, np.asarray(order.q_to(q)))
    full = np.triu(data.M) + np.triu(data.M, 1).T
    columns = np.asarray(jax.jit(jax.vmap(order.v_to, (None, 0)))(q, jnp.eye(model.nv)).T)
    np.testing.assert_allclose(
        columns.T @ full @ columns, jax.jit(jaxdyn.mass_matrix)(model, q), rtol=1e-10, atol=1e-11
    )


# ------------------------------------------------------------------------------------------------------------------ refusals


def planar_pair() -> jaxdyn.Model:
    builder = MechanismBuilder("pair")
    builder.add_body("puck", joint=Planar(), mass=1.0, inertia=(1, 1, 1))
    builder.add_body("arm", joint=Revolute((0, 0, 1)), parent="puck", mass=1.0, inertia=(1, 1, 1))
    return builder.build()


def with_joint(joint, **numbers) -> System:
    builder = MechanismBuilder("one")
    builder.add_body("b", joint=joint, mass=1.0, inertia=(1, 1, 1), **numbers)
    return System(builder.build())


def with_name(**names) -> System:
    builder = MechanismBuilder(names.pop("mechanism", "m"))
    builder.add_body(names.pop("body", "b"), joint=Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1), **names)
    return System(builder.build())


def with_number(where, value) -> System:
    return eqx.tree_at(where, with_joint(Revolute((0, 0, 1))), jnp.asarray(value))


class Unknown(Constraint):
    """A constraint that only this file knows."""

    name: str = "unknown"

    def residual(self, model, q, placed):
        return q[:1]

    def describe(self, model):
        return "unknown"


PAIR = planar_pair()
UNSAYABLE = {
    "a batch": (
        lambda: jax.tree.map(lambda x: jnp.stack([x, x]), System(PAIR)),
        "the model is a batch of shape (2,); write one mechanism per file",
    ),
    "joint": (
        lambda: with_joint(Cylindrical((0, 0, 1))),
        "joint 'b_joint' is of class Cylindrical, which URDF does not support; save as TOML, or write "
        "jaxdyn.decompose_joints(model)",
    ),
    "planar direction": (
        lambda: with_joint(Planar((0, 0, 1), (0, 1, 0))),
        "planar joint 'b_joint' has a direction that URDF cannot express; rotate its placement",
    ),
    "constraint": (
        lambda: System(PAIR, constraints=(Unknown(),)),
        "a constraint of class Unknown cannot be written to a mechanism file; remove it and add it after loading",
    ),
    "empty name": (lambda: with_name(mechanism=" "), "the name ' ' is empty; give a name"),
    "long name": (
        lambda: with_name(body="x" * 201),
        f"the name '{'x' * 57}...' has 201 characters; give a name of at most 200",
    ),
    "not a number": (
        lambda: with_number(lambda s: s.model.mass, [jnp.nan]),
        """, line 7, <mass>: attribute "value" is 'nan'; give floating-point numbers such as 0.25 or 1e-3""",
    ),
    "beyond all bounds": (
        lambda: with_number(lambda s: s.model.gravity, [0.0, 0.0, 1e13]),
        """, line 19, <gravity>: attribute "xyz" is '0.0 0.0 10000000000000.0', which is too large for a mechanism; """
        "check its unit",
    ),
}


@pytest.mark.parametrize("what", UNSAYABLE)
def test_what_urdf_cannot_say_is_refused_and_nothing_is_written(tmp_path, refusal, what):
    system, message = UNSAYABLE[what]
    path = tmp_path / "refused.urdf"
    text = refusal(ConfigError, save_urdf, system(), path)
    assert text == (f"{path}{message}" if message.startswith(",") else f"{path}: {message}")
    assert not path.exists()


def test_an_unphysical_identified_inertia_is_refused(tmp_path, refusal):
    system = with_number(lambda s: s.model.inertia, [[9.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    path = tmp_path / "refused.urdf"
    assert "body 'b': principal moments of inertia 1, 1, 9" in refusal(MechanismError, save_urdf, system, path)
    assert not path.exists()


def test_a_path_that_cannot_be_written(tmp_path, refusal):
    message = refusal(ConfigError, save_urdf, System(PAIR), tmp_path)
    assert message == f"{tmp_path}: cannot be written (Is a directory); choose another path"
