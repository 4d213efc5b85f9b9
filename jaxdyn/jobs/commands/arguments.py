"""Arguments of the commands that are not jobs. Each class describes one command: its docstring is the help page of the command.

A field without a default is a positional argument, and any other field is an option. This module does not import JAX, so that help
and errors in an argument appear without delay.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.jobs.choices import BackendName, BaseName, ContactName, MethodName
from jaxdyn.jobs.commands.command import placeholder


@dataclasses.dataclass(frozen=True, kw_only=True)
class UrdfOptions:
    """Options for reading a URDF file.

    Attributes:
        base: Whether the root link of a URDF file is fixed or moves freely.
        repair: Correct inertias of a URDF file that are not physically valid.
    """

    base: BaseName | None = None
    repair: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(UrdfOptions):
    """Options for reading a URDF or MJCF file.

    Attributes:
        folder: Folder of the meshes and other files that a URDF or MJCF file names; default: the folder of the file, or of its
            package.
        contact: Use of the colliders of a URDF or MJCF file: "ground" turns them into contacts with the ground.
        kinematic: Do not read the masses and inertias of a URDF or MJCF file, which kinematics and pictures do not require.
        ignore: Elements of an MJCF file that are left out if they are not supported: kinds or names, separated by commas.
    """

    folder: Path | None = None
    contact: ContactName = "none"
    kinematic: bool = False
    ignore: str | None = dataclasses.field(default=None, metadata=placeholder("KINDS"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowArguments(SourceOptions):
    """Print a table and the tree of a mechanism.

    For a mechanism with loops, the number of constraint equations and the number of remaining degrees of freedom are printed too.
    With --out the mechanism is drawn in the middle of its joint limits, with joints and inertia ellipsoids.

      jaxdyn show robot.urdf --out robot.png

    Attributes:
        file: Mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot of robot_descriptions.
        out: Draw the mechanism to this file.
    """

    file: Path = dataclasses.field(metadata=placeholder("FILE"))
    out: Path | None = dataclasses.field(default=None, metadata=placeholder("PICTURE.png"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckArguments(SourceOptions):
    """Print the accuracy of float32 and float64 for a mechanism.

    Energy, forward dynamics and their gradients are computed in float32 and float64 at a few states, and compared with arithmetic
    of 50 digits. Errors of float32 include the rounding of the model parameters to float32; the column 'of which the model' shows
    the errors that this rounding alone causes. The chosen states and forces are exactly representable in float32, so that their
    rounding does not contribute.

      jaxdyn check robot.urdf --states 20

    Attributes:
        file: Mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot of robot_descriptions.
        states: Number of random states in addition to the state at rest.
        seed: Seed of the random states.
        method: Algorithm of the forward dynamics; default: the algorithm in the file.
        backend: Compiler: "lanes" for the lane compiler, "xla" for XLA, "auto" for the lane compiler where it supports the
            computation.
    """

    file: Path = dataclasses.field(metadata=placeholder("FILE"))
    states: int = dataclasses.field(default=8, metadata=placeholder("N"))
    seed: int = 0
    method: MethodName | None = None
    backend: BackendName = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertArguments(SourceOptions):
    """Convert a mechanism from one format to another.

    The suffix of a file name determines the format. If the target format cannot express a part of the mechanism, an error is
    reported and no file is written. Only archives keep the settings method and stabilization of the computation, and
    only URDF and MJCF files keep the shapes of bodies, with references to the same mesh files. A target *.xml is MJCF.

      jaxdyn convert robot.urdf robot.toml
      jaxdyn convert robot.toml robot.urdf --drop jaxdyn

    Attributes:
        source: Mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot of robot_descriptions.
        target: File to write: .toml, .urdf, .xml (MJCF) or .json (with .npz).
        force: Replace OUT if it exists.
        drop: Tables, such as actuator, that are left out of a URDF or MJCF file, separated by commas; "jaxdyn" for all that URDF
            lacks.
    """

    source: Path = dataclasses.field(metadata=placeholder("IN"))
    target: Path = dataclasses.field(metadata=placeholder("OUT"))
    force: bool = False
    drop: str | None = dataclasses.field(default=None, metadata=placeholder("TABLES"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnimateArguments(SourceOptions):
    """Make an animation of a run or of a mechanism.

    For a run directory, the recorded motion is shown. For a mechanism file, the mechanism starts from a random configuration and
    falls under gravity. A mechanism with a free base falls from 0.1 m above the ground if it has contacts with it, and else moves
    without gravity. The camera does not move, and the axes are in meters.

      jaxdyn animate robot.urdf
      jaxdyn animate runs/panda --out panda.mp4 --ghosts 8 --speed 0.5

    Attributes:
        source: Run directory, mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot.
        out: Animation file, .gif or .mp4; default: motion.gif in the run directory, or <file>.gif.
        duration: Duration of the motion in seconds; default: the whole run, or 3 for a mechanism.
        fps: Frames per second.
        speed: Speed of the animation relative to the real motion; 0.5 is half speed.
        size: Width and height of the animation.
        sample: Index of the sample in color.
        ghosts: Number of further samples of a run in gray; default: 3.
        seed: Seed of the random initial state of a mechanism.
    """

    source: Path = dataclasses.field(metadata=placeholder("RUN_DIR_or_FILE"))
    out: Path | None = dataclasses.field(default=None, metadata=placeholder("MOTION.gif"))
    duration: float | None = dataclasses.field(default=None, metadata=placeholder("S"))
    fps: float = 30.0
    speed: float = 1.0
    size: int = dataclasses.field(default=540, metadata=placeholder("PIXELS"))
    sample: int = dataclasses.field(default=0, metadata=placeholder("K"))
    ghosts: int | None = dataclasses.field(default=None, metadata=placeholder("N"))
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewArguments(SourceOptions):
    """Show a run or a mechanism in the browser, in three dimensions.

    For a run directory, the command writes the page replay.html to this directory. The page has controls for the time, the speed,
    the shown sample and the visible elements, and it plots coordinates and energy.

    For a mechanism file, the command writes a page with a slider for each joint coordinate. Pages need neither server nor network.
    Loops stay closed: only the independent coordinates have sliders, and each of them moves the mechanism while the others are in
    the middle.

    Bodies are drawn with the meshes and other shapes of a URDF or MJCF file; bodies without shapes are drawn as sticks.

      jaxdyn view runs/panda
      jaxdyn view runs/panda --samples 0 17 42
      jaxdyn view robot.urdf

    Attributes:
        source: Run directory, mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot.
        html: Path of the HTML page; default: replay.html in the run directory, or <file>.html.
        samples: Indices of the samples on the page of a run; default: the first eight.
        overlay: Number of further samples in gray on the page of a run; default: 3.
    """

    source: Path = dataclasses.field(metadata=placeholder("RUN_DIR_or_FILE"))
    html: Path | None = dataclasses.field(default=None, metadata=placeholder("FILE"))
    samples: tuple[int, ...] | None = dataclasses.field(default=None, metadata=placeholder("K"))
    overlay: int | None = dataclasses.field(default=None, metadata=placeholder("N"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewArguments(UrdfOptions):
    """Write a commented config or mechanism file to start from.

    In the file, a comment above each key explains it. Edit the values, then run the command that `jaxdyn new` prints.

      jaxdyn new mechanism
      jaxdyn new rollout --mechanism robot.urdf
      jaxdyn new identify fit.toml

    Attributes:
        kind: Kind of the file.
        file: File to write; default: KIND.toml.
        mechanism: Mechanism file of the config (.toml, .urdf, .xacro, .xml or .json), or the name of a robot of robot_descriptions;
            default: mechanism.toml in the folder of the config; this file is written if it does not exist.
        force: Replace FILE if it exists.
    """

    kind: Literal["rollout", "identify", "optimize", "mechanism"]
    file: Path | None = dataclasses.field(default=None, metadata=placeholder("FILE", positional=True))
    mechanism: Path | None = dataclasses.field(default=None, metadata=placeholder("FILE"))
    force: bool = False
