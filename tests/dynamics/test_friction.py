"""Terms of friction, theory.md (H8)-(H12): values against scalar closed forms, what they do at rest, energy, files."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from random_trees import close, random_motion, sample_tree
from stacked_reactions import stacked

from jaxdyn import (
    JointFriction,
    LoadFriction,
    State,
    StribeckFriction,
    System,
    applied_forces,
    gravity_force,
    joint_reactions,
    rollout,
)
from jaxdyn.dynamics import AsymmetricFriction, QuadraticDrag
from jaxdyn.dynamics.forces.friction import BearingFriction
from jaxdyn.dynamics.kinematics import motion as motion_of
from jaxdyn.io.mechanism.file import load_mechanism
from jaxdyn.io.system_file import load_system
from jaxdyn.library import double_pendulum

N = 6  # velocity components of the tree
rng = np.random.default_rng(80)
C, D, SPEED, SCALE, LOAD = rng.uniform(0.2, 2.0, (5, N))
tanh = math.tanh

# The term, and its force in one component from v, the generalized force of gravity there and the force that the joint bears.
TERMS = {
    "joint": (JointFriction(D, C, SCALE), lambda i, v, load, borne: -D[i] * v - C[i] * tanh(v / SCALE[i])),
    "stribeck": (
        StribeckFriction(C, SPEED, SCALE),
        lambda i, v, load, borne: -C[i] * math.exp(-((v / SPEED[i]) ** 2)) * tanh(v / SCALE[i]),
    ),
    "asymmetric": (
        AsymmetricFriction(C, -D, SCALE),
        lambda i, v, load, borne: -C[i] * tanh(v / SCALE[i]) ** 2 + D[i] * v * tanh(v / SCALE[i]),
    ),
    "load": (
        LoadFriction(C, SCALE, LOAD),
        lambda i, v, load, borne: -C[i] * math.hypot(load, LOAD[i]) * tanh(v / SCALE[i]),
    ),
    "bearing": (
        BearingFriction(C, SCALE, LOAD),
        lambda i, v, load, borne: -C[i] * math.hypot(borne, LOAD[i]) * tanh(v / SCALE[i]),
    ),
    "drag": (QuadraticDrag(C), lambda i, v, load, borne: -C[i] * v * abs(v)),
}


@pytest.fixture(scope="module")
def tree():
    return sample_tree("two roots")


@pytest.fixture(scope="module")
def motion(tree):
    return random_motion(np.random.default_rng(81), tree)


def generalized(tree, force, q, v):
    return applied_forces(System(tree, (force,)), State(q, v))


@jax.jit
def borne(tree, q, v):
    """Forces in the joints while only gravity acts, N."""
    force = stacked(joint_reactions(System(tree), State(q, v))).force
    return jnp.linalg.norm(force, axis=1)[tree.topology.body_of_column]


@pytest.mark.parametrize("name", TERMS)
def test_force_is_that_of_the_formula_and_linear_in_the_coefficients(tree, motion, name):
    term, formula = TERMS[name]
    q, v, _ = motion
    load = np.asarray(gravity_force(tree, q))
    tau = generalized(tree, term, q, v)
    bears = borne(tree, q, v)
    close(tau, np.array([formula(i, float(v[i]), float(load[i]), float(bears[i])) for i in range(N)]))
    assert np.all(np.abs(tau) > 1e-3)
    first = next(iter(vars(term)))
    doubled = eqx.tree_at(lambda term: getattr(term, first), term, replace_fn=lambda x: 2.0 * x)
    without = eqx.tree_at(lambda term: getattr(term, first), term, replace_fn=jnp.zeros_like)
    close(generalized(tree, doubled, q, v) - tau, tau - generalized(tree, without, q, v))


# Second derivatives of the bearing take long to compile; its first ones are tested below.
@pytest.mark.parametrize("name", [name for name in TERMS if name != "bearing"])
def test_derivatives_are_difference_quotients_in_motion_and_finite_at_rest(tree, motion, name):
    q, v, _ = motion
    numbers, static = eqx.partition((TERMS[name][0], q, v), eqx.is_inexact_array)

    def force(numbers):
        term, q, v = eqx.combine(numbers, static)
        return term.generalized_forces(tree, q, v, jnp.zeros(()))

    check_derivatives(jax.jit(force), numbers, orders=2)
    at_rest = (numbers[0], q, jnp.zeros_like(v))
    slope = jax.jacfwd(lambda v: force((*at_rest[:2], v)))
    value, first, second = jax.jit(lambda v: (force((*at_rest[:2], v)), slope(v), jax.jacfwd(slope)(v)))(at_rest[2])
    load = np.hypot(gravity_force(tree, q), LOAD)
    expected = {"joint": -D - C / SCALE, "stribeck": -C / SCALE, "load": -C * load / SCALE}
    bent = {"asymmetric": -2.0 * C / SCALE**2 + 2.0 * D / SCALE}  # the difference has no slope at rest
    assert not np.any(value)
    close(first, np.diag(expected.get(name, np.zeros(N))), scale=100.0)
    close(np.einsum("iii->i", second), bent.get(name, np.zeros(N)), scale=100.0)


def test_friction_takes_energy_out_and_so_does_a_difference_within_its_bounds(tree, motion):
    q = motion[0]
    speeds = jnp.asarray(np.random.default_rng(82).normal(0.0, 1.5, (200, N)))

    def power(term):
        return jax.jit(jax.vmap(lambda v: generalized(tree, term, q, v) * v))(speeds)

    dissipating = {name: power(term) for name, (term, _) in TERMS.items()}
    for name in TERMS.keys() - {"asymmetric"}:
        assert np.all(dissipating[name] <= 0), name
    assert np.any(dissipating["asymmetric"] > 0)
    bounded = power(JointFriction(D, C, SCALE)) + power(AsymmetricFriction(C, -D, SCALE))
    assert np.all(bounded <= 1e-12)


def test_forward_and_backward_friction_are_what_the_two_directions_were_measured_to_be(tree, motion):
    """With 5 N m forward and 3 N m backward, and 0.7 and 0.1 N m s: mean in JointFriction, half the difference here."""
    ones = np.ones(N)
    both = (JointFriction(0.4 * ones, 4.0 * ones, 1e-3 * ones), AsymmetricFriction(ones, 0.3 * ones, 1e-3 * ones))
    system = System(tree, both)
    close(applied_forces(system, State(motion[0], jnp.full(N, 2.0))), -(5.0 + 0.7 * 2.0) * ones, scale=10.0)
    close(applied_forces(system, State(motion[0], jnp.full(N, -2.0))), (3.0 + 0.1 * 2.0) * ones, scale=10.0)


def test_bearing_of_a_pendulum_bears_weight_and_centrifugal_force(tmp_path):
    """Along the rod m (g cos x + r v^2), across m g sin x (1 - m r^2/I); the friction takes no part in it."""
    path = tmp_path / "arm.toml"
    path.write_text(PENDULUM)
    system = load_mechanism(path)
    (friction,), model = system.forces, system.model
    assert isinstance(friction, BearingFriction)
    m, r, inertia, g = 2.0, 0.5, 2.0 * 0.5**2 + 0.1, -model.gravity[2]

    def expected(x, v):
        along, across = m * (g * jnp.cos(x) + r * v**2), m * g * jnp.sin(x) * (1.0 - m * r**2 / inertia)
        return -0.002 * jnp.sqrt(along**2 + across**2 + 0.1**2) * jnp.tanh(v / 0.05)

    def actual(x, v):
        return friction.generalized_forces(model, x[None], v[None], jnp.zeros(()))[0]

    @jax.jit
    def with_slopes(x, v):
        return [(f(x, v), *jax.jacfwd(f, argnums=(0, 1))(x, v)) for f in (actual, expected)]

    for x, v in ((0.7, 0.03), (-2.0, 3.0), (0.3, 0.0)):
        for mine, formula in zip(*with_slopes(jnp.asarray(x), jnp.asarray(v)), strict=True):
            close(mine, formula)


PENDULUM = """
name = "arm"
source = "invented for this test"
[[body]]
name = "arm"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hinge"}
mass = 2
com = [0, 0, -0.5]
inertia = [0.1, 0.1, 0.1]
[joint_bearing_friction]
coefficient = {hinge = "2 mm"}
velocity_scale = {hinge = 0.05}
load_scale = {hinge = "0.1 N"}
"""


ONE_JOINT = {
    "arm.urdf": """<robot name="arm"><link name="base"/><link name="link"><inertial><origin xyz="0.3 0 0"/><mass value="2"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="hinge" type="continuous">
<parent link="base"/><child link="link"/><axis xyz="0 1 0"/><dynamics friction="FRICTION"/></joint></robot>""",
    "arm.xml": """<mujoco><worldbody><body><joint name="hinge" type="hinge" axis="0 1 0" frictionloss="FRICTION"/>
<inertial pos="0.3 0 0" mass="2" diaginertia="0.01 0.01 0.01"/></body></worldbody></mujoco>""",
    "arm.toml": """name = "arm"
source = "invented for this test"
[[body]]
name = "link"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hinge"}
mass = 2
com = [0.3, 0, 0]
inertia = [0.01, 0.01, 0.01]
[joint_friction]
coulomb = {hinge = FRICTION}
""",
}


def test_an_arm_of_a_file_under_99_percent_of_its_friction_keeps_its_pose_for_a_minute_and_falls_above_it(tmp_path):
    load = 2.0 * 9.81 * 0.3
    systems = []
    for name, text in ONE_JOINT.items():
        (tmp_path / name).write_text(text.replace("FRICTION", str(load / 0.99)))
        systems.append(load_system(tmp_path / name))
    for other in systems[1:]:
        np.testing.assert_array_equal(other.forces[0].velocity_scale, systems[0].forces[0].velocity_scale)
    system = systems[0]

    def end(share, dt):
        changed = eqx.tree_at(lambda s: s.forces[0].coulomb, system, jnp.full(1, load / share))
        return rollout(changed, changed.at_rest(jnp.zeros(1)), dt=dt, steps=12000, save_every=12000).final.q[0]

    over_cases = jax.jit(jax.vmap(jax.value_and_grad(end), (0, None)))
    sag, slope = over_cases(jnp.array([0.5, 0.99]), 5e-3)
    assert np.all((sag > 0.0) & (sag < 1e-3))
    assert np.all((slope > 0.0) & (slope < 0.1))  # rad for the share of the load
    fallen, _ = over_cases(jnp.array([1.05, 1.05]), 5e-5)  # 0.6 s
    assert np.all(fallen > 0.1)


def test_an_implicit_step_takes_friction_of_ones_own_as_it_is():
    class Worn(JointFriction):
        """Friction that grows with the angle, by a factor that is not one per joint."""

        wear: float = 1.0

        def coefficient_at(self, model, q, v):
            return super().coefficient_at(model, q, v) * (1.0 + self.wear * q**2)

    model = double_pendulum()
    friction = Worn(jnp.array([0.3, 0.2]), jnp.array([0.2, 0.1]), jnp.array([0.5, 0.4]))
    q, v = jnp.array([0.5, 2.0]), jnp.array([1.0, -2.0])
    d = friction.coefficient_at(model, q, v)
    found = friction.over_step(model, motion_of(model, q, v), jnp.asarray(0.0), 1e-3)
    close(found.force, -d * v)
    close(found.slip.at_end(jnp.zeros(2))[1], d)
