"""Reactions of all joints in arrays, for tests that compare or sum them."""

import jax.numpy as jnp

from jaxdyn.dynamics.reactions import JointReaction


def stacked(reactions: dict[str, JointReaction]) -> JointReaction:
    """What `joint_reactions` returns, with a leading axis for the joints; drives one after the other."""
    *parts, drives = zip(*reactions.values(), strict=True)
    return JointReaction(*map(jnp.stack, parts), jnp.concatenate(drives))
