"""Postures of a mechanism with closed loops, set by one slider per joint coordinate.

A joint with several degrees of freedom is set by the coordinates of its primitives (`jaxdyn.decompose_joints`), which are angles
and displacements: a spherical joint by three angles, a free base by three displacements and three angles.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import stored_jit
from jaxdyn.constraints.assembly import assemble, random_closed
from jaxdyn.constraints.independence import independent_velocities
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import turning
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.transformations import decompose_joints
from jaxdyn.view import skeleton
from jaxdyn.view.skeleton import Mechanism, Placed

# In rad, or as a share of the size of the mechanism: loops are closed again after such a step, on the same branch.
_LARGEST_STEP = 0.2
_TIME_SHOWN = 10.0  # s of a prescribed motion
_POSTURES_OF_BOX = 8
_TRIES = 16  # of random postures until the loops close


class Slider(NamedTuple):
    """One coordinate of a posture, as a slider with a name, a unit and a range.

    Attributes:
        name: Name of the joint, with the direction of the coordinate if the joint has several degrees of freedom.
        unit: "rad", "m", or "s" for the time of prescribed motions.
        low, high: Ends of the slider: the limits of the joint, if it has limits.
        limited: Whether both ends are limits of the joint.
    """

    name: str
    unit: str
    low: float
    high: float
    limited: bool


class Posture(NamedTuple):
    """A configuration of a mechanism, with its loops closed.

    Attributes:
        values: Values of all sliders, including dependent ones.
        q: Coordinates.
    """

    values: Float[np.ndarray, "sliders"]
    q: Float[np.ndarray, "nq"]


class _Component(NamedTuple):
    """One slider that is not the time.

    Attributes:
        body: Body whose joint the slider sets.
        primitive: The primitive of this joint that has the value of the slider as its coordinate.
        turns: Whether the primitive turns.
        column: Velocity component of the joint; the k-th rotation belongs to the k-th angular component.
    """

    body: int
    primitive: Joint
    turns: bool
    column: int


class Postures:
    """The postures that a mechanism can take.

    Attributes:
        system: The mechanism.
        primitives: The mechanism with joints of one degree of freedom only; each has one slider.
        sliders: One slider per coordinate of `primitives`, then one for the time if the motion of a joint is prescribed.
        independent: Indices of the independent sliders; the others are determined by the closed loops.
        middle: The posture in the middle of the joint limits, or for loops a posture near it that closes them.
    """

    def __init__(self, mechanism: Mechanism):
        """Postures of a mechanism.

        Raises:
            ConfigError: its loops cannot be closed, or a joint has no coordinates that could be set one by one.
        """
        self.system = system = mechanism if isinstance(mechanism, System) else System(mechanism)
        model = system.model
        without_armature = eqx.tree_at(lambda m: m.armature, model, jnp.zeros_like(model.armature))
        self.primitives = decompose_joints(without_armature)
        if self.primitives.nq != model.nv:
            raise ConfigError(f"{model.name}: it has a kind of joint that cannot be set by angles and displacements")
        self._is_driven = configuration.is_prescribed(model)
        self._held: tuple[int, ...] = tuple(range(model.nv))
        # The middle of the joint limits, else neutral; loops close from somewhere that is not straight.
        spread = jnp.asarray(0.5 if system.constraints else 0.0, model.dtype)
        start = random_closed(system, jax.random.key(0), spread=spread, throw=False)
        if not bool(start.closed):
            raise ConfigError(f"{model.name}: its loops cannot be closed; check the markers and lengths")
        if system.constraints:
            self._held = independent_velocities(system, system.at_rest(start.q))
        self._size = _size_of(system, start.q)
        components = _components(model)
        self.sliders = self._all_sliders(components)
        chosen = [k for k, component in enumerate(components) if component.column in self._held]
        self.independent = tuple(chosen) + ((model.nv,) if self._is_driven else ())
        self.middle = self._posture(start.q, 0.0)

    def neutral(self) -> Posture | None:
        """The posture at zero angles and displacements; None if the loops are not closed in this posture."""
        return self._at(np.zeros(len(self.sliders)))

    @property
    def chosen_at_random(self) -> tuple[int, ...]:
        """Indices of the sliders that a random posture sets: angles, and displacements that have limits."""
        return tuple(i for i in self.independent if self.sliders[i].unit == "rad" or self.sliders[i].limited)

    def random(self, seed: int) -> Posture | None:
        """A random posture, uniform between the ends of its sliders; None if the loops cannot be closed in a few attempts.

        Displacements without limits, such as the position of a free base, are not changed.
        """
        generator = np.random.default_rng(seed)
        for _ in range(_TRIES if self.system.constraints else 1):
            values = self.middle.values.copy()
            for i in self.chosen_at_random:
                values[i] = generator.uniform(self.sliders[i].low, self.sliders[i].high)
            found = self._at(values)
            if found is not None:
                return found
        return None

    def moved(self, start: Posture, values: Float[np.ndarray, "sliders"]) -> Posture | None:
        """The posture with these values of the independent sliders, found in steps from `start`; None if the loops cannot be
        closed.
        """
        chosen = list(self.independent)
        way = (values - start.values)[chosen]
        scale = np.array([self._size if self.sliders[i].unit == "m" else 1.0 for i in chosen])
        largest = float(np.max(np.abs(way / scale), initial=0.0))
        steps = max(1, int(np.ceil(largest / _LARGEST_STEP))) if self.system.constraints else 1
        posture: Posture | None = start
        for k in range(1, steps + 1):
            wanted = posture.values.copy()
            wanted[chosen] = start.values[chosen] + way * (k / steps)
            posture = self._at(wanted)
            if posture is None:
                break
        return posture

    def placed(self, postures: list[Posture], *, primitives: bool = False) -> Placed:
        """Positions of all parts of the mechanism or of its `primitives`; its axis of times contains the postures."""
        values = np.array([posture.values for posture in postures])
        time = values[:, -1] if self._is_driven else np.zeros(len(postures))
        with self._precision():
            if primitives:
                return skeleton.place(self.primitives, time, values[None, :, : self.primitives.nq])
            return skeleton.place(self.system, time, np.array([posture.q for posture in postures])[None])

    def box(self, visuals: Sequence[Visual] = ()) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Corners (m) of a box around the mechanism in the middle posture and in some random postures."""
        others = [self.random(seed) for seed in range(_POSTURES_OF_BOX)]
        placed = self.placed([self.middle, *(posture for posture in others if posture is not None)])
        return skeleton.box_around([placed], self.system.model, visuals)

    def _precision(self):
        return jax.enable_x64(self.system.model.dtype == np.float64)

    def _at(self, values: Float[np.ndarray, "sliders"]) -> Posture | None:
        """The posture at these values of the independent sliders; those of the others are the initial guess."""
        model, time = self.system.model, float(values[-1]) if self._is_driven else 0.0
        with self._precision():
            q = _coordinates(model, jnp.asarray(values[: model.nv], model.dtype))
            if self.system.constraints:
                start = self.system.at_rest(q)
                found = assemble(self.system, start, jnp.asarray(time, q.dtype), held=self._held, throw=False)
                if not bool(found.closed):
                    return None
                q = found.q
            return self._posture(q, time)

    def _posture(self, q: Float[Array, "nq"], time: float) -> Posture:
        values = np.asarray(_values(self.system.model, q), float)
        return Posture(np.append(values, time) if self._is_driven else values, np.asarray(q))

    def _all_sliders(self, components: list[_Component]) -> tuple[Slider, ...]:
        names, limits, sliders = self.system.model.topology.joint_names, self.primitives.limits, []
        ends = zip(np.asarray(limits.lower, float).tolist(), np.asarray(limits.upper, float).tolist(), strict=True)
        counts = collections.Counter(component.body for component in components)
        for k, ((body, primitive, turns, _), (lower, upper)) in enumerate(zip(components, ends, strict=True)):
            name = names[body] if counts[body] == 1 else f"{names[body]} {_direction(primitive, turns, k)}"
            limited = bool(np.isfinite(lower) and np.isfinite(upper))
            # Without limits `reach` from zero, and with one limit twice `reach` from it.
            reach = np.pi if turns else self._size
            low = lower if np.isfinite(lower) else min(-reach, upper - 2 * reach)
            high = upper if np.isfinite(upper) else max(reach, lower + 2 * reach)
            sliders.append(Slider(name, "rad" if turns else "m", low, high, limited))
        if self._is_driven:
            sliders.append(Slider("time", "s", 0.0, _TIME_SHOWN, False))
        return tuple(sliders)


def _components(model: Model) -> list[_Component]:
    """The components of the primitives of all joints; a joint whose motion is prescribed has none."""
    found = []
    for body in range(model.nb):
        joint, start = model.joint(body), int(model.topology.v_starts[body])
        columns = {kind: iter(np.flatnonzero(np.equal(turning(joint), kind)) + start) for kind in (True, False)}
        pairs = [(primitive, turns) for primitive in joint.primitives() for turns in turning(primitive)]
        found += [_Component(body, primitive, turns, int(next(columns[turns]))) for primitive, turns in pairs]
    return found


def _direction(primitive: Joint, turns: bool, number: int) -> str:
    """The axis of a primitive in words, or its index where it is not x, y or z."""
    axis = np.asarray(getattr(primitive, "axis", np.ones(3)), float)
    letter = "xyz"[int(np.abs(axis).argmax())] if np.count_nonzero(axis) == 1 else str(number)
    return f"about {letter}" if turns else f"along {letter}"


def _size_of(system: System, q: Float[Array, "nq"]) -> float:
    """Longest side (m) of the mechanism, rounded up to two digits."""
    low, high = skeleton.box_around([skeleton.place(system, np.zeros(1), np.asarray(q)[None, None])], system.model)
    size = float((high - low).max())
    digit = 10.0 ** (np.floor(np.log10(size)) - 1)
    return float(np.ceil(size / digit) * digit)


_values = stored_jit(configuration.to_primitives)
_coordinates = stored_jit(configuration.from_primitives)
