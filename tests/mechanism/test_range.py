"""Precisions that have no room for the inertias of a mechanism: said where the numbers are known, and only there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import Free, MechanismBuilder, MechanismError, Planar, Prismatic, Revolute, Spherical, System, Universal
from jaxdyn.mechanism.model import as_dtype

Y = (0.0, 1.0, 0.0)
JOINTS = [Revolute(Y), Spherical(), Universal((1.0, 0.0, 0.0), Y), Free(), Planar(Y, (1.0, 0.0, 0.0)), Prismatic(Y)]


def chain(joint, length: float, mass: float, *, armature: float = 0.0) -> MechanismBuilder:
    builder, parent = MechanismBuilder("chain"), "ground"
    for name in "abc":
        inertia = mass * length**2 * np.array([1.0, 1.0, 0.1]) / 12.0
        builder.add_body(
            name,
            joint=joint,
            parent=parent,
            position=(0.0, 0.0, -length),
            mass=mass,
            com=(0.0, 0.0, -0.5 * length),
            inertia=inertia,
            armature=armature,
        )
        parent = name
    return builder


@pytest.mark.parametrize("joint", JOINTS[:-1], ids=lambda joint: type(joint).__name__)
def test_inertias_that_underflow_are_refused_with_the_body_and_the_remedy(joint):
    builder = chain(joint, 1e-9, 1e-24)
    with pytest.raises(MechanismError, match=r"body '[abc]'.*underflows in float32.*float64.*units"):
        builder.build(dtype=jnp.float32)
    model = builder.build(dtype=jnp.float64)
    for wide in (model, System(model)):
        with pytest.raises(MechanismError, match="underflows in float32"):
            as_dtype(wide, jnp.float32)


@pytest.mark.parametrize("joint", JOINTS, ids=lambda joint: type(joint).__name__)
@pytest.mark.parametrize(("length", "mass"), [(1e-3, 1e-6), (1e-6, 1e-12), (1.0, 1.0), (1e3, 1e6), (1e6, 1e20)])
def test_sizes_that_single_precision_has_are_left_alone(joint, length, mass):
    assert chain(joint, length, mass).build(dtype=jnp.float32).dtype == jnp.float32


@pytest.mark.parametrize(("distance", "fits"), [(1e3, True), (1e10, False)])
def test_the_distances_between_joints_count(distance, fits):
    builder, parent = MechanismBuilder("far apart"), "ground"
    for name in "abcde":
        position, inertia = (distance, 0.0, 0.0), 1e20 * np.ones(3)
        builder.add_body(name, joint=Revolute(Y), parent=parent, position=position, mass=1e20, inertia=inertia)
        parent = name
    if fits:
        assert builder.build(dtype=jnp.float32).dtype == jnp.float32
    else:
        with pytest.raises(MechanismError, match=r"body '[a-d]'.*overflows in float32"):
            builder.build(dtype=jnp.float32)


def test_what_is_left_alone_has_accelerations_and_what_is_refused_has_none():
    """At the bound, from both sides: a chain of ordinary proportions, smaller by and by."""

    @jax.jit
    def accelerations(model, q):
        return jaxdyn.acceleration(System(model), jaxdyn.State(q, jnp.zeros_like(q)), jnp.zeros_like(q))

    q = jnp.array([0.3, -0.4, 0.5])
    for exponent in range(-10, 0):
        wide = chain(Revolute(Y), 10.0**exponent, 10.0 ** (3 * exponent + 3)).build()
        # As before the check: the cast alone.
        narrow = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, wide)
        exact, rounded = accelerations(wide, q), accelerations(narrow, q.astype(jnp.float32))
        try:
            as_dtype(wide, jnp.float32)
        except MechanismError:
            assert exponent < -5
        else:
            np.testing.assert_allclose(rounded, exact, rtol=1e-4)
    assert not np.all(np.isfinite(accelerations(*as_float32(chain(Revolute(Y), 1e-9, 1e-24).build(), q))))


def as_float32(model, q):
    return jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, (model, q))


def test_masses_that_slide_need_no_moment_and_an_armature_makes_up_for_one():
    assert chain(Prismatic(Y), 1e-9, 1e-24).build(dtype=jnp.float32).nv == 3
    assert chain(Revolute(Y), 1e-9, 1e-24, armature=1e-20).build(dtype=jnp.float32).nv == 3
    with pytest.raises(MechanismError, match=r"body 'a'.*underflows"):
        chain(Prismatic(Y), 1.0, 1e-33).build(dtype=jnp.float32)


@pytest.mark.filterwarnings("ignore::jaxdyn.mechanism.messages.ImplausibleInertia")
def test_inertias_that_overflow_are_refused():
    with pytest.raises(MechanismError, match=r"body 'a'.*overflows in float32.*float64.*larger"):
        chain(Revolute(Y), 1e12, 1e20).build(dtype=jnp.float32)


def test_models_under_jit_and_batches_are_not_judged():
    model = chain(Revolute(Y), 1e-9, 1e-24).build()
    assert jax.jit(lambda model: as_dtype(model, jnp.float32).mass)(model).dtype == jnp.float32
    batch = jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_inexact_array(x) else x, model)
    assert as_dtype(batch, jnp.float32).mass.shape == (2, 3)
