"""Response of the inertial forces of subtrees to a small change of their motion; theory.md (G20), (I10), (R8).

The Coriolis matrix and the derivatives of the equations of motion are responses of this kind. Each of them has nv^2 terms and is
computed without a loop over bodies.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics import rotors
from jaxdyn.dynamics.kinematics import Placements, Velocities
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.inertia import SpatialInertia
from jaxdyn.spatial.rotation import cross

PerColumn6 = Float[Array, "nv 6"]
Response = Float[Array, "nv nv"]


def inertial_response(
    model: Model, placed: Placements, v: Velocities, velocity: Float[Array, "nb 6"], x: PerColumn6, y: PerColumn6
) -> Response:
    """Matrix [gamma, beta]: change of the generalized inertial force gamma when the bodies that the velocity component beta moves
    gain velocity and acceleration.

        The velocity of body i, and of all bodies beyond the joint, changes by x_beta, and the acceleration by y_beta + x_beta x
        V_i. The inertial force I A + V x* I V then changes by I y_beta + B x_beta, B x = 2 (D w; w x p), w the angular part of x

    D and the linear momentum p of a subtree are sums over its bodies, like the inertia, so each entry requires only the sums over
    the smaller of the subtrees of beta and gamma. An entry is zero if its joints are on different branches of the tree.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        v: Generalized velocities, which determine the rates of rotors.
        velocity: Velocities V_i of the bodies about the reference point P, ground axes.
        x, y: Gains of velocity and acceleration for each velocity component, about the reference point P, ground axes.

    Source: theory.md (I10), (R8).
    """
    topology = model.topology
    beyond = topology.body_of_column
    momentum = jax.vmap(SpatialInertia.momentum)(placed.inertia, velocity)[:, 3:]
    inertia, transposed, momentum = jax.tree.map(
        lambda per_body: tree.sum_over_descendants(topology, per_body)[beyond],
        (placed.inertia, _gyroscopic_tensor(model, placed, v, velocity), momentum),
    )
    columns, w = placed.columns, x[:, :3]
    along = jax.vmap(SpatialInertia.momentum)
    # beta is nearer the root: the subtree of gamma responds. The response is symmetric in y and the column, and transposed in x.
    of_x = einsum("gij,gj->gi", transposed, columns[:, :3]) + cross(momentum, columns[:, 3:])
    near = einsum("gc,bc->gb", along(inertia, columns), y) + 2.0 * einsum("gi,bi->gb", of_x, w)
    # gamma is nearer the root: it is loaded by the response of the subtree of beta.
    couple, force = einsum("bij,bi->bj", transposed, w), cross(w, momentum)
    far = einsum("gc,bc->gb", columns, along(inertia, y) + 2.0 * jnp.concatenate([couple, force], axis=1))
    response = jnp.where(topology.column_precedes.T, near, jnp.where(strictly_nearer(model), far, 0.0))
    if not model.rotors.count:
        return response
    return response + rotors.response_along_columns(model, placed, velocity, w, y[:, :3])  # (R8)


def strictly_nearer(model: Model) -> np.ndarray:
    """Mask [gamma, beta]: true if the joint of gamma is between the joint of beta and the root."""
    precedes = model.topology.column_precedes
    return precedes & ~precedes.T


def _gyroscopic_tensor(model: Model, placed: Placements, v: Velocities, velocity: Float[Array, "nb 6"]):
    """Transpose of D of each body, D w = h x (w x u) - omega x Pi w with the velocity (omega; u). Source: theory.md (I10), (R8)."""
    omega, u = velocity[:, None, :3], velocity[:, None, 3:]
    unit = np.eye(3)[None].astype(velocity.dtype)
    tensor = cross(placed.inertia.first_moment[:, None], cross(unit, u))
    tensor = tensor - cross(omega, placed.inertia.planar)  # Pi is symmetric: its rows are Pi times the unit vectors
    if not model.rotors.count:
        return tensor
    spin = rotors.moments(rotors.spin_columns(model, placed), v)[:, None, :3]
    return tensor + 0.5 * cross(unit, spin)  # (R8)
