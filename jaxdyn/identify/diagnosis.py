"""Faults of recordings that spoil a fit: a person sees them at once in a plot, and a fit hides them in its estimates.

Each fault has a name, see `FAULTS`. Most of them are found by a linear fit, which depends on no initial guess: the forces tau that
a motion requires are linear in the parameters, tau = Y(q, v, a) phi + remaining forces. A fault that changes the recorded motion or
forces in a known way, such as another clock or another sign, is present if the residual |tau - Y phi| of the best phi becomes much
smaller when the change is undone.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.dynamics.system import State, System
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part, Recording, RecordingError
from jaxdyn.identify.regression import regressor, remaining_forces
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import POSITION, Quantity

FAULTS = {
    "still": "a coordinate does not move",
    "slow": "the motion is so slow that forces of inertia are lost among the others",
    "saturated": "an input stays at its largest or smallest value",
    "clock": "the clocks of motion and inputs differ",
    "sign": "an input acts in the opposite direction",
    "degrees": "a coordinate is in degrees",
}

_MOST_ROWS = 1500  # samples of the linear fit; more of them do not change a diagnosis
_RANK = 1e-9  # relative size of singular values that are zero
_SLOW = 0.02  # part of the recorded forces that are forces of inertia
_INERTIAL = 0.3  # part of the forces of a joint that are forces of its inertia, from which its sign is certain
_UNCOUPLED = 1.05  # residual with another sign of an input, relative to that as recorded, if its joint is not coupled
_EXPLAINED = 0.3  # residual, in standard deviations of the forces, up to which small effects are seen
_CUTOFFS = (1.0, 2.0, 4.0)  # of the filter, in those of the recording; fast motions need higher ones
_SATURATED = 5.0  # percentage of the samples that are equal to the extreme value
_FEW_LEVELS = 20  # values of an input that is a sequence of constant commands
_DECREASE = 0.7  # of the residual that identifies a fault, relative to the residual without it
_MOST_SHIFT, _SHIFTS = 0.05, 41  # s; clocks that are compared
_BLOCKS = 10  # of a recording, from whose differences the standard deviation of a shift is computed
_CERTAIN = 6.0  # standard deviations beyond which a shift is not an accident
_TURNS = 2.0 * np.pi  # range of a coordinate (rad) below which it is not suspected to be in degrees


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault of a recording, or a doubt about a fit.

    Attributes:
        name: Name of the kind, one of `FAULTS` or of `jaxdyn.identify.verdict.DOUBTS`.
        message: Sentence with the place, the size, and the next thing to try.
    """

    name: str
    message: str


def diagnose(plant: Plant, recordings: Sequence[Recording | Part]) -> tuple[Finding, ...]:
    """Find faults of recordings before a fit. The parameters of the plant need not be known.

        for finding in identify.diagnose(plant, [recording]):
            print(finding.name, finding.message)

    Args:
        plant: Plant that will be fitted to the recordings.
        recordings: Recordings, or parts of them with their own filters.

    Returns:
        The faults that were found, of the kinds in `FAULTS`; empty if nothing is suspicious. The kinds "slow", "clock", "sign" and
        "degrees" are only looked for if the coordinates are measured, and the system has no constraints and no states of drives.
    """
    found: list[Finding] = []
    for entry in recordings:
        part = entry if isinstance(entry, Part) else Part(entry)
        whole = part.alone
        if whole.q.shape[1] != plant.system.model.nq:
            continue  # the fit refuses it, or its sensors are others
        still = list(_still(plant.system.model, whole))
        found += [*still, *_saturated(plant.system, whole)]
        alone = not plant.system.constraints and not plant.system.nz  # the inputs at one time determine the forces
        if still or not alone or plant.system.model.nq != plant.system.model.nv or not whole.u.size:
            continue
        try:
            fits = [_Linear(plant, _filtered(part, factor)) for factor in _CUTOFFS]
        except RecordingError:  # too short for its filter
            continue
        found += min(fits, key=lambda fit: fit.residual).faults()
    return tuple(found)


def _filtered(part: Part, factor: float) -> Part:
    """The part with another cutoff frequency of its filter."""
    smoothing = dataclasses.replace(part.processed.smoothing, cutoff=factor * part.processed.smoothing.cutoff)
    return dataclasses.replace(part, processing=dataclasses.replace(part.processed, smoothing=smoothing))


def _still(model: Model, recording: Recording) -> Iterator[Finding]:
    """Coordinates whose range is not more than the noise between neighboring samples explains."""
    names = component_names(model, Quantity(along="coordinate"))
    for name, column in zip(names, recording.q.T, strict=True):
        column = column[np.isfinite(column)]
        if not column.size:
            continue
        noise = noise_of(column[:, None])[0]
        if np.ptp(column) <= 12.0 * noise or np.ptp(column) == 0.0:
            yield Finding(
                "still",
                f"{recording.name}: {name} does not move (range {np.ptp(column):.2g}); its inertia and friction cannot be "
                "estimated: record a motion of this joint, such as one of design_excitation, or fix these parameters",
            )


def _saturated(system: System, recording: Recording) -> Iterator[Finding]:
    """Inputs that stay at an extreme value. A sequence of few constant commands is not a fault."""
    for k, column in enumerate(recording.u.T):
        column = column[np.isfinite(column)]
        if not column.size or len(np.unique(column)) <= _FEW_LEVELS:
            continue
        for bound in (column.min(), column.max()):
            share = 100.0 * np.mean(np.abs(column - bound) <= 1e-9 * np.ptp(column))
            if share > _SATURATED:
                yield Finding(
                    "saturated",
                    f"{recording.name}: input {k} is at its extreme value {bound:.4g} in {share:.0f} % of the samples; if the "
                    "drive or its sensor ends there, the true force is another one: use a smaller motion, or leave out such parts",
                )


def noise_of(columns: Float[np.ndarray, "samples c"]) -> Float[np.ndarray, "c"]:
    """Standard deviation of the white noise of columns, from their third differences, in which smooth signals vanish."""
    if len(columns) < 8:
        return np.zeros(columns.shape[1])
    third = np.diff(columns, 3, axis=0)
    # Median of absolute values of a normal distribution, and the sum of squared binomials 1, 3, 3, 1.
    return np.nanmedian(np.abs(third), axis=0) / 0.6745 / np.sqrt(20.0)


class _Linear:
    """Linear fits of the forces of a smoothed recording, with changes of the recording."""

    def __init__(self, plant: Plant, part: Part):
        self.plant, self.name = plant, part.recording.name
        smooth = part.smoothed()
        assert smooth.v is not None  # a smoothed recording has both
        assert smooth.a is not None
        kept = slice(None, None, -(-len(smooth.time) // _MOST_ROWS))
        self.time, self.u, self.read_at = smooth.time, smooth.u, smooth.time[kept]
        self.interval = float(np.median(np.diff(part.recording.time)))
        self.q, self.v, self.a = (x[kept] for x in (smooth.q, smooth.v, smooth.a))
        Y, self.rest = self._linear_forces(self.q, self.v, self.a)
        self.tau = self._forces()
        # All joints count alike, those of the wrist with their small forces, too.
        self.weights = 1.0 / np.maximum(
            np.std(self.tau, axis=0), 1e-6 * np.max(np.abs(self.tau), initial=np.finfo(float).tiny)
        )
        self.Y = self.weights[:, None] * Y
        self.basis = _basis(self.Y)
        self.residual = self._residual(self.tau)

    def faults(self) -> Iterator[Finding]:
        """The fault of this recording: the first one that is found, because each of them disturbs the search for the next ones."""
        yield from list(self._slow()) or list(self._degrees()) or list(self._sign()) or self._clock()

    def _linear_forces(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Y, rest = _linear_forces(self.plant.system, q, v, a)
        return np.asarray(Y, np.float64), np.asarray(rest, np.float64)

    def _forces(self, later: float = 0.0, negative: int | None = None) -> Float[np.ndarray, "samples nv"]:
        """Forces of the drives minus forces that are not linear, with inputs that are read later (s), or of the other sign."""
        delays = np.broadcast_to(np.asarray(self.plant.inputs.delay, np.float64), (self.u.shape[1],))
        read = [
            np.interp(self.read_at - delay + later, self.time, u) for delay, u in zip(delays, self.u.T, strict=True)
        ]
        u = np.stack(read, axis=1)
        if negative is not None:
            u[:, negative] *= -1.0
        return np.asarray(_drive_forces(self.plant, Motions(self.q, self.v, self.a, u)), np.float64) - self.rest

    def _errors(self, tau: np.ndarray, basis: np.ndarray | None = None) -> Float[np.ndarray, "samples nv"]:
        """Forces that no parameters explain, in their standard deviations."""
        basis, tau = self.basis if basis is None else basis, self.weights * tau
        return tau - (basis @ (basis.T @ tau.ravel())).reshape(tau.shape)

    def _residual(self, tau: np.ndarray, basis: np.ndarray | None = None) -> float:
        """Part of the forces that no parameters explain."""
        return float(
            np.linalg.norm(self._errors(tau, basis)) / max(np.linalg.norm(self.weights * tau), np.finfo(float).tiny)
        )

    def _explains(self, residual: float) -> bool:
        return residual < _DECREASE * self.residual

    def _inertial(self, v: np.ndarray, a: np.ndarray, tau: np.ndarray) -> Float[np.ndarray, "samples nv"]:
        """Forces of inertia with the parameters that fit forces best: those of a motion minus those of its positions at rest."""
        model = self.plant.system.model
        at_rest, columns = np.zeros_like(self.v), 10 * model.nb + model.nv  # bodies and rotors, without friction
        difference = self._linear_forces(self.q, v, a)[0] - self._linear_forces(self.q, at_rest, at_rest)[0]
        phi = np.linalg.lstsq(self.Y.reshape(-1, self.Y.shape[-1]), (self.weights * tau).ravel(), rcond=_RANK)[0]
        return difference[..., :columns] @ phi[:columns]

    def _slow(self) -> Iterator[Finding]:
        share = np.linalg.norm(self._inertial(self.v, self.a, self.tau)) / max(
            np.linalg.norm(self.tau), np.finfo(float).tiny
        )
        if share < _SLOW:
            yield Finding(
                "slow",
                f"{self.name}: forces of inertia are {100 * share:.2g} % of the recorded forces, so that only gravity and friction "
                "can be estimated; record a faster motion, such as one of design_excitation, or fix the inertias",
            )

    def _clock(self) -> Iterator[Finding]:
        """The shift of the inputs with the smallest residual, with its standard deviation by leaving out blocks (jackknife)."""
        shifts = np.linspace(-_MOST_SHIFT, _MOST_SHIFT, _SHIFTS)
        errors = [self._errors(self._forces(shift)) for shift in shifts]
        parts = [[np.sum(block**2) for block in np.array_split(error, _BLOCKS)] for error in errors]
        squares = np.array(parts)
        without = [_lowest(shifts, squares.sum(axis=1) - square) for square in squares.T]
        shift, spread = _lowest(shifts, squares.sum(axis=1)), np.std(without) * np.sqrt(_BLOCKS - 1)
        explained = np.sqrt(np.min(squares.sum(axis=1)) / self.tau.size) < _EXPLAINED
        if explained and max(_CERTAIN * spread, self.interval) < abs(shift) < _MOST_SHIFT:
            yield Finding(
                "clock",
                f"{self.name}: the inputs explain the motion best if they are read {1e3 * abs(shift):.3g} ms "
                f"{'later' if shift > 0 else 'earlier'} (standard deviation {1e3 * spread:.2g} ms); shift the time stamps of one "
                "of the two, or estimate inputs.delay by output error",
            )

    def _degrees(self) -> Iterator[Finding]:
        model = self.plant.system.model
        along = Quantity(POSITION, along="coordinate")
        for k, (name, unit) in enumerate(zip(component_names(model, along), units_along(model, along), strict=True)):
            if unit != "rad" or np.ptp(self.q[:, k]) < _TURNS:
                continue
            scale = np.where(np.arange(model.nq) == k, np.pi / 180.0, 1.0)
            basis = _basis(
                self.weights[:, None] * self._linear_forces(*(scale * x for x in (self.q, self.v, self.a)))[0]
            )
            if self._explains(self._residual(self.tau, basis)):
                yield Finding(
                    "degrees",
                    f"{self.name}: {name} moves by {np.ptp(self.q[:, k]):.3g} rad, and the forces belong to a motion by as many "
                    f'degrees; write the unit into the name of the column, as in q = ["{name} [deg]"]',
                )

    def _sign(self) -> Iterator[Finding]:
        """Another sign of all inputs changes the sign of all parameters, but not the residual; masses must be positive."""
        names, uncoupled = component_names(self.plant.system.model, Quantity()), []
        for k in range(self.u.shape[1]):
            tau = self._forces(negative=k)
            residual = self._residual(tau)
            if self._explains(residual) and np.vdot(self._inertial(0.0 * self.v, self.a, tau), self.a) > 0.0:
                yield self._opposite(f"input {k}", self._remains(residual))
                return
            if residual < _UNCOUPLED * self.residual:
                uncoupled += np.flatnonzero(np.any(tau != self.tau, axis=0)).tolist()
        # A joint that is not coupled with others is explained by a negative inertia.
        remains = np.sqrt(np.mean(self._errors(self.tau) ** 2, axis=0))
        for k in uncoupled:
            alone = self.a * (np.arange(self.a.shape[1]) == k)
            forces = self._inertial(0.0 * self.v, alone, self.tau)[:, k]
            certain = remains[k] < _EXPLAINED and np.linalg.norm(forces) > _INERTIAL * np.linalg.norm(self.tau[:, k])
            if certain and np.dot(forces, self.a[:, k]) < 0.0:
                yield self._opposite(f"the force of {names[k]}", "as recorded it belongs to a negative inertia")

    def _remains(self, residual: float) -> str:
        return f"{100 * residual:.2g} instead of {100 * self.residual:.2g} % of the forces remain"

    def _opposite(self, which: str, evidence: str) -> Finding:
        return Finding(
            "sign",
            f"{self.name}: {which} seems to act in the opposite direction ({evidence}); change the sign of its column, or start "
            "inputs.gain at -1",
        )


def _lowest(shifts: np.ndarray, squares: np.ndarray) -> float:
    """Minimum of the parabola through the lowest of some values and its neighbors."""
    k = int(np.clip(np.argmin(squares), 1, len(shifts) - 2))
    before, at, after = squares[k - 1 : k + 2]
    curvature = before - 2.0 * at + after
    return float(shifts[k] + (shifts[1] - shifts[0]) * (0.5 * (before - after) / curvature if curvature > 0.0 else 0.0))


def _basis(Y: Float[np.ndarray, "samples nv parameters"]) -> Float[np.ndarray, "equations rank"]:
    """Orthonormal basis of the forces that some parameters explain."""
    left, sizes, _ = np.linalg.svd(Y.reshape(-1, Y.shape[-1]), full_matrices=False)
    return left[:, sizes > _RANK * sizes[0]]


@stored_jit
def _linear_forces(system: System, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """Regressor, and forces that are not linear in its parameters, of all samples."""

    def of_sample(q, v, a):
        return regressor(system, State(q, v), a), remaining_forces(system, State(q, v), a)

    return jax.vmap(per_sample(of_sample, name="linear forces"))(q, v, a)


@stored_jit
def _drive_forces(plant: Plant, motions: Motions) -> Float[Array, "samples nv"]:
    return jax.vmap(lambda motion: drive_forces(plant, motion))(motions)
