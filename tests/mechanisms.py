"""Small mechanisms that several test files use."""

import jax.numpy as jnp

import jaxdyn
from jaxdyn.mechanism.builder import STANDARD_GRAVITY


def model_from_arrays(
    parents, kinds, axes, joint_offsets, com_offsets, masses, inertias, *, gravity=STANDARD_GRAVITY, name="mechanism"
) -> jaxdyn.Model:
    """Model in the notation of theory.md, sections 0 and (e): bodies have the indices 1..n, and the ground is the parent 0."""
    builder = jaxdyn.MechanismBuilder(name, gravity)
    for i, parent in enumerate(parents):
        builder.add_body(
            str(i + 1),
            joint={"revolute": jaxdyn.Revolute, "prismatic": jaxdyn.Prismatic}[kinds[i]](axes[i]),
            parent="ground" if parent == 0 else str(parent),
            position=joint_offsets[i],
            mass=masses[i],
            com=com_offsets[i],
            inertia=inertias[i],
        )
    return builder.build()


def double_pendulum() -> jaxdyn.Model:
    """Two hinges that are not parallel, full inertia tensors."""
    return model_from_arrays(
        parents=[0, 1],
        kinds=["revolute", "revolute"],
        axes=[(0.0, 1.0, 0.0), (0.6, 0.8, 0.0)],
        joint_offsets=[(0, 0, 0), (0, 0.1, -0.5)],
        com_offsets=[(0, 0, -0.25), (0.05, 0, -0.2)],
        masses=[1.0, 0.7],
        inertias=[(0.03, 0.025, 0.006, 0, 0.001, 0), (0.012, 0.014, 0.004, 0.001, 0, 0)],
        name="double pendulum",
    )


def swinging() -> jaxdyn.State:
    """A state of the double pendulum in motion."""
    return jaxdyn.State(jnp.array([0.9, -0.4]), jnp.array([0.3, 0.8]))


def slider_tree() -> jaxdyn.Model:
    """A hinge that carries a slider and another hinge."""
    return model_from_arrays(
        parents=[0, 1, 1],
        kinds=["revolute", "prismatic", "revolute"],
        axes=[(0.0, 1.0, 0.0), (0.6, 0.0, 0.8), (0.0, 0.6, 0.8)],
        joint_offsets=[(0.1, 0, 0.3), (0, 0.1, -0.5), (0.3, -0.1, -0.2)],
        com_offsets=[(0, 0.02, -0.25), (0.05, 0, -0.2), (0.1, 0.1, 0.0)],
        masses=[1.0, 0.7, 0.5],
        inertias=[
            (0.03, 0.025, 0.006, 0, 0.001, 0),
            (0.012, 0.014, 0.004, 0.001, 0, 0),
            (0.01, 0.012, 0.009, 0.001, -0.001, 0.002),
        ],
        name="slider tree",
    )


def swinging_tree() -> jaxdyn.State:
    """A state of the slider tree in motion."""
    return jaxdyn.State(jnp.array([0.5, 0.1, -0.7]), jnp.array([0.4, -0.2, 0.9]))
