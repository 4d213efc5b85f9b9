"""Constants of compiled programs."""

from typing import Any

import equinox as eqx
import jax
import numpy as np


@jax.tree_util.register_static
class Constant:
    """A module that is part of the structure of a program instead of its arguments.

    A separate program is compiled for each `Constant` with different values.
    """

    def __init__(self, value: Any):
        self.value = value
        leaves, tree = jax.tree.flatten(value)
        self._content = (
            tree,
            *((x.shape, str(x.dtype), np.asarray(x).tobytes()) if eqx.is_array(x) else x for x in leaves),
        )

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._content == other._content
