"""Interactive replay of recorded motions in a browser, served or as one file. Needs viser: `pip install "jaxdyn[view]"`.

replay = Replay(system, time, q, energy=energy)
replay.write_html("replay.html")  # opens in any browser, without a server or network
server = replay.serve()           # http://127.0.0.1:8080, with controls for all samples
"""

import contextlib
import io
import threading
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import viser

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.shapes.visuals import Visual, with_fewer_triangles
from jaxdyn.view.page import page_of
from jaxdyn.view.recorded_samples import RecordedSamples, check_samples
from jaxdyn.view.replay_charts import Chart, CoordinateChart
from jaxdyn.view.same_origin import same_origin_only
from jaxdyn.view.scene import Scene
from jaxdyn.view.skeleton import Mechanism, Values

_REFRESH = 1 / 30  # s between two looks at the controls
_SPEEDS = {"1/8": 0.125, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "4": 4.0}
_MOST_GHOSTS = 12
_MOST_TRIANGLES = 160_000  # on a page, in the scenes of all of its samples
_MOST_PLACEMENTS = 330_000  # of parts in frames on a page, about 12 B each: less than 5 MB without shapes


class Replay:
    """Recorded motions of one mechanism for interactive viewing in three dimensions.

    Attributes:
        recording: Recorded motions.
        visuals: Shapes of the bodies.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        time: Values,
        q: Values,
        *,
        v: Values | None = None,
        energy: Values | None = None,
        work: Values | None = None,
        visuals: Sequence[Visual] = (),
    ):
        """Make a replay of recorded motions, which are interpolated between records.

        Args:
            mechanism: A model, or a system; the loops, the ground and the contacts of a system are drawn too.
            time: Times of the records (T,), s, ascending.
            q: Coordinates (samples, T, nq), rad or m.
            v: Velocities (samples, T, nv), rad/s or m/s; without them, contact forces are not drawn.
            energy: Kinetic and potential energy (samples, T), J.
            work: Work done up to each time (samples, T), J.
            visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`. Samples in gray are drawn as sticks.

        Raises:
            ValueError: The shapes do not match.
        """
        self.recording = RecordedSamples(mechanism, time, q, v=v, energy=energy, work=work)
        self.visuals = tuple(visuals)

    def serve(self, port: int = 8080, host: str = "127.0.0.1") -> "ServedReplay":
        """Serve the replay and return immediately. The method `wait` of the result blocks until the server is stopped, and `stop`
        stops it.

        The browser shows the mechanism and charts of the coordinates and the energy. Controls set the time, the speed, the sample,
        the number of other samples in gray, and the visible parts. All connected browsers show the same state.

        Args:
            port: Port of the server. If the port is in use, the next free port is used, as `address` of the result shows.
            host: 127.0.0.1 for this computer only; with 0.0.0.0, other computers in the network can view and control the replay.
                From browsers, the server accepts only requests from the page that it serves, opened as localhost, as an IP address,
                or as the name of this computer.
        """
        return ServedReplay(self.recording, port, host, self.visuals)

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
        recording = self.recording
        chosen = check_samples(range(min(8, recording.samples)) if samples is None else samples, recording.samples)
        with Served(recording.model.name, 0, "127.0.0.1") as served:
            visuals = with_fewer_triangles(self.visuals, _MOST_TRIANGLES // len(chosen))  # each sample has a scene
            scene = _scene(served.server, recording, visuals)
            parts = scene.moving_parts(len(recording.others(chosen[0], overlay)))
            count = min(len(recording.instants), max(2, _MOST_PLACEMENTS // (parts * len(chosen))))
            frames = np.linspace(0, len(recording.instants) - 1, count).round().astype(int)
            pages = {number: self._recorded(served.server, scene, number, overlay, frames) for number in chosen}
        write_content(path, page_of(recording, pages, scene.legend))

    def _recorded(self, server: viser.ViserServer, scene: Scene, number: int, overlay: int, frames: np.ndarray) -> str:
        """The page that viser makes of some frames of the motion of one sample."""
        recording = self.recording
        placed, touching = recording.sample(number).placed, recording.sample(number).touching
        ghosts = [recording.sample(other).placed for other in recording.others(number, overlay)]
        scene.show(placed, ghosts, 0, touching)
        recorder = server.get_scene_serializer()
        for frame, pause in zip(frames[1:].tolist(), np.diff(recording.instants[frames]), strict=True):
            recorder.insert_sleep(float(pause))
            scene.show(placed, ghosts, frame, touching)
        return recorder.as_html()


class Served:
    """A running server of a scene. Used as a context manager, it stops at the end of the context.

    Attributes:
        server: Server of viser, to which further scene nodes and controls can be added.
        address: Address to open in a browser.

    Raises:
        ConfigError: This version of viser does not allow jaxdyn to refuse requests of other pages.
    """

    def __init__(self, name: str, port: int, host: str):
        # viser prints an announcement
        with same_origin_only(host) as checked, contextlib.redirect_stdout(io.StringIO()):
            self.server = viser.ViserServer(host, port, label=f"jaxdyn: {name}", verbose=False)
            if not checked:
                self.server.stop()
                raise ConfigError(
                    f"viser {viser.__version__} does not allow jaxdyn to refuse requests of other pages; install viser 1.1"
                )
        self.address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{self.server.get_port()}"
        self._stopping, self._thread = threading.Event(), threading.Thread()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Wait until another thread calls `stop`, or the program is interrupted."""
        self._stopping.wait()

    def stop(self) -> None:
        """Stop serving."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    def _follow(self, act: Any) -> None:
        def run() -> None:
            while not self._stopping.wait(_REFRESH):
                act()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _add_switches(self, scene: Scene) -> None:
        """Add a switch for each part of the scene that can be hidden to the panel at the right."""
        gui = self.server.gui
        gui.main_panel.dock_right()
        with gui.add_folder("Show"):
            for name, node in scene.parts().items():
                self._add_switch(name, node)
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)

    def _add_switch(self, name: str, node: Any) -> None:
        switch = self.server.gui.add_checkbox(name, initial_value=node.visible)
        switch.on_update(lambda _: setattr(node, "visible", switch.value))


class ServedReplay(Served):
    """A running server of a replay, made by `Replay.serve`."""

    def __init__(self, recording: RecordedSamples, port: int, host: str, visuals: Sequence[Visual] = ()):
        super().__init__(recording.model.name, port, host)
        self._recording, self._lock = recording, threading.RLock()
        self._exact, self._last = 0.0, clock.monotonic()
        self._scene = _scene(self.server, recording, visuals)
        self._add_controls()
        self._draw(charts=True)
        self._follow(self._play)

    def _add_controls(self) -> None:
        recording, gui = self._recording, self.server.gui
        span = float(recording.instants[-1] - recording.instants[0])
        step = 10.0 ** np.floor(np.log10(span / 100)) if span > 0 else 1.0
        with gui.add_folder("Time"):
            self._time = gui.add_slider("time (s)", min=0.0, max=max(span, step), step=step, initial_value=0.0)
            self._playing = gui.add_checkbox("play", initial_value=False)
            self._speed = gui.add_dropdown("speed", list(_SPEEDS), initial_value="1")
        with gui.add_folder("Samples"):
            self._sample = gui.add_number("sample", 0, min=0, max=recording.samples - 1, step=1)
            most = min(_MOST_GHOSTS, recording.samples - 1)
            self._overlay = gui.add_slider(
                "others in gray", min=0, max=max(most, 1), step=1, initial_value=min(3, most), disabled=most == 0
            )
        self._add_switches(self._scene)
        if self._scene.legend:
            gui.add_markdown(self._scene.legend)
        self._coordinates = CoordinateChart(gui, gui.add_folder("Coordinates"), recording.model, recording.instants)
        has_energy = recording.sample(0).energy is not None
        self._energy = Chart(gui, gui.add_folder("Energy"), recording.instants) if has_energy else None
        self._time.on_update(lambda _: self._draw())
        for control in (self._sample, self._overlay, self._coordinates.choice):
            control.on_update(lambda _: self._draw(charts=True))

    def _draw(self, *, charts: bool = False) -> None:
        """Show the selected sample at the selected time."""
        recording = self._recording
        with self._lock, self.server.atomic():
            number = int(self._sample.value)
            sample = recording.sample(number)
            ghosts = [recording.sample(other).placed for other in recording.others(number, int(self._overlay.value))]
            at = float(np.clip(recording.instants[0] + self._time.value, *recording.instants[[0, -1]]))
            self._scene.show(sample.placed, ghosts, int(np.argmin(np.abs(recording.instants - at))), sample.touching)
            if charts:
                self._coordinates.show(sample)
            if charts and self._energy is not None:
                self._energy.draw(sample.energies(), "energy (J)")

    def _play(self) -> None:
        """Advance the time in real time during playback, and restart at the end."""
        now = clock.monotonic()
        if self._playing.value:
            set_by_hand = abs(self._time.value - self._exact) > self._time.step
            exact = (self._time.value if set_by_hand else self._exact) + (now - self._last) * _SPEEDS[self._speed.value]
            self._exact = 0.0 if exact > self._time.max + _REFRESH else exact
            self._time.value = min(round(self._exact / self._time.step) * self._time.step, self._time.max)
        self._last = now


def _scene(server: viser.ViserServer, recording: RecordedSamples, visuals: Sequence[Visual]) -> Scene:
    return Scene(server, recording.mechanism, *recording.box(visuals), visuals)
