"""Processing of recordings before they are compared with a plant: grids and filters."""

import dataclasses
from typing import Any

import equinox as eqx

from jaxdyn.mechanism.quantity import check_settings, quantity


def _value(default: Any, unit: str | None = None, *, positive: bool = False, minimum: float | None = None) -> Any:
    return eqx.field(static=True, default=default, metadata=quantity(unit, positive=positive, minimum=minimum))


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """Smoothing of recordings for inverse dynamics.

    Attributes:
        interval: Interval of the regular time grid.
        cutoff: Cutoff frequency of the zero-phase low-pass filter for positions, velocities and forces; 0 for no filter.
        order: Order of the low-pass filter.
        drop: Number of samples that are removed at each end.
        decimate: Decimation factor n: every n-th sample is used.

    Raises:
        ValueError: A value is out of its bounds.
    """

    interval: float = _value(0.001, "s", positive=True)
    cutoff: float = _value(5.0, "Hz", minimum=0.0)
    order: int = _value(4, positive=True)
    drop: int = _value(300, minimum=0.0)
    decimate: int = _value(5, positive=True)

    def __post_init__(self):
        check_settings(self)

    @property
    def in_words(self) -> str:
        """Description of the filter for the names of figures of merit; empty without a filter."""
        return f", filter {self.cutoff:g} Hz" if self.cutoff else ""


@dataclasses.dataclass(frozen=True)
class Processing:
    """Everything that is done with a recording before it is compared with a plant.

    Attributes:
        smoothing: Grid and filter for inverse dynamics.
        lead: Duration by which the inputs of each window begin before the window, for inputs with delay.
        velocity_cutoff: Cutoff frequency of the low-pass filter for the initial velocities of windows.
        checks: Checks that compute the figures of merit.

    Raises:
        ValueError: A value is out of its bounds.
    """

    smoothing: Smoothing = Smoothing()
    lead: float = _value(0.0, "s", minimum=0.0)
    velocity_cutoff: float = _value(20.0, "Hz", positive=True)
    checks: tuple[Any, ...] = ()

    def __post_init__(self):
        check_settings(self)
