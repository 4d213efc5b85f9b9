"""The verbs of the command line: their arguments, their help, and the modules that carry them out.

Nothing here imports JAX, so that help, and what is wrong with a config or an argument, appear at once.
"""

import argparse
from pathlib import Path
from typing import get_args

from jaxdyn.jobs.choices import BackendName, MethodName
from jaxdyn.jobs.command import Command, count, positive
from jaxdyn.jobs.job import Job, deferred
from jaxdyn.jobs.rollout_config import RolloutConfig

_FORMATS = ".toml, .urdf, .xml (URDF or MJCF) or .json"


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=f"mechanism file: {_FORMATS}")
    parser.add_argument(
        "--out", type=Path, metavar="PICTURE.png", help="draw the mechanism there, and its tree in PICTURE_tree.png"
    )
    _add_source_options(parser)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=f"mechanism file: {_FORMATS}")
    parser.add_argument(
        "--states", type=count, default=8, metavar="N", help="random states, besides the one at rest [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random states [%(default)s]")
    parser.add_argument(
        "--method",
        choices=get_args(MethodName),
        help="algorithm of the forward dynamics; what the file says if not given",
    )
    parser.add_argument(
        "--backend",
        choices=get_args(BackendName),
        default="auto",
        help="what computes: the lane compiler, XLA, or what jaxdyn.batched chooses here [%(default)s]",
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
    """The tables of mechanism files; found only when help is asked for, because the classes of forces need JAX."""
    from jaxdyn.io.mechanism_parts import describe_parts

    return f"tables of forces and constraints in a .toml file:\n{describe_parts()}\n"


def _animate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="RUN_DIR_or_FILE", help=f"run directory, or mechanism file: {_FORMATS}"
    )
    parser.add_argument(
        "--out", type=Path, metavar="MOTION.gif", help="the picture, .gif or .mp4; motion.gif in the run, or <file>.gif"
    )
    parser.add_argument("--duration", type=positive, metavar="S", help="seconds of motion; the whole run, or 3")
    parser.add_argument("--fps", type=positive, default=30.0, help="frames per second, 30 if not given")
    parser.add_argument("--speed", type=positive, default=1.0, help="0.5 shows the motion at half its speed")
    parser.add_argument("--lane", type=count, default=0, metavar="K", help="the lane in color, 0 if not given")
    parser.add_argument("--ghosts", type=count, metavar="N", help="further lanes, in gray; 3 of a run, else none")
    parser.add_argument("--seed", type=count, default=0, help="of the random start of a mechanism")
    parser.add_argument("--no-gravity", action="store_true", help="let the mechanism go without gravity")
    _add_source_options(parser)


def _view_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write the page; replay.html in the run")
    parser.add_argument(
        "--lanes", type=count, nargs="+", metavar="K", help="lanes that the page holds; the first eight if not given"
    )
    parser.add_argument("--overlay", type=count, default=3, metavar="N", help="other lanes in gray on the page, 3")
    parser.add_argument("--no-serve", action="store_true", help="write the page and be done")
    parser.add_argument("--port", type=count, default=8080, help="8080 if not given, or the next free one")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1: this computer only; 0.0.0.0: the network too")


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    """Options of how to read a URDF or MJCF file."""
    parser.add_argument(
        "--base", choices=("fixed", "free"), help="of a URDF file: whether its root link stands or floats"
    )
    parser.add_argument(
        "--repair", action="store_true", help="of a URDF file: make inertias physical that no real body can have"
    )
    parser.add_argument(
        "--folder", type=Path, help="of an MJCF file: the folder of the files that it names, if they are not beside it"
    )


ROLLOUT = Job(
    "rollout",
    "simulate many lanes of one mechanism at once\n\n"
    "Each lane starts from its own random state and is driven by joint-space PD control and random torques. The run directory\n"
    "gets the resolved config, the mechanism (mechanism.json, mechanism.npz), metrics.json, states.npz (or, of a batch that goes\n"
    "through in chunks, states-00001-of-00008.npz and so on) and pictures.",
    RolloutConfig,
    deferred("jaxdyn.jobs.rollout:work"),
    deferred("jaxdyn.jobs.rollout:inputs"),
    verdict=deferred("jaxdyn.jobs.rollout:verdict"),
)

IDENTIFY = Job(
    "identify",
    "physical parameters of machines from recordings\n\n"
    "Levenberg-Marquardt with exact derivatives over simulated windows (output error) or over forces (inverse dynamics).\n"
    "Bodies stay physical. The run directory gets, for each study, a table of parameters with 95 % intervals, figures of merit\n"
    "on training and held-out recordings beside those of others, pictures, and the identified mechanism, which rollout and\n"
    "view take.",
    "jaxdyn.jobs.identify_config:IdentifyConfig",
    deferred("jaxdyn.jobs.identify:work"),
    deferred("jaxdyn.jobs.identify_plant:files_of_studies"),
)

OPTIMIZE = Job(
    "optimize",
    "controls that move a mechanism at least cost, from one start or from many at once\n\n"
    "Costs, conditions and bounds come from the config; the starts are solved together, and local optima are counted. The run\n"
    "directory gets the best plan (plan.npz: time, q, v, controls, feedback, design), optima.txt, all searches with their\n"
    "histories, pictures, an animation, and replay.toml, with which `jaxdyn rollout` replays the controls:\n\n"
    "  jaxdyn optimize configs/optimize_p1_cartpole.toml --out runs/swing\n"
    "  jaxdyn rollout runs/swing/replay.toml",
    "jaxdyn.jobs.optimize_config:OptimizeConfig",
    deferred("jaxdyn.jobs.optimize:work"),
    deferred("jaxdyn.jobs.optimize:inputs"),
)

SHOW = Command(
    "show",
    "print a table and the tree of a mechanism\n\n"
    "For a mechanism with loops it prints the number of constraint equations and of the remaining degrees of freedom.\n"
    "With --out it also draws them: the mechanism in the middle of its joint limits with joints and inertia ellipsoids, and the\n"
    "tree of its bodies.\n\n"
    "  jaxdyn show robot.urdf --out robot.png",
    _show_arguments,
    deferred("jaxdyn.jobs.show:show"),
)

CHECK = Command(
    "check",
    "print how exact float32 and float64 are on a mechanism\n\n"
    "Energy, forward dynamics and their gradients in both precisions, at a few states, against the same formulas in arithmetic of\n"
    "50 digits. Errors of float32 include the rounding of the model's numbers to float32, which the column 'of which the model'\n"
    "has alone. States, forces and velocities are numbers that float32 represents.\n\n"
    "  jaxdyn check robot.urdf --states 20",
    _check_arguments,
    deferred("jaxdyn.jobs.check:check"),
)

CONVERT = Command(
    "convert",
    "convert a mechanism from one format to another\n\n"
    "The ending of each file says its format. What the target format cannot say is refused, never left out.\n\n"
    "  jaxdyn convert robot.urdf robot.toml\n"
    "  jaxdyn convert robot.toml robot.urdf",
    _convert_arguments,
    deferred("jaxdyn.jobs.convert:convert"),
)

ANIMATE = Command(
    "animate",
    "make a moving picture of a run or of a mechanism\n\n"
    "A run directory is replayed. A mechanism is let go from a random configuration and falls under gravity; one that floats\n"
    "freely drifts without. The camera stands still, and the axes are in meters.\n\n"
    "  jaxdyn animate robot.urdf\n"
    "  jaxdyn animate runs/panda --out panda.mp4 --ghosts 8 --speed 0.5",
    _animate_arguments,
    deferred("jaxdyn.jobs.animate:animate"),
)

VIEW = Command(
    "view",
    "replay a run in the browser, in three dimensions\n\n"
    "Writes replay.html into the run directory, a page that needs neither server nor network, and then serves a replay of\n"
    "all lanes, at most 4096, with more to choose: time, speed, lane, lanes laid over it, what to show, plots of coordinates and\n"
    "energy.\n\n"
    "  jaxdyn view runs/panda\n"
    "  jaxdyn view runs/panda --no-serve --lanes 0 17 42",
    _view_arguments,
    deferred("jaxdyn.jobs.view:view"),
)
