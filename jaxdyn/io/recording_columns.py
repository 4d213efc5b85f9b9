"""Names of the arrays or columns with the times, coordinates, velocities, accelerations and inputs in the file of a recording."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the arrays of a recording: arrays of a .npz file, or columns of a .csv file (one or several per quantity).

    Values whose name ends with a unit in brackets, as in "elbow [deg]", are converted to SI units.

    Attributes:
        time: Names of the arrays or columns with the time stamps (s).
        q: Names of the arrays or columns with the coordinates (rad or m).
        v: Names of the arrays or columns with the velocities (rad/s or m/s); empty if velocities were not measured.
        a: Names of the arrays or columns with the accelerations (rad/s^2 or m/s^2); empty if they were not measured.
        u: Names of the arrays or columns with the inputs (N m or N); empty for a mechanism without inputs.
        inputs: Meaning of an input between time stamps: "held" if it acts until the next time stamp, as the commands of a digital
            controller do; "linear" if inputs are samples of a continuous signal, such as measured torques.
    """

    time: tuple[str, ...] = ("t",)
    q: tuple[str, ...] = ("q",)
    v: tuple[str, ...] = ()
    a: tuple[str, ...] = ()
    u: tuple[str, ...] = ("tau",)
    inputs: Literal["held", "linear"] = "held"
