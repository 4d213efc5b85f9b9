"""Names of the arrays or columns with the times, coordinates, velocities, accelerations and inputs in the file of a recording."""

import dataclasses
from pathlib import Path
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the arrays or columns of a recording in its file (one or several per quantity).

    Values whose name ends with a unit in brackets, as in "elbow [deg]", are converted to SI units. A unit may be added to a name
    that has none in the file.

    Attributes:
        time: Names of the arrays or columns with the time stamps (s).
        q: Names of the arrays or columns with the coordinates (rad or m).
        v: Names of the arrays or columns with the velocities (rad/s or m/s); empty if velocities were not measured.
        a: Names of the arrays or columns with the accelerations (rad/s^2 or m/s^2); empty if they were not measured.
        u: Names of the arrays or columns with the inputs (N m or N); empty for a mechanism without inputs.
        inputs: Meaning of an input between time stamps: "held" if it acts until the next time stamp, as the commands of a digital
            controller do; "linear" if inputs are samples of a continuous signal, such as measured torques.
        file: Name of the file of a recording, in which {} stands for the name of the recording.
        u_file: Name of the file of the inputs, as in `file`, if they have their own time stamps and rate; empty if they are in the
            same file.
        u_time: Names of the time stamps of the inputs, if they have their own, in this file or in the same one; by default those of
            `time`.
    """

    time: tuple[str, ...] = ("t",)
    q: tuple[str, ...] = ("q",)
    v: tuple[str, ...] = ()
    a: tuple[str, ...] = ()
    u: tuple[str, ...] = ("tau",)
    inputs: Literal["held", "linear"] = "held"
    file: str = "{}"
    u_file: str = ""
    u_time: tuple[str, ...] = ()

    def __post_init__(self):
        for name, file in (("file", self.file), ("u_file", self.u_file)):
            if file and "{}" not in file:
                raise ValueError(
                    f"{name} = {file!r} is one file for all recordings; write {{}} for the name of a recording"
                )

    def paths(self, path: Path) -> tuple[Path, ...]:
        """The file of a recording, or those of its measurements and of its inputs, if these have their own time stamps.

        Args:
            path: Folder and name of the recording.
        """
        files = (self.file, self.u_file or self.file)[: len(self.names)]
        return tuple(path.parent / file.replace("{}", path.name) for file in files)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of all columns in each of these files."""
        measured = (*self.time, *self.q, *self.v, *self.a)
        if self.u_file or self.u_time:
            return measured, (*(self.u_time or self.time), *self.u)
        return ((*measured, *self.u),)
