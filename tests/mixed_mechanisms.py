"""A mechanism with every kind of joint and one with prescribed motions, for tests that need no random topology."""

import jax
import jax.numpy as jnp
import numpy as np
from random_trees import random_body

from jaxdyn import (
    ConstantRate,
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
    State,
    Universal,
    as_dtype,
    configuration,
)
from jaxdyn.mechanism import Joint

_ACROSS = (0.6, 0.0, 0.8), (0.0, 1.0, 0.0)


def _built(name: str, bodies: list[tuple[str, Joint]], seed: int, armature: bool) -> Model:
    rng = np.random.default_rng(seed)
    builder = MechanismBuilder(name, (0.4, -0.8, -9.7))
    for i, (parent, joint) in enumerate(bodies):
        numbers = random_body(rng)
        has_rotor = armature and joint.velocity_is_rate
        armature_of_joint = rng.uniform(0.05, 0.3, joint.nv) if has_rotor else 0.0
        builder.add_body(f"body {i}", parent=parent, joint=joint, armature=armature_of_joint, **numbers)
    return builder.build()


def every_joint(*, armature: bool = False) -> Model:
    """Two trees with all kinds of joints; armature on those whose velocities are coordinate rates."""
    bodies = [
        ("ground", Free()),
        ("body 0", Spherical()),
        ("body 1", Universal(*_ACROSS)),
        ("body 0", Cylindrical((0.0, 0.6, 0.8))),
        ("ground", Planar()),
        ("body 4", Screw((0.0, 0.0, 1.0), 0.2)),
        ("body 4", Revolute((0.8, 0.6, 0.0))),
        ("body 6", Prismatic((0.0, 0.6, -0.8))),
    ]
    return _built("every joint", bodies, 5, armature)


def driven() -> Model:
    """A crank, a ball joint, a driven slide on it, a hinge; and a body on a driven ball joint that carries a universal one."""
    slide = Rheonomic(Prismatic((1.0, 0.0, 0.0)), Sinusoid(0.2, 3.0, 0.4, 0.1))
    turn = Rheonomic(Spherical(), Sinusoid((0.1, 0.2, -0.3, 0.2), (1.0, 2.0, 1.5, 0.7), offset=(1.0, 0.2, 0.1, -0.3)))
    bodies = [
        ("ground", Rheonomic(Revolute((0.0, 0.0, 1.0)), ConstantRate(2.0, 0.3))),
        ("body 0", Spherical()),
        ("body 1", slide),
        ("body 2", Revolute((0.0, 0.6, 0.8))),
        ("ground", turn),
        ("body 4", Universal(*_ACROSS)),
    ]
    return _built("driven", bodies, 6, True)


def some_motion(model: Model, seed: int = 0) -> tuple[State, jax.Array, jax.Array]:
    """A state, accelerations and forces, all numbers different."""
    rng = np.random.default_rng(seed)
    v, a, tau = (jnp.asarray(rng.normal(size=model.nv), model.dtype) for _ in range(3))
    q = configuration.random(as_dtype(model, jnp.float64), jax.random.key(seed), spread=0.5)
    return State(q.astype(model.dtype), v), a, tau
