"""Surfaces of the ground for contacts, theory.md (T1). To add a surface, define a subclass of `Surface` with its gap function."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.display import known, number_text
from jaxdyn.mechanism.quantity import invalid, quantity

Scalar = Float[Array, ""]
Vector3 = Float[Array, "3"]


class Surface(eqx.Module):
    """Surface of the ground. Mechanism files can contain surfaces of the classes with a class variable `kind`.

    Class attributes:
        iterations: Number of evaluations of the normal that find the point at which a rim or an ellipsoid touches the surface. Each
            one multiplies the error by the ratio of the curvatures of ground and body.
    """

    iterations: ClassVar[int] = 3

    @abc.abstractmethod
    def gap(self, x: Vector3) -> Scalar:
        """Distance of a point from the surface, negative below it, m.

        Contact forces act along the gradient of this function, which should have unit length at the surface.

        Args:
            x: Point, ground axes, m.
        """

    def gap_and_gradient(self, x: Vector3) -> tuple[Scalar, Vector3]:
        """The gap and its gradient, by automatic differentiation unless a subclass has a closed form.

        Args:
            x: Point, ground axes, m.
        """
        return jax.value_and_grad(self.gap)(x)

    def describe(self) -> str:
        """The surface in words, for summaries."""
        return f"the surface {type(self).__name__}"

    def validate(self) -> str | None:
        """Error message with a remedy if the surface is not valid, else None."""
        return invalid(self, {})


class HalfSpace(Surface):
    """Plane; the ground is below it. The gap is n . x - height with the unit normal n.

    Attributes:
        normal: Normal of the plane, which points out of the ground; its length does not matter.
        height: Distance of the plane from the ground origin, along the normal.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        incline = jaxdyn.dynamics.HalfSpace(normal=[-0.2, 0.0, 1.0])
        distance = incline.gap(jnp.array([0.0, 0.0, 1.0]))
        ```

    Source: theory.md (T1).
    """

    kind: ClassVar[str] = "plane"
    iterations: ClassVar[int] = 1

    normal: Vector3 = eqx.field(converter=floating, default=(0.0, 0.0, 1.0), metadata=quantity("1"))
    height: Scalar = eqx.field(converter=floating, default=0.0, metadata=quantity("m"))

    def gap(self, x: Vector3) -> Scalar:
        return self.gap_and_gradient(x)[0]

    def gap_and_gradient(self, x: Vector3) -> tuple[Scalar, Vector3]:
        normal = self.normal / jnp.sqrt(dot(self.normal, self.normal))
        return dot(normal, x) - self.height, normal  # (T1)

    def describe(self) -> str:
        normal = known(self.normal)
        if normal is None or normal.ndim != 1:
            return "planes"
        is_level = not np.any(normal[:2]) and normal[2] > 0.0
        along = "z" if is_level else f"({', '.join(f'{x:.3g}' for x in normal / np.linalg.norm(normal))}) . x"
        return f"the plane {along} = {number_text(self.height)}"

    def validate(self) -> str | None:
        wrong = super().validate()
        if wrong is None and not isinstance(self.normal, Tracer):
            length = np.linalg.norm(np.asarray(self.normal), axis=-1)
            if not np.all(np.isfinite(length) & (length > 0.0)):
                return f"the normal of the plane is {np.asarray(self.normal).tolist()}; give a finite vector that is not zero"
        if wrong is None and not isinstance(self.height, Tracer) and not np.all(np.isfinite(np.asarray(self.height))):
            return f"the height of the plane is {np.asarray(self.height).tolist()}; give a finite value"
        return wrong


class _HeightField(Surface):
    """Surface z = h(x, y) with smooth h. The gap is (z - h) / sqrt(1 + |grad h|^2)."""

    @abc.abstractmethod
    def height_at(self, xy: Float[Array, "2"]) -> Scalar:
        """Height h (m) at the horizontal position xy (m)."""

    def gap(self, x: Vector3) -> Scalar:
        height, slope = jax.value_and_grad(self.height_at)(x[:2])
        return (x[2] - height) / jnp.sqrt(1.0 + dot(slope, slope))  # (T1)


class HeightFunction(_HeightField):
    """Height field h(x, y) that a function describes.

    Attributes:
        function: Function of the horizontal position (x, y) (m) that returns the height (m). It must be twice differentiable. The
            arrays of an `equinox.Module` are parameters of the system.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        waves = jaxdyn.dynamics.HeightFunction(lambda xy: 0.05 * jnp.sin(4.0 * xy[0]))
        distance = waves.gap(jnp.array([0.3, 0.0, 0.5]))
        ```

    Source: theory.md (T1).
    """

    function: Callable[[Float[Array, "2"]], Scalar] = eqx.field(converter=lambda f: _as_pytree(f))

    def height_at(self, xy: Float[Array, "2"]) -> Scalar:
        return self.function(xy)

    def describe(self) -> str:
        return "a height function"

    def validate(self) -> str | None:
        try:
            result = jax.eval_shape(self.function, jax.ShapeDtypeStruct((2,), jnp.result_type(float)))
        except Exception as error:
            return f"the height function fails: {error}; give a function of the position (x, y) that returns the height"
        if getattr(result, "shape", None) != ():
            return f"the height function returns {result}; it must return one value, the height at (x, y)"
        return None


def _as_pytree(function: Any) -> Any:
    """A function as a pytree without leaves, and a pytree unchanged."""
    if not callable(function):
        raise TypeError(f"the height function is {function!r}; give a function of the position (x, y)")
    return function if isinstance(function, eqx.Module | jax.tree_util.Partial) else jax.tree_util.Partial(function)


class HeightGrid(_HeightField):
    """Height field from heights on a rectangular grid, smoothed by a uniform cubic B-spline.

    The surface has continuous slopes and curvatures, so contact forces are continuous, also of spheres, whose forces depend on the
    curvature. At a point of the grid, the surface has the mean of the heights of this point and of its neighbors, with the weights
    1, 4 and 1 along each axis; a plane is reproduced. The heights at the edge continue beyond the grid.

    Attributes:
        heights: Heights at corner + (i, j) spacing; i is the index along x, j that along y.
        spacing: Distance of neighboring points along x and y.
        corner: Position (x, y) of heights[0, 0].

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        bumps = jaxdyn.dynamics.HeightGrid(0.1 * jnp.eye(5), spacing=0.5, corner=[-1.0, -1.0])
        distance = bumps.gap(jnp.array([0.0, 0.0, 0.5]))
        ```

    Source: theory.md (T1); cubic B-splines: de Boor 1978.
    """

    kind: ClassVar[str] = "grid"

    heights: Float[Array, "nx ny"] = eqx.field(converter=floating, metadata=quantity("m"))
    spacing: Scalar = eqx.field(converter=floating, metadata=quantity("m", positive=True))
    corner: Float[Array, "2"] = eqx.field(converter=floating, default=(0.0, 0.0), metadata=quantity("m"))

    def height_at(self, xy: Float[Array, "2"]) -> Scalar:
        sizes = np.array(self.heights.shape[-2:], np.int32)
        # From two cells beyond the grid on, all four heights are equal.
        position = jnp.clip((xy - self.corner) / self.spacing, -2.0, jnp.asarray(sizes + 1, xy.dtype))
        cell = jnp.floor(jax.lax.stop_gradient(position))
        weights = jax.vmap(_spline_weights)(position - cell)
        index = jnp.clip(
            cell.astype(jnp.int32)[:, None] + np.arange(-1, 3, dtype=np.int32)[None], 0, sizes[:, None] - 1
        )
        return dot(weights[0], dot(self.heights[index[0][:, None], index[1][None, :]], weights[1]))

    def describe(self) -> str:
        return f"a grid of {' x '.join(map(str, self.heights.shape[-2:]))} heights"

    def validate(self) -> str | None:
        wrong = super().validate()
        if wrong is not None or isinstance(self.heights, Tracer):
            return wrong
        if min(self.heights.shape[-2:]) < 2:
            return f"the grid of heights has shape {self.heights.shape}; give at least 2 x 2 heights"
        missing = np.argwhere(~np.isfinite(np.asarray(self.heights)))
        if len(missing):
            at = ", ".join(map(str, missing[0]))
            return f"the grid of heights has {len(missing)} values that are not finite, the first at [{at}]; fill them"
        return None


def _spline_weights(f: Scalar) -> Float[Array, "4"]:
    """Weights of four neighboring values in a uniform cubic B-spline, at the fraction f between the two middle ones."""
    rest = 1.0 - f
    before, after = 4.0 - f**2 * (6.0 - 3.0 * f), 4.0 - rest**2 * (6.0 - 3.0 * rest)
    return jnp.stack([rest**3, before, after, f**3]) / 6.0
