"""Mechanisms that come with jaxdyn, read from the files in configs/mechanisms, which carry their sources in comments.

* `panda`: Franka Emika Panda, seven revolute joints, without gripper; feasible inertial parameters identified by Gaz, Cognetti,
  Oliva, Robuffo Giordano and De Luca, IEEE Robotics and Automation Letters 4(4), 2019; limits from the manufacturer's data sheet.
* `double_pendulum`: two uniform rods in the vertical x-z plane; illustrative numbers, no real machine.
"""

from pathlib import Path

from jaxdyn.io.mechanism_file import load_mechanism
from jaxdyn.mechanism.model import Model


def mechanism_path(name: str) -> Path:
    """File of the mechanism called `name` in an installed package or in a checkout.

    Raises:
        FileNotFoundError: there is none.
    """
    package = Path(__file__).resolve().parent
    folders = (package / "mechanisms", package.parent / "configs" / "mechanisms")
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    searched = " and ".join(map(str, folders))
    raise FileNotFoundError(
        f"there is no mechanism file {name}.toml in {searched}; check the name, or reinstall jaxdyn"
    )


def panda() -> Model:
    """Franka Emika Panda with a frame "flange"; nq = nv = 7."""
    return load_mechanism(mechanism_path("panda")).model


def double_pendulum() -> Model:
    """Planar double pendulum of two uniform rods with a frame "tip"; nq = nv = 2, hanging at q = 0."""
    return load_mechanism(mechanism_path("double_pendulum")).model
