"""Mechanisms that jaxdyn provides. Their files in configs/mechanisms state sources and units.

Mechanisms without loops are returned as a `Model`, mechanisms with loops as a `System` with constraints. `library.system(name)`
returns all content of the file of a mechanism, including drives, friction and springs.

| function | nq, nv | parameters |
|---|---|---|
| `pendulum`, `double_pendulum`, `point_mass_chain` | 1, 1; 2, 2; 2, 2 | illustrative |
| `cart_pole`, `acrobot` | 2, 2 | published benchmarks |
| `cart_pole_kelly`, `acrobot_point_masses`, `double_pendulum_crocoddyl` | 2, 2 | published benchmarks of optimal control |
| `furuta_pendulum` | 2, 2 | illustrative |
| `spatial_arm_3r`, `scara` | 3, 3; 4, 4 | illustrative |
| `panda` | 7, 7 | published, identified |
| `kuka_lwr` | 7, 7 | published kinematics, illustrative masses |
| `gyroscope` | 5, 4 | illustrative |
| `satellite` | 14, 13 | illustrative |
| `quadruped`, `humanoid` | 19, 18; 39, 33 | illustrative; published fractions |
| `spherical_pendulum_chain` | any | illustrative |
| `slider_crank`, `four_bar`, `stewart_platform` | 3, 3; 3, 3; 25, 24 with loops | illustrative |
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.library.families import spherical_pendulum_chain as spherical_pendulum_chain
    from jaxdyn.library.families import stewart_platform as stewart_platform
    from jaxdyn.library.files import acrobot as acrobot
    from jaxdyn.library.files import acrobot_point_masses as acrobot_point_masses
    from jaxdyn.library.files import cart_pole as cart_pole
    from jaxdyn.library.files import cart_pole_kelly as cart_pole_kelly
    from jaxdyn.library.files import double_pendulum as double_pendulum
    from jaxdyn.library.files import double_pendulum_crocoddyl as double_pendulum_crocoddyl
    from jaxdyn.library.files import four_bar as four_bar
    from jaxdyn.library.files import furuta_pendulum as furuta_pendulum
    from jaxdyn.library.files import gyroscope as gyroscope
    from jaxdyn.library.files import humanoid as humanoid
    from jaxdyn.library.files import kuka_lwr as kuka_lwr
    from jaxdyn.library.files import mechanism_path as mechanism_path
    from jaxdyn.library.files import panda as panda
    from jaxdyn.library.files import pendulum as pendulum
    from jaxdyn.library.files import point_mass_chain as point_mass_chain
    from jaxdyn.library.files import quadruped as quadruped
    from jaxdyn.library.files import satellite as satellite
    from jaxdyn.library.files import scara as scara
    from jaxdyn.library.files import slider_crank as slider_crank
    from jaxdyn.library.files import spatial_arm_3r as spatial_arm_3r
    from jaxdyn.library.files import system as system
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
