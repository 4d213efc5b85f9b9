"""Springs, dampers and dry friction of tendons; theory.md (H21), (I14), (I15)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, floating_or_none
from jaxdyn.dynamics import kinematics, metric
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.forces.base import GeneralizedForce, OverStep, Scalar, Slip, spring_over_step
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.dynamics.paths import JointArms, Path, PathMotion, Waypoint
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial.series import tanh_quotient


class Tendon(GeneralizedForce):
    """Spring, damper and dry friction along a path of the length l: tension = k s + b dl/dt + c tanh((dl/dt) / velocity_scale).

    The stretch s is the difference between l and the nearest length at rest, so a slack cable has `rest` = (0, its length). The
    force on the coordinates is - tension dl/dq. The default integrator evaluates it at the end of its step.

    Attributes:
        path: The length, made by `Path.of`; `Tendon.of` takes names.
        stiffness: Spring constant k, N/m, or N m/rad if the length is an angle.
        damping: Damping coefficient b, N s/m or N m s/rad.
        rest: Smallest and largest length at which the spring is relaxed.
        friction: Magnitude c of the dry friction, N or N m; none if None.
        velocity_scale: Rate of the length at which the dry friction reaches 76 % of its final value.

    Example:
        ```python
        import jaxdyn
        from jaxdyn.dynamics import Tendon, Waypoint

        model = jaxdyn.library.double_pendulum()
        belt = Tendon.of(model, {"shoulder": (1.0,), "elbow": (-2.0,)}, stiffness=20.0, damping=1.0)
        line = (Waypoint("ground", (0.3, 0.0, 0.2)), Waypoint("upper", (0.0, 0.1, 0.0)), Waypoint("tip"))
        cable = Tendon.of(model, path=line, stiffness=200.0, rest=(0.0, 0.4))
        system = jaxdyn.System(model, (belt, cable))
        ```

    Source: theory.md (H21).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "tendon"

    path: Path
    stiffness: Scalar = eqx.field(converter=floating, metadata=quantity("1", minimum=0.0))
    damping: Scalar = eqx.field(converter=floating, metadata=quantity("1", minimum=0.0))
    rest: Float[Array, "2"] = eqx.field(converter=floating, metadata=quantity("1"))
    friction: Scalar | None = eqx.field(converter=floating_or_none, default=None, metadata=quantity("1", minimum=0.0))
    velocity_scale: Scalar = eqx.field(converter=floating, default=HOLDING_SCALE, metadata=quantity("1", positive=True))

    @staticmethod
    def of(
        model: Model,
        joints: JointArms | None = None,
        path: Sequence[Waypoint] = (),
        rest: tuple[float, float] | None = None,
        **options: Any,
    ) -> "Tendon":
        """A tendon along joints or through points of bodies.

        Args:
            model: The mechanism.
            joints: Moment arms by the names of joints, for a length that is a linear combination of coordinates.
            path: Waypoints of a line.
            rest: Smallest and largest length at rest; the length in the neutral configuration if None.
            options: Other fields by name, such as `stiffness`, which are zero by default.

        Raises:
            UnknownName: There is no such joint, body or frame.
            ValueError: The path has no length.
        """
        if not joints and not path:
            raise ValueError("tendon: it has no length; give joints or a path")
        line = Path.of(model, joints or {}, path, "tendon")
        if rest is None:
            q = configuration.neutral(model)
            rest = (neutral := float(line.length(model, q, kinematics.placements(model, q))), neutral)
        return Tendon(line, rest=jnp.asarray(rest, float), **({"stiffness": 0.0, "damping": 0.0} | options))

    def validate(self, model: Model) -> str | None:
        if self.rest.shape != (2,):
            return f"rest has shape {self.rest.shape}; give the smallest and the largest length at rest"
        if not isinstance(self.rest, Tracer) and not self.rest[0] <= self.rest[1]:
            return f"rest is [{self.rest[0]:g}, {self.rest[1]:g}]; give the smaller length first"
        return self.path.validate(model) or super().validate(model)

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        line = self.path.at(model, kinematics.motion(model, q, v))
        return -self._tension(line) * line.arms  # (H21)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        line = self.path.at(model, moving)
        return -self._tension(line) * line.wrench

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        line, inertia = self.path.at(model, moving), metric.lower_mass_matrix(model, moving.placements)
        stretch = self._stretch(line.length)
        stiffness = jnp.where(stretch != 0.0, self.stiffness, 0.0)
        across = self.path.stiffness_across(model, moving, self.stiffness * stretch)
        along, inverse = jnp.outer(line.arms, line.arms), 1.0 / jnp.diagonal(inertia)
        squared_frequency = dot(stiffness * line.arms**2 + jnp.diagonal(across), inverse)
        delay, square = spring_over_step(squared_frequency, step)
        dry = self._dry(line.rate)
        added = step * (self.damping + dry) + square * stiffness
        tension = self._tension(line) + delay * stiffness * line.rate + added * line.drift
        force = -tension * line.arms - delay * dot(across, moving.v)  # (I14)

        def at_end(change: Float[Array, "nv"]):
            rate = line.rate + dot(line.arms, change) + step * line.drift
            return jnp.reshape(rate, (1, 1)), self._dry(rate)[None]

        slip = None if self.friction is None else Slip(at_end, dry[None])
        return OverStep(force, AddedInertia(None, added * along + square * across), slip)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        return 0.5 * self.stiffness * self._stretch(self.path.length(model, q, placed)) ** 2  # (H21)

    def _stretch(self, length: Scalar) -> Scalar:
        return length - jnp.clip(length, self.rest[0], self.rest[1])

    def _dry(self, rate: Scalar) -> Scalar:
        """Dry friction per rate of the length."""
        if self.friction is None:
            return jnp.zeros_like(rate)
        return self.friction * tanh_quotient(rate / self.velocity_scale) / self.velocity_scale

    def _tension(self, line: PathMotion) -> Scalar:
        return self.stiffness * self._stretch(line.length) + (self.damping + self._dry(line.rate)) * line.rate
