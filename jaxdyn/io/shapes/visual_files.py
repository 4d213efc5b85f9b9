"""Reading of the visual geometry of URDF and MJCF files: meshes, boxes, spheres, cylinders and capsules.

The files are untrusted: only files in one folder and its subfolders are opened, and their sizes are bounded.
"""

from pathlib import Path

from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mjcf.visuals import mjcf_visuals
from jaxdyn.io.robots import robot_file
from jaxdyn.io.runs.loaded import Run
from jaxdyn.io.runs.provenance import digest_of_file
from jaxdyn.io.shapes.visuals import Omitted, Visual, with_fewer_triangles
from jaxdyn.io.urdf.visuals import urdf_visuals
from jaxdyn.io.xacro import read_robot
from jaxdyn.mechanism.model import Model

MOST_TRIANGLES = 120_000  # of all visuals of a mechanism
MOST_VISUALS = 2_000
_WITH_VISUALS = (".urdf", ".xacro", ".xml")


def load_visuals(
    path: Path | str, mechanism: Model | System, *, folder: Path | str | None = None
) -> tuple[Visual, ...]:
    """Read the visual geometry of a mechanism from the URDF or MJCF file from which the mechanism was read.

    Shapes that cannot be read are named in one `IgnoredContent` warning and left out. All visuals together have at most
    `MOST_TRIANGLES` triangles; meshes with more triangles are simplified. Mesh files of a URDF file need trimesh:
    `pip install "jaxdyn[view]"`.

    Args:
        path: URDF, xacro or MJCF file, or name of a robot, see `load_system`; files of other formats have no visuals.
        mechanism: The mechanism, with the bodies and frames of the file.
        folder: Folder that must contain all files that `path` names, unless they are in packages of ROS_PACKAGE_PATH or
            AMENT_PREFIX_PATH. The default is the folder of the file. For a URDF file, the default is the nearest folder above it
            with a package.xml, if there is one, and otherwise the parent of its folder if its folder is called "urdf". For a robot
            that is given by its name, it is the cache of robot_descriptions.

    Raises:
        ConfigError: The file cannot be read, or describes another mechanism.
    """
    path = robot_file(Path(path))
    if path.suffix.lower() not in _WITH_VISUALS:
        return ()
    model = mechanism.model if isinstance(mechanism, System) else mechanism
    folder = None if folder is None else Path(folder)
    omitted = Omitted()
    read = mjcf_visuals if read_robot(path).tag == "mujoco" else urdf_visuals
    visuals = read(path, model, folder, omitted)
    if len(visuals) > MOST_VISUALS:
        omitted.add(f"only the first {MOST_VISUALS} shapes are drawn", f"{len(visuals)} shapes")
    visuals = visuals[:MOST_VISUALS]
    triangles = sum(len(visual.mesh[1]) for visual in visuals)
    if triangles > MOST_TRIANGLES:
        omitted.add(f"simplified to {MOST_TRIANGLES}", f"{triangles} triangles")
    omitted.warn(path)
    return with_fewer_triangles(visuals, MOST_TRIANGLES)


def visuals_of_run(run: Run) -> tuple[Visual, ...]:
    """Read the visual geometry of the mechanism of a run, from the URDF or MJCF file with which the run was started.

    A run directory does not contain this file. If the file is missing or has changed since the start of the run, an
    `IgnoredContent` warning names it, and the result is empty.
    """
    path = Path(str((run.config or {}).get("mechanism", "")))
    if path.suffix.lower() not in _WITH_VISUALS:
        return ()
    inputs = (run.provenance or {}).get("inputs")
    pinned = inputs if isinstance(inputs, dict) else {}
    known = {Path(name.removeprefix("mechanism ")): digest for name, digest in pinned.items()}
    files = [path, *(file for file in known if file.suffix.lower() in _WITH_VISUALS)]
    changed = [file for file in files if not file.is_file() or digest_of_file(file) != known.get(file)]
    omitted = Omitted()
    if changed:
        omitted.add("changed or missing since the run, so its shapes are not drawn", str(changed[0]))
    else:
        try:
            return load_visuals(path, run.system)
        except ConfigError as error:  # for example, a mesh file of an MJCF file has been removed
            omitted.add("shapes are not drawn", str(error))
    omitted.warn(run.path)
    return ()
