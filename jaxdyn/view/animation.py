"""Animations of a mechanism as GIF or MP4 files."""

import base64
import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FFMpegWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from PIL import Image
from tqdm import tqdm

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import unfinished, write_content, writing
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.view import contacts, skeleton
from jaxdyn.view.contacts import Touching
from jaxdyn.view.figure import Figure
from jaxdyn.view.pictures import ContactFigure, ForceLines, ShapeFigure, StickFigure, frame_axes
from jaxdyn.view.recorded_samples import check_samples
from jaxdyn.view.skeleton import Mechanism, Placed, Values
from jaxdyn.view.style import GRAY, ORANGE

_INCHES = 6.0
_SMALLEST, _LARGEST = 200, 2000  # pixels
_COLORS = 64  # of a GIF
_LOOKED_AT = 8  # frames from which the colors of a GIF are chosen
_TRAIL = 0.6  # duration (s) of the motion that is drawn as a trail of the end of the last stick
_AXIS_SHARE = 0.1  # length of a joint axis as a fraction of the longest side of the picture


def animate(
    mechanism: Mechanism,
    time: Values,
    q: Values,
    path: Path | str,
    *,
    fps: float = 30,
    speed: float = 1.0,
    size: int = 540,
    samples: Sequence[int] | None = None,
    title: str = "",
    progress: bool = True,
    visuals: Sequence[Visual] = (),
    v: Values | None = None,
) -> int:
    """Write an animation of a motion: the first sample in color, the other samples in gray, with a fixed camera.

    The motion is interpolated between records. Frames of a GIF last a whole number of hundredths of a second, so 1/fps is rounded
    (to 0.03 s at 30 frames per second); the rounding does not change the speed of the motion.

    Args:
        mechanism: A model, or a system; the loops, the ground and the contacts of a system are drawn too.
        time: Times of the records (T,), s.
        q: Coordinates (samples, T, nq), rad or m.
        path: File with the suffix .gif or .mp4.
        fps: Frames per second.
        speed: Speed of the animation; 1 is the real speed, 0.5 is half of it.
        size: Width and height in pixels.
        samples: Indices of the samples to show, beginning with the one in color; by default all samples.
        title: Title of the animation; by default the name of the mechanism.
        progress: Whether to show a progress bar.
        visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`; they are drawn for the first sample.
        v: Velocities (samples, T, nv), rad/s or m/s; without them, contact forces are not drawn.

    Returns:
        Number of frames in the file.

    Raises:
        ConfigError: The file name has another suffix, there is no such sample, ffmpeg is missing, or the file cannot be written.
    """
    model = skeleton.model_of(mechanism)
    path, time, q = Path(path), np.asarray(time, float), np.asarray(q)
    chosen = check_samples(range(len(q)) if samples is None else samples, len(q))
    if not (fps > 0 and speed > 0):
        raise ConfigError(f"fps = {fps:g} and speed = {speed:g}; give positive values of both")
    if not _SMALLEST <= size <= _LARGEST:
        raise ConfigError(f"size = {size:g} pixels; give a size from {_SMALLEST} to {_LARGEST}")
    interval = _interval(path, fps)
    instants = np.arange(time[0], time[-1] + 1e-9 * interval, interval * speed)
    between = skeleton.resampled(model, time, q[chosen], instants)
    placed = skeleton.place(mechanism, instants, between)
    speeds = None if v is None else np.asarray(v)[chosen[0]]
    touching = contacts.touching(mechanism, time, q[chosen[0]], speeds, instants, between[0])

    behind = round(_TRAIL / (interval * speed))
    figure, move, moving = _stage(mechanism, placed, title, behind, visuals, size, touching)
    rate = "" if speed == 1 else f" ({speed:g}x)"
    frames = tqdm(range(len(instants)), desc=path.name, unit="frame", disable=None if progress else True)
    pictures = _pictures(figure, moving, (move(k, f"t = {instants[k]:6.2f} s{rate}") for k in frames))
    # The file is complete or absent; ffmpeg needs the suffix.
    with writing(path), unfinished(path, path.suffix) as part:
        if path.suffix.lower() == ".gif":
            _write_gif(part, pictures, interval)
        else:
            _write_mp4(part, pictures, fps, figure)
        part.replace(path)
    return len(instants)


@dataclasses.dataclass(frozen=True)
class Animation:
    """An animation that notebooks display.

    Attributes:
        content: Bytes of the file.
        ending: Suffix of the file, ".gif" or ".mp4".
    """

    content: bytes = dataclasses.field(repr=False)
    ending: str

    def save(self, path: Path | str) -> None:
        """Write the animation to a file.

        Args:
            path: File with the suffix of the animation.

        Raises:
            ConfigError: The file name has another suffix, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() != self.ending:
            raise ConfigError(f"{path}: this animation is a {self.ending} file; give a file name with this suffix")
        write_content(path, self.content)

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.content).decode()
        if self.ending == ".gif":
            return f'<img src="data:image/gif;base64,{data}" alt="animation of a mechanism">'
        return f'<video controls loop src="data:video/mp4;base64,{data}"></video>'


def animation_of(
    mechanism: Mechanism, time: Values, q: Values, path: Path | str | None = None, **options: Any
) -> Animation:
    """An animation of a motion that notebooks display.

    Args:
        mechanism: A model, or a system; the loops of a system are drawn too.
        time: Times of the records (T,), s.
        q: Coordinates (samples, T, nq), rad or m.
        path: File with the suffix .gif or .mp4; None for a GIF that is not saved.
        options: Further arguments of `animate`.

    Raises:
        ConfigError: See `animate`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "motion.gif") if path is None else Path(path)
        animate(mechanism, time, q, file, **options)
        return Animation(file.read_bytes(), file.suffix.lower())


def _stage(
    mechanism: Mechanism,
    placed: Placed,
    title: str,
    behind: int,
    visuals: Sequence[Visual] = (),
    size: int = 540,
    touching: Touching | None = None,
) -> tuple[Figure, Callable[[int, str], None], list[Any]]:
    """The figure before the first frame, a function that updates it to a frame and shows the time, and the artists that this
    function changes.

    Args:
        mechanism: Model or system.
        placed: Positions of the mechanism in all frames.
        title: Title of the figure.
        behind: Number of frames that the trail of the end of the last stick covers.
        visuals: Shapes of the bodies. The first sample has no sticks if every body with mass has a shape.
        size: Width and height in pixels.
        touching: Contacts of the first sample.
    """
    model = skeleton.model_of(mechanism)
    figure = Figure(figsize=(_INCHES, _INCHES), dpi=size / _INCHES)
    axes: Any = figure.add_axes((0.0, 0.0, 0.94, 0.96), projection="3d", computed_zorder=False)
    grounds, low, high = contacts.with_ground(mechanism, *skeleton.box_around([placed], None, visuals))
    frame_axes(axes, grounds, low, high)
    at_rest = axes.get_children()
    ghosts = StickFigure(axes, model, ghost=True)
    colored: list[Any] = [ForceLines(axes), *([ShapeFigure(axes, visuals)] if visuals else [])]
    if not skeleton.is_covered(model, visuals):
        colored.append(StickFigure(axes, model, axis_length=_AXIS_SHARE * float((high - low).max())))
    touches = None if touching is None else ContactFigure(axes, mechanism, float((high - low).max()))
    if touches is not None:
        figure.text(0.03, 0.935, touches.legend, fontsize=7.5, va="top", color=GRAY)
    trail = axes.plot([], [], [], color=ORANGE, lw=1.0, alpha=0.7, zorder=2)[0]
    figure.text(0.03, 0.97, title or model.name, fontsize=11, va="top")
    stamp = figure.text(0.97, 0.97, "", fontsize=10, va="top", ha="right", family="monospace")

    def move(frame: int, text: str) -> None:
        ghosts.move(placed, slice(1, None), frame)
        for figure_of_first in colored:
            figure_of_first.move(placed, 0, frame)
        if touches is not None and touching is not None:
            touches.move(touching, frame)
        trail.set_data_3d(*placed.lines[0, max(0, frame - behind) : frame + 1, -1:, 1].reshape(-1, 3).T)
        stamp.set_text(text)

    moving = [artist for artist in axes.get_children() if artist not in at_rest]
    return figure, move, [*sorted(moving, key=lambda artist: artist.zorder), stamp]


def _pictures(figure: Figure, moving: Sequence[Any], frames: Iterable[None]) -> Iterator[np.ndarray]:
    """Pixels (height, width, 4) of each frame. The part of the figure that is the same in all frames is drawn once, which takes
    most of the time of a frame.

    Args:
        figure: The figure.
        moving: The artists that differ between frames, in the order in which they are drawn.
        frames: Each step of this iterator moves the artists to the next frame.
    """
    canvas = FigureCanvasAgg(figure)
    for artist in moving:
        artist.set_animated(True)  # the canvas does not draw it
    canvas.draw()
    background = canvas.copy_from_bbox(figure.bbox)
    for _ in frames:
        canvas.restore_region(background)
        for artist in moving:
            if isinstance(artist, Poly3DCollection):
                artist.do_3d_projection()
            artist.draw(canvas.get_renderer())
        yield np.array(canvas.buffer_rgba())


def _interval(path: Path, fps: float) -> float:
    """Duration (s) of a frame in a file with this name, which has to be that of an animation."""
    if path.suffix.lower() == ".gif":
        return max(2, round(100 / fps)) / 100  # viewers slow down frames that are shorter than 0.02 s
    if path.suffix.lower() != ".mp4":
        raise ConfigError(f"{path}: an animation is a .gif or .mp4 file; give a file name with one of these suffixes")
    if _ffmpeg() is None:
        raise ConfigError(f"{path}: MP4 needs ffmpeg; pip install imageio-ffmpeg, or write a .gif")
    return 1 / fps


def _write_gif(path: Path, pictures: Iterable[np.ndarray], interval: float) -> None:
    """Write pictures with the same few colors, so that pixels that do not move are stored once."""
    frames = [Image.fromarray(picture).convert("RGB") for picture in pictures]
    step = -(-len(frames) // _LOOKED_AT)
    # A quarter of the pixels contains all colors, because lines are more than one pixel wide.
    seen = Image.fromarray(np.concatenate([np.asarray(frame)[::2, ::2] for frame in frames[::step]]))
    palette = seen.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, kmeans=1)  # rare colors are kept
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=others, duration=round(1000 * interval), loop=0)


def _write_mp4(path: Path, pictures: Iterable[np.ndarray], fps: float, figure: Figure) -> None:
    """Write pictures of a figure as they are, without drawing the figure again."""
    writer: Any = FFMpegWriter(fps=fps, extra_args=["-pix_fmt", "yuv420p"])  # pyright: ignore[reportArgumentType]
    with mpl.rc_context({"animation.ffmpeg_path": _ffmpeg()}), writer.saving(figure, str(path), figure.dpi):
        for picture in pictures:
            writer._proc.stdin.write(picture)


def _ffmpeg() -> str | None:
    """Path of the ffmpeg of the system, or of the package imageio-ffmpeg; None if both are missing."""
    found = shutil.which("ffmpeg")
    if found is None:
        with contextlib.suppress(ImportError):
            import imageio_ffmpeg

            found = imageio_ffmpeg.get_ffmpeg_exe()
    return found
