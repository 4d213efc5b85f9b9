"""Reading and writing of mechanisms, configs and run directories. All files are treated as untrusted input."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.io.archive import load_archive as load_archive
    from jaxdyn.io.archive import save_archive as save_archive
    from jaxdyn.io.config import read_config as read_config
    from jaxdyn.io.config import resolved_toml as resolved_toml
    from jaxdyn.io.config import seed_setting as seed_setting
    from jaxdyn.io.config import setting as setting
    from jaxdyn.io.errors import ConfigError as ConfigError
    from jaxdyn.io.errors import RunError as RunError
    from jaxdyn.io.loaded_run import Run as Run
    from jaxdyn.io.loaded_run import load_run as load_run
    from jaxdyn.io.locking import lock_joints as lock_joints
    from jaxdyn.io.mechanism_file import load_mechanism as load_mechanism
    from jaxdyn.io.mechanism_file import save_mechanism as save_mechanism
    from jaxdyn.io.mjcf import load_mjcf as load_mjcf
    from jaxdyn.io.mjcf import system_from_mujoco as system_from_mujoco
    from jaxdyn.io.plant_file import load_plant as load_plant
    from jaxdyn.io.plant_file import save_plant as save_plant
    from jaxdyn.io.provenance import environment as environment
    from jaxdyn.io.recording_columns import Columns as Columns
    from jaxdyn.io.recordings import load_recording as load_recording
    from jaxdyn.io.runs import RunDirectory as RunDirectory
    from jaxdyn.io.state_orders import MujocoOrder as MujocoOrder
    from jaxdyn.io.state_orders import PinocchioOrder as PinocchioOrder
    from jaxdyn.io.state_orders import StateOrder as StateOrder
    from jaxdyn.io.system_file import load_system as load_system
    from jaxdyn.io.system_file import save_system as save_system
    from jaxdyn.io.units import quantity as quantity
    from jaxdyn.io.urdf import AssumedBase as AssumedBase
    from jaxdyn.io.urdf import load_urdf as load_urdf
    from jaxdyn.io.urdf_writer import save_urdf as save_urdf
    from jaxdyn.io.visual_files import load_visuals as load_visuals
    from jaxdyn.io.visuals import Visual as Visual
    from jaxdyn.io.xml import IgnoredContent as IgnoredContent
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
