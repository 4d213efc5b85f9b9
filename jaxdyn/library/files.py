"""Mechanisms read from the files in configs/mechanisms."""

from pathlib import Path

from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName
from jaxdyn.io.mechanism.file import load_mechanism
from jaxdyn.mechanism.model import Model


def mechanism_path(name: str) -> Path:
    """Path of the file of the mechanism `name` in an installed package or in a checkout.

    Raises:
        UnknownName: There is no such file.
    """
    package = Path(__file__).resolve().parents[1]
    folders = (package / "mechanisms", package.parent / "configs" / "mechanisms")
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    known = sorted({file.stem for folder in folders for file in folder.glob("*.toml")})
    raise UnknownName("mechanism", name, known)


def system(name: str) -> System:
    """The mechanism `name` with all content of its file: drives, friction, springs and loops.

    Raises:
        UnknownName: There is no file of this name.
    """
    return load_mechanism(mechanism_path(name))


def pendulum() -> Model:
    """Pendulum: a uniform rod in the vertical x-z plane with a frame "tip"; nq = nv = 1, hanging at q = 0.

    Source: illustrative.
    """
    return system("pendulum").model


def double_pendulum() -> Model:
    """Planar double pendulum of two uniform rods with a frame "tip"; nq = nv = 2, hanging at q = 0.

    Source: illustrative.
    """
    return system("double_pendulum").model


def cart_pole() -> Model:
    """Cart on a track along x with a pole; nq = nv = 2 (m, rad), upright at q = 0. With `library.system`, only the cart is driven.

    Source: Barto, Sutton and Anderson, IEEE Transactions on Systems, Man, and Cybernetics SMC-13(5), 1983, without friction.
    """
    return system("cart_pole").model


def acrobot() -> Model:
    """Two links in the vertical x-z plane; nq = nv = 2, hanging at q = 0. With `library.system`, only the elbow is driven.

    Source: Sutton and Barto, Reinforcement Learning: An Introduction.
    """
    return system("acrobot").model


def cart_pole_kelly() -> Model:
    """Cart on a track along x with a point mass on a massless pole; nq = nv = 2 (m, rad), hanging at q = 0.

    With `library.system`, only the cart is driven.

    Source: Kelly, SIAM Review 59(4), 2017, appendix E.
    """
    return system("cart_pole_kelly").model


def acrobot_point_masses() -> Model:
    """Two massless links with point masses at their ends in the vertical x-z plane; nq = nv = 2, hanging at q = 0.

    With `library.system`, only the elbow is driven.

    Source: Kelly, OptimTraj, demonstration "acrobot".
    """
    return system("acrobot_point_masses").model


def double_pendulum_crocoddyl() -> Model:
    """Small double pendulum that rotates about x; nq = nv = 2, upright at q = 0.

    With `library.system`, only the shoulder is driven.

    Source: example-robot-data, without joint damping, as the examples of Crocoddyl use it.
    """
    return system("double_pendulum_crocoddyl").model


def point_mass_chain() -> Model:
    """Two point masses on massless links in the vertical x-z plane with a frame "tip"; nq = nv = 2, hanging at q = 0.

    Source: illustrative.
    """
    return system("point_mass_chain").model


def furuta_pendulum() -> Model:
    """Arm that rotates about the vertical, with a pendulum at its end; nq = nv = 2, hanging at q = 0.

    With `library.system`, only the arm is driven, and the joints have viscous friction.

    Source: the mechanism of Cazzolato and Prime, Journal of Control Science and Engineering, 2011; illustrative parameters.
    """
    return system("furuta_pendulum").model


def spatial_arm_3r() -> Model:
    """Arm with waist, shoulder and elbow and a frame "tip"; nq = nv = 3, stretched out along x at q = 0.

    Source: illustrative.
    """
    return system("spatial_arm_3r").model


def scara() -> Model:
    """SCARA robot: shoulder, elbow, vertical prismatic joint (positive down), wrist, and a frame "tool".

    nq = nv = 4 (rad, rad, m, rad), stretched out along x at q = 0.

    Source: illustrative.
    """
    return system("scara").model


def panda() -> Model:
    """Franka Emika Panda, seven revolute joints, without gripper, with a frame "flange"; nq = nv = 7, upright at q = 0.

    Source: feasible inertial parameters identified by Gaz, Cognetti, Oliva, Robuffo Giordano and De Luca, IEEE Robotics and
    Automation Letters 4(4), 2019; kinematics and limits from the manufacturer's documentation.
    """
    return system("panda").model


def kuka_lwr() -> Model:
    """Arm similar to the KUKA LWR, seven revolute joints, with a frame "flange"; nq = nv = 7, upright at q = 0.

    Source: lengths and ranges as commonly published for the KUKA LWR 4+; masses and inertias illustrative.
    """
    return system("kuka_lwr").model


def gyroscope() -> Model:
    """Stick on a spherical joint with a disc that spins about it.

    nq = 5 (quaternion, angle), nv = 4, upright in the neutral configuration.

    Source: illustrative.
    """
    return system("gyroscope").model


def satellite() -> Model:
    """Free hull with three reaction wheels, two panels on revolute joints and a boom with tip mass, without gravity.

    nq = 14, nv = 13, with extended appendages in the neutral configuration. With `library.system`, the joints
    have springs and friction, and the wheels are driven.

    Source: illustrative.
    """
    return system("satellite").model


def quadruped() -> Model:
    """Quadruped-like robot: free trunk and four legs of three revolute joints, frames "fl_foot", "fr_foot", "rl_foot", "rr_foot".

    nq = 19, nv = 18, with legs stretched out downwards in the neutral configuration. With `library.system`, the twelve joints are
    driven.

    Source: illustrative.
    """
    return system("quadruped").model


def humanoid() -> Model:
    """Humanoid-like tree: free pelvis and 27 more degrees of freedom (spherical, universal, revolute), frames at wrists and soles.

    nq = 39, nv = 33, standing upright and facing x in the neutral configuration.

    Source: fractions of height and mass after Winter, Biomechanics and Motor Control of Human Movement; the rest illustrative.
    """
    return system("humanoid").model


def slider_crank() -> System:
    """Crank, connecting rod and slider, closed by a revolute joint.

    nq = nv = 3 with one degree of freedom, closed and stretched out along x at q = 0.

    Source: illustrative.
    """
    return system("slider_crank")


def four_bar() -> System:
    """Crank-rocker linkage, closed by a revolute joint.

    nq = nv = 3 with one degree of freedom, closed at q = 0 with upright crank and rocker.

    Source: illustrative.
    """
    return system("four_bar")
