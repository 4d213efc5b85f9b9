"""The verbs of the command line: their arguments, their help, and the modules that execute them.

This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

import argparse
from pathlib import Path
from typing import get_args

from jaxdyn.jobs.choices import BackendName, BaseName, MethodName
from jaxdyn.jobs.command import Command, count, positive
from jaxdyn.jobs.job import Job, deferred
from jaxdyn.jobs.rollout_config import RolloutConfig
from jaxdyn.jobs.settings import wrapped

_FORMATS = ".toml, .urdf, .xml (URDF or MJCF) or .json"


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=f"mechanism file: {_FORMATS}")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PICTURE.png",
        help="draw the mechanism to this file, and its tree to PICTURE_tree.png",
    )
    _add_source_options(parser)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=f"mechanism file: {_FORMATS}")
    parser.add_argument(
        "--states",
        type=count,
        default=8,
        metavar="N",
        help="number of random states in addition to the state at rest [%(default)s]",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random states [%(default)s]")
    parser.add_argument(
        "--method",
        choices=get_args(MethodName),
        help="algorithm of the forward dynamics; default: that of the file",
    )
    parser.add_argument(
        "--backend",
        choices=get_args(BackendName),
        default="auto",
        help='compiler: "lanes" for the lane compiler, "xla" for XLA, "auto" for the default of jaxdyn.batched [%(default)s]',
    )
    _add_source_options(parser)


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="IN", help=f"mechanism file: {_FORMATS}")
    parser.add_argument("target", type=Path, metavar="OUT", help="file to write: .toml, .urdf or .json (with .npz)")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    _add_source_options(parser)
    plain_help = parser.format_help
    parser.format_help = lambda: f"{plain_help()}\n{_tables()}"


def _tables() -> str:
    """Description of the tables of mechanism files. It is made only for the help, because the classes of forces need JAX."""
    from jaxdyn.io.mechanism_parts import BY_JOINT_NAMES, describe_parts

    return (
        wrapped(f"tables of forces and constraints in a .toml file:\n\n{BY_JOINT_NAMES}\n\n{describe_parts()}") + "\n"
    )


def _animate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="RUN_DIR_or_FILE", help=f"run directory, or mechanism file: {_FORMATS}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="MOTION.gif",
        help="animation file, .gif or .mp4; default: motion.gif in the run directory, or <file>.gif",
    )
    parser.add_argument(
        "--duration",
        type=positive,
        metavar="S",
        help="duration of the motion in seconds; default: the whole run, or 3 for a mechanism",
    )
    parser.add_argument("--fps", type=positive, default=30.0, help="frames per second [%(default)s]")
    parser.add_argument(
        "--speed",
        type=positive,
        default=1.0,
        help="speed of the animation; 0.5 is half of the real speed [%(default)s]",
    )
    parser.add_argument("--lane", type=count, default=0, metavar="K", help="index of the sample in color [%(default)s]")
    parser.add_argument(
        "--ghosts",
        type=count,
        metavar="N",
        help="number of further samples in gray; default: 3 for a run, 0 for a mechanism",
    )
    parser.add_argument(
        "--seed", type=count, default=0, help="seed of the random initial state of a mechanism [%(default)s]"
    )
    parser.add_argument("--no-gravity", action="store_true", help="simulate the mechanism without gravity")
    _add_source_options(parser)


def _view_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="RUN_DIR_or_FILE", help=f"run directory, or mechanism file: {_FORMATS}"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="path of the HTML page; default: replay.html in the run directory, or <file>.html",
    )
    parser.add_argument(
        "--lanes",
        type=count,
        nargs="+",
        metavar="K",
        help="indices of the samples on the page of a run; default: the first eight",
    )
    parser.add_argument(
        "--overlay", type=count, metavar="N", help="number of further samples in gray on the page of a run; default: 3"
    )
    parser.add_argument("--no-serve", action="store_true", help="write the page and do not start a server")
    parser.add_argument(
        "--port",
        type=count,
        default=8080,
        help="port of the server; if it is in use, the next free one is taken [%(default)s]",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of the server: 127.0.0.1 for access from this computer only, 0.0.0.0 from the network too [%(default)s]",
    )
    _add_source_options(parser)


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("rollout", "identify", "optimize", "mechanism"), help="kind of the file")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="file to write; default: KIND.toml")
    parser.add_argument(
        "--mechanism",
        type=Path,
        metavar="FILE",
        help=f"mechanism file of the config: {_FORMATS}; default: mechanism.toml beside the config, which is written if it does "
        "not exist",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    _add_urdf_options(parser)


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading a URDF or MJCF file."""
    _add_urdf_options(parser)
    parser.add_argument(
        "--folder",
        type=Path,
        help="for a URDF or MJCF file: folder of the meshes and other files that it names; default: the folder of the file, or of "
        "its package",
    )
    parser.add_argument(
        "--kinematic",
        action="store_true",
        help="for a URDF or MJCF file: leave out masses and inertias, for kinematics and pictures alone",
    )


def _add_urdf_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base", choices=get_args(BaseName), help="for a URDF file: whether its root link is fixed or moves freely"
    )
    parser.add_argument(
        "--repair", action="store_true", help="for a URDF file: correct inertias that are not physically valid"
    )


ROLLOUT = Job(
    "rollout",
    "simulate many samples of one mechanism at once\n\n"
    "Each sample starts from its own random state and is driven by joint-space PD control and random torques. The resolved\n"
    "config, the mechanism (mechanism.json, mechanism.npz), metrics.json, states.npz (or, for a batch that is simulated in\n"
    "chunks, states-00001-of-00008.npz and so on) and pictures are written to the run directory.",
    RolloutConfig,
    deferred("jaxdyn.jobs.rollout:work"),
    deferred("jaxdyn.jobs.rollout:inputs"),
    verdict=deferred("jaxdyn.jobs.rollout:verdict"),
    of_mechanism={
        "batch": 256,
        "limits": "enforced",
        "time": {"duration": 2.0, "rate": 1000.0, "substeps": 4, "save_every": 10},
    },
    then=("jaxdyn animate {run}", "jaxdyn view {run}"),
)

IDENTIFY = Job(
    "identify",
    "identify physical parameters of machines from recordings\n\n"
    "Levenberg-Marquardt with exact derivatives minimizes the errors of simulated windows of the recordings (output error) or of\n"
    "computed forces (inverse dynamics). Inertial parameters remain physically valid. For each study the run directory contains\n"
    "a table of parameters with 95 % intervals, figures of merit on training and held-out recordings together with given\n"
    "references, pictures, and the plant that they judge (plant.toml, plant.json, plant.npz): mechanism, sensors, inputs,\n"
    "filters and estimates. It can be given to evaluate, rollout, view and check, and as the mechanism of another fit.",
    "jaxdyn.jobs.identify_config:IdentifyConfig",
    deferred("jaxdyn.jobs.identify:work"),
    deferred("jaxdyn.jobs.identify_plant:files_of_studies"),
    then=("jaxdyn evaluate {run}",),
)

EVALUATE = Job(
    "evaluate",
    "judge identified machines on new recordings, without a fit\n\n"
    "The plant of a run of jaxdyn identify, with its sensors, inputs, friction and filters, predicts recordings, and the same\n"
    "figures of merit, tables and pictures are written to a new run directory. For plants with estimates, the measurements\n"
    "inside the 95 % prediction intervals are counted. Several runs are judged side by side on the same recordings. The config\n"
    "is that of the first run; every setting can be changed. Relative paths are relative to this run directory.\n\n"
    "  jaxdyn evaluate runs/arm data=/new/recordings 'study.0.validation=[\"run_7.csv\"]'\n"
    "  jaxdyn evaluate runs/arm runs/other_arm motion.cutoff=8",
    "jaxdyn.jobs.evaluate_config:EvaluateConfig",
    deferred("jaxdyn.jobs.evaluate:work"),
    deferred("jaxdyn.jobs.evaluate:inputs"),
    of_runs="runs",
)

OPTIMIZE = Job(
    "optimize",
    "compute optimal controls of a mechanism, from one initial guess or from many at once\n\n"
    "Costs, constraints and bounds are given in the config. All initial guesses are solved together, and local optima are\n"
    "counted. The run directory contains the best plan (plan.npz: time, q, v, controls, feedback, design), optima.txt, all\n"
    "searches with their histories, pictures, an animation, and replay.toml, with which `jaxdyn rollout` replays the controls:\n\n"
    "  jaxdyn optimize configs/optimize_p1_cartpole.toml --out runs/swing\n"
    "  jaxdyn rollout runs/swing/replay.toml",
    "jaxdyn.jobs.optimize_config:OptimizeConfig",
    deferred("jaxdyn.jobs.optimize:work"),
    deferred("jaxdyn.jobs.optimize:inputs"),
    then=("jaxdyn rollout {run}/replay.toml",),
)

NEW = Command(
    "new",
    "write a commented config or mechanism file to start from\n\n"
    "A comment above each key explains it. Edit the values, and run the command that is printed.\n\n"
    "  jaxdyn new mechanism\n"
    "  jaxdyn new rollout --mechanism robot.urdf\n"
    "  jaxdyn new identify fit.toml",
    _new_arguments,
    deferred("jaxdyn.jobs.new:new"),
)

SHOW = Command(
    "show",
    "print a table and the tree of a mechanism\n\n"
    "For a mechanism with loops, the numbers of constraint equations and of remaining degrees of freedom are printed too.\n"
    "With --out two pictures are drawn: the mechanism in the middle of its joint limits with joints and inertia ellipsoids, and\n"
    "the tree of its bodies.\n\n"
    "  jaxdyn show robot.urdf --out robot.png",
    _show_arguments,
    deferred("jaxdyn.jobs.show:show"),
)

CHECK = Command(
    "check",
    "print the accuracy of float32 and float64 for a mechanism\n\n"
    "Energy, forward dynamics and their gradients in both precisions are compared with arithmetic of 50 digits at a few states.\n"
    "Errors of float32 include the rounding of the model parameters to float32; the column 'of which the model' shows this\n"
    "part alone. States, forces and velocities are exactly representable in float32.\n\n"
    "  jaxdyn check robot.urdf --states 20",
    _check_arguments,
    deferred("jaxdyn.jobs.check:check"),
)

CONVERT = Command(
    "convert",
    "convert a mechanism from one format to another\n\n"
    "The suffix of each file determines its format. If the target format cannot express a part of the mechanism, an error is\n"
    "reported and no file is written.\n\n"
    "  jaxdyn convert robot.urdf robot.toml\n"
    "  jaxdyn convert robot.toml robot.urdf",
    _convert_arguments,
    deferred("jaxdyn.jobs.convert:convert"),
)

ANIMATE = Command(
    "animate",
    "make an animation of a run or of a mechanism\n\n"
    "A run directory is replayed. A mechanism starts from a random configuration and falls under gravity; a mechanism with a free\n"
    "base moves without gravity. The camera does not move, and the axes are in meters.\n\n"
    "  jaxdyn animate robot.urdf\n"
    "  jaxdyn animate runs/panda --out panda.mp4 --ghosts 8 --speed 0.5",
    _animate_arguments,
    deferred("jaxdyn.jobs.animate:animate"),
)

VIEW = Command(
    "view",
    "show a run or a mechanism in the browser, in three dimensions\n\n"
    "For a run directory, the command writes replay.html there, a page that needs neither server nor network, and then serves a\n"
    "replay of all samples (at most 4096) with controls for time, speed, sample, samples drawn in gray, visible elements, and\n"
    "plots of coordinates and energy.\n\n"
    "For a mechanism file, it serves the mechanism with a slider for each joint coordinate. Loops stay closed: the independent\n"
    "coordinates have sliders, and the others follow. With --no-serve or --html it writes a page with the same sliders, which\n"
    "needs neither server nor network. On that page, the sliders of a mechanism with loops move it one at a time.\n\n"
    "Bodies are drawn with the meshes and other shapes of a URDF or MJCF file, and as sticks where it has none.\n\n"
    "  jaxdyn view runs/panda\n"
    "  jaxdyn view runs/panda --no-serve --lanes 0 17 42\n"
    "  jaxdyn view robot.urdf\n"
    "  jaxdyn view robot.urdf --no-serve",
    _view_arguments,
    deferred("jaxdyn.jobs.view:view"),
)
