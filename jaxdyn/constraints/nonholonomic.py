"""Rolling without slip, knife edges, and contact with a surface as constraints; theory.md section (n), (N18) to (N20)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.dynamics.constraint import Constraint, VelocityConstraint
from jaxdyn.dynamics.contact import shape_axes
from jaxdyn.dynamics.contact.base import unit_vector
from jaxdyn.dynamics.contact.shapes import Shapes, contact_points_of
from jaxdyn.dynamics.contact.support import support_point
from jaxdyn.dynamics.contact.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.doors import check_model
from jaxdyn.dynamics.kinematics import BodyMotion, Coordinates, Poses, Velocities, point_on_body
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import body_index, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross

Vector3 = Float[Array, "3"]


class KnifeEdge(VelocityConstraint):
    """A point of a body does not move along a direction of the body: a skate, a blade, or a wheel of which only the side force
    matters. The equation is e . v_P = 0.

    Attributes:
        name: Name of the constraint in messages and files.
        body: Index of the body.
        point: Position of the point P relative to the origin of the body, on its axes.
        direction: Unit vector e on the axes of the body.

    Source: theory.md (N18).
    """

    table_name: ClassVar[str] = "knife_edge"
    equations: ClassVar[int] = 1

    name: str = eqx.field(static=True)
    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    direction: Vector3 = eqx.field(converter=floating, metadata=quantity("1"))

    def rate(self, model: Model, q: Coordinates, poses: Poses, bodies: BodyMotion, v: Velocities) -> Float[Array, "m"]:
        turn = poses.rotation[self.body]
        return dot(dot(turn, self.direction), _velocity(bodies, self.body, dot(turn, self.point)))[None]  # (N18)

    def units(self, model: Model) -> tuple[str, ...]:
        return ("m",)

    def describe(self, model: Model) -> str:
        return f"knife edge on {model.topology.body_name(self.body)}"

    def validate(self, model: Model) -> str | None:
        return _error_with_ground(self) or super().validate(model)


class _OnSurface(Constraint):
    """Constraint of a sphere, ellipsoid or rim of a body on a surface.

    Attributes:
        name: Name of the constraint in messages and files.
        body: Index of the body.
        center: Center of the shape relative to the origin of the body, on its axes.
        radius: Radius of the sphere, or distance of the surface of the body from the ellipsoid or rim.
        axes: Semi-axes of the ellipsoid as rows, on the axes of the body; zero for a sphere, the last one zero for a rim. The disc
            of a rim must not lie flat on the surface.
        surface: Surface of the ground.
    """

    name: str = eqx.field(static=True)
    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    center: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    radius: Float[Array, ""] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    axes: Float[Array, "3 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    surface: Surface = eqx.field(default_factory=HalfSpace)

    def validate(self, model: Model) -> str | None:
        return _error_with_ground(self) or self.surface.validate() or super().validate(model)

    def contact(self, poses: Poses) -> tuple[Vector3, Vector3, Float[Array, ""]]:
        """Vector from the origin of the body to the point that touches the surface, the normal there, and the gap; ground axes."""
        turn = poses.rotation[self.body]
        reference, arm = point_on_body(poses, self.body, self.center)
        axes, center, lowest = dot(self.axes, turn.T), reference + arm, jnp.zeros_like(arm)
        for _ in range(self.surface.iterations):
            lowest = support_point(axes, unit_vector(self.surface.gap_and_gradient(center + lowest)[1]))
        gap, gradient = self.surface.gap_and_gradient(center + lowest)
        normal = unit_vector(gradient)
        return dot(turn, self.center) + lowest - self.radius * normal, normal, gap - self.radius


class Touching(_OnSurface):
    """A sphere, ellipsoid or rim of a body touches a surface; it may slide, and cannot leave the surface. The equation is that the
    gap of `GroundContact` is zero.

    Source: theory.md (N19), (T1), (T10).
    """

    table_name: ClassVar[str] = "touching"

    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        return self.contact(poses)[2][None]  # (N19)

    def units(self, model: Model) -> tuple[str, ...]:
        return ("m",)

    def describe(self, model: Model) -> str:
        return f"{model.topology.body_name(self.body)} touches {self.surface.describe()}"


class Rolling(_OnSurface, VelocityConstraint):
    """The point of a body at which it touches a surface has no velocity along the surface: two equations t . v_c = 0.

    The constraint does not keep the body on the surface, as a `Touching` or the joints of the mechanism do; `rolling` makes both.

    Source: theory.md (N20).
    """

    table_name: ClassVar[str] = "rolling"
    equations: ClassVar[int] = 2

    def rate(self, model: Model, q: Coordinates, poses: Poses, bodies: BodyMotion, v: Velocities) -> Float[Array, "m"]:
        arm, normal, _ = self.contact(poses)
        return dot(_tangents(normal), _velocity(bodies, self.body, arm))  # (N20)

    def units(self, model: Model) -> tuple[str, ...]:
        return ("m", "m")

    def describe(self, model: Model) -> str:
        return f"{model.topology.body_name(self.body)} rolls on {self.surface.describe()}"


def rolling(
    model: Model, name: str, shapes: Shapes, *, surface: Surface | None = None
) -> tuple[Touching | Rolling, ...]:
    """Constraints with which a body rolls on a surface without slip: `Touching` and `Rolling` for each shape.

    Args:
        model: Mechanism.
        name: Name of the constraint `Rolling`; that of `Touching` is followed by "_contact". From the second shape on, the
            index of the shape follows, from 2.
        shapes: Shapes of the body, for example from `contact_sphere` or `contact_torus`; several of them as a list.
        surface: Surface of the ground; the plane z = 0 if not given.

    Raises:
        TypeError: The first argument is not a `Model`.
        UnknownName: No body or frame has one of the names; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn.dynamics import contact_torus

        builder = jaxdyn.MechanismBuilder("coin")
        builder.add_body("coin", joint=jaxdyn.Free(), mass=0.1, inertia=(1e-5, 1e-5, 2e-5))
        model = builder.build()
        rim = contact_torus("coin", 0.02, 0.0)
        system = jaxdyn.System(model, constraints=jaxdyn.constraints.rolling(model, "rim", rim))
        ```

    Source: theory.md (N19), (N20).
    """
    check_model(model, "rolling")
    ground, found = HalfSpace() if surface is None else surface, []
    for index, shape in enumerate(contact_points_of(shapes)):
        body, center = model.locate(shape.body, shape.center)
        axes = shape_axes(model, [(shape.body, shape.axes)])
        fields = body, center, shape.radius, jnp.zeros((3, 3), model.dtype) if axes is None else axes[0], ground
        number = f"_{index + 1}" if index else ""
        found += [Touching(f"{name}_contact{number}", *fields), Rolling(f"{name}{number}", *fields)]
    return tuple(found)


def _velocity(bodies: BodyMotion, body: int, arm: Vector3) -> Vector3:
    return bodies.linear[body] + cross(bodies.angular[body], arm)


def _tangents(normal: Vector3) -> Float[Array, "2 3"]:
    """Two unit vectors perpendicular to a normal and to each other, as rows; Duff et al. 2017."""
    x, y, z = normal
    sign = jnp.where(z < 0.0, -1.0, 1.0).astype(z.dtype)
    a = -1.0 / (sign + z)
    first = jnp.stack([1.0 + sign * x * x * a, sign * x * y * a, -sign * x])
    return jnp.stack([first, jnp.stack([x * y * a, sign + y * y * a, -y])])


def _error_with_ground(part: KnifeEdge | _OnSurface) -> str | None:
    return f"{part.name!r} is on the ground itself; give a body that moves" if part.body == GROUND else None
