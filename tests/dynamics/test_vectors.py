"""The theory's numeric test vectors, each quantity by every route that the library offers.

The vectors were computed without the closed forms (particle clouds, matrix exponentials, high-precision differences), so they are
an oracle for the formulas themselves. An error is measured relative to the largest term of the sum that makes up the quantity: what
cancels in exact arithmetic leaves rounding errors of the size of its terms.
"""

import json
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from theory_vectors import system_from_dict

from jaxdyn import (
    AppliedForce,
    Damper,
    Spring,
    State,
    System,
    acceleration,
    applied_forces,
    as_dtype,
    bias_force,
    christoffel_first_kind,
    christoffel_second_kind,
    coriolis_matrix,
    forward_dynamics,
    forward_kinematics,
    frame_placement,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_center_velocities,
    mass_matrix,
    partial_velocities,
    potential_energy,
    total_energy,
)
from jaxdyn.dynamics import kinematics, mass_center_accelerations

_SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[3] / "shared"))
_FILE = _SHARED / "theory_vectors.json"
_VECTORS = json.loads(_FILE.read_text())["systems"] if _FILE.exists() else {}
_NAMES = ["planar_double_pendulum", "spatial_3R_chain", "RP_mixed_chain", "tree_5_bodies"]

pytestmark = [
    pytest.mark.skipif(not _VECTORS, reason=f"{_FILE} is not there"),
]

# The vectors have 16 digits, the rest is rounding. In single precision one rounding is 6e-8 of the largest term, and solving with
# mass matrices of condition 100 to 1000, as these are, may cost a factor of that size.
_TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


def _kinematics(model, q, v, qdd):
    """Quantities of the motion alone: name -> routes."""
    placed = forward_kinematics(model, q)
    named = [frame_placement(model, q, name) for name in model.topology.body_names]

    def com(q):
        placed = kinematics.placements(model, q)
        return placed.reference + placed.com

    partials = partial_velocities(model, q)
    moved = mass_center_accelerations(model, q, v, qdd)
    unit_velocities = jax.vmap(lambda v: mass_center_velocities(model, q, v))(jnp.eye(model.nv, dtype=q.dtype))
    rates = jax.jvp(lambda q, v: mass_center_velocities(model, q, v), (q, v), (v, qdd))[1]
    return {
        "R": [placed.rotation, jnp.stack([x.rotation for x in named])],
        "r_joint": [placed.translation, jnp.stack([x.translation for x in named])],
        "r_com": [com(q)],
        "T": [partials.linear.swapaxes(0, 1), unit_velocities.linear, jnp.moveaxis(jax.jacfwd(com)(q), -1, 0)],
        "Omega": [partials.angular.swapaxes(0, 1), unit_velocities.angular],
        "a_com": [moved.linear, rates.linear],
        "eps": [moved.angular, rates.angular],
    }


def _mechanics(system, q, v, tau, qdd, Q_applied):
    """Quantities of the equation of motion: name -> routes."""
    model, state = system.model, State(q, v)
    weightless = eqx.tree_at(lambda m: m.gravity, model, jnp.zeros_like(model.gravity))
    symbols = {k: christoffel_first_kind(model, q, method=k) for k in ("closed_form", "autodiff")}

    def of(kind):
        return applied_forces(System(model, tuple(f for f in system.forces if isinstance(f, kind))), state)

    return {
        "a": [mass_matrix(model, q, method="composite"), mass_matrix(model, q, method="closed_form")],
        "christoffel_first": list(symbols.values()),
        "christoffel_second": [christoffel_second_kind(model, q)],
        "c": [
            coriolis_matrix(model, q, v) @ v,
            bias_force(weightless, q, v),
            *(jnp.einsum("abg,a,b->g", s, v, v) for s in symbols.values()),
        ],
        "bias": [bias_force(model, q, v)],
        "Q_gravity": [
            gravity_force(model, q),
            -jax.grad(lambda q: potential_energy(model, q))(q),
            -bias_force(model, q, jnp.zeros_like(v)),
        ],
        "Q_spring": [
            of(Spring),
            -jax.grad(lambda q: potential_energy(system, system.at_rest(q)) - potential_energy(model, q))(q),
        ],
        "Q_damper": [of(Damper)],
        "Q_wrench": [of(AppliedForce)],
        "Q_applied": [applied_forces(system, state, tau)],
        "qdd": [
            *(
                forward_dynamics(model, q, v, Q_applied, method=k)
                for k in ("cholesky", "articulated_body", "contravariant")
            ),
            *(
                acceleration(System(model, system.forces, method=k), state, tau)
                for k in ("cholesky", "articulated_body")
            ),
        ],
        "inverse": [inverse_dynamics(model, q, v, qdd, method=k) for k in ("recursive", "covariant")],
        "kinetic_energy": [kinetic_energy(model, q, v)],
        "potential_gravity": [potential_energy(model, q)],
        "potential_spring": [potential_energy(system, system.at_rest(q)) - potential_energy(model, q)],
        "energy": [total_energy(system, state)],
    }


@jax.jit
def _routes(system, q, v, tau, qdd, Q_applied):
    return _kinematics(system.model, q, v, qdd) | _mechanics(system, q, v, tau, qdd, Q_applied)


def _expected(results, inputs):
    """Expected values and the size of their terms: name -> (value, scale)."""
    r = {k: np.asarray(x) for k, x in results.items()}
    v, qdd = np.asarray(inputs["qd"]), r["qdd"]

    def size(*terms):
        return max(np.max(np.abs(x)) for x in terms)

    products = np.einsum("abg,a,b->abg", r["christoffel_first"], v, v)
    inertial = r["a"] * qdd
    applied = [r[k] for k in ("Q_spring", "Q_damper", "Q_wrench")] + [np.asarray(inputs["tau"])]
    weights = [b["mass"] * np.linalg.norm(inputs["gravity"]) * size(r["r_com"]) for b in inputs["bodies"]]
    second = np.einsum("abg,gd->abd", r["christoffel_first"], np.linalg.inv(r["a"]))
    # A spring of length L stretched by s has V = 1/2 k s^2, computed from L^2: its terms are of the size 1/2 k L^2.
    springs = size(weights, *(0.5 * s["stiffness"] * np.ones(1) for s in inputs.get("springs", [])))
    return {
        **{k: (r[k], size(r[k])) for k in ("R", "T", "Omega", "a", "kinetic_energy")},
        "r_joint": (r["r_joint"], size(r["r_com"])),
        "r_com": (r["r_com"], size(r["r_com"])),
        "a_com": (r["a_com"], size(r["T"] * qdd[:, None, None])),
        "eps": (r["eps"], size(qdd)),
        "christoffel_first": (r["christoffel_first"], size(r["a"])),
        "christoffel_second": (second, size(np.linalg.inv(r["a"])) * size(r["christoffel_first"])),
        "c": (r["c"], size(products)),
        "bias": (r["c"] - r["Q_gravity"], size(products, r["Q_gravity"], weights)),
        "Q_gravity": (r["Q_gravity"], size(weights)),
        "Q_spring": (r["Q_spring"], springs),
        "Q_damper": (r["Q_damper"], size(*applied, [1.0])),
        "Q_wrench": (r["Q_wrench"], size(*applied, [1.0])),
        "Q_applied": (r["Q"] - r["Q_gravity"], size(*applied, [1.0])),
        "qdd": (qdd, size(np.linalg.inv(r["a"])) * size(r["Q"], r["c"], r["Q_gravity"], *applied)),
        "inverse": (r["Q"] - r["Q_gravity"], size(inertial, products, weights)),
        "potential_gravity": (r["potential_gravity"], size(weights)),
        "potential_spring": (r["potential_spring"], springs),
        "energy": (r["kinetic_energy"] + r["potential_gravity"] + r["potential_spring"], springs),
    }


# The tree has both kinds of joints and all kinds of forces, so single precision is tried on it alone.
@pytest.mark.parametrize(("name", "dtype"), first(2, [("tree_5_bodies", "float32"), *((n, "float64") for n in _NAMES)]))
def test_every_route_gives_the_vector(name, dtype):
    inputs, results = _VECTORS[name]["inputs"], _VECTORS[name]["results"]
    system, q, v, tau = system_from_dict(inputs)
    Q_applied = np.asarray(results["Q"]) - np.asarray(results["Q_gravity"])
    arguments = as_dtype((system, q, v, tau, jnp.asarray(results["qdd"]), jnp.asarray(Q_applied)), dtype)
    expected = _expected(results, inputs)
    errors = {}
    for quantity, routes in _routes(*arguments).items():
        value, scale = expected.pop(quantity)
        for number, route in enumerate(routes):
            assert route.dtype == dtype, (quantity, number)
            assert route.shape == value.shape, (quantity, number)
            errors[quantity, number] = float(np.max(np.abs(np.asarray(route, np.float64) - value)) / scale)
    assert not expected
    wrong = {k: e for k, e in errors.items() if not e < _TOLERANCE[dtype]}
    assert not wrong
