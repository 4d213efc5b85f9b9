"""Actuators: their law against NumPy, their implicit step, their bounds, and what files, fits and plans know of them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, simulated

import jaxdyn
from jaxdyn import JointServo, State, System, identify
from jaxdyn.control import ControlProblem, MultibodyDynamics
from jaxdyn.dynamics import Actuator, Actuators, Drives, GravityCompensation
from jaxdyn.dynamics.equations_of_motion import acceleration_over_step
from jaxdyn.io import ConfigError, load_archive, load_system, save_archive, save_system
from jaxdyn.results import UnsuccessfulWarning

MODEL = jaxdyn.library.double_pendulum()
EVERY = (
    Actuator.position_servo("shoulder", 80.0, 4.0, name="servo", force_range=(-20.0, 15.0)),
    Actuator("motor", {"elbow": (30.0,)}, control_range=(-0.5, 1.0), stall_force=0.2, no_load_speed=20.0, damping=1e-3),
    Actuator("pull", {"shoulder": (1.0,), "elbow": (-0.5,)}, gain=2.0, offset=0.3, stiffness=5.0, damping=0.2),
    Actuator("brake", {"elbow": (2.0,)}, gain=0.1, controlled_damping=0.4, controlled_stiffness=0.7),
    Actuator.velocity_servo("elbow", 3.0, name="speed"),
    Actuator("jet", body="tip", point=(0.0, 0.1, 0.1), force=(1.0, 0.0, 0.5), torque=(0.0, 0.2, 0.0), damping=0.3),
)
BOUNDS = {"shoulder": (-20.0, 12.0)}
SYSTEM = System(MODEL, drives=Actuators.of(MODEL, EVERY, BOUNDS))


def draw(seed):
    rng = np.random.default_rng(seed)
    return State(*(jnp.array(rng.normal(size=2)) for _ in range(2))), jnp.array(rng.normal(size=len(EVERY)))


def arms_in_numpy(q):
    """Lengths and moment arms; the jet moves along a path of which NumPy knows the place by its angles."""
    arms = np.zeros((len(EVERY), 2))
    for row, actuator in enumerate(EVERY):
        arms[row] = [actuator.joints.get(joint, (0.0,))[0] for joint in ("shoulder", "elbow")]
    lengths = arms @ q
    jacobian = np.asarray(jaxdyn.dynamics.frame_jacobian(MODEL, jnp.array(q), "tip"))
    tip = np.asarray(jaxdyn.dynamics.frame_placement(MODEL, jnp.array(q), "tip").rotation)
    point, push, turn = (tip @ np.array(x) for x in (EVERY[5].point, EVERY[5].force, EVERY[5].torque))
    arms[5] = turn @ jacobian[:3] + push @ (jacobian[3:] + np.cross(jacobian[:3].T, point).T)
    return lengths, arms


def forces_in_numpy(q, v, u):
    lengths, arms = arms_in_numpy(q)
    rates, forces = arms @ v, []
    for a, length, rate, control in zip(EVERY, lengths, rates, u, strict=True):
        w = np.clip(control, *a.control_range)
        f = a.gain * w + a.offset - w * (a.controlled_stiffness * length + a.controlled_damping * rate)
        f += a.stiffness * (a.position_target * w - length) + a.damping * (a.velocity_target * w - rate)
        if np.isfinite(a.stall_force):
            slope = a.stall_force / a.no_load_speed
            f = np.clip(f, -a.stall_force - slope * rate, a.stall_force - slope * rate)
        forces.append(np.clip(f, *a.force_range))
    return np.clip(arms.T @ forces, [-20.0, -np.inf], [12.0, np.inf])


def test_generalized_forces_are_those_of_the_law():
    ours = jax.jit(jax.vmap(lambda state, u: jaxdyn.applied_forces(SYSTEM, state, u)))
    draws = [draw(seed) for seed in range(40)]
    found = ours(*jax.tree.map(lambda *x: jnp.stack(x), *draws))
    expected = [forces_in_numpy(*map(np.asarray, (state.q, state.v, u))) for state, u in draws]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.any(found[:, 0] == 12.0)
    none = jaxdyn.applied_forces(SYSTEM, draws[0][0])
    np.testing.assert_allclose(none, jaxdyn.applied_forces(SYSTEM, draws[0][0], jnp.zeros(len(EVERY))), rtol=1e-14)


def test_derivatives_are_those_of_difference_quotients_and_zero_at_bounds():
    state, u = draw(3)

    def force(drives, u):
        return jaxdyn.applied_forces(SYSTEM.changed(drives=drives), state, u)

    wide = dataclasses.replace(SYSTEM.drives, effort_range=None)
    tangent = jax.tree.map(jnp.ones_like, eqx.filter(wide, eqx.is_inexact_array))
    move, du = eqx.filter(tangent, eqx.is_inexact_array), jnp.ones_like(u)

    @jax.jit
    def along(h):
        moved = jax.tree.map(lambda x, dx: jnp.where(jnp.isinf(x), x, x + h * dx), wide, move)
        return force(moved, u + h * du)

    _, slope = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))
    np.testing.assert_allclose(slope, (along(1e-6) - along(-1e-6)) / 2e-6, rtol=1e-7, atol=1e-7)
    far = u.at[1].set(4.0)
    np.testing.assert_array_equal(jax.jit(jax.jacrev(force, 1))(wide, far)[:, 1], 0.0)


def test_a_step_evaluates_stiffness_and_damping_at_its_end():
    """(M + dt D + dt^2 K) a = (forces at the start) - dt K v - h, with K = B' k B and D = B' d B of the actuators within bounds."""
    acts = (
        Actuator("pull", {"shoulder": (1.0,), "elbow": (-0.5,)}, stiffness=5e3, damping=20.0),
        Actuator.position_servo("elbow", 1e4, 10.0),
        Actuator("full", {"shoulder": (1.0,)}, stiffness=1e5, force_range=(-1.0, 1.0)),
        Actuator("jet", body="tip", force=(1.0, 0.0, 0.0), damping=50.0),
    )
    drives, (state, _), dt = Actuators.of(MODEL, acts), draw(5), 1e-2
    system, u = System(MODEL, drives=drives), jnp.array([0.1, 0.2, 0.3, 0.4])
    _, row = jnp.zeros(2), jaxdyn.dynamics.frame_jacobian(MODEL, state.q, "tip")[3:]
    push = jaxdyn.dynamics.frame_placement(MODEL, state.q, "tip").rotation[:, 0]
    B = np.array([[1.0, -0.5], [0.0, 1.0], [1.0, 0.0], push @ row])
    K, D = (B.T @ np.diag(x) @ B for x in ([5e3, 1e4, 0.0, 0.0], [20.0, 10.0, 0.0, 50.0]))
    right = jaxdyn.applied_forces(system, state, u) - dt * K @ state.v - jaxdyn.bias_force(MODEL, state.q, state.v)
    expected = np.linalg.solve(jaxdyn.mass_matrix(MODEL, state.q) + dt * D + dt**2 * K, right)
    np.testing.assert_allclose(acceleration_over_step(system, state, u, 0.0, dt), expected, rtol=1e-10)


def test_a_position_servo_is_a_joint_servo_whose_target_is_the_control():
    target, k, d = jnp.array([0.4, -0.3]), (5e4, 3e4), (30.0, 20.0)
    servo = System(MODEL, (JointServo(k, d, target, (40.0, jnp.inf)),))
    ranges = ((-40.0, 40.0), (-np.inf, np.inf))
    acts = [
        Actuator.position_servo(joint, *gains, force_range=pair)
        for joint, *gains, pair in zip(("shoulder", "elbow"), k, d, ranges, strict=True)
    ]
    driven, start = System(MODEL, drives=Actuators.of(MODEL, acts)), State(jnp.zeros(2), jnp.zeros(2))
    options = {"dt": 5e-3, "steps": 100, "integrator": jaxdyn.SemiImplicitEuler()}
    found = jaxdyn.rollout(driven, start, controls=jnp.tile(target, (100, 1)), **options)
    np.testing.assert_allclose(found.saved.q, jaxdyn.rollout(servo, start, **options).saved.q, rtol=1e-10, atol=1e-12)


def test_inverse_dynamics_inverts_the_law_and_warns_if_bounds_prevent_the_motion():
    acts = (EVERY[2], Actuator.position_servo("elbow", 50.0, 2.0, control_range=(-1.0, 1.0)))
    system, (state, _) = System(MODEL, drives=Actuators.of(MODEL, acts)), draw(7)
    u = jnp.array([0.3, 0.4])
    a = jaxdyn.acceleration(system, state, u)
    np.testing.assert_allclose(jaxdyn.inverse_dynamics(system, state, a), u, rtol=1e-9)
    beyond = a + jnp.array([0.0, 1e4])
    with pytest.warns(UnsuccessfulWarning, match="their bounds too tight"):
        jaxdyn.inverse_dynamics(system, state, beyond)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_system_keeps_its_actuators_in_files(tmp_path, ending):
    save_system(SYSTEM, tmp_path / f"m.{ending}")
    found = load_system(tmp_path / f"m.{ending}").drives
    assert jax.tree.structure(found) == jax.tree.structure(SYSTEM.drives)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15), found, SYSTEM.drives)


FILE = """
name = "m"
source = "invented"
[[actuator]]
name = "servo"
joints = {hip = 2.0}
stiffness = 5.0
position_target = 1.0
control_range = [-1, 1]
[[body]]
name = "leg"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hip"}
mass = 1.0
inertia = [1, 1, 1]
"""


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ("hip = 2.0", "hipp = 2.0", "there is no joint 'hipp' (did you mean 'hip'?)"),
        ("hip = 2.0", "hip = [1, 2]", "has 1 velocity components"),
        ("[-1, 1]", "[1, -1]", "control_range is [1, -1]; give the lower bound first"),
        ("joints = {hip = 2.0}", "", "give either joints, a path or a body"),
        ("stiffness", "stifness", "unknown key; did you mean 'stiffness'?"),
        ("[[body]]", "[drives]\nall = true\n[[body]]", "the file has tables [[actuator]] too"),
        ("stiffness", "stall_force = 3.0\nstiffness", "give both stall_force and no_load_speed"),
        ("joints = {hip = 2.0}", 'body = "ground"', "an actuator on the ground has no effect"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_remedy(tmp_path, refusal, old, new, fragment):
    assert old in FILE
    (tmp_path / "m.toml").write_text(FILE.replace(old, new, 1))
    assert fragment in refusal((ConfigError, jaxdyn.MechanismError), load_system, tmp_path / "m.toml")


def test_parameters_have_the_names_of_controls_and_come_back_in_a_fit():
    labels = identify.Parameters(SYSTEM, [identify.Parameter(f"drives.{x}") for x in ("stiffness", "arms", "pushes")])
    names = [name for name, _ in labels.labels]
    assert names[0] == "stiffness [servo]"
    assert "arms [pull on elbow]" in names
    assert any("pushes [jet" in name for name in names)
    servo = Actuator.position_servo("hip", 9.0, 0.6, name="servo")
    builder = jaxdyn.MechanismBuilder("leg")
    builder.add_body(
        "leg", joint=jaxdyn.Revolute((0, 1, 0)), joint_name="hip", mass=1.0, com=(0, 0, -0.2), inertia=(0.1, 0.1, 0.01)
    )
    model = builder.build()
    truth = identify.Plant(System(model, drives=Actuators.of(model, (servo,))), identify.Sensors([1e-3]))
    recording = simulated(truth, 1.0, 0)
    wrong = eqx.tree_at(lambda p: p.system.drives.stiffness, truth, jnp.array([4.0]))
    free = [identify.Parameter("system.drives.stiffness", chart=identify.Positive())]
    windows = identify.cut([recording], duration=0.5, interval=STEP)
    fitted = identify.fit(identify.OutputError(identify.Parameters(wrong, free), windows))
    np.testing.assert_allclose(fitted.value.system.drives.stiffness, 9.0, rtol=1e-4)


def test_plans_keep_the_ranges_of_the_controls_unless_others_are_given():
    dynamics, start = MultibodyDynamics(SYSTEM), SYSTEM.at_rest(jnp.zeros(2))
    problem = ControlProblem(dynamics, start, duration=1.0, steps=10)
    np.testing.assert_array_equal(problem.lower, [-np.inf, -0.5, *[-np.inf] * 4])
    np.testing.assert_array_equal(problem.upper, [np.inf, 1.0, *[np.inf] * 4])
    narrow = ControlProblem(dynamics, start, duration=1.0, steps=10, lower=-0.1, upper=0.1)
    np.testing.assert_array_equal(narrow.upper, 0.1)


class Differential(Drives):
    """Two motors that turn the sum and the difference of two joints: a law of one's own."""

    ratio: jax.Array

    @property
    def count(self):
        return 2

    def forces(self, model, q, v, u):
        return self.ratio * jnp.stack([u[0] + u[1], u[0] - u[1]])


def test_drives_of_ones_own_are_one_class(tmp_path):
    system = System(MODEL, drives=Differential(jnp.asarray(3.0)))
    state, u = State(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 2.0])
    np.testing.assert_allclose(jaxdyn.applied_forces(system, state, u), [9.0, -3.0])
    assert "drives       2: 0, 1" in system.summary()
    run = jaxdyn.rollout(system, state, controls=jnp.tile(u, (5, 1)), dt=1e-3, steps=5)
    np.testing.assert_allclose(run.saved.v[1] / 1e-3, jaxdyn.acceleration(system, state, u), rtol=0.01)
    a = jaxdyn.acceleration(system, state, u)
    np.testing.assert_allclose(jaxdyn.inverse_dynamics(system, state, a), u, rtol=1e-10)
    save_archive(system, tmp_path / "m", classes=(Differential,))
    assert load_archive(tmp_path / "m", classes=(Differential,)).drives.ratio == 3.0


def test_compensated_weight_does_not_accelerate_and_keeps_the_energy():
    both = System(MODEL, (GravityCompensation(0, 1.0), GravityCompensation(1, 1.0)))
    half = System(MODEL, (GravityCompensation(0, 0.5), GravityCompensation(1, 0.5)))
    state = State(jnp.array([0.3, -0.5]), jnp.zeros(2))
    np.testing.assert_allclose(jaxdyn.acceleration(both, state), 0.0, atol=1e-12)
    np.testing.assert_allclose(
        jaxdyn.applied_forces(half, state), -0.5 * jaxdyn.gravity_force(MODEL, state.q), rtol=1e-12
    )
    run = jaxdyn.rollout(half, state, dt=1e-3, steps=300, integrator=jaxdyn.RungeKutta4())
    energies = [jaxdyn.total_energy(half, x) for x in (state, run.final)]
    np.testing.assert_allclose(*energies, rtol=1e-9)


def test_actuators_have_names_of_their_own_and_an_empty_list_drives_nothing(tmp_path):
    twice = [Actuator("motor", {"elbow": (1.0,)})] * 2
    with pytest.raises(ValueError, match="two actuators are named 'motor'; give each control its own name"):
        Actuators.of(MODEL, twice)
    file = tmp_path / "arm.toml"
    save_system(System(MODEL), file)
    file.write_text("actuator = []\n" + file.read_text().replace("[drives]\njoints = []\n", ""))
    assert load_system(file).nu == 0
