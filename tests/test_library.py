"""The mechanisms that come with jaxdyn: their numbers against their sources, and that they are mechanisms at all."""

import inspect
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacked_trees import evaluated

from jaxdyn import (
    MechanismError,
    State,
    System,
    acceleration,
    configuration,
    forward_dynamics,
    frame_placement,
    gravity_force,
    library,
    mass_matrix,
    total_energy,
)
from jaxdyn.dynamics import constraint_motion
from jaxdyn.io.mechanism.reader import system_from_tables
from jaxdyn.io.mechanism.writer import tables_of_system
from jaxdyn.io.tables import Place
from jaxdyn.library import files
from jaxdyn.spatial.inertia import symmetric_matrix

SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[2] / "shared"))
CHAIN = SHARED / "data" / "franka_panda" / "chain.json"


# nq, nv and mass in kg, as documented or as the sum of the masses in the file's comments.
TREES = {
    "pendulum": (1, 1, 1.0),
    "double_pendulum": (2, 2, 1.5),
    "cart_pole": (2, 2, 1.1),
    "acrobot": (2, 2, 2.0),
    "cart_pole_kelly": (2, 2, 1.3),
    "acrobot_point_masses": (2, 2, 2.0),
    "double_pendulum_crocoddyl": (2, 2, 0.59941),
    "point_mass_chain": (2, 2, 2.0),
    "furuta_pendulum": (2, 2, 0.3),
    "spatial_arm_3r": (3, 3, 12.0),
    "scara": (4, 4, 14.5),
    "panda": (7, 7, 16.062132),  # sum of the seven masses of Gaz et al. 2019
    "kuka_lwr": (7, 7, 14.4),
    "gyroscope": (5, 4, 0.55),
    "satellite": (14, 13, 178.5),
    "quadruped": (19, 18, 15.0),
    "humanoid": (39, 33, 70.0),
    "spherical_pendulum_chain": (12, 9, 3.0),
}
ARGUMENTS = {"spherical_pendulum_chain": (3,)}
LOOPS = {"slider_crank": (3, 3, 2.3, 1), "four_bar": (3, 3, 0.65, 1), "stewart_platform": (25, 24, 28.0, 6)}


def test_every_mechanism_of_the_library_is_tested():
    offered = {name for name in library.__all__ if inspect.isfunction(getattr(library, name))}
    assert offered == {*TREES, *LOOPS, "mechanism_path", "system"}
    assert {path.stem for path in library.mechanism_path("panda").parent.iterdir()} <= offered


@pytest.fixture(scope="module")
def mechanisms() -> dict[str, System]:
    """All mechanisms by name, without forces and drives."""
    made = {name: getattr(library, name)(*ARGUMENTS.get(name, ())) for name in (*TREES, *LOOPS)}
    return {name: item if isinstance(item, System) else System(item) for name, item in made.items()}


@pytest.mark.parametrize("name", [*TREES, *LOOPS])
def test_mechanism_has_the_documented_size_and_mass(mechanisms, name):
    model = mechanisms[name].model
    nq, nv, mass = (TREES | LOOPS)[name][:3]
    assert (model.nq, model.nv) == (nq, nv)
    np.testing.assert_allclose(model.mass.sum(), mass, rtol=1e-8)
    assert np.all(np.asarray(model.mass) > 0)
    text = inspect.getdoc(getattr(library, name))
    sizes = {f"nq = {nq}", f"nv = {nv}"}
    assert name in ARGUMENTS or f"nq = nv = {nq}" in text or all(size in text.replace("\n", " ") for size in sizes)


STEP = 1e-5  # s


def side_by_side(systems: dict[str, System]) -> System:
    """All mechanisms as one, so that one compilation serves them all. Names get the mechanism's in front; gravity is common."""
    together = {"name": "all", "source": "test", "body": [], "loop": []}
    for name, system in systems.items():
        tables = tables_of_system(system, "test", Place(Path(name)))
        own = lambda text, name=name: text if text == "ground" else f"{name} {text}"  # noqa: E731
        for body in tables["body"]:
            joint = body["joint"] | {"name": own(body["joint"]["name"])}
            together["body"].append(body | {"name": own(body["name"]), "parent": own(body["parent"]), "joint": joint})
        for loop in tables.get("loop", []):
            ends = {end: loop[end] | {"body": own(loop[end]["body"])} for end in "ab"}
            together["loop"].append(loop | {"name": own(loop["name"])} | ends)
    return system_from_tables(together, Place(Path("all")))


def test_mass_matrices_are_positive_definite_energy_is_kept_and_loops_close(mechanisms):
    system = side_by_side(mechanisms)
    model = system.model
    assert model.nv == sum(item.model.nv for item in mechanisms.values())

    def mechanics(q, v, neutral):
        """Mass matrix, energy turned over, energies a step later and a step before in free motion; loops at neutral."""
        a = forward_dynamics(model, q, v, jnp.zeros_like(v))

        def energy(t):
            state = State(configuration.integrate(model, q, t * v + 0.5 * t * t * a), v + t * a)
            return total_energy(System(model), state)

        energies = jax.vmap(energy)(jnp.array([STEP, -STEP]))

        def residual(step):
            moved = configuration.integrate(model, neutral, step)
            return constraint_motion.residuals_at(model, system.constraints, moved)

        steps = STEP * jnp.concatenate([jnp.zeros((1, model.nv)), jnp.eye(model.nv)])
        return mass_matrix(model, q), jnp.abs(gravity_force(model, q) * v), energies, jax.vmap(residual)(steps)

    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(rng.normal(size=(1, n))) for n in (model.nq, model.nv))
    found = evaluated(mechanics, q, v, configuration.neutral(model)[None])
    metric, turnover, energies, residuals = (np.asarray(x[0]) for x in found)
    # Of third order in the step; the energy turned over in it is of first.
    assert abs(energies[0] - energies[1]) < 1e-6 * STEP * turnover.sum()
    np.testing.assert_allclose(residuals[0], 0.0, atol=1e-14)
    rows = (residuals[1:] - residuals[0]).T / STEP  # up to terms of the size of the step
    start = 0
    for name, item in mechanisms.items():
        own = slice(start, start + item.model.nv)
        np.testing.assert_allclose(metric[own, own], metric[own, own].T, rtol=1e-10, atol=1e-12)
        assert np.all(np.linalg.eigvalsh(metric[own, own]) > 0), name
        assert not metric[own, own.stop :].any()
        rank = np.linalg.matrix_rank(rows[:, own], tol=1e-3)
        assert item.model.nv - rank == (LOOPS[name][3] if name in LOOPS else item.model.nv)
        start = own.stop


def test_crank_of_the_four_bar_can_turn_all_the_way():
    """Grashof's condition with the lengths in the file."""
    mechanism = library.four_bar()
    (crank, coupler, rocker), pin = mechanism.model.placement.translation, mechanism.constraints[0]
    ground = np.linalg.norm(rocker - crank)
    lengths = [np.linalg.norm(coupler), *(np.linalg.norm(end.translation) for end in (pin.frame_a, pin.frame_b))]
    np.testing.assert_allclose(lengths, [0.1, 0.3, 0.25], rtol=1e-12)
    assert min(lengths) + ground < sum(lengths) - min(lengths)
    assert max(ground, *lengths) == ground


def test_cart_pole_and_acrobot_move_as_their_sources_say():
    """Equations of motion as printed by Barto, Sutton and Anderson (1983) and by Sutton and Barto."""
    cart_pole, acrobot = library.system("cart_pole"), library.system("acrobot")
    (x, theta), (speed, rate), force = (0.3, 0.4), (0.5, -0.7), 8.0
    g, m, total, half = 9.8, 0.1, 1.1, 0.5
    sin, cos = np.sin(theta), np.cos(theta)
    turning = (g * sin + cos * (-force - m * half * rate**2 * sin) / total) / (half * (4 / 3 - m * cos**2 / total))
    shifting = (force + m * half * (rate**2 * sin - turning * cos)) / total
    state = State(jnp.array([x, theta]), jnp.array([speed, rate]))
    found = jax.jit(lambda state, u: acceleration(cart_pole, state, u))(state, jnp.array([force]))
    np.testing.assert_allclose(found, [shifting, turning], rtol=1e-12)

    (t1, t2), (w1, w2), torque = (0.3, 0.8), (0.5, -0.7), 1.0
    d1 = 0.25 + (1 + 0.25 + np.cos(t2)) + 2.0
    d2 = 0.25 + 0.5 * np.cos(t2) + 1.0
    p2 = 0.5 * g * np.cos(t1 + t2 - np.pi / 2)
    p1 = -0.5 * w2**2 * np.sin(t2) - w2 * w1 * np.sin(t2) + 1.5 * g * np.cos(t1 - np.pi / 2) + p2
    a2 = (torque + d2 / d1 * p1 - 0.5 * w1**2 * np.sin(t2) - p2) / (1.25 - d2**2 / d1)
    a1 = -(d2 * a2 + p1) / d1
    state = State(jnp.array([t1, t2]), jnp.array([w1, w2]))
    found = jax.jit(lambda state, u: acceleration(acrobot, state, u))(state, jnp.array([torque]))
    np.testing.assert_allclose(found, [a1, a2], rtol=1e-12)


def test_benchmarks_of_optimal_control_move_as_their_sources_say():
    """Equations of motion as printed by Kelly; an acceleration of Pinocchio's with the file that Crocoddyl reads."""
    names = ("cart_pole_kelly", "acrobot_point_masses", "double_pendulum_crocoddyl")
    cart_pole, acrobot, pendulum = (library.system(name) for name in names)
    state = State(jnp.array([0.0, 1.0]), jnp.array([0.0, 0.1]))
    found = jax.jit(lambda state, u: acceleration(cart_pole, state, u))(state, jnp.array([-10.0]))
    np.testing.assert_allclose(found, [-7.14331021, -8.79056677], atol=1e-8)

    (q1, q2), (w1, w2), u, g, half = (0.3, 1.1), (0.5, -0.7), 1.5, 9.81, 0.5  # angles from the vertical
    d = q1 - q2
    M = half**2 * np.array([[2.0, np.cos(d)], [np.cos(d), 1.0]])
    h1 = half**2 * np.sin(d) * w2**2 + 2.0 * g * half * np.sin(q1)
    h2 = -(half**2) * np.sin(d) * w1**2 + g * half * np.sin(q2)
    a1, a2 = np.linalg.solve(M, [-u - h1, u - h2])
    state = State(jnp.array([q1, q2 - q1]), jnp.array([w1, w2 - w1]))
    found = jax.jit(lambda state, u: acceleration(acrobot, state, u))(state, jnp.array([u]))
    np.testing.assert_allclose(found, [a1, a2 - a1], rtol=1e-12)

    state = State(jnp.array([0.3, -0.2]), jnp.array([1.0, -2.0]))
    found = jax.jit(lambda state, u: acceleration(pendulum, state, u))(state, jnp.array([0.5]))
    np.testing.assert_allclose(found, [350.73324021, -596.2607072], rtol=1e-10)


def test_a_chain_without_pendulums_does_not_exist():
    with pytest.raises(MechanismError, match="chain of 0 pendulums does not exist"):
        library.spherical_pendulum_chain(0)


def test_files_have_their_drives_springs_and_friction():
    assert [
        library.system(name).nu for name in ("cart_pole", "acrobot", "furuta_pendulum", "satellite", "quadruped")
    ] == [1, 1, 1, 3, 12]
    assert [type(force).__name__ for force in library.system("satellite").forces] == ["JointFriction", "JointSpring"]


def test_panda_has_the_names_and_the_limits_of_its_sources():
    model = library.panda()
    assert model.topology.joint_names == tuple(f"joint{i}" for i in range(1, 8))
    limits = model.limits
    upper = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    lower = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    np.testing.assert_array_equal(limits.upper, upper)
    np.testing.assert_array_equal(limits.lower, lower)
    np.testing.assert_array_equal(limits.velocity, [2.175] * 4 + [2.61] * 3)
    np.testing.assert_array_equal(limits.effort, [87.0] * 4 + [12.0] * 3)


def test_panda_stretched_out_reaches_where_its_dimensions_say():
    """At q = 0 the arm stands upright: 0.333 + 0.316 + 0.384 m up, the hand 0.088 m forward with the flange 0.107 m down."""
    model = library.panda()
    flange = jax.jit(lambda q: frame_placement(model, q, "flange"))(jnp.zeros(7))
    np.testing.assert_allclose(flange.translation, [0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107], atol=1e-15)
    np.testing.assert_allclose(flange.rotation, np.diag([1.0, -1.0, -1.0]), atol=1e-15)


def test_panda_is_the_published_chain():
    if not CHAIN.is_file():
        pytest.skip(f"{CHAIN} is not there")
    chain = json.loads(CHAIN.read_text())
    model = library.panda()
    np.testing.assert_array_equal(model.gravity, chain["gravity"])
    for i, link in enumerate(chain["links"]):
        assert model.topology.parents[i] == i - 1
        np.testing.assert_array_equal(model.joints[0].axis[i], link["axis"])
        np.testing.assert_array_equal(model.placement.rotation[i], link["parent_R_joint"])
        np.testing.assert_array_equal(model.placement.translation[i], link["parent_p_joint"])
        np.testing.assert_array_equal(model.mass[i], link["mass"])
        # Model building goes through the first moment, so these two are off by some roundings.
        np.testing.assert_allclose(model.com[i], link["com"], rtol=1e-14)
        np.testing.assert_allclose(symmetric_matrix(model.inertia[i]), link["inertia_com"], rtol=0, atol=1e-15)


def test_double_pendulum_has_the_gravity_torque_of_two_rods():
    """Horizontal rods: torque of the weights m g L / 2 about each joint, with everything beyond it."""
    model = library.double_pendulum()
    g, (m1, m2), (l1, l2) = 9.81, (1.0, 0.5), (1.0, 0.5)
    expected = [g * (m1 * l1 / 2 + m2 * (l1 + l2 / 2)), g * m2 * l2 / 2]
    torque = jax.jit(lambda q: gravity_force(model, q))(jnp.array([np.pi / 2, 0.0]))
    np.testing.assert_allclose(np.abs(torque), expected, rtol=1e-14)
    np.testing.assert_allclose(model.inertia[:, 0], [m1 * l1**2 / 12, m2 * l2**2 / 12], rtol=1e-15)


def test_installed_mechanisms_are_found_before_those_of_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "jaxdyn"
    for folder in (package / "library", package / "mechanisms", tmp_path / "configs" / "mechanisms"):
        folder.mkdir(parents=True)
    (tmp_path / "configs" / "mechanisms" / "arm.toml").write_text("")
    monkeypatch.setattr(files, "__file__", str(package / "library" / "files.py"))
    assert library.mechanism_path("arm") == tmp_path / "configs" / "mechanisms" / "arm.toml"
    (package / "mechanisms" / "arm.toml").write_text("")
    assert library.mechanism_path("arm") == package / "mechanisms" / "arm.toml"
