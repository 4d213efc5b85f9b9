"""Reading and writing of mechanisms, configs and run directories. All files are treated as untrusted input."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.io.archive.file import load_archive as load_archive
    from jaxdyn.io.archive.file import save_archive as save_archive
    from jaxdyn.io.archive.plant import load_plant as load_plant
    from jaxdyn.io.archive.plant import save_plant as save_plant
    from jaxdyn.io.c_export import export_c as export_c
    from jaxdyn.io.config import read_config as read_config
    from jaxdyn.io.config import seed_setting as seed_setting
    from jaxdyn.io.config import setting as setting
    from jaxdyn.io.errors import ConfigError as ConfigError
    from jaxdyn.io.errors import RunError as RunError
    from jaxdyn.io.locking import lock_joints as lock_joints
    from jaxdyn.io.mjcf.reader import load_keyframes as load_keyframes
    from jaxdyn.io.mjcf.reader import load_mjcf as load_mjcf
    from jaxdyn.io.mjcf.reader import load_sensors as load_sensors
    from jaxdyn.io.mjcf.reader import system_from_mujoco as system_from_mujoco
    from jaxdyn.io.pinocchio_model import system_from_pinocchio as system_from_pinocchio
    from jaxdyn.io.program_files import export as export
    from jaxdyn.io.recording_columns import Columns as Columns
    from jaxdyn.io.recordings import load_recording as load_recording
    from jaxdyn.io.recordings import recording_of_table as recording_of_table
    from jaxdyn.io.runs.directory import RunDirectory as RunDirectory
    from jaxdyn.io.runs.loaded import load_run as load_run
    from jaxdyn.io.runs.provenance import environment as environment
    from jaxdyn.io.shapes.visual_files import load_visuals as load_visuals
    from jaxdyn.io.state_orders import MujocoOrder as MujocoOrder
    from jaxdyn.io.state_orders import PinocchioOrder as PinocchioOrder
    from jaxdyn.io.system_file import load_system as load_system
    from jaxdyn.io.system_file import save_system as save_system
    from jaxdyn.io.urdf.reader import load_urdf as load_urdf
    from jaxdyn.io.xml import IgnoredContent as IgnoredContent
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
