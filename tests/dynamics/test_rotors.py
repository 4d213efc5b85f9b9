"""Geared rotors, theory.md section (r): against rotors that are bodies, published equations, and every form of mechanics."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from random_trees import close, geared, random_inertia, random_model, random_motion, random_unit
from stacked_reactions import stacked

import jaxdyn
from jaxdyn import (
    Coupling,
    Fixed,
    Free,
    MechanismBuilder,
    MechanismError,
    Model,
    Prismatic,
    Revolute,
    Spherical,
    State,
    System,
    UnknownName,
    configuration,
)
from jaxdyn.dynamics import rotors as spinning


def tree(parents=(-1, 0, 1, 1), kinds="SURP") -> Model:
    return random_model(np.random.default_rng(3), len(parents), parents=parents, kinds=kinds, armature=True)


def without_ball_armature(model: Model) -> Model:
    """An armature on a ball joint is a force and no kinetic energy."""
    scalar = np.array([kind.nv == 1 for kind in model.topology.joint_classes])[model.topology.body_of_column]
    return eqx.tree_at(lambda m: m.armature, model, jnp.where(scalar, model.armature, 0.0))


@jax.jit
def forms(model, q, v, a):
    """The forms of the mechanics, in one program."""

    momentum = jaxdyn.dynamics.generalized_momentum(model, q, v)
    tau = jaxdyn.inverse_dynamics(model, q, v, a)
    kane = jaxdyn.formulations.kane_forces(model, q, v, a, tau)
    return {
        "mass": jaxdyn.mass_matrix(model, q),
        "closed": jaxdyn.mass_matrix(model, q, method="closed_form"),
        "energy": jaxdyn.kinetic_energy(model, q, v),
        "slope": jax.grad(lambda v: jaxdyn.kinetic_energy(model, q, v))(v),
        "momentum": momentum,
        "hamiltonian": jaxdyn.formulations.hamiltonian(model, q, momentum) - jaxdyn.potential_energy(model, q),
        "tau": tau,
        "bias": jaxdyn.bias_force(model, q, v),
        "lagrange": jaxdyn.formulations.lagrange_forces(model, q, v, a) - jaxdyn.gravity_force(model, q),
        "gibbs": jaxdyn.formulations.gibbs_appell_forces(model, q, v, a),
        "kane": kane.active + kane.inertia,
        "connection": jaxdyn.connection_first_kind(model, q),
        "koszul": jaxdyn.connection_first_kind(model, q, method="autodiff"),
    }


@pytest.mark.thorough
def test_all_forms_of_mechanics_agree_with_the_kinetic_energy_of_the_rotors():
    """Carriers that are moved by a ball joint, as prescribed, and by columns that move in their body."""
    shape = {"parents": [-1, 0, 1, 2, 2], "kinds": "SrURR"}
    model = without_ball_armature(random_model(np.random.default_rng(3), 5, armature=True, **shape))
    model = geared(model, (2, 3), (0, 4), (1, 4), (-1, 3), (4, 4), (3, 4))
    q, v, a = random_motion(np.random.default_rng(4), model)
    f = forms(model, q, v, a)
    M = f["mass"]
    close(f["closed"], M, scale=10.0)
    close(f["momentum"], f["slope"], scale=100.0)
    close(M @ a, f["tau"] - f["bias"], scale=1000.0)
    close(f["lagrange"], f["tau"], scale=1000.0)
    close(f["gibbs"], f["tau"], scale=1000.0)
    close(f["kane"], 0.0, scale=1000.0)
    close(f["hamiltonian"], f["momentum"] @ v - f["energy"], scale=1000.0)
    close(f["connection"], f["koszul"], scale=100.0)
    resting = eqx.tree_at(lambda m: m.rotors.ratio, model, 0.0 * model.rotors.ratio)
    without = forms(resting, q, v, a)
    for name in ("mass", "tau", "connection", "momentum"):
        assert np.max(np.abs(without[name] - f[name])) > 0.01, name


# --- rotors that are bodies ---

# name -> carrier, driven joint, where in the carrier, ratio.
DRIVES = {
    "beside": ("base", "arm", (0.1, -0.2, 0.3), -6.0),
    "far": ("base", "slide", (0.2, 0.1, -0.1), 4.0),
    "own": ("slide", "slide", (0.0, 0.1, 0.2), 5.0),
}


def drive_trains(as_bodies: bool) -> System:
    """A free base with a turning arm and a slide on it, and three rotors on axes of no preference."""
    rng = np.random.default_rng(7)
    builder = MechanismBuilder("drive trains", gravity=(0.3, -1.0, -9.0))
    for name, parent, joint in [
        ("base", "ground", Free()),
        ("arm", "base", Revolute(random_unit(rng))),
        ("slide", "arm", Prismatic(random_unit(rng))),
    ]:
        mass = rng.uniform(1.0, 2.0)
        com, inertia = random_inertia(rng, mass, 0.3)
        where = {"position": rng.normal(size=3), "orientation": random_unit(rng, 4)}
        builder.add_body(name, parent=parent, joint=joint, mass=mass, com=com, inertia=inertia, **where)
    couplings = []
    for k, (name, (carrier, driven, position, ratio)) in enumerate(DRIVES.items()):
        axis, along, across = random_unit(rng), rng.uniform(0.01, 0.02), 0.015
        inertia = across * np.eye(3) + (along - across) * np.outer(axis, axis)
        joint = Revolute(axis) if as_bodies else Fixed()
        builder.add_body(name, parent=carrier, joint=joint, position=position, mass=0.3, inertia=inertia)
        couplings.append(Coupling(name, 9 + k, {"arm": 7, "slide": 8}[driven], [0.0, ratio]))
        if not as_bodies:
            builder.add_rotor(name, carrier=name, joint=driven, inertia=along, ratio=ratio, axis=axis)
    return System(builder.build(), constraints=tuple(couplings) if as_bodies else ())


def test_rotors_do_what_bodies_with_coupled_joints_do():
    short, long = drive_trains(as_bodies=False), drive_trains(as_bodies=True)
    model = short.model
    q, v, u = random_motion(np.random.default_rng(8), model)
    spins = jnp.array([-6.0 * v[6], 4.0 * v[7], 5.0 * v[7]])
    turned = jnp.array([-6.0 * q[7], 4.0 * q[8], 5.0 * q[8]])

    @jax.jit
    def found(system, state, u):
        reactions = jaxdyn.joint_reactions(system, state, u)
        return {
            "a": jaxdyn.acceleration(system, state, u),
            "energy": jaxdyn.total_energy(system, state),
            "angular momentum": jaxdyn.angular_momentum(system.model, state.q, state.v),
            "reactions": stacked({name: reactions[name] for name in model.topology.joint_names[:3]}),
        }

    with_rotors = found(short, State(q, v), u)
    with_bodies = found(long, State(jnp.append(q, turned), jnp.append(v, spins)), jnp.append(u, jnp.zeros(3)))
    close(with_rotors["a"], with_bodies["a"][: model.nv], scale=1e3)
    close(with_rotors["energy"], with_bodies["energy"], scale=100.0)
    close(with_rotors["angular momentum"], with_bodies["angular momentum"], scale=100.0)
    for part in ("force", "moment"):
        close(getattr(with_rotors["reactions"], part), getattr(with_bodies["reactions"], part), scale=1e3)
    slow = eqx.tree_at(lambda s: s.model.rotors.ratio, short, 0.0 * model.rotors.ratio)
    assert np.max(np.abs(found(slow, State(q, v), u)["a"] - with_rotors["a"])) > 0.1


def test_articulated_bodies_carry_rotors_beside_their_joints_and_refuse_others():
    model = geared(tree((-1, 0, 1, 1), "SRRP"), (0, 1), (2, 2), (1, 3), (-1, 2), (2, 2))
    q, v, a = random_motion(np.random.default_rng(9), model)

    @jax.jit
    def undone(model, q, v, a):
        tau = jaxdyn.inverse_dynamics(model, q, v, a)
        by_factors = jaxdyn.forward_dynamics(model, q, v, tau)

        def articulated(tau):
            return jaxdyn.forward_dynamics(model, q, v, tau, method="articulated_body")

        articulated, response = jax.jvp(articulated, (tau,), (v,))
        return by_factors, articulated, jaxdyn.mass_matrix(model, q) @ response

    by_factors, articulated, force = undone(model, q, v, a)
    close(by_factors, a, scale=1e3)
    close(articulated, a, scale=1e3)
    close(force, v, scale=1e3)
    remote = geared(model, (0, 3))
    with pytest.raises(ValueError, match=r"carried by 'body 0'.*not adjacent.* use method=\"cholesky\""):
        jaxdyn.forward_dynamics(remote, q, v, a, method="articulated_body")


def test_derivatives_by_the_rule_written_by_hand_are_difference_quotients():
    model = geared(tree((-1, 0, 1), "SRR"), (0, 1), (1, 2), (2, 2))
    motion = random_motion(np.random.default_rng(10), model)
    check_derivatives(jax.jit(lambda motion: jaxdyn.inverse_dynamics(model, *motion)), motion, orders=1, in_lanes=True)


# --- the double pendulum of the DFKI ---


def test_geared_double_pendulum_has_the_published_mass_matrix_and_forces():
    """Wiebe et al., IEEE RAM 2023: motor 1 on the ground, motor 2 in link 1, both geared by 6; inertias about the joints."""
    l1, r1, r2, m1, m2, g = 0.2, 0.15, 0.22, 0.6, 0.5, 9.81
    I1, I2, Ir, gr = 0.02, 0.03, 6e-5, 6.0
    planar = np.diag([0.0, 1.0, 0.0]) + np.diag([1.0, 0.0, 0.0])
    builder = MechanismBuilder("double pendulum", gravity=(0.0, 0.0, -g))
    # What the paper calls I1 + Ir is link 1 with rotor 2 at standstill.
    link1 = planar * (I1 + Ir - m1 * r1**2)
    builder.add_body(
        "link1", joint=Revolute((0, -1, 0)), mass=m1, com=(0, 0, -r1), inertia=link1, joint_name="shoulder"
    )
    link2 = {"position": (0, 0, -l1), "mass": m2, "com": (0, 0, -r2), "inertia": planar * (I2 - m2 * r2**2)}
    builder.add_body("link2", parent="link1", joint=Revolute((0, -1, 0)), joint_name="elbow", **link2)
    builder.add_rotor("motor1", carrier="ground", joint="shoulder", inertia=Ir, ratio=gr)
    builder.add_rotor("motor2", carrier="link1", joint="link2", inertia=Ir, ratio=-gr)
    model = builder.build()
    np.testing.assert_array_equal(model.rotors.axis, [[0, -1, 0], [0, -1, 0]])
    q, v, a = map(jnp.asarray, np.random.default_rng(11).normal(size=(3, 2)))
    s1, s2, c2, s12, h = np.sin(q[0]), np.sin(q[1]), np.cos(q[1]), np.sin(q[0] + q[1]), m2 * l1 * r2
    m12 = I2 + h * c2 - gr * Ir
    M = np.array([[I1 + I2 + m2 * l1**2 + 2 * h * c2 + gr**2 * Ir + Ir, m12], [m12, I2 + gr**2 * Ir]])
    C = np.array([-2 * h * s2 * v[0] * v[1] - h * s2 * v[1] ** 2, h * s2 * v[0] ** 2])
    G = np.array([-g * (m1 * r1 + m2 * l1) * s1 - g * m2 * r2 * s12, -g * m2 * r2 * s12])
    close(jax.jit(jaxdyn.mass_matrix)(model, q), M)
    close(jax.jit(jaxdyn.inverse_dynamics)(model, q, v, a), M @ a + C - G, scale=10.0)


# --- building, transforming, filing ---


def test_models_without_rotors_have_no_trace_of_them_in_their_programs(monkeypatch):
    for name in ("spin_columns", "moments", "along_columns", "coupling_metric", "kinetic_energy", "angular_momentum"):
        monkeypatch.setattr(spinning, name, None)
    jax.clear_caches()
    model = tree()
    q, v, a = random_motion(np.random.default_rng(12), model)
    for function in (jaxdyn.inverse_dynamics, jaxdyn.forward_dynamics, jaxdyn.formulations.acceleration_energy):
        jax.make_jaxpr(function)(model, q, v, a)
    jax.make_jaxpr(
        lambda m, q, v: jaxdyn.formulations.hamiltonian(m, q, jaxdyn.dynamics.generalized_momentum(m, q, v))
    )(model, q, v)


def test_decomposed_and_released_mechanisms_keep_their_rotors():
    model = geared(without_ball_armature(tree((-1, 0, 1, 1), "SuRP")), (1, 2), (0, 3), (-1, 3))
    q, v, _ = random_motion(np.random.default_rng(13), model)
    free = jaxdyn.release_joints(model)
    assert [free.topology.body_of_column[column] for column in free.rotors.columns] == [2, 3, 3]

    @jax.jit
    def energies(model, free, q, v):
        moving = configuration.to_released(model, q, v, v)
        primitive = jaxdyn.decompose_joints(free)

        def coordinates(t):
            on_path = configuration.integrate(free, moving[0], t * moving[1])
            return configuration.to_primitives(free, on_path)

        at = jax.jvp(coordinates, (jnp.zeros(()),), (jnp.ones(()),))
        return [
            jaxdyn.kinetic_energy(model, q, v),
            jaxdyn.kinetic_energy(free, *moving[:2]),
            jaxdyn.kinetic_energy(primitive, *at),
        ]

    as_given, as_free, as_primitive = energies(model, free, q, v)
    close(as_free, as_given, scale=100.0)
    close(as_primitive, as_given, scale=100.0)


def test_builder_finds_the_axis_of_the_joint_and_of_merged_carriers():
    builder = MechanismBuilder("axes")
    quarter = (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)  # about x: z of the inside is -y of the outside
    solid = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
    builder.add_body("base", joint=Spherical(), **solid)
    builder.add_body("motor", parent="base", joint=Fixed(), orientation=quarter, **solid)
    builder.add_body("arm", parent="motor", joint=Revolute((0, 0, 1)), orientation=quarter, **solid)
    numbers = {"joint": "arm_joint", "inertia": 0.01, "ratio": 50.0}
    builder.add_rotor("given", carrier="motor", axis=(0, 0, 1), **numbers)
    builder.add_rotor("of the joint", carrier="motor", **numbers)
    builder.add_rotor("in the arm", carrier="arm", **numbers)
    model = builder.build()
    assert model.rotors.carriers == (0, 0, 1)
    assert model.rotors.columns == (3, 3, 3)
    np.testing.assert_allclose(model.rotors.axis, [[0, -1, 0], [0, 0, -1], [0, 0, 1]], atol=1e-15)
    assert "rotor given: carried by base, 50 times the rate of arm_joint" in model.summary()


REFUSED = {
    "its carrier: there is no body 'bse' (did you mean 'base'?)": {"carrier": "bse"},
    "its joint: there is no joint 'arm_jont' (did you mean 'arm_joint'?)": {"joint": "arm_jont"},
    "its joint 'base_joint' has 3 velocity components; use a joint that has one": {"joint": "base"},
    "it does not drive a revolute joint adjacent to its carrier; give its axis": {"carrier": "ground"},
    "its axis has length 2; give the unit vector (0.0, 0.0, 1.0)": {"axis": (0, 0, 2)},
    "inertia is -1 kg m^2; give a positive value": {"inertia": -1},
    "ratio is nan; give finite values": {"ratio": np.nan},
    "the inertia of its carrier 'base' is too small to include that of the rotor, 0.2": {"inertia": 0.2},
}


@pytest.mark.parametrize("message", REFUSED)
def test_rotors_that_do_not_fit_are_refused_by_name(message):
    builder = MechanismBuilder("refused")
    builder.add_body("base", joint=Spherical(), mass=1.0, inertia=(0.1, 0.1, 0.1))
    builder.add_body("arm", parent="base", joint=Revolute((0, 0, 1)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    numbers = {"carrier": "base", "joint": "arm", "inertia": 0.01, "ratio": 6} | REFUSED[message]

    def build():
        builder.add_rotor("motor", **numbers)
        builder.build()

    with pytest.raises((MechanismError, UnknownName), match=re.escape(f"rotor 'motor': {message}")):
        build()
