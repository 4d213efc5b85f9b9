"""Every function of the room under jit, vmap, forward and reverse mode, and in single precision."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations

from jaxdyn.compute import arrays
from jaxdyn.compute.hints import written_out
from jaxdyn.spatial import inertia, quaternion, rotation, series, sixvector, transform
from jaxdyn.spatial.inertia import SpatialInertia
from jaxdyn.spatial.transform import RigidTransform

BATCH = 3
STEP = 1e-5
COEFFICIENTS = np.random.default_rng(1).integers(-1, 2, (2, 3, 4)).astype(float)

# Function and the shapes of its arguments; random numbers of order one are good arguments for all of them.
FUNCTIONS = {
    arrays.einsum: (lambda a, b: arrays.einsum("ij,j->i", a, b), [(3, 3), (3,)]),
    arrays.dot: (arrays.dot, [(3, 3), (3,)]),
    arrays.linear: (lambda a: arrays.linear(COEFFICIENTS, a), [(4,)]),
    arrays.bilinear: (lambda a, b: arrays.bilinear(COEFFICIENTS, a, b), [(3,), (4,)]),
    arrays.rows_at: (lambda x: arrays.rows_at(x, np.array([[2, -1], [0, 2]])), [(4, 2)]),
    arrays.zero_safe_norm: (arrays.zero_safe_norm, [(3,)]),
    quaternion.multiply: (quaternion.multiply, [(4,), (4,)]),
    quaternion.conjugate: (quaternion.conjugate, [(4,)]),
    quaternion.inverse: (quaternion.inverse, [(4,)]),
    quaternion.normalize: (quaternion.normalize, [(4,)]),
    quaternion.rotate: (quaternion.rotate, [(4,), (3,)]),
    quaternion.to_matrix: (quaternion.to_matrix, [(4,)]),
    quaternion.from_matrix: (lambda u: quaternion.from_matrix(rotation.exponential(u)), [(3,)]),
    quaternion.from_axis_angle: (quaternion.from_axis_angle, [(3,), ()]),
    quaternion.exponential: (quaternion.exponential, [(3,)]),
    quaternion.logarithm: (quaternion.logarithm, [(4,)]),
    quaternion.rate: (quaternion.rate, [(4,), (3,)]),
    quaternion.rate_from_outer: (quaternion.rate_from_outer, [(4,), (3,)]),
    quaternion.body_rates: (quaternion.body_rates, [(4,), (4,)]),
    quaternion.from_angles_xyz: (quaternion.from_angles_xyz, [(3,)]),
    quaternion.to_angles_xyz: (quaternion.to_angles_xyz, [(4,)]),
    rotation.cross: (rotation.cross, [(2, 1, 3), (1, 4, 3)]),
    rotation.skew: (rotation.skew, [(3,)]),
    rotation.unskew: (rotation.unskew, [(3, 3)]),
    rotation.rodrigues: (rotation.rodrigues, [(3,), ()]),
    rotation.exponential: (rotation.exponential, [(3,)]),
    series.cos_root: (lambda x: series.cos_root(x**2), [()]),
    series.sinc_root: (lambda x: series.sinc_root(x**2), [()]),
    series.versine_root: (lambda x: series.versine_root(x**2), [()]),
    series.sine_remainder_root: (lambda x: series.sine_remainder_root(x**2), [()]),
    series.cotangent_remainder_root: (lambda x: series.cotangent_remainder_root(x**2), [()]),
    series.decay_quotient: (series.decay_quotient, [()]),
    series.tanh_quotient: (series.tanh_quotient, [()]),
    series.arctan_quotient: (lambda x: series.arctan_quotient(0.001 * x**2), [()]),
    sixvector.cross_motion: (sixvector.cross_motion, [(6,), (6,)]),
    sixvector.cross_force: (sixvector.cross_force, [(6,), (6,)]),
    sixvector.motion_to_outer: (sixvector.motion_to_outer, [(3, 3), (3,), (6,)]),
    sixvector.force_at_point: (sixvector.force_at_point, [(3,), (3,), (3,)]),
    sixvector.velocity_at_point: (sixvector.velocity_at_point, [(6,), (3,)]),
    inertia.symmetric_matrix: (inertia.symmetric_matrix, [(6,)]),
    inertia.symmetric_entries: (inertia.symmetric_entries, [(3, 3)]),
    inertia.planar_from_inertia: (inertia.planar_from_inertia, [(3, 3)]),
    inertia.inertia_from_planar: (inertia.inertia_from_planar, [(3, 3)]),
    SpatialInertia.of_body: (SpatialInertia.of_body, [(), (3,), (3, 3)]),
    SpatialInertia.of_planar: (SpatialInertia.of_planar, [(), (3,), (3, 3)]),
    SpatialInertia.momentum: (lambda m, h, p, v: SpatialInertia(m, h, p).momentum(v), [(), (3,), (3, 3), (6,)]),
    SpatialInertia.matrix: (lambda m, h, p: SpatialInertia(m, h, p).matrix, [(), (3,), (3, 3)]),
    SpatialInertia.pseudo_inertia: (lambda m, h, p: SpatialInertia(m, h, p).pseudo_inertia, [(), (3,), (3, 3)]),
    RigidTransform.compose: (
        lambda q, p, r, s: RigidTransform(q, p).compose(RigidTransform(r, s)),
        [(4,), (3,), (4,), (3,)],
    ),
    RigidTransform.exponential: (RigidTransform.exponential, [(6,)]),
    RigidTransform.logarithm: (lambda q, p: RigidTransform(q, p).logarithm(), [(4,), (3,)]),
    RigidTransform.row: (lambda q, p: RigidTransform(q[None], p[None]).row(0), [(4,), (3,)]),
    RigidTransform.inverse: (lambda q, p: RigidTransform(q, p).inverse(), [(4,), (3,)]),
    RigidTransform.apply: (lambda q, p, r: RigidTransform(q, p).apply(r), [(4,), (3,), (3,)]),
    RigidTransform.rotation: (lambda q, p: RigidTransform(q, p).rotation, [(4,), (3,)]),
}
# These take no numbers to differentiate or batch.
CONSTANTS = {
    arrays.as_numpy,
    arrays.beside,
    arrays.floating,
    arrays.floating_or_none,
    arrays.on_device,
    quaternion.identity,
    RigidTransform.identity,
}


def name(item) -> str:
    item = item.fget if isinstance(item, property) else item
    return f"{item.__module__.split('.')[-1]}.{item.__qualname__}"


def arguments(shapes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(BATCH, *shape)), dtype) for shape in shapes]


def test_table_holds_every_public_function_of_the_room():
    public = set()
    for module in (arrays, inertia, quaternion, rotation, series, sixvector, transform):
        for item in [m for n, m in vars(module).items() if not n.startswith("_")]:
            if inspect.isfunction(item) and item.__module__ == module.__name__:
                public.add(name(item))
    for kind in (SpatialInertia, RigidTransform):
        public |= {
            name(getattr(kind, n)) for n in vars(kind) if not n.startswith("_") and n not in kind.__annotations__
        }
    assert {name(item) for item in [*FUNCTIONS, *CONSTANTS]} == public


def every() -> dict:
    """Of all functions: values of a batch and of one sample, both modes of differentiation, and difference quotients."""

    def of(function, shapes):
        args, directions = arguments(shapes), arguments(shapes, seed=1)
        batch = jax.vmap(function)
        value, tangent = jax.jvp(batch, args, directions)
        weights = jax.tree.map(lambda y: np.cos(3.0 * np.arange(y.size)).reshape(y.shape), value)
        cotangents = jax.vjp(batch, *args)[1](weights)
        ahead, behind = (batch(*jax.tree.map(lambda x, d: x + h * d, args, directions)) for h in (STEP, -STEP))  # noqa: B023
        return {
            "value": value,
            "one value": function(*(x[0] for x in args)),
            "tangent": tangent,
            "quotient": jax.tree.map(lambda a, b: (a - b) / (2 * STEP), ahead, behind),
            "cotangents": cotangents,
            "products": (dot(weights, tangent), dot(cotangents, tuple(directions))),
        }

    return {name(item): of(function, shapes) for item, (function, shapes) in FUNCTIONS.items()}


def dot(x, y):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


def same(found, expected, tolerance: float, law: str) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=law)


@pytest.fixture(scope="module")
def results() -> dict:
    """All functions in one program, which takes a fraction of the time of a program for each."""
    return jax.device_get(jax.jit(every)())


def test_compiled_batch_equals_single_calls(results):
    for law, r in results.items():
        # The compiler may fuse multiplications and additions: a few roundings of numbers of order ten.
        same(jax.tree.map(lambda x: x[0], r["value"]), r["one value"], 1e-13, law)


def test_both_modes_of_differentiation_agree_with_finite_differences(results):
    for law, r in results.items():
        # Central differences with steps of 1e-5 have errors of 1e-10 times third derivatives, and 1e-11 of rounding.
        same(r["tangent"], r["quotient"], 1e-7, law)
        same(*r["products"], 1e-11, law)


def test_form_for_scalar_programs_has_the_same_values_and_derivatives(results):
    with written_out():
        scalar = jax.jit(lambda: every())()
    for law, r in results.items():
        for part in ("value", "tangent", "cotangents"):
            # The order of sums of numbers of order ten differs.
            same(scalar[law][part], r[part], 1e-13, f"{part} of {law}")


@pytest.mark.parametrize("positions", [[0, 1, 2, 3], [1, 2], [[1], [2]], [2, 1], [3, -1], [-2, -1], [0, 0], []])
def test_rows_are_those_of_numpy(positions):
    (x,) = arguments([(4, 2)])
    positions = np.array(positions, int)
    np.testing.assert_array_equal(arrays.rows_at(x[0], positions), np.asarray(x[0])[positions])


def test_single_precision_stays_single_precision():
    """Value, forward and reverse mode; double precision is enabled here, so every leak would show."""
    for item, (function, shapes) in FUNCTIONS.items():

        def value_and_derivatives(*args, function=function):
            value, tangent = jax.jvp(function, args, args)
            _, back = jax.vjp(function, *args)
            return value, tangent, back(value)

        jaxpr = jax.make_jaxpr(value_and_derivatives)(*(x[0] for x in arguments(shapes, np.float32)))
        variables = [v for equation in equations(jaxpr.jaxpr) for v in (*equation.invars, *equation.outvars)]
        # Python's own numbers are traced as weak double scalars, which take the type of their partner.
        strong = [v for v in [*variables, *jaxpr.jaxpr.constvars, *jaxpr.jaxpr.outvars] if not v.aval.weak_type]
        found = {str(v.aval.dtype) for v in strong}
        assert "float32" in found, name(item)
        assert "float64" not in found, name(item)


def test_products_keep_single_precision_and_broadcast_as_in_numpy():
    a, b = (np.asarray(x, np.float32) for x in arguments([(4, 3)] * 2))
    np.testing.assert_allclose(
        arrays.einsum("bij,bkj->bik", a, b), np.einsum("bij,bkj->bik", a, b), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(arrays.dot(a[0], b[0].T), a[0] @ b[0].T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("numbers", "dtype"), [((0, 1), np.float64), (2, np.float64), (np.arange(3), np.float64)])
def test_numbers_of_users_become_floating_point_arrays(numbers, dtype):
    array = arrays.floating(numbers)
    assert isinstance(array, jax.Array)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.asarray(numbers))


def test_later_changes_of_an_array_of_the_user_change_nothing():
    buffer = np.zeros(1024, np.uint8)
    given = buffer[-buffer.ctypes.data % 64 :][:512].view(float)  # at an address at which JAX could share the memory
    made = arrays.on_device(given), arrays.floating(given)
    given[:] = 1.0
    for array in made:
        np.testing.assert_array_equal(array, 0.0)


def test_arrays_of_users_keep_their_precision():
    single = jnp.ones(3, jnp.float32)
    assert arrays.floating(single) is single
