"""How far ahead can the motion of a chaotic double pendulum be predicted that was only filmed?

Method. A film shows markers at the pivot, the elbow and the tip. The camera may be tilted, its lens distorts, markers appear
displaced because of their colors, and the elbow marker may lie beside the joint. All this is calibrated: the lengths of both links
must be as constant as possible in the training runs, by least squares. The angles of the links are then written as recordings, from
which `jaxdyn identify` identifies the pendulum; the figure of merit is the time for which it predicts held-out runs.

Expected. On the held-out runs, the median time within 0.1 rad is 0.6 s from a polynomial through 15 frames, and 0.7 s from the
motion of the machine that fits them. Without calibration it is shorter by 0.07 s.

Run time. About four minutes on two cores.

    python experiments/filmed_pendulum.py [CONFIG] [data=FOLDER] [--out DIR] [--smoke] [key=value ...]

FOLDER holds runs.npz with the positions of the markers: columns (down, sideways) of the pivot, the elbow and the tip.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Complex, Float
from scipy.optimize import least_squares

from jaxdyn.io import RunDirectory, read_config
from jaxdyn.jobs import Job, main, run
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.verbs import IDENTIFY

RATE = 400.0  # frames per second
SIZE = 1000.0  # the unit of lengths, in units of the films
MOST_FRAMES = 20_000  # more frames do not improve the calibration


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        identify: Config of `jaxdyn identify`, whose recordings are named like the arrays of runs.npz.
        data: Folder of runs.npz.
        calibrate: If false, the camera is assumed to be ideal.
        changes: Changes "key=value" of the config of `jaxdyn identify`.
    """

    identify: Path
    data: Path
    calibrate: bool = True
    changes: tuple[str, ...] = ()


class Camera(NamedTuple):
    """Errors of positions, down + i sideways, of the three markers relative to the first one.

    Without the distortion of the camera, a marker seen at r is at r (1 + tilt . r) (1 + distortion r . r) - shift. `beside` is the
    vector from a marker to its joint when the link that ends there hangs straight down.
    """

    tilt: Complex[np.ndarray, "3"]
    distortion: float
    shift: Complex[np.ndarray, "3"]
    beside: Complex[np.ndarray, "3"]


IDEAL = Camera(np.zeros(3, complex), 0.0, np.zeros(3, complex), np.zeros(3, complex))


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    if not config.data.is_dir():
        print(f"there is no folder {config.data}; get the Double Pendulum Chaotic data set, and give data=FOLDER")
        return {"absent": str(config.data)}
    folder = directory.path("recordings")
    folder.mkdir(exist_ok=True)
    (study,) = read_config(config.identify, IdentifyConfig).study
    with np.load(config.data / "runs.npz") as runs:
        films = {name: positions(runs[Path(name).stem]) for name in (*study.train, *study.validation)}
    camera = calibrated([films[name] for name in study.train]) if config.calibrate else IDEAL
    for name, film in films.items():
        angles = np.unwrap(np.angle(links(film, camera)), axis=0)
        np.savez(folder / name, t=np.arange(len(film)) / RATE, q=np.diff(angles, axis=1, prepend=0.0))
    done = run(IDENTIFY, config.identify, out=directory.path("identify"), overrides=[f"data={folder}", *config.changes])
    return {study.name: json.loads((done.root / "metrics.json").read_text(encoding="utf-8"))[study.name]}


def positions(film: Float[np.ndarray, "frames 6"]) -> Complex[np.ndarray, "frames 3"]:
    """Positions in the picture relative to the first marker, down + i sideways."""
    places = (film[:, ::2] + 1j * film[:, 1::2]) / SIZE
    return places - places[:, :1]


def links(seen: Complex[np.ndarray, "frames 3"], camera: Camera) -> Complex[np.ndarray, "frames 2"]:
    """Lines from joint to joint."""
    scale = (1.0 + np.real(camera.tilt.conj() * seen)) * (1.0 + camera.distortion * np.abs(seen) ** 2)
    places = seen * scale - camera.shift
    joints = [places[:, 0]]
    for k in (1, 2):
        line = places[:, k] - joints[-1]
        joints.append(places[:, k] + camera.beside[k] * line / np.abs(line))
    return np.diff(np.stack(joints, axis=1), axis=1)


def calibrated(films: list[Complex[np.ndarray, "frames 3"]]) -> Camera:
    """The camera for which the lengths of the links are as constant as possible.

    The first marker is the origin. The last joint is at its marker, since an error there only rotates the last link.
    """
    seen = np.concatenate(films)
    seen = seen[:: -(-len(seen) // MOST_FRAMES)]

    def camera(x: np.ndarray) -> Camera:
        free = x[1:].reshape(5, 2) @ np.array([1.0, 1.0j])
        return Camera(np.append(0.0, free[:2]), x[0], np.append(0.0, free[2:4]), np.array([0.0, free[4], 0.0]))

    def stretches(x: np.ndarray) -> np.ndarray:
        lengths = np.abs(links(seen, camera(x)))
        return (lengths - lengths.mean(axis=0)).ravel()

    return camera(least_squares(stretches, np.zeros(11)).x)


JOB = Job("filmed-pendulum", __doc__ or "", Config, work)

if __name__ == "__main__":
    sys.exit(main(JOB, default_config=str(Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml")))
