"""The verbs of the command line: their arguments, their help, and the modules that execute them.

This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

import argparse
from pathlib import Path
from typing import get_args

from jaxdyn.jobs.choices import BackendName, BaseName, ContactName, MethodName
from jaxdyn.jobs.command import Command, add_former_option, count, positive
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
        help="algorithm of the forward dynamics; default: the algorithm in the file",
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
    """Description of the tables of mechanism files, made only for the help because the classes of forces import JAX."""
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
        help="speed of the animation relative to the real motion; 0.5 is half speed [%(default)s]",
    )
    parser.add_argument(
        "--size", type=count, default=540, metavar="PIXELS", help="width and height of the animation [%(default)s]"
    )
    parser.add_argument(
        "--sample", type=count, default=0, metavar="K", help="index of the sample in color [%(default)s]"
    )
    add_former_option(parser, "--lane", "--sample", type=count)
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
        "--samples",
        type=count,
        nargs="+",
        metavar="K",
        help="indices of the samples on the page of a run; default: the first eight",
    )
    add_former_option(parser, "--lanes", "--samples", type=count, nargs="+")
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
        help="address of the server: 127.0.0.1 for access from this computer only, 0.0.0.0 also from the network [%(default)s]",
    )
    _add_source_options(parser)


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("rollout", "identify", "optimize", "mechanism"), help="kind of the file")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="file to write; default: KIND.toml")
    parser.add_argument(
        "--mechanism",
        type=Path,
        metavar="FILE",
        help=f"mechanism file of the config: {_FORMATS}; default: mechanism.toml in the folder of the config; this file is written "
        "if it does not exist",
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
        "--contact",
        choices=get_args(ContactName),
        default="none",
        help='for a URDF or MJCF file: "ground" turns its colliders into contacts with the ground [%(default)s]',
    )
    parser.add_argument(
        "--kinematic",
        action="store_true",
        help="for a URDF or MJCF file: do not read masses and inertias, which kinematics and pictures do not require",
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
    "The Levenberg-Marquardt method with exact derivatives minimizes the errors of simulated motions in windows of the\n"
    "recordings (output error) or of computed forces (inverse dynamics). Inertial parameters remain physically valid. For each\n"
    "study the run directory contains a table of parameters with 95 % intervals, figures of merit on training and held-out\n"
    "recordings beside given reference values, pictures, and the identified plant (plant.toml, plant.json, plant.npz):\n"
    "mechanism, sensors, inputs, filters and estimates. The commands evaluate, rollout, view and check accept this plant, and so\n"
    "does another fit as its mechanism.",
    "jaxdyn.jobs.identify_config:IdentifyConfig",
    deferred("jaxdyn.jobs.identify:work"),
    deferred("jaxdyn.jobs.identify_plant:files_of_studies"),
    then=("jaxdyn evaluate {run}",),
)

EVALUATE = Job(
    "evaluate",
    "evaluate identified machines on new recordings, without a fit\n\n"
    "The plant of a run of jaxdyn identify, with its sensors, inputs, friction and filters, predicts recordings. The figures of\n"
    "merit, tables and pictures of jaxdyn identify are written to a new run directory. If the plant contains estimates, the\n"
    "measurements inside the 95 % prediction intervals are counted. Several runs are compared on the same recordings. The config\n"
    "of the first run is used; every setting can be changed. Relative paths are relative to the directory of the first run.\n\n"
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
    "Costs, constraints and bounds are given in the config. The searches from all initial guesses run together, and their local\n"
    "optima are counted. The run directory contains the best plan (plan.npz: time, q, v, controls, feedback, design, and with a\n"
    "table [rates] also rates and rate_feedback), a table of the optima (optima.txt), all searches with their histories,\n"
    "pictures, an animation, and replay.toml, a config with which `jaxdyn rollout` replays the controls:\n\n"
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
    "In the file, a comment above each key explains it. Edit the values, then run the command that `jaxdyn new` prints.\n\n"
    "  jaxdyn new mechanism\n"
    "  jaxdyn new rollout --mechanism robot.urdf\n"
    "  jaxdyn new identify fit.toml",
    _new_arguments,
    deferred("jaxdyn.jobs.new:new"),
)

SHOW = Command(
    "show",
    "print a table and the tree of a mechanism\n\n"
    "For a mechanism with loops, the number of constraint equations and the number of remaining degrees of freedom are printed\n"
    "too. With --out two pictures are drawn. One shows the mechanism in the middle of its joint limits, with joints and inertia\n"
    "ellipsoids; the other shows the tree of its bodies.\n\n"
    "  jaxdyn show robot.urdf --out robot.png",
    _show_arguments,
    deferred("jaxdyn.jobs.show:show"),
)

CHECK = Command(
    "check",
    "print the accuracy of float32 and float64 for a mechanism\n\n"
    "Energy, forward dynamics and their gradients are computed in float32 and float64 at a few states, and compared with\n"
    "arithmetic of 50 digits. Errors of float32 include the rounding of the model parameters to float32; the column 'of which\n"
    "the model' shows the errors that this rounding alone causes. The chosen states and forces are exactly representable in\n"
    "float32, so that their rounding does not contribute.\n\n"
    "  jaxdyn check robot.urdf --states 20",
    _check_arguments,
    deferred("jaxdyn.jobs.check:check"),
)

CONVERT = Command(
    "convert",
    "convert a mechanism from one format to another\n\n"
    "The suffix of a file name determines the format. If the target format cannot express a part of the mechanism, an error is\n"
    "reported and no file is written.\n\n"
    "  jaxdyn convert robot.urdf robot.toml\n"
    "  jaxdyn convert robot.toml robot.urdf",
    _convert_arguments,
    deferred("jaxdyn.jobs.convert:convert"),
)

ANIMATE = Command(
    "animate",
    "make an animation of a run or of a mechanism\n\n"
    "For a run directory, the recorded motion is shown. For a mechanism file, the mechanism starts from a random configuration\n"
    "and falls under gravity. A mechanism with a free base falls from 0.1 m above the ground if it has contacts with it, and else\n"
    "moves without gravity. The camera does not move, and the axes are in meters.\n\n"
    "  jaxdyn animate robot.urdf\n"
    "  jaxdyn animate runs/panda --out panda.mp4 --ghosts 8 --speed 0.5",
    _animate_arguments,
    deferred("jaxdyn.jobs.animate:animate"),
)

VIEW = Command(
    "view",
    "show a run or a mechanism in the browser, in three dimensions\n\n"
    "For a run directory, the command writes the page replay.html to this directory; the page needs neither server nor network.\n"
    "The command then serves a replay of all samples (at most 4096). The replay has controls for the time, the speed, the shown\n"
    "sample, further samples in gray and the visible elements, and it plots coordinates and energy.\n\n"
    "For a mechanism file, the command serves the mechanism with a slider for each joint coordinate. Loops stay closed: only the\n"
    "independent coordinates have sliders, and the dependent coordinates follow. With --no-serve or --html, the command writes a\n"
    "page with the same sliders, which needs neither server nor network. On this page, a slider of a mechanism with loops moves\n"
    "it while the other independent sliders are in the middle.\n\n"
    "Bodies are drawn with the meshes and other shapes of a URDF or MJCF file; bodies without shapes are drawn as sticks.\n\n"
    "  jaxdyn view runs/panda\n"
    "  jaxdyn view runs/panda --no-serve --samples 0 17 42\n"
    "  jaxdyn view robot.urdf\n"
    "  jaxdyn view robot.urdf --no-serve",
    _view_arguments,
    deferred("jaxdyn.jobs.view:view"),
)
