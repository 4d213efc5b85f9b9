"""What the arrays of a recording are called in its file."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of what a recording holds: arrays of a .npz file, or columns of a .csv file (one name each, or several).

    Attributes:
        time: These hold the time stamps, s.
        q: These hold the coordinates, rad or m.
        v: These hold the velocities, rad/s or m/s; empty if they were not measured.
        a: These hold the accelerations, rad/s^2 or m/s^2; empty if they were not measured.
        u: These hold the inputs, N m or N; empty for a machine without inputs.
    """

    time: tuple[str, ...] = ("t",)
    q: tuple[str, ...] = ("q",)
    v: tuple[str, ...] = ()
    a: tuple[str, ...] = ()
    u: tuple[str, ...] = ("tau",)
