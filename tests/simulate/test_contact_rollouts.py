"""Rollouts with contact: impacts gain no energy, a quadruped stands, gradients pass touch-down, sliding and lift-off."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first

from jaxdyn import (
    Free,
    JointServo,
    MechanismBuilder,
    SemiImplicitEuler,
    State,
    System,
    as_dtype,
    kinetic_energy,
    library,
    rollout,
    total_energy,
)
from jaxdyn.dynamics import ContactMaterial, GroundContact, HalfSpace, contact_box, contact_forces, contact_sphere
from jaxdyn.dynamics.forces.unilateral import stored_energy

GRAVITY = 9.81
RADIUS = 0.05
FEET = ("fl_foot", "fr_foot", "rl_foot", "rr_foot")


def ball(mass=1.0, inertia=0.002, gravity=(0.0, 0.0, -GRAVITY)):
    builder = MechanismBuilder("ball", gravity)
    builder.add_body("ball", joint=Free(), mass=mass, inertia=inertia * np.eye(3))
    return builder.build()


def step(system, state, dt):
    return SemiImplicitEuler().step(system, state, lambda t: None, jnp.zeros(()), dt)[0]


def random_impacts(seed, count):
    """Materials, planes, masses, spins and steps over decades: k dt^2 / m is up to some thousand."""
    rng = np.random.default_rng(seed)
    k, m = 10.0 ** rng.uniform(2, 7, count), 10.0 ** rng.uniform(-2, 2, count)
    damping = 2.0 * np.sqrt(k * m) * rng.choice([0.0, 0.05, 0.3, 1.0, 3.0], count)
    friction, slip_speed = rng.choice([0.0, 0.3, 0.8, 2.0], count), 10.0 ** rng.uniform(-4, -1, count)
    onset, torsion = 10.0 ** rng.uniform(-4, -2, count), rng.choice([0.0, 0.02], count)
    material = ContactMaterial(*map(jnp.asarray, (k, damping, friction, slip_speed, onset, torsion)))
    normal = 0.5 * rng.normal(size=(count, 3)) + np.array([0.0, 0.0, 1.0])
    unit = normal / np.linalg.norm(normal, axis=1)[:, None]
    height = 0.1 * rng.normal(size=count)
    along = 0.3 * np.cross(rng.normal(size=(count, 3)), unit)
    turn = rng.normal(size=(count, 4))
    turn /= np.linalg.norm(turn, axis=1)[:, None]
    q = np.concatenate([unit * (height + 0.2)[:, None] + along, turn], axis=1)
    spin = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-2, 1, (count, 1))
    speed = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-1, 0.7, (count, 1))
    dt = 10.0 ** rng.uniform(np.log10(0.2e-3), np.log10(5e-3), count)
    plane = HalfSpace(jnp.asarray(normal), jnp.asarray(height))
    return material, plane, jnp.asarray(m), State(jnp.asarray(q), jnp.asarray(np.c_[spin, speed])), jnp.asarray(dt)


def energies_of_impacts(points, count, length):
    """Total energies, energies stored in contacts, kinetic energies, and the energies that the depth of one step stores."""
    model = ball()
    usual = GroundContact.of(model, points)

    @jax.jit
    @jax.vmap
    def energies(material, plane, mass, state, dt):
        contact = eqx.tree_at(lambda c: (c.material, c.surface), usual, (material, plane))
        changed = eqx.tree_at(lambda m: (m.mass, m.inertia), model, (mass * model.mass, mass * model.inertia))
        system = System(changed, (contact,))

        def energy(state):
            depth = contact_forces(system, state).depth
            kinetic = kinetic_energy(system.model, state.q, state.v)
            return total_energy(system, state), contact.material.energy(depth), kinetic, jnp.max(depth)

        def body(state, _):
            after = step(system, state, dt)
            return after, energy(after)

        after = jax.lax.scan(body, state, None, length=length)[1]
        return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), energy(state), after)

    material, plane, mass, state, dt = random_impacts(0, count)
    total, stored, kinetic, depth = (np.asarray(x) for x in energies(material, plane, mass, state, dt))
    assert np.all(np.isfinite(total))
    assert np.mean(np.max(depth, axis=1) > 0.0) > 0.4  # many of them strike
    rounding = 1e-11 * np.max(np.abs(total), axis=1)
    allowed = np.asarray(stored_energy(GRAVITY * dt**2, material.stiffness, material.onset)) + rounding
    return total, stored, kinetic, allowed


@pytest.mark.thorough
def test_ten_thousand_random_impacts_gain_no_energy_beyond_the_depth_that_gravity_adds_in_a_step(optimized):
    total, _, _, allowed = energies_of_impacts(contact_sphere("ball", radius=RADIUS), 10_000, length=150)
    assert np.all(np.max(np.diff(total, axis=1), axis=1) <= allowed)
    assert np.all(np.max(total, axis=1) - total[:, 0] <= allowed)


@pytest.mark.thorough
def test_boxes_that_strike_with_several_corners_do_not_gain_energy(optimized):
    total, stored, kinetic, allowed = energies_of_impacts(contact_box("ball", (0.1, 0.1, 0.1)), 2_000, length=150)
    of_body = total - stored
    assert np.all(np.max(of_body, axis=1) - total[:, 0] <= allowed)
    # Within a motion, the rotation of a box during a step adds a small error of its own to one of a hundred motions.
    gain = np.max(of_body - np.minimum.accumulate(total, axis=1), axis=1)
    assert np.mean(gain > allowed) < 0.015
    assert np.all(gain - allowed <= 0.025 * np.max(kinetic, axis=1))


def quadruped(stiffer=1.0):
    model = library.quadruped()
    q = np.zeros(19)
    q[2:4] = 0.4 * np.cos(0.6) + 0.02, 1.0  # the feet touch the ground
    q[7:] = np.tile([0.0, 0.6, -1.2], 4)
    q = jnp.asarray(q)
    usual = ContactMaterial.of(model)
    points = [contact_sphere(foot, radius=0.02) for foot in FEET]
    contact = GroundContact.of(
        model, points, stiffness=stiffer * usual.stiffness, damping=np.sqrt(stiffer) * usual.damping, slip_speed=2e-4
    )
    legs = jnp.asarray(np.r_[np.zeros(6), np.ones(12)])
    return System(model, (JointServo(80.0 * legs, 2.0 * legs, q), contact)), q


@pytest.mark.parametrize(
    ("dtype", "stiffer", "dt"), first(1, [("float32", 1.0, 2e-3), ("float64", 1.0, 2e-3), ("float64", 100.0, 5e-3)])
)
def test_a_standing_quadruped_carries_its_weight_and_does_not_drift(dtype, stiffer, dt):
    system, q = quadruped(stiffer)
    system, q = as_dtype(system, jnp.dtype(dtype)), q.astype(dtype)
    settled = rollout(system, system.at_rest(q), dt=dt, steps=round(3.0 / dt)).final
    later = rollout(system, settled, dt=dt, steps=round(10.0 / dt)).final
    weight = GRAVITY * float(jnp.sum(system.model.mass))
    before, after = contact_forces(system, settled), contact_forces(system, later)
    for contacts in (before, after):
        assert abs(float(jnp.sum(contacts.force[:, 2])) - weight) < 0.1
    assert np.max(np.linalg.norm(after.position - before.position, axis=1)) < 1e-3
    assert np.linalg.norm(later.q[:3] - settled.q[:3]) < 1e-3


def test_feet_of_a_standing_quadruped_press_as_in_mujoco():
    mujoco = pytest.importorskip("mujoco")
    system, q = quadruped()
    settled = rollout(system, system.at_rest(q), dt=2e-3, steps=1500).final
    ours = np.asarray(contact_forces(system, settled).force)
    other = mujoco.MjModel.from_xml_string(as_mjcf(system.model, q))
    data = mujoco.MjData(other)
    data.qpos[:], data.ctrl[:] = np.asarray(q), np.asarray(q[7:])
    for _ in range(1500):
        mujoco.mj_step(other, data)
    theirs = np.zeros(4)
    for i in range(data.ncon):
        wrench = np.zeros(6)
        mujoco.mj_contactForce(other, data, i, wrench)
        name = mujoco.mj_id2name(other, mujoco.mjtObj.mjOBJ_GEOM, max(data.contact[i].geom1, data.contact[i].geom2))
        theirs[FEET.index(name)] += wrench[0]
    np.testing.assert_allclose(ours[:, 2], theirs, rtol=0.05)


def as_mjcf(model, q):
    """The mechanism on a plane with the same servos, as text."""
    topology = model.topology

    def text(values):
        return " ".join(f"{float(x):.12g}" for x in np.ravel(values))

    def body(i):
        inertia = np.asarray(model.inertia[i])
        name = topology.body_name(i)
        joint = topology.joint_names[i]
        place = "" if i == 0 else f'pos="{text(placement[i][0])}" quat="{text(placement[i][1])}"'
        lines = [f'<body name="{name}" {place}>']
        lines.append(
            f'<inertial pos="{text(model.com[i])}" mass="{float(model.mass[i])}" fullinertia="{text(inertia)}"/>'
        )
        if i == 0:
            lines.append(f'<freejoint name="{joint}"/>')
        else:
            armature = float(model.armature[int(topology.v_starts[i])])
            lines.append(f'<joint name="{joint}" axis="{text(axes[i])}" armature="{armature}"/>')
        for foot in FEET:
            at, point = model.locate(foot, (0.0, 0.0, 0.0))
            if at == i:
                lines.append(
                    f'<geom name="{foot}" type="sphere" size="0.02" pos="{text(point)}" contype="1" conaffinity="1"/>'
                )
        lines += [body(j) for j in range(topology.nb) if topology.parents[j] == i]
        return "\n".join([*lines, "</body>"])

    placement = {i: (model.placement.translation[i], model.placement.quaternion[i]) for i in range(model.nb)}
    axes = {}
    for (_, bodies), joint in zip(topology.groups, model.joints, strict=True):
        for k, i in enumerate(bodies):
            axes[int(i)] = getattr(joint, "axis", np.zeros((len(bodies), 3)))[k]
    servos = "\n".join(f'<position joint="{topology.joint_names[i]}" kp="80" kv="2"/>' for i in range(1, model.nb))
    return f"""<mujoco><option timestep="0.002" gravity="0 0 -{GRAVITY}" integrator="implicitfast" cone="elliptic" impratio="10"/>
    <worldbody><geom type="plane" size="5 5 1" friction="0.8 0 0"/>{body(0)}</worldbody>
    <actuator>{servos}</actuator></mujoco>"""


@pytest.mark.thorough
def test_gradients_through_touch_down_sliding_and_lift_off_are_difference_quotients(optimized):
    """A ball falls with spin and sideways speed, slides, and rebounds; derivatives by the start, the speeds and the material."""
    model = ball()
    usual = GroundContact.of(
        model, contact_sphere("ball", radius=RADIUS), stiffness=2e4, damping=40.0, friction=0.3, torsion_radius=0.01
    )
    rng = np.random.default_rng(3)

    def outcome(numbers):
        material, height, v = numbers
        system = System(model, (eqx.tree_at(lambda c: c.material, usual, material),))
        q = jnp.concatenate([jnp.zeros(2), RADIUS + height[None], jnp.array([1.0, 0.0, 0.0, 0.0])])
        trajectory = rollout(system, State(q, v), dt=1e-3, steps=90)
        return jnp.array(rng_weights) @ jnp.concatenate([trajectory.final.q, trajectory.final.v])

    rng_weights = rng.normal(size=13)
    direction = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=np.shape(x))) * jnp.maximum(jnp.abs(x), 0.1), usual.material
    )
    starts = 24
    heights = jnp.asarray(rng.uniform(0.002, 0.04, starts))
    speeds = jnp.asarray(rng.normal(size=(starts, 6)) * [5, 5, 5, 1, 1, 0.2] - [0, 0, 0, 0, 0, 1.0])
    by_height, by_speed = jnp.asarray(rng.normal(size=starts)), jnp.asarray(rng.normal(size=(starts, 6)))

    @jax.jit
    def values(height, v, dh, dv, eps):
        def along(s):
            material = jax.tree.map(lambda x, d: x + s * 0.1 * d, usual.material, direction)
            return jax.vmap(lambda h, v, dh, dv: outcome((material, h + s * 0.01 * dh, v + s * dv)))(height, v, dh, dv)

        return along(eps), jax.jvp(along, (eps,), (jnp.ones(()),))[1]

    given = (heights, speeds, by_height, by_speed)
    slope = values(*given, jnp.zeros(()))[1]
    eps = 1e-6
    near = (values(*given, jnp.asarray(eps))[0] - values(*given, jnp.asarray(-eps))[0]) / (2 * eps)
    far = (values(*given, jnp.asarray(2 * eps))[0] - values(*given, jnp.asarray(-2 * eps))[0]) / (4 * eps)
    quotient = (4 * near - far) / 3
    np.testing.assert_allclose(slope, quotient, rtol=1e-5, atol=1e-5 * float(np.max(np.abs(quotient))))
    backward = jax.jit(jax.grad(lambda v: jnp.sum(jax.vmap(lambda h, v: outcome((usual.material, h, v)))(heights, v))))(
        speeds
    )
    assert np.all(np.isfinite(backward))
