"""Interactive replay of recorded motions as one file for the browser. Needs viser: `pip install "jaxdyn[view]"`.

replay = Replay(system, time, q, energy=energy)
replay.write_html("replay.html")  # opens in any browser, without a server or network
"""

import contextlib
import http
import io
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import viser
import websockets.asyncio.server

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.shapes.visuals import with_fewer_triangles
from jaxdyn.view.page import page_of
from jaxdyn.view.recorded_samples import RecordedSamples, check_samples
from jaxdyn.view.scene import Scene

_MOST_TRIANGLES = 160_000  # on a page, in the scenes of all of its samples
_MOST_PLACEMENTS = 330_000  # of parts in frames on a page, about 12 B each: less than 5 MB without shapes


class Replay(RecordedSamples):
    """Recorded motions of one mechanism for interactive viewing in three dimensions."""

    def write_html(self, path: Path | str, *, samples: Sequence[int] | None = None, overlay: int = 3) -> None:
        """Write the replay as one HTML file that opens without a server or network.

        The page contains the 3-D scene with play, pause, speed and a time slider; a list to select one of the samples in the file,
        each with other samples drawn in gray; and charts of all coordinates and of the energy with a line at the current time. The
        list behind the button at the lower right hides and shows parts of the scene (ellipsoids, gray samples, ...). The file
        contains only the selected samples. If the selected motions are long, it contains fewer frames per second, so that a page
        without shapes has less than 5 MB.

        Args:
            path: Path of the file.
            samples: Indices of the samples to include; by default the first eight.
            overlay: Number of other samples that are drawn in gray.

        Raises:
            ConfigError: There is no such sample, or the file cannot be written.
        """
        chosen = check_samples(range(min(8, self.samples)) if samples is None else samples, self.samples)
        with page_writer() as server:
            visuals = with_fewer_triangles(self.visuals, _MOST_TRIANGLES // len(chosen))  # each sample has a scene
            scene = Scene(server, self.mechanism, *self.box(visuals), visuals)
            parts = scene.moving_parts(len(self.others(chosen[0], overlay)))
            count = min(len(self.instants), max(2, _MOST_PLACEMENTS // (parts * len(chosen))))
            frames = np.linspace(0, len(self.instants) - 1, count).round().astype(int)
            pages = {number: self._recorded(server, scene, number, overlay, frames) for number in chosen}
        write_content(path, page_of(self, pages, scene.legend))

    def _recorded(self, server: viser.ViserServer, scene: Scene, number: int, overlay: int, frames: np.ndarray) -> str:
        """The page that viser makes of some frames of the motion of one sample."""
        placed, touching = self.sample(number).placed, self.sample(number).touching
        ghosts = [self.sample(other).placed for other in self.others(number, overlay)]
        scene.show(placed, ghosts, 0, touching)
        recorder = server.get_scene_serializer()
        for frame, pause in zip(frames[1:].tolist(), np.diff(self.instants[frames]), strict=True):
            recorder.insert_sleep(float(pause))
            scene.show(placed, ghosts, frame, touching)
        return recorder.as_html()


_starting = threading.Lock()


@contextlib.contextmanager
def page_writer() -> Iterator[viser.ViserServer]:
    """Context with a server of viser, which writes pages and refuses all requests.

    viser writes pages by a server only, and every page in a browser can open a websocket to 127.0.0.1. viser does not provide a way
    to refuse requests, so the `serve` of websockets is wrapped while viser starts its server.

    Raises:
        ConfigError: This version of viser does not allow jaxdyn to refuse requests.
    """
    serve, refusing = websockets.asyncio.server.serve, []

    def refuse(connection: Any, _: Any) -> Any:
        return connection.respond(http.HTTPStatus.FORBIDDEN, "this server writes a page only\n")

    def refusing_serve(handler: Any, *address: Any, **options: Any) -> Any:
        refusing.append(address)
        return serve(handler, *address, **(options | {"process_request": refuse}))

    quiet = contextlib.redirect_stdout(io.StringIO())  # viser prints announcements
    with _starting, quiet:
        websockets.asyncio.server.serve = refusing_serve  # pyright: ignore[reportAttributeAccessIssue]
        try:
            server = viser.ViserServer("127.0.0.1", 0, verbose=False)
        finally:
            websockets.asyncio.server.serve = serve
    try:
        if not refusing:
            raise ConfigError(f"viser {viser.__version__} does not allow jaxdyn to refuse requests; install viser 1.1")
        yield server
    finally:
        with quiet:
            server.stop()
