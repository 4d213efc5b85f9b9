"""Springs, dampers and the bound of friction at the end of a step: stable at any stiffness, exact where forces are weak."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from random_trees import random_model, random_motion

import jaxdyn
from jaxdyn import (
    AppliedForce,
    Damper,
    Free,
    JointFriction,
    JointServo,
    JointSpring,
    LoadFriction,
    MechanismBuilder,
    Prismatic,
    RungeKutta4,
    SemiImplicitEuler,
    Spring,
    State,
    StribeckFriction,
    System,
    configuration,
    rollout,
    total_energy,
)
from jaxdyn.dynamics import AsymmetricFriction, GroundContact, HalfSpace, QuadraticDrag, contact_sphere, kinematics
from jaxdyn.dynamics.forces.friction import BearingFriction

G = 9.81


def slide(mass: float = 1.0, gravity=(0.0, 0.0, 0.0)):
    builder = MechanismBuilder("slide", gravity=gravity)
    builder.add_body("mass", joint=Prismatic((1, 0, 0)), mass=mass, inertia=0.01 * np.eye(3))
    return builder.build()


def line(model):
    """Body and point of the slide, and a point of the ground on its line, 1 m away."""
    return *model.locate("mass", (0, 0, 0)), *model.locate("ground", (-1, 0, 0))


def oscillators(k):
    model = slide()
    return [System(model, (JointSpring([k], [0.0]),)), System(model, (Spring(*line(model), k, 1.0),))]


@pytest.mark.parametrize("kind", [0, 1])
def test_springs_lose_no_energy_up_to_the_frequency_where_explicit_steps_are_unstable_and_dissipate_beyond_it(kind):
    dt, steps = 1e-3, 5000
    stiffness = np.array([1e2, 1e4, 1e6, 3.9e6, 8e6, 1e8, 1e12])

    def energies(k):
        system = oscillators(k)[kind]
        run = rollout(system, State(jnp.full(1, 0.01), jnp.zeros(1)), dt=dt, steps=steps, save_every=1)
        # The energy of the staggered velocity v - dt a/2, whose law is that of the trapezoidal rule (I14).
        middle = run.saved.v[1:, 0] + 0.5 * jnp.diff(run.saved.v[:, 0], append=run.saved.v[-1:, 0])[1:]
        q = run.saved.q[1:, 0]
        return 0.5 * middle**2 + 0.5 * k * q**2, run.healthy

    found, healthy = jax.jit(jax.vmap(energies))(jnp.asarray(stiffness))
    energy, weak = np.asarray(found)[:, :-1], stiffness * dt**2 <= 4.0
    assert np.all(healthy)
    early, late = energy[:, :500].max(axis=1), energy[:, -500:].max(axis=1)
    np.testing.assert_allclose(late[weak], early[weak], rtol=1e-3)
    assert np.all(late[~weak] < 1e-3 * early[~weak])
    assert np.all(np.diff(energy.max(axis=1)[weak]) > 0.0)  # the energies are those of the springs


def test_dampers_of_any_size_are_the_implicit_method():
    dt, coefficients = 1e-3, 10.0 ** np.arange(0.0, 9.0)
    model = slide()

    def after(c):
        start = State(jnp.zeros(1), jnp.ones(1))
        return rollout(System(model, (Damper(*line(model), c),)), start, dt=dt, steps=1).final.v[0]

    found = jax.jit(jax.vmap(after))(jnp.asarray(coefficients))
    np.testing.assert_allclose(found, 1.0 / (1.0 + dt * coefficients), rtol=1e-12, atol=1e-15)


def two_bodies(rng, stiffness, damping):
    """Two free bodies and a spring with a damper between points beside their centers of mass."""
    builder = MechanismBuilder("pair", gravity=(0, 0, 0))
    for name in ("a", "b"):
        builder.add_body(name, joint=Free(), mass=rng.uniform(0.5, 2.0), inertia=np.diag(rng.uniform(0.05, 0.1, 3)))
    model = builder.build()
    ends = (*model.locate("a", rng.normal(size=3) * 0.2), *model.locate("b", rng.normal(size=3) * 0.2))
    return model, ends, System(model, (Spring(*ends, stiffness, 0.5), Damper(*ends, damping)))


def start_of_pair(rng):
    q = np.concatenate([[0, 0, 0, 1, 0, 0, 0], [0.7, 0.2, 0.1, 1, 0, 0, 0]]).astype(float)
    return State(jnp.asarray(q), jnp.asarray(rng.normal(size=12)))


def test_the_order_of_a_step_is_one_for_weak_pairs_and_momentum_is_conserved_for_all():
    rng = np.random.default_rng(3)
    model, _, system = two_bodies(rng, 20.0, 1.0)
    start = start_of_pair(rng)
    exact = rollout(system, start, dt=1e-3, steps=500, integrator=RungeKutta4()).final
    errors = []
    for steps in (100, 200, 400):
        end = rollout(system, start, dt=0.5 / steps, steps=steps).final
        errors.append(np.max(np.abs(np.asarray(end.q - exact.q))))
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    assert np.all((ratios > 1.8) & (ratios < 2.3)), errors

    stiff = System(model, (Spring(*two_bodies(np.random.default_rng(3), 1.0, 1.0)[1], 1e8, 0.5),))
    end = rollout(stiff, start, dt=1e-3, steps=300).final
    momenta = [np.asarray(jaxdyn.momentum(model, s.q, s.v)) for s in (start, end)]
    np.testing.assert_allclose(momenta[0], momenta[1], atol=1e-9)
    assert float(total_energy(stiff, end)) <= float(total_energy(stiff, start))


def test_a_stiff_pair_in_compression_and_tension_turns_with_its_bodies():
    """A dumbbell of a stiff spring rotates as a rigid one: the matrices of the step do not resist rotation."""
    builder = MechanismBuilder("dumbbell", gravity=(0, 0, 0))
    for name in ("a", "b"):
        builder.add_body(name, joint=Free(), mass=1.0, inertia=0.01 * np.eye(3))
    model = builder.build()
    ends = (*model.locate("a", (0, 0, 0)), *model.locate("b", (0, 0, 0)))
    system = System(model, (Spring(*ends, 1e6, 1.0), Damper(*ends, 1e3)))
    q = np.array([-0.5, 0, 0, 1, 0, 0, 0, 0.5, 0, 0, 1, 0, 0, 0.0])
    v = np.zeros(12)
    v[[4, 10]] = -1.0, 1.0  # 2 rad/s about z
    end = rollout(system, State(jnp.asarray(q), jnp.asarray(v)), dt=1e-3, steps=1000).final
    d = np.asarray(end.q[7:10] - end.q[:3])
    np.testing.assert_allclose(np.linalg.norm(d), 1.0, atol=1e-4)
    np.testing.assert_allclose(np.arctan2(d[1], d[0]), 2.0, atol=5e-3)


@pytest.mark.parametrize("height", [0.0, 0.1])
@pytest.mark.parametrize("share", [1.1, 1.5])
def test_a_body_that_starts_to_slide_follows_the_closed_form(share, height):
    """Four points below the center of mass. If they are in its plane, friction does not tilt the body; else it first rocks."""
    friction = 0.5
    builder = MechanismBuilder("block", gravity=(0, 0, -G))
    builder.add_body("block", joint=Free(), mass=1.0, inertia=0.04 / 6.0 * np.eye(3))
    model = builder.build()
    angle = np.arctan(friction * share)
    normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
    points = [
        p for x in (-0.1, 0.1) for y in (-0.1, 0.1) for p in contact_sphere("block", center=(x, y, -height), radius=0.0)
    ]
    contact = GroundContact.of(model, points, HalfSpace(normal), friction=friction)
    system = System(model, (contact,))
    depth = 0.25 * G * np.cos(angle) / float(contact.material.stiffness) + 0.5 * float(contact.material.onset)
    q = np.concatenate([(height - depth) * normal, [np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0]])
    expected = 0.5 * G * (np.sin(angle) - friction * np.cos(angle))
    for backend in ("lanes", "xla"):
        end = rollout(system, system.at_rest(jnp.asarray(q)), dt=2e-3, steps=500, save_every=500, backend=backend).final
        slid = np.hypot(*(np.asarray(end.q)[[0, 2]] - q[[0, 2]]))
        np.testing.assert_allclose(slid, expected, rtol=0.02 if share == 1.1 else 0.005)


def test_the_friction_of_an_oblique_impact_is_its_share_of_the_normal_impulse_at_any_step_and_stiffness():
    friction, down, along = 0.3, 2.0, 10.0
    builder = MechanismBuilder("ball", gravity=(0, 0, 0))
    builder.add_body("ball", joint=Free(), mass=1.0, inertia=0.004 * np.eye(3))
    model = builder.build()
    usual = float(GroundContact.of(model, contact_sphere("ball", radius=0.1)).material.stiffness)

    @jax.jit
    @jax.vmap
    def ratio(share, dt):
        contact = GroundContact.of(
            model, contact_sphere("ball", radius=0.1), stiffness=share * usual, friction=friction
        )
        start = State(
            jnp.zeros(7).at[2].set(0.1 + 0.5 * dt * down).at[3].set(1.0), jnp.array([0, 0, 0, along, 0, -down])
        )
        end = rollout(System(model, (contact,)), start, dt=dt, steps=200).final
        impulse = jaxdyn.momentum(model, end.q, end.v) + jnp.array([-along, 0.0, down])
        return -impulse[0] / impulse[2] / friction

    shares, steps = (x.ravel() for x in np.meshgrid([1.0, 100.0], [1e-3, 2e-3, 1e-2]))
    np.testing.assert_allclose(ratio(jnp.asarray(shares), jnp.asarray(steps)), 1.0, atol=2e-3)


@pytest.mark.parametrize("share", [1.1, 1.5])
def test_a_joint_that_overcomes_its_dry_friction_accelerates_as_the_closed_form_says(share):
    system = System(slide(), (JointFriction([0.0], [4.0], [1e-4]),))
    control = lambda t, state, key: jnp.full(1, 4.0 * share)  # noqa: E731
    end = rollout(system, State(jnp.zeros(1), jnp.zeros(1)), control, dt=2e-3, steps=500).final
    np.testing.assert_allclose(end.q[0], 0.5 * 4.0 * (share - 1.0), rtol=0.02 if share == 1.1 else 0.005)


def test_derivatives_of_a_step_with_pairs_and_sliding_contacts_are_those_of_difference_quotients():
    rng = np.random.default_rng(8)
    model, ends, _ = two_bodies(rng, 1.0, 1.0)
    q = np.concatenate([[0, 0, -0.001, 1, 0, 0, 0], [0.7, 0.2, 0.1, 1, 0, 0, 0]]).astype(float)
    points = contact_sphere("a", center=(0.1, 0.0, 0.0), radius=0.0) + contact_sphere(
        "a", center=(-0.1, 0.0, 0.0), radius=0.0
    )

    @jax.jit
    def step(x):
        contact = GroundContact.of(model, points, stiffness=1e4, damping=50.0, friction=x["mu"], slip_speed=0.05)
        forces = (Spring(*ends, x["k"], 0.3), Damper(*ends, x["c"]), contact)
        state = State(jnp.asarray(q), x["v"])
        new, _ = SemiImplicitEuler().step(
            System(model, forces), state, lambda t: None, jnp.zeros(()), jnp.asarray(0.01)
        )
        return new.v

    x = {"mu": jnp.asarray(0.4), "k": jnp.asarray(1e5), "c": jnp.asarray(100.0), "v": jnp.asarray(rng.normal(size=12))}
    check_derivatives(step, x, orders=1, in_lanes=True)


# Parents and joints of the random mechanisms; "F" is a free joint.
STRUCTURES = [([-1, 0, 1, 2], "RRPR"), ([-1, 0, 0, 1], "RSRR"), ([-1, -1, 1], "FFR"), ([-1, 0, 0, 1, 1, 2], "FRPRRS")]
TIME = 0.2  # s


def random_stiff_system(rng, parents, kinds) -> tuple[System, State]:
    """A mechanism with all kinds of forces, whose coefficients are between weak and far too stiff for explicit steps.

    Each spring stores about a joule at the start. Much more energy would be a motion by radians within a step.
    """
    model = random_model(rng, len(parents), parents=parents, kinds=kinds)
    nv, last = model.nv, model.nb - 1
    q, v, _ = random_motion(rng, model)

    def any_size(low, high, size=None):
        return 10.0 ** rng.uniform(low, high, size)

    def ends(a, b):
        return a, 0.3 * rng.normal(size=3), b, 0.3 * rng.normal(size=3)

    def spring(a, b):
        pair, k = ends(a, b), any_size(0, 8)
        placed = kinematics.placements(model, q)
        length = np.sqrt(2.0 * float(Spring(*pair, 1.0).potential_energy(model, q, placed)))
        return Spring(*pair, k, max(length + rng.normal() / np.sqrt(k), 0.0))

    k, gains = any_size(-1, 6, nv), any_size(-1, 4, nv)
    rest, target = (configuration.integrate(model, q, rng.normal(size=nv) / np.sqrt(k)) for k in (k, gains))
    contact = GroundContact.of(
        model, contact_sphere(f"body {last}", radius=0.1), HalfSpace(rng.normal(size=3), -1.0), friction=rng.uniform()
    )
    forces = (
        spring(last, -1),
        spring(last, 0),
        Spring(*ends(last, -1), any_size(0, 2), 0.0),
        Damper(*ends(0, -1), any_size(-1, 6)),
        Damper(*ends(last, 0), any_size(-1, 6)),
        JointSpring(k, rest),
        JointServo(gains, any_size(-1, 3, nv), target, any_size(0, 3, nv)),
        JointFriction(any_size(-2, 2, nv), any_size(-2, 2, nv), any_size(-4, -1, nv)),
        AsymmetricFriction(np.zeros(nv), any_size(-3, -2, nv), np.ones(nv)),
        StribeckFriction(any_size(-2, 1, nv), any_size(-2, -1, nv), any_size(-4, -3, nv)),
        LoadFriction(any_size(-3, 0, nv), np.full(nv, 1e-2), np.ones(nv)),
        BearingFriction(any_size(-3, -1, nv), np.full(nv, 1e-2), np.ones(nv)),
        QuadraticDrag(any_size(-3, 1, nv)),
        AppliedForce(last, np.zeros(3), rng.normal(size=3), rng.normal(size=3), False),
        contact,
    )
    return System(model, forces), State(q, v)


@pytest.mark.parametrize(
    "structure", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in range(1, len(STRUCTURES)))]
)
def test_random_mechanisms_with_all_forces_do_not_diverge_at_a_millisecond_where_short_steps_are_healthy(structure):
    rng = np.random.default_rng([structure, 55])
    drawn = [random_stiff_system(rng, *STRUCTURES[structure]) for _ in range(50)]
    stacked, start = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *drawn)

    def healthy(steps):
        def run(system, state):
            return rollout(system, state, dt=TIME / steps, steps=steps, save_every=steps, throw=False).healthy

        return np.asarray(jax.jit(jax.vmap(run))(stacked, start))

    short, usual = healthy(10_000), healthy(200)
    assert np.mean(short) > 0.9
    assert not np.any(short & ~usual), np.flatnonzero(short & ~usual)
