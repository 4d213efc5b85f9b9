"""Random mechanisms and random motions for tests. Every number is a draw of its own; the generator is always given."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from first_cases import first
from jaxtyping import Array, Float

from jaxdyn import (
    Cylindrical,
    Free,
    MechanismBuilder,
    Model,
    Planar,
    Prismatic,
    Revolute,
    Rheonomic,
    Screw,
    Sinusoid,
    Spherical,
    Universal,
)
from jaxdyn.mechanism import Joint
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

ALL_KINDS = "RPHCUSLF"
_PARTICLES = 5  # four or more in general position span space, so the second moments are positive


def random_unit(rng: np.random.Generator, size: int = 3) -> Float[np.ndarray, "size"]:
    """Unit vector of a direction without preference; size 4 is a unit quaternion."""
    x = rng.normal(size=size)
    return x / np.linalg.norm(x)


def random_inertia(
    rng: np.random.Generator, mass: float, extent: float
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
    """Center of mass and inertia tensor about it of a cloud of particles: physical by construction, no axis preferred."""
    share = rng.uniform(0.5, 1.5, _PARTICLES)
    masses = mass * share / share.sum()
    points = rng.normal(0.0, extent, (_PARTICLES, 3))
    com = masses @ points / mass
    rho = points - com
    second_moments = np.einsum("p,pi,pj->ij", masses, rho, rho)
    return com, np.trace(second_moments) * np.eye(3) - second_moments


def random_body(rng: np.random.Generator) -> dict[str, Any]:
    """Where a body of some kilograms is attached and what it weighs, as the builder wants it."""
    mass = rng.uniform(0.5, 2.0)
    com, inertia = random_inertia(rng, mass, 0.3)
    where = {"position": rng.normal(0.0, 0.3, 3), "orientation": random_unit(rng, 4)}
    return where | {"mass": mass, "com": com, "inertia": inertia}


def random_parents(rng: np.random.Generator, bodies: int, roots: int | None = None) -> list[int]:
    """Parents (-1: the ground) of a random tree; the first `roots` bodies stand on the ground, any body may if it is None.

    Half of the bodies continue a chain: trees of uniformly drawn parents would be wide but never deep.
    """
    first = 1 if roots is None else roots
    lowest = -1 if roots is None else 0
    later = range(first, bodies)
    return [-1] * first + [i - 1 if rng.random() < 0.5 else int(rng.integers(lowest, i)) for i in later]


def random_joint(rng: np.random.Generator, kind: str) -> Joint:
    """Joint on random axes. A small letter is a joint of that kind whose motion is prescribed.

    Args:
        kind: R revolute, P prismatic, H screw (helical), C cylindrical, U universal, S spherical, L planar, F free.
    """
    if kind.islower():
        driven = random_joint(rng, kind.upper())
        return Rheonomic(driven, random_sinusoid(rng, driven))
    if kind in "SF":
        return {"S": Spherical, "F": Free}[kind]()
    axis = random_unit(rng)
    if kind == "H":
        return Screw(axis, rng.normal())
    if kind == "U":
        return Universal(axis, random_unit(rng))
    if kind == "L":
        across = np.cross(axis, rng.normal(size=3))
        return Planar(axis, across / np.linalg.norm(across))
    return {"R": Revolute, "P": Prismatic, "C": Cylindrical}[kind](axis)


def random_sinusoid(rng: np.random.Generator, joint: Joint) -> Sinusoid:
    """Prescribed motion of a joint; a quaternion keeps away from zero, and its norm changes."""
    size = joint.nq
    offset = rng.normal(size=size)
    if isinstance(joint, Spherical | Free):
        offset[-4:] *= 2.0 / np.linalg.norm(offset[-4:])
    return Sinusoid(rng.uniform(-0.5, 0.5, size), rng.uniform(1.0, 3.0, size), rng.normal(size=size), offset)


def random_model(
    rng: np.random.Generator,
    bodies: int,
    *,
    parents: Sequence[int] | None = None,
    roots: int | None = None,
    kinds: str | None = None,
    armature: bool = False,
    gravity: bool = True,
    massless: int = 0,
    extent: float = 0.3,
    name: str = "random tree",
) -> Model:
    """Tree of bodies of some kilograms and a size of `extent` (m), on random axes in random placements.

    Args:
        parents: parent of each body, smaller than its own number, -1 for the ground; `random_parents` if not given.
        kinds: a letter of `random_joint` for each body, or one for all; random among "R" and "P" if not given.
        armature: whether the joints carry rotors.
        gravity: a random direction, about 10 m/s^2; none if False.
        massless: this many bodies, the first ones, have neither mass nor rotor and only carry the others.
    """
    parents = random_parents(rng, bodies, roots) if parents is None else parents
    kinds = "".join(rng.choice(["R", "P"], bodies)) if kinds is None else kinds * (bodies // len(kinds))
    builder = MechanismBuilder(name, rng.uniform(8.0, 11.0) * random_unit(rng) if gravity else (0.0, 0.0, 0.0))
    for i, (parent, kind) in enumerate(zip(parents, kinds, strict=True)):
        has_mass = i >= massless
        mass = rng.uniform(0.5, 2.0)
        com, inertia = random_inertia(rng, mass, extent)
        builder.add_body(
            f"body {i}",
            parent="ground" if parent < 0 else f"body {parent}",
            joint=random_joint(rng, kind),
            position=rng.normal(0.0, extent, 3),
            orientation=random_unit(rng, 4),
            mass=has_mass * mass,
            com=has_mass * com,
            inertia=has_mass * inertia,
            armature=has_mass * armature * rng.uniform(0.05, 0.5),
        )
    return builder.build()


def random_motion(
    rng: np.random.Generator, model: Model
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, "n"]]:
    """Coordinates, velocities and accelerations (or forces), all numbers different, of the precision of the model.

    Four normal numbers are a quaternion of a rotation without preference, and of any norm.
    """
    return tuple(jnp.asarray(rng.normal(size=n), model.dtype) for n in (model.nq, model.nv, model.nv))


# Trees of one size and with equal numbers of both kinds of joints: what JAX compiles for one of them serves the others.
SAMPLES = {
    "chain": {"parents": [-1, 0, 1, 2, 3, 4], "kinds": "RPRRPR"},
    "branched": {"parents": [-1, 0, 0, 1, 1, 2], "kinds": "RRPRRP", "armature": True},
    "two roots": {"parents": [-1, 0, -1, 2, 2, 1], "kinds": "PRRRPR", "armature": True},
}


TREE_NAMES = first(1, ["two roots", "branched", "chain"])  # the first one branches and has a chain


def sample_tree(name: str) -> Model:
    """The tree of `SAMPLES`, always the same numbers."""
    return random_model(np.random.default_rng(list(SAMPLES).index(name)), 6, name=name, **SAMPLES[name])


def moved(model: Model, motion: RigidTransform) -> Model:
    """The same mechanism with the ground frame elsewhere: every root and gravity are carried along by `motion`."""
    is_root = np.array(model.topology.parents) < 0
    carried = jax.vmap(motion.compose)(model.placement)
    placement = jax.tree.map(lambda new, old: jnp.where(is_root[:, None], new, old), carried, model.placement)
    gravity = quaternion.rotate(motion.quaternion, model.gravity)
    return eqx.tree_at(lambda m: (m.placement, m.gravity), model, (placement, gravity))


def geared(model: Model, *pairs: tuple[int, int], seed: int = 0) -> Model:
    """The model with random rotors, each given as (carrier, driven body)."""
    rng, n = np.random.default_rng(seed), len(pairs)
    rotors = Rotors(
        tuple(f"rotor {k}" for k in range(n)),
        tuple(carrier for carrier, _ in pairs),
        tuple(int(model.topology.v_starts[driven]) for _, driven in pairs),
        jnp.asarray([random_unit(rng) for _ in pairs]),
        jnp.asarray(rng.uniform(0.005, 0.02, n)),
        jnp.asarray(rng.choice([-1, 1], n) * rng.uniform(3.0, 8.0, n)),
    )
    return dataclasses.replace(model, rotors=rotors)


def close(
    actual: Array, expected: Array | np.ndarray | float, *, scale: float = 1.0, roundings: float = 1e4, law: str = ""
) -> None:
    """Equal but for some roundings of terms of size `scale`.

    Masses, lengths, angles and speeds of random trees are of order one, gravity is ten; with sums over bodies and
    columns, 1e4 roundings (2e-12 in double precision) are generous to the arithmetic and far below any wrong term.
    """
    tolerance = roundings * np.finfo(actual.dtype).eps
    expected = np.broadcast_to(expected, actual.shape)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=law)
