"""The files that `jaxdyn new` writes: their keys and values. The comments come from the docstrings of the config classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxdyn.dynamics.friction import JointFriction
from jaxdyn.io.mechanism_entries import JointEntry, MechanismEntry
from jaxdyn.jobs import verbs
from jaxdyn.jobs.commands.commented import DEFAULT, Inline, Noted, commented_toml
from jaxdyn.jobs.job import Job
from jaxdyn.mechanism.joints import Revolute
from jaxdyn.mechanism.model import Model

_UNITS = 'Values are in SI units, or texts with another unit such as "30 deg", "500 ms" or "1 kHz".'


def _config(job: Job, file: Path, values: Mapping[str, Any], what: str, example: str) -> str:
    """A config of a job; its header has a description and the commands that use the config."""
    header = (
        f"{what}\n\n"
        f"  jaxdyn {job.name} {file}\n"
        f"  jaxdyn {job.name} {file} {example}\n\n"
        f"The second command changes values for a single run.\n{_UNITS}\n"
        f"`jaxdyn {job.name} --help` explains all keys, including those that are not in this file."
    )
    return commented_toml(job.config_class, values, header)


def rollout_template(file: Path, source: Mapping[str, Any], model: Model) -> str:
    """A config of `jaxdyn rollout`: random initial states and PD control."""
    values = {
        **source,
        "batch": 256,
        "seed": DEFAULT,
        "dtype": DEFAULT,
        "limits": "enforced",
        "time": {"duration": "2 s", "rate": "1 kHz", "substeps": 4, "save_every": 10, "integrator": DEFAULT},
        "initial": {"spread": 0.5, "speed": 0.5},
        "control": {
            "target": DEFAULT,
            "stiffness": Noted(
                0.0, f"To give one value for each velocity component, write a list of {model.nv} values."
            ),
            **dict.fromkeys(("damping", "compensate_gravity", "random_torque", "random_interval"), DEFAULT),
        },
    }
    what = "Simulation of many samples of one mechanism, each with its own random initial state."
    return _config(verbs.ROLLOUT, file, values, what, 'batch=1000 "time.duration=5 s"')


def identify_template(file: Path, source: Mapping[str, Any], model: Model) -> str:
    """A config of `jaxdyn identify`: inertial parameters and friction from simulated recordings of forces."""
    counts = {"q": model.nq, "v": model.nv, "tau": model.nv}
    q, v, tau = ([f"{letter}{k}" for k in range(1, count + 1)] for letter, count in counts.items())
    values = {
        "data": Noted(
            None,
            "To use measured recordings, remove the table [synthetic], write\n"
            '  data = "recordings"\n'
            'and name the files of this folder in train and validation, as in train = ["run_1.csv"].\n'
            "The first line of a .csv file names its columns; the table [columns] below refers to these names:\n"
            f"  {','.join(['t', *q, *v, *tau])}",
        ),
        "synthetic": {"period": "10 s", "harmonics": 5, "noise": 0.1, "repetitions": 100, "perturbation": 0.2},
        "columns": {"time": ["t"], "q": q, "v": v, "u": tau},
        "study": [{"name": "machine", **source, "train": ["motion 1"], "validation": ["motion 2"]}],
        "force": [{"kind": "JointFriction", "viscous": 0.1, "coulomb": 0.1, "velocity_scale": 0.05}],
        "free": [
            {"inertia": ["all"], "divergence": 1.0},
            {"path": "system.forces.0.viscous", "chart": "positive"},
            {"path": "system.forces.0.coulomb", "chart": "positive"},
        ],
        "fit": {"method": "inverse_dynamics", "noise": 0.1},
        "motion": {
            "interval": 0.02,
            "cutoff": Noted(0.0, "Recordings with noisy velocities need a filter, for instance of 5 Hz."),
            "drop": Noted(0, "A filter distorts the samples near both ends; remove those of about 1 s."),
            "decimate": 1,
        },
        "check": [{"kind": "forces"}],
    }
    what = (
        "Identification of the physical parameters of a machine from recordings of its motion and forces. In this example the\n"
        "recordings are simulated with the mechanism; all parameters are perturbed, and then estimated from the recordings."
    )
    return _config(verbs.IDENTIFY, file, values, what, "fit.max_steps=100")


def optimize_template(
    file: Path, source: Mapping[str, Any], motion: list[list[float]], bound: float | None, *, is_stiff: bool = False
) -> str:
    """A config of `jaxdyn optimize`: motion from rest to rest with least effort; a stiff mechanism gets a stable integrator."""
    stable = Noted("semi_implicit_euler", "runge_kutta_4 is unstable for Coulomb friction at such steps.")
    values = {
        **source,
        "max_steps": DEFAULT,
        "time": {"duration": "2 s", "steps": 100, **({"integrator": stable} if is_stiff else {})},
        "initial": {"q": motion[0]},
        **({} if bound is None else {"bounds": {"lower": -bound, "upper": bound}}),
        "running": [{"kind": "effort", "weights": 1.0}],
        "final_constraint": [{"kind": "state", "q": motion[-1], "v": 0.0}],
        "solver": {"kind": "auto"},
        "start": [{"kind": "states", "times": [0.0, 1.0, 2.0], "q": motion, "count": 8, "spread": 1.0}],
    }
    what = "Motion of a mechanism from rest to rest with least effort, computed from several initial guesses."
    return _config(verbs.OPTIMIZE, file, values, what, "time.steps=200")


def mechanism_template(file: Path) -> str:
    """A mechanism file: a double pendulum, driven in both joints."""

    def rod(name: str, place: dict[str, Any], mass: str, inertia: Any, joint: str, limit: str) -> dict[str, Any]:
        """A uniform rod that hangs from its joint."""
        revolute = {
            "kind": "revolute",
            "axis": [0.0, 1.0, 0.0],
            "name": joint,
            "position_limits": [f"-{limit}", limit],
            "velocity_limit": "15 rad/s",
            "effort_limit": "10 N m",
        }
        return {"name": name, **place, "mass": mass, "com": [0.0, 0.0, -0.25], "inertia": inertia, "joint": revolute}

    end = [0.0, 0.0, -0.5]
    of_rod = "A rod of mass m and length L has the moment m L^2 / 12 about axes across it."
    values = {
        "name": "double_pendulum",
        "source": "an example: two uniform rods, 0.5 m long",
        "gravity": [0.0, 0.0, -9.81],
        "body": [
            rod("upper", {}, "1 kg", Noted([0.021, 0.021, 0.0004], of_rod), "shoulder", "200 deg"),
            rod("lower", {"parent": "upper", "position": end}, "500 g", [0.0105, 0.0105, 0.0002], "elbow", "150 deg"),
        ],
        "frame": [{"name": "tip", "body": "lower", "position": end}],
        "joint_friction": {"viscous": Inline(shoulder=0.05, elbow=0.02)},
    }
    classes = {"body.joint": (JointEntry, Revolute), "joint_friction": (JointFriction,)}
    header = (
        f"A mechanism for jaxdyn: a double pendulum in the x-z plane, which hangs straight down where its angles are zero.\n\n"
        f"  jaxdyn show {file} --out mechanism.png\n"
        f"  jaxdyn rollout {file}\n\n"
        f"{_UNITS}\n"
        "Forces and loops have further tables, which `jaxdyn convert --help` lists."
    )
    return commented_toml(MechanismEntry, values, header, classes)
