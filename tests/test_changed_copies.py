"""Objects are immutable: changed copies are made by `dataclasses.replace` and `equinox.tree_at`, for every public class."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mechanisms import double_pendulum, swinging
from recorded import pendulum_plant
from results_of_searches import ended_fit, unfinished_solution
from test_public_api import CLASSES

import jaxdyn
from jaxdyn import control, dynamics, envs, identify, io, lanes, simulate, view
from jaxdyn.dynamics import paths
from jaxdyn.identify.recording import Windows
from jaxdyn.io.state_orders import StateOrder
from jaxdyn.spatial.transform import RigidTransform

pytestmark = pytest.mark.usefixtures("as_a_user")

MODEL = double_pendulum()
SYSTEM = jaxdyn.System(MODEL, drives=jaxdyn.JointDrives((0, 1), jnp.ones(2)))
STATE = swinging()
ONE, TWO, THREE = jnp.asarray(1.0), jnp.array([0.5, 1.0]), jnp.array([0.0, 0.6, 0.8])
HERE = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), THREE)
BODIES_AND_POINTS = (0, THREE, -1, THREE)
ACTUATOR = jaxdyn.dynamics.Actuator("motor", {MODEL.topology.joint_names[0]: (2.0,)}, control_range=(-1.0, 1.0))
MATERIAL = jaxdyn.dynamics.ContactMaterial(1e3, 10.0)


def effort(dynamics, t, x, u):
    return jnp.sum(u**2)


def still(dynamics, t, x, u):
    return x.v


def with_duration(problem, design):
    return eqx.tree_at(lambda problem: problem.duration, problem, design[0])


MOMENT = envs.Moment(ONE, STATE, TWO, TWO, None)
ENV = envs.Env(
    SYSTEM,
    start=lambda system, key: STATE,
    observe=lambda system, now: now.state.v,
    reward=lambda system, before, now: now.t,
    act=lambda system, now, action: action,
    dt=0.1,
    actions=2,
    noise=0.1,
)
TRUE, ZERO = jnp.asarray(True), jnp.asarray(0)

PROBLEM = control.ControlProblem(
    control.MultibodyDynamics(SYSTEM),
    STATE,
    duration=1.0,
    steps=5,
    running=effort,
    lower=-2.0,
    upper=[2.0, jnp.inf],
    final_constraints=control.Equality(still, "still"),
    design=control.Design(with_duration, [1.0], [0.5], [2.0]),
    cost_scale=0.5,
)
SOLUTION = unfinished_solution()
PARTS_OF_SOLUTION = {field.name: getattr(SOLUTION, field.name) for field in dataclasses.fields(SOLUTION)}
FIT = ended_fit()
PLANT = pendulum_plant()
RECORDING = identify.Recording("run", np.arange(4.0), np.ones((4, 1)), None, np.ones((4, 1)))
KNOTS = simulate.Knots(jnp.ones((4, 2)), 0.1)
MOTIONS = identify.Motions(*jnp.ones((4, 3, 1)))
WINDOWS = Windows(
    KNOTS, jnp.ones((2, 3)), jnp.ones((2, 3, 1)), jnp.ones((2, 3, 1)), STATE, jnp.ones(2), jnp.ones(2), 0.1, 5
)

# One object of each public class whose constructor needs arguments; the others are made without.
MADE = [
    jaxdyn.AppliedForce(0, THREE, THREE, THREE, True),
    ACTUATOR,
    jaxdyn.dynamics.Actuators.of(MODEL, (ACTUATOR,)),
    jaxdyn.dynamics.GravityCompensation(0, ONE),
    jaxdyn.dynamics.BoxDrag(0, THREE, jnp.eye(3), ONE, ONE),
    jaxdyn.dynamics.EllipsoidDrag(0, THREE, jnp.eye(3), ONE, ONE),
    jaxdyn.dynamics.AsymmetricFriction(TWO, TWO, TWO),
    jaxdyn.BearingFriction(TWO, TWO, TWO),
    jaxdyn.ConstantRate(ONE[None]),
    jaxdyn.Coupling("gear", 0, 1, TWO),
    jaxdyn.Cylindrical(THREE),
    jaxdyn.Damper(*BODIES_AND_POINTS, ONE),
    jaxdyn.Distance("rod", *BODIES_AND_POINTS, ONE),
    jaxdyn.constraints.KnifeEdge("skate", 0, THREE, THREE),
    jaxdyn.constraints.Rolling("ball", 0, THREE, ONE, jnp.eye(3)),
    jaxdyn.constraints.Touching("ball", 0, THREE, ONE, jnp.eye(3)),
    jaxdyn.FrameTarget("tip", HERE),
    jaxdyn.JointDrives((1,), TWO[:1]),
    jaxdyn.JointFriction(TWO, TWO, TWO),
    jaxdyn.JointLimits(TWO, TWO, TWO),
    jaxdyn.JointServo(TWO, TWO, TWO, TWO),
    jaxdyn.JointSpring(TWO, TWO),
    jaxdyn.LoadFriction(TWO, TWO, TWO),
    jaxdyn.LoopJoint("pin", "revolute", 0, HERE, 1, HERE),
    jaxdyn.Prismatic(THREE),
    jaxdyn.dynamics.QuadraticDrag(TWO),
    jaxdyn.Revolute(THREE),
    jaxdyn.Rheonomic(jaxdyn.Revolute(THREE), jaxdyn.ConstantRate(ONE[None])),
    jaxdyn.Screw(THREE, ONE),
    jaxdyn.Sinusoid(ONE[None], ONE[None]),
    jaxdyn.Spline(jnp.ones((5, 1)), ONE),
    jaxdyn.Spring(*BODIES_AND_POINTS, ONE),
    jaxdyn.StribeckFriction(TWO, TWO, TWO),
    jaxdyn.Trajectory(TWO, STATE, STATE, ONE, jnp.asarray(0), jnp.asarray(1), MODEL.topology),
    jaxdyn.Universal(jnp.array([1.0, 0.0, 0.0]), THREE),
    MODEL,
    STATE,
    SYSTEM,
    MODEL.limits,
    KNOTS,
    simulate.PDControl(MODEL, TWO, TWO, TWO, KNOTS),
    dynamics.GroundContact((0, 1), jnp.ones((2, 3)), TWO, MATERIAL, dynamics.HalfSpace()),
    dynamics.SphereContact((0,), THREE[None], ONE[None], (1,), THREE[None], ONE[None], MATERIAL),
    MATERIAL,
    dynamics.Tendon(paths.Path((0,), TWO[:1], (), jnp.ones((0, 3)), (), TWO[:0], TWO[:0]), ONE, ONE, TWO),
    dynamics.Waypoint("ground"),
    dynamics.Accelerometer("tip"),
    dynamics.Gyroscope("tip", matrix=2.0 * jnp.eye(3), bias=THREE),
    dynamics.ForceTorqueSensor("tip"),
    dynamics.JointEncoders(("shoulder",), velocities=True),
    dynamics.Markers(("tip",), THREE[None]),
    dynamics.MotorCurrents(TWO),
    dynamics.HeightFunction(jnp.sum),
    dynamics.HeightGrid(jnp.ones((3, 4)), ONE),
    jaxdyn.formulations.attitude.QuaternionState(HERE.quaternion, THREE),
    jaxdyn.formulations.attitude.SParameterState(ONE, ONE, ONE, THREE),
    ENV,
    envs.EnvState(MOMENT, TWO, ONE, TRUE, TRUE, TWO, ZERO, ONE, ZERO, ZERO, ONE, None, None, jax.random.PRNGKey(0)),
    MOMENT,
    control.AngularDeviation(TWO),
    control.CollocatedSolution(
        **PARTS_OF_SOLUTION,
        dynamics=PROBLEM.dynamics,
        duration=ONE,
        points=(0.2, 0.8),
        point_controls=jnp.ones((5, 2, 2)),
        rates=jnp.ones((5, 2, 4)),
    ),
    control.ContactForce("tip"),
    control.ContinuousDynamics(lambda x, u, t: x, 2, 1),
    PROBLEM,
    PROBLEM.design,
    control.Deviation(STATE, jnp.ones(4)),
    control.DiscreteDynamics(lambda x, u, t, dt: x, 2, 1),
    control.Equality(still),
    control.FramePose("tip", HERE),
    control.FrameVelocity("tip"),
    control.Inequality(still),
    control.Manipulability("tip"),
    PROBLEM.dynamics,
    SOLUTION.value,
    control.Penetration(control.Spheres(("a", "b"), jnp.ones((2, 3)), TWO, jnp.ones((1, 3)), ONE[None])),
    control.RecedingHorizon(PROBLEM, control.ILQR(), SOLUTION.value, max_steps=3),
    control.Sampling("cem"),
    SOLUTION,
    control.Spheres(("a", "b"), jnp.ones((2, 3)), TWO, jnp.ones((1, 3)), ONE[None], ONE, jnp.ones((2, 3))),
    control.StateBounds(STATE, jnp.array([-1.0, -jnp.inf, 0.0, 1.0]), 2.0, nx=4),
    control.TargetState(STATE),
    control.Tracker(PROBLEM, SOLUTION.value, SOLUTION.feedback),
    identify.Bounded(TWO, 2.0 * TWO),
    identify.DivergencePrior(1.0),
    identify.GaussianPrior(1.0),
    identify.GradientDescent(optax.sgd(1.0)),
    identify.InverseDynamicsError(FIT.parameters, MOTIONS, jnp.ones(1)),
    PLANT.inputs,
    PLANT.sensors,
    PLANT,
    MOTIONS,
    identify.OutputError(FIT.parameters, WINDOWS),
    identify.Parameter("system.model.mass"),
    identify.Part(RECORDING),
    RECORDING,
    identify.Tie("inputs.gain", "mass"),
    identify.TorqueOffset(TWO),
    identify.Unknowns(TWO, None),
    io.RunDirectory(Path("run")),
    lanes.Record("f", "lanes"),
    view.Animation(b"", ".gif"),
]

# The constructors of these derive the fields from declarations, or from a model of another library; only `tree_at` changes them.
DERIVED = (identify.Parameters, StateOrder, io.MujocoOrder, io.PinocchioOrder)


def classes() -> list[type]:
    """The public classes with fields of which there are objects."""
    found = {kind for kind in CLASSES.values() if dataclasses.is_dataclass(kind) and not inspect.isabstract(kind)}
    return sorted(
        (kind for kind in found if not getattr(kind, "__abstractclassvars__", ())), key=lambda kind: kind.__name__
    )


OBJECTS = {type(made).__name__: made for made in MADE}
OBJECTS |= {kind.__name__: kind() for kind in classes() if kind not in DERIVED and kind.__name__ not in OBJECTS}
every_class = pytest.mark.parametrize("name", sorted(OBJECTS))


def differences(a: Any, b: Any, place: str = "") -> list[str]:
    """Places at which two objects differ in type, static values, or the types, the shapes and the numbers of arrays."""
    if type(a) is not type(b):
        return [f"{place}: {type(a).__name__}, {type(b).__name__}"]
    if eqx.is_array_like(a):
        same = np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
        return [] if same else [place]
    if isinstance(a, tuple) and len(a) == len(b):
        return [x for k, parts in enumerate(zip(a, b, strict=True)) for x in differences(*parts, f"{place}[{k}]")]
    if isinstance(a, dict) and a.keys() == b.keys():
        return [x for key in a for x in differences(a[key], b[key], f"{place}[{key!r}]")]
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        names = [field.name for field in dataclasses.fields(a)]
        return [x for name in names for x in differences(getattr(a, name), getattr(b, name), f"{place}.{name}")]
    return [] if a == b else [place]


def test_no_public_class_is_left_out():
    assert OBJECTS.keys() == {kind.__name__ for kind in classes()} - {kind.__name__ for kind in DERIVED}


@every_class
def test_replacing_nothing_or_a_field_by_its_value_gives_an_equal_object(name):
    thing = OBJECTS[name]
    assert not differences(dataclasses.replace(thing), thing)
    for field in dataclasses.fields(thing):
        if field.init:
            assert not differences(dataclasses.replace(thing, **{field.name: getattr(thing, field.name)}), thing)


@every_class
def test_static_indices_and_counts_from_arrays_are_those_of_python_or_refused(name):
    thing = OBJECTS[name]
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        numbers = value if type(value) is tuple else (value,)
        if not field.init or not numbers or any(type(number) is not int for number in numbers):
            continue
        if name == "Smoothing":
            with pytest.raises(TypeError, match=f"{field.name} of Smoothing is array.*; give a number"):
                dataclasses.replace(thing, **{field.name: np.asarray(value)})
        else:
            copy = dataclasses.replace(thing, **{field.name: np.asarray(value)})
            assert jax.tree.structure(copy) == jax.tree.structure(thing)


def at(thing: Any, path: tuple) -> Any:
    """The part of an object at a path."""
    for key in path:
        thing = (
            getattr(thing, key.name) if hasattr(key, "name") else thing[getattr(key, "idx", getattr(key, "key", None))]
        )
    return thing


def is_changeable(value: Any) -> bool:
    return eqx.is_inexact_array(value) and value.size > 0 and bool(jnp.all(jnp.isfinite(value)))


@every_class
def test_an_array_is_changed_alone(name):
    """By `tree_at` at every leaf, and by `replace` in every field that is an array."""
    thing = OBJECTS[name]
    for path, leaf in jax.tree_util.tree_flatten_with_path(thing)[0] if isinstance(thing, eqx.Module) else ():
        if is_changeable(leaf):
            changed = eqx.tree_at(lambda x, path=path: at(x, path), thing, 0.75 * leaf + 0.07)
            np.testing.assert_array_equal(at(changed, path), 0.75 * leaf + 0.07)
            assert len(differences(changed, thing)) == 1
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if field.init and is_changeable(value):
            changed = dataclasses.replace(thing, **{field.name: 0.875 * value})
            np.testing.assert_array_equal(getattr(changed, field.name), 0.875 * value, err_msg=field.name)
            assert set(differences(changed, thing)) <= {f".{field.name}"}


def of_numpy(value: Any) -> Any:
    """The value with numbers of NumPy."""
    if type(value) is tuple:
        return tuple(map(of_numpy, value))
    return np.asarray(value)[()] if isinstance(value, int | float) else value


@every_class
def test_static_fields_take_numbers_of_numpy_and_have_those_of_python(name):
    thing = OBJECTS[name]
    for field in dataclasses.fields(thing) if isinstance(thing, eqx.Module) else ():
        value = getattr(thing, field.name)
        if field.init and field.metadata.get("static") and type(value) in (bool, int, float, tuple):
            changed = dataclasses.replace(thing, **{field.name: of_numpy(value)})
            assert not differences(changed, thing), field.name
            assert jax.tree.structure(changed) == jax.tree.structure(thing)
            assert hash(jax.tree.structure(changed)) == hash(jax.tree.structure(thing))


@pytest.mark.parametrize(
    "columns", [(np.int64(1),), np.array([1]), jnp.array([1]), [1]], ids=lambda x: type(x).__name__
)
def test_indices_of_all_kinds_give_the_same_system(columns):
    given = jaxdyn.System(MODEL, drives=jaxdyn.JointDrives(columns, [2.0]))
    wanted = jaxdyn.System(MODEL, drives=jaxdyn.JointDrives((1,), [2.0]))
    assert not differences(given, wanted)
    assert hash(jax.tree.structure(given)) == hash(jax.tree.structure(wanted))
