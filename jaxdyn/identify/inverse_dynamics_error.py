"""Inverse-dynamics error: the forces that a measured motion requires minus the measured forces.

The method needs accelerations, so motions are smoothed first (`Recording.smoothed`). Because no simulation is needed, the method is
fast and robust. If forces are linear in the parameters, `linear_fit` estimates the parameters directly; `InverseDynamicsError`
keeps inertial parameters physically valid, and friction, gains and offsets may enter nonlinearly.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample
from jaxdyn.compute.arrays import einsum, floating
from jaxdyn.dynamics.equations_of_motion import applied_forces
from jaxdyn.dynamics.inverse import recursive_inverse_dynamics
from jaxdyn.dynamics.system import State
from jaxdyn.identify.charts import Unconstrained
from jaxdyn.identify.least_squares import Normal, Problem, Unknowns, jacobian_by_fewer_sweeps, prior_terms
from jaxdyn.identify.losses import Loss, Squares, check_loss
from jaxdyn.identify.measurement import Plant, check_lead, check_plant
from jaxdyn.identify.parameters import Parameters
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.quantity import ACCELERATION, EFFORT, POSITION, VELOCITY, invalid, plain, quantity
from jaxdyn.simulate.controls import Knots


class Motions(eqx.Module):
    """Samples of a motion and of the corresponding inputs.

    Attributes:
        q: Coordinates.
        v: Velocities.
        a: Accelerations.
        u: Recorded inputs.
        around: Recorded inputs around each sample, as functions of the time since the sample, for inputs with delays; None if
            inputs act at once. `smoothed_motions` makes them for parts with a `lead`.
    """

    q: Float[Array, "*samples nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))
    v: Float[Array, "*samples nv"] = eqx.field(converter=floating, metadata=quantity(VELOCITY))
    a: Float[Array, "*samples nv"] = eqx.field(converter=floating, metadata=quantity(ACCELERATION))
    u: Float[Array, "*samples nu"] = eqx.field(converter=floating, metadata=quantity(EFFORT, along="input"))
    around: Knots | None = eqx.field(default=None, kw_only=True)


def needed_forces(plant: Plant, motion: Motions) -> Float[Array, "nv"]:
    """Forces that the drives of a plant must exert in a motion, N m or N: inverse dynamics minus the forces of the system."""
    state = State(motion.q, motion.v)
    needed = recursive_inverse_dynamics(plant.system.model, motion.q, motion.v, motion.a)
    return needed - applied_forces(plant.system.changed(drives=None), state)


def drive_forces(plant: Plant, motion: Motions) -> Float[Array, "nv"]:
    """Forces that the drives exert with the recorded inputs, including gain, offset and, with inputs `around`, delay, N m or N."""
    if motion.around is None:
        u = plant.inputs.changed(motion.u)
    else:
        acting = plant.inputs.acting(motion.around)
        assert isinstance(acting, Knots)  # as the argument
        u = acting(jnp.zeros((), motion.u.dtype))
    drives = plant.system.drives
    if plant.system.nz:
        raise ValueError(
            f"the drives of {plant.system.model.name!r} have states, so that the inputs at one time do not determine their forces; "
            "use OutputError"
        )
    return u if drives is None else drives.forces(plant.system.model, motion.q, motion.v, u)


class InverseDynamicsError(Problem):
    """Estimation of parameters from motions and forces.

    Attributes:
        parameters: Free parameters of a `Plant`.
        motions: Samples of the motions.
        noise: Standard deviation of the noise of each force.
        loss: Loss of the forces, in standard deviations.
        block: Number of consecutive samples with correlated errors, which count as one group in `scores`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The noise is not positive or does not have one value per velocity component, or the system has constraints.
        MeasurementError: The inputs have delays, or these are free, and the motions do not contain the inputs around the samples.
    """

    channels: ClassVar[str] = "forces"

    parameters: Parameters
    motions: Motions
    noise: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(EFFORT, positive=True))
    loss: Loss = Squares()
    block: int = eqx.field(static=True, converter=plain, default=50, kw_only=True)

    def __check_init__(self):
        check_plant(self.parameters)
        check_loss(self.loss)
        check_instance("the argument motions", self.motions, Motions, "Motions(q, v, a, u)")
        system = self.parameters.subject.system
        wrong = invalid(self, {"nv": system.model.nv})
        if wrong is not None:
            raise ValueError(f"inverse-dynamics error: {wrong}")
        if system.constraints or system.nz:
            what = "closed loops or couplings" if system.constraints else "drives with states"
            raise ValueError(
                f"{system.model.name!r} has {what}, so that its motion and inputs at one time do not determine the forces of its "
                "drives; use OutputError"
            )
        check_lead(self.parameters.subject, self.parameters.frees("inputs.delay"), self.motions.around)

    @property
    def initial(self) -> Unknowns:
        return Unknowns(self.parameters.initial, None)

    @property
    def channel_noise(self) -> Float[Array, "nv"]:
        return self.noise

    def moved(self, unknowns: Unknowns, dx: Unconstrained, ds: Float[Array, "W L"]) -> Unknowns:
        return Unknowns(unknowns.x + dx, None)

    def residuals(self, x: Unconstrained, motion: Motions) -> Float[Array, "nv"]:
        """Errors of the forces of one sample, in standard deviations, for unconstrained parameters x."""
        plant = self.parameters.place(x)
        return (needed_forces(plant, motion) - drive_forces(plant, motion)) / self.noise

    @property
    def pieces(self) -> Motions:
        return self.motions

    @property
    def without_data(self) -> "InverseDynamicsError":
        return eqx.tree_at(lambda problem: problem.motions, self, None)

    def own(self, unknowns: Unknowns) -> None:
        return None

    def assembled(self, unknowns: Unknowns, parts: tuple) -> Normal:
        x = unknowns.x
        r, J, weight = parts
        prior, prior_jacobian = prior_terms(self.parameters, x)
        loss = 0.5 * jnp.sum(self.loss.rho(r**2)) + 0.5 * jnp.sum(prior**2)
        gradient = einsum("nap,na->p", J, weight * r) + prior_jacobian.T @ prior
        matrix = einsum("nap,naq->pq", J, weight[:, :, None] * J) + prior_jacobian.T @ prior_jacobian
        none = jnp.zeros((0, 0, x.size), x.dtype)
        return Normal(loss, matrix, gradient, none, none[:, :, :0], none[:, :, 0], None)

    def scores(self, unknowns: Unknowns, parts: tuple) -> Float[Array, "groups P"]:
        r, J, weight = parts
        each = einsum("nap,na->np", J, weight * r)
        group = np.arange(len(r)) // self.block
        return jax.ops.segment_sum(each, group, num_segments=int(group[-1]) + 1)

    @property
    def count(self) -> int:
        return self.motions.v.size

    def linearized(self, x: Unconstrained, own: None, piece: Motions) -> tuple[Array, Array, Array]:
        """Residuals of one sample, their Jacobian and their weights."""
        residuals = per_sample(self.residuals, name="inverse-dynamics error")
        jacobian = jacobian_by_fewer_sweeps(piece.v.shape[0], x.size)(residuals)
        each = residuals(x, piece)
        return each, jacobian(x, piece), self.loss.weight(each**2)
