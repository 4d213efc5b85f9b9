"""Moving pictures of a mechanism as GIF or MP4 files."""

import base64
import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from tqdm import tqdm

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_files
from jaxdyn.view.figure import Figure
from jaxdyn.view.pictures import StickFigure, frame_axes
from jaxdyn.view.recording import check_lanes
from jaxdyn.view.skeleton import Mechanism, Numbers, Placed, box_of, model_of, place, resampled
from jaxdyn.view.style import ORANGE

_SIZE = 6.0  # inches
_DPI = 90
_TRAIL = 0.6  # s of motion that the end of the last stick leaves behind it
_AXIS_SHARE = 0.1  # length of a joint axis, as a share of the longest side of the picture


def animate(
    mechanism: Mechanism,
    time: Numbers,
    q: Numbers,
    path: Path | str,
    *,
    fps: float = 30,
    speed: float = 1.0,
    lanes: Sequence[int] | None = None,
    title: str = "",
    progress: bool = True,
) -> int:
    """Write a motion as a moving picture: the first lane in color, the others as ghosts, one camera for all of it.

    Between records the motion is interpolated. A GIF counts time in hundredths of a second, so its frames last the number of them
    next to 1/fps (3 of them at 30 frames per second), and the motion keeps its speed.

    Args:
        mechanism: A model, or a system, whose loops are then drawn as well.
        time: (T,) s.
        q: (lanes, T, nq) coordinates, rad or m.
        path: File that ends in .gif or .mp4.
        fps: Frames per second.
        speed: 1 shows the motion as fast as it is, 0.5 at half the speed.
        lanes: Numbers of the lanes to show, the colored one first; all of them if not given.
        progress: Whether to show a progress bar.

    Returns:
        The number of frames.

    Raises:
        ConfigError: The file name has another ending, there is no such lane, ffmpeg is missing, or the file cannot be written.
    """
    model = model_of(mechanism)
    path, time, q = Path(path), np.asarray(time, float), np.asarray(q)
    chosen = check_lanes(range(len(q)) if lanes is None else lanes, len(q))
    if not (fps > 0 and speed > 0):
        raise ConfigError(f"fps = {fps:g} and speed = {speed:g} must be positive; raise them")
    writer, interval = _writer(path, fps)
    instants = np.arange(time[0], time[-1] + 1e-9 * interval, interval * speed)
    placed = place(mechanism, instants, resampled(model, time, q[chosen], instants))

    figure, move = _stage(mechanism, placed, title, round(_TRAIL / (interval * speed)))
    rate = "" if speed == 1 else f" ({speed:g}x)"
    part = path.with_name(f"{path.stem}.part{path.suffix}")  # complete or absent; the ending tells ffmpeg the format
    try:
        with mpl.rc_context({"animation.ffmpeg_path": _ffmpeg() or "ffmpeg"}), writer.saving(figure, str(part), _DPI):
            for k in tqdm(range(len(instants)), desc=path.name, unit="frame", disable=not progress):
                move(k, f"t = {instants[k]:6.2f} s{rate}")
                writer.grab_frame()
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return len(instants)


@dataclasses.dataclass(frozen=True)
class Animation:
    """A moving picture, which shows itself in a notebook.

    Attributes:
        content: The bytes of the file.
        ending: ".gif" or ".mp4".
    """

    content: bytes = dataclasses.field(repr=False)
    ending: str

    def save(self, path: Path | str) -> None:
        """Write the moving picture to a file.

        Raises:
            ConfigError: The file name has another ending, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() != self.ending:
            raise ConfigError(f"{path}: this moving picture is a {self.ending} file; rename it")
        try:
            write_files({path: lambda file: file.write(self.content)})
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from None

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.content).decode()
        if self.ending == ".gif":
            return f'<img src="data:image/gif;base64,{data}" alt="moving picture of a mechanism">'
        return f'<video controls loop src="data:video/mp4;base64,{data}"></video>'


def animation_of(
    mechanism: Mechanism, time: Numbers, q: Numbers, path: Path | str | None = None, **options: Any
) -> Animation:
    """A motion as a moving picture, which shows itself in a notebook.

    Args:
        mechanism, time, q: The motion, see `animate`.
        path: File that ends in .gif or .mp4; None for a GIF that is not saved.
        options: Further arguments of `animate`.

    Raises:
        ConfigError: See `animate`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "motion.gif") if path is None else Path(path)
        animate(mechanism, time, q, file, **options)
        return Animation(file.read_bytes(), file.suffix.lower())


def _stage(mechanism: Mechanism, placed: Placed, title: str, behind: int) -> tuple[Figure, Callable[[int, str], None]]:
    """The figure before the first frame, and a function that moves what is in it to a frame and writes the time.

    Args:
        behind: Frames for which the end of the last stick leaves a trail.
    """
    model = model_of(mechanism)
    figure = Figure(figsize=(_SIZE, _SIZE), dpi=_DPI)
    axes: Any = figure.add_axes((0.0, 0.0, 0.94, 0.96), projection="3d", computed_zorder=False)
    low, high = box_of(placed.lines) if placed.lines.size else box_of(placed.origins)
    frame_axes(axes, low, high)
    ghosts = StickFigure(axes, model, ghost=True)
    colored = StickFigure(axes, model, axis_length=_AXIS_SHARE * float((high - low).max()))
    trail = axes.plot([], [], [], color=ORANGE, lw=1.0, alpha=0.7, zorder=2)[0]
    figure.text(0.03, 0.97, title or model.name, fontsize=11, va="top")
    stamp = figure.text(0.97, 0.97, "", fontsize=10, va="top", ha="right", family="monospace")

    def move(frame: int, text: str) -> None:
        ghosts.move(placed, slice(1, None), frame)
        colored.move(placed, 0, frame)
        trail.set_data_3d(*placed.lines[0, max(0, frame - behind) : frame + 1, -1:, 1].reshape(-1, 3).T)
        stamp.set_text(text)

    return figure, move


def _writer(path: Path, fps: float) -> tuple[AbstractMovieWriter, float]:
    """What writes a file of that name, and the seconds that one frame lasts."""
    if path.suffix.lower() == ".gif":
        interval = max(2, round(100 / fps)) / 100  # viewers slow down frames that are shorter than 2 hundredths
        # The writer cuts the milliseconds of a frame off to a whole number.
        return PillowWriter(fps=1 / (interval + 5e-4)), interval  # pyright: ignore[reportArgumentType]
    if path.suffix.lower() != ".mp4":
        raise ConfigError(f"{path}: a moving picture is a .gif or an .mp4; rename it")
    if _ffmpeg() is None:
        raise ConfigError(f"{path}: MP4 needs ffmpeg; pip install imageio-ffmpeg, or write a .gif")
    return FFMpegWriter(fps=fps, extra_args=["-pix_fmt", "yuv420p"]), 1 / fps  # pyright: ignore[reportArgumentType]


def _ffmpeg() -> str | None:
    """The ffmpeg of the system, else that of the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None:
        try:
            import imageio_ffmpeg
        except ImportError:
            return None
        found = imageio_ffmpeg.get_ffmpeg_exe()
    return found
