"""The verbs of the command line: their help, and the functions that execute them.

This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

from jaxdyn.jobs.arguments import (
    AnimateArguments,
    CheckArguments,
    ConvertArguments,
    NewArguments,
    ShowArguments,
    ViewArguments,
)
from jaxdyn.jobs.command import Command
from jaxdyn.jobs.job import Job, deferred
from jaxdyn.jobs.rollout_config import RolloutConfig
from jaxdyn.jobs.settings import wrapped

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


def _tables() -> str:
    """Description of the tables of mechanism files, made only for the help because the classes of forces import JAX."""
    from jaxdyn.io.mechanism_parts import BY_JOINT_NAMES, describe_parts

    return (
        wrapped(f"tables of forces and constraints in a .toml file:\n\n{BY_JOINT_NAMES}\n\n{describe_parts()}") + "\n"
    )


NEW = Command("new", NewArguments, deferred("jaxdyn.jobs.new:new"))
SHOW = Command("show", ShowArguments, deferred("jaxdyn.jobs.show:show"))
CHECK = Command("check", CheckArguments, deferred("jaxdyn.jobs.check:check"))
CONVERT = Command("convert", ConvertArguments, deferred("jaxdyn.jobs.convert:convert"), _tables)
ANIMATE = Command("animate", AnimateArguments, deferred("jaxdyn.jobs.animate:animate"))
VIEW = Command("view", ViewArguments, deferred("jaxdyn.jobs.view:view"))
