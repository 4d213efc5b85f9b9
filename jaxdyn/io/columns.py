"""What the arrays of a recording are called in its file."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of what a recording holds: arrays of a .npz file, or columns of a .csv file (one name each, or several).

    Attributes:
        time: time stamps, s.
        q, v, a, u: coordinates, velocities, accelerations, inputs, in SI units; empty where they were not measured.
    """

    time: tuple[str, ...] = ("t",)
    q: tuple[str, ...] = ("q",)
    v: tuple[str, ...] = ()
    a: tuple[str, ...] = ()
    u: tuple[str, ...] = ("tau",)
