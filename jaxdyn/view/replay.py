"""Interactive replay of recorded motions in a browser, served or as one file. Needs viser: `pip install "jaxdyn[view]"`.

replay = Replay(system, time, q, energy=energy)
replay.write_html("replay.html")  # opens in any browser, without a server and without a network
server = replay.serve()           # http://127.0.0.1:8080, with everything there is to choose
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
from jaxdyn.io.files import write_files
from jaxdyn.view.charts import CoordinateChart, EnergyChart
from jaxdyn.view.page import page_of
from jaxdyn.view.recording import Recording, check_lanes
from jaxdyn.view.same_origin import same_origin_only
from jaxdyn.view.scene import Scene
from jaxdyn.view.skeleton import Mechanism, Numbers

_SPEEDS = {"1/8": 0.125, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "4": 4.0}
_REFRESH = 1 / 30  # s between two frames while it plays
_MOST_GHOSTS = 12


class Replay:
    """Recorded motions of one mechanism, to be looked at from all sides.

    Attributes:
        recording: The motions.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        time: Numbers,
        q: Numbers,
        *,
        energy: Numbers | None = None,
        work: Numbers | None = None,
    ):
        """A replay of given records; between them the motion is interpolated.

        Args:
            mechanism: A model, or a system, whose loops are then drawn as well.
            time: (T,) s, ascending.
            q: (lanes, T, nq) coordinates, rad or m.
            energy: (lanes, T) kinetic and potential energy, J.
            work: (lanes, T) work done up to each time, J.

        Raises:
            ValueError: The shapes do not belong together.
        """
        self.recording = Recording(mechanism, time, q, energy=energy, work=work)

    def serve(self, port: int = 8080, host: str = "127.0.0.1") -> "Served":
        """Serve the replay, and return at once; `wait` and `stop` of what is returned do what they say.

        The browser shows the mechanism, and beside it: time with play and speed; the lane and how many others are laid over it;
        which parts to show; the coordinates and the energy with a line at the time shown. All browsers that look see the same.

        Args:
            port: The next free one is taken if another program has it; `address` tells.
            host: 127.0.0.1 for this computer only; 0.0.0.0 lets others in the network look, and move the sliders. Only the page of
                this server can use it in a browser, opened under localhost, an IP address or the name of this computer.
        """
        return Served(self.recording, port, host)

    def write_html(self, path: Path | str, *, lanes: Sequence[int] | None = None, overlay: int = 3) -> None:
        """Write the replay as one HTML file that opens without a server and without a network.

        It has the 3-D scene with play, pause, speed and a time slider; a chooser for the lanes it holds, each with its overlay;
        charts of all coordinates and of the energy with a line at the time shown. Parts of the scene (ellipsoids, ghosts, ...) are
        hidden and shown in the list behind the button at the lower right. Lanes that were not written into it are not in it.

        Args:
            lanes: Numbers of the lanes to choose from; the first eight if not given.
            overlay: How many other lanes to show as ghosts.

        Raises:
            ConfigError: There is no such lane, or the file cannot be written.
        """
        recording = self.recording
        chosen = check_lanes(range(min(8, recording.lanes)) if lanes is None else lanes, recording.lanes)
        server = _started(0, "127.0.0.1", None)
        try:
            scene = Scene(server, recording.model, recording.lane(0).placed, *recording.box())
            pages = {number: self._recorded(server, scene, number, overlay) for number in chosen}
        finally:
            _stopped(server)
        try:
            text = page_of(recording, pages)
            write_files({Path(path): lambda file: file.write(text.encode())})
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another place") from None

    def _recorded(self, server: viser.ViserServer, scene: Scene, number: int, overlay: int) -> str:
        """viser's own page with the motion of one lane."""
        recording = self.recording
        placed = recording.lane(number).placed
        ghosts = [recording.lane(other).placed for other in recording.others(number, overlay)]
        scene.show(placed, ghosts, 0)
        recorder = server.get_scene_serializer()
        for frame, pause in enumerate(np.diff(recording.instants), start=1):
            recorder.insert_sleep(float(pause))
            scene.show(placed, ghosts, frame)
        return recorder.as_html()


def _started(port: int, host: str, label: str | None) -> viser.ViserServer:
    with same_origin_only(host) as checked, contextlib.redirect_stdout(io.StringIO()):  # it announces itself
        server = viser.ViserServer(host, port, label=label, verbose=False)
        if not checked:
            server.stop()
            raise ConfigError(
                f"viser {viser.__version__} serves in a way that does not let jaxdyn refuse pages of strangers; install viser 1.1"
            )
        return server


def _stopped(server: viser.ViserServer) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


class Served:
    """A replay that is being served, made by `Replay.serve`; as a context manager it stops at the end.

    Attributes:
        server: The server of viser, for scenes and controls of your own.
        address: What to type into a browser.
    """

    def __init__(self, recording: Recording, port: int, host: str):
        self._recording, self._lock, self._stopping = recording, threading.RLock(), threading.Event()
        self.server = server = _started(port, host, f"jaxdyn: {recording.model.name}")
        self.address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{server.get_port()}"
        self._scene = Scene(server, recording.model, recording.lane(0).placed, *recording.box())
        server.gui.main_panel.dock_right()
        server.gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        self._add_controls()
        self._draw(charts=True)
        self._player = threading.Thread(target=self._play, daemon=True)
        self._player.start()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Wait until `stop` is called from elsewhere, or the program is interrupted."""
        self._stopping.wait()

    def stop(self) -> None:
        """Stop serving."""
        self._stopping.set()
        self._player.join()
        _stopped(self.server)

    def _add_controls(self) -> None:
        recording, gui = self._recording, self.server.gui
        span = float(recording.instants[-1] - recording.instants[0])
        step = 10.0 ** np.floor(np.log10(span / 100)) if span > 0 else 1.0
        with gui.add_folder("Time"):
            self._time = gui.add_slider("time (s)", min=0.0, max=max(span, step), step=step, initial_value=0.0)
            self._playing = gui.add_checkbox("play", initial_value=False)
            self._speed = gui.add_dropdown("speed", list(_SPEEDS), initial_value="1")
        with gui.add_folder("Lanes"):
            self._lane = gui.add_number("lane", 0, min=0, max=recording.lanes - 1, step=1)
            most = min(_MOST_GHOSTS, recording.lanes - 1)
            self._overlay = gui.add_slider(
                "others laid over", min=0, max=max(most, 1), step=1, initial_value=min(3, most), disabled=most == 0
            )
        with gui.add_folder("Show"):
            scene = self._scene
            for name, node in {
                "ellipsoids": scene.ellipsoids,
                "joint axes": scene.axes,
                "frames": scene.frames,
            }.items():
                self._add_switch(name, node)
        self._coordinates = CoordinateChart(gui, gui.add_folder("Coordinates"), recording.model, recording.instants)
        has_energy = recording.lane(0).energy is not None
        self._energy = EnergyChart(gui, gui.add_folder("Energy"), recording.instants) if has_energy else None
        self._time.on_update(lambda _: self._draw())
        for control in (self._lane, self._overlay):
            control.on_update(lambda _: self._draw(charts=True))
        self._coordinates.on_choice(lambda: self._draw(charts=True))

    def _add_switch(self, name: str, node: Any) -> None:
        switch = self.server.gui.add_checkbox(name, initial_value=node.visible)
        switch.on_update(lambda _: setattr(node, "visible", switch.value))

    def _draw(self, *, charts: bool = False) -> None:
        """Show the lane and time that are set."""
        recording = self._recording
        with self._lock, self.server.atomic():
            number = int(self._lane.value)
            lane = recording.lane(number)
            ghosts = [recording.lane(other).placed for other in recording.others(number, int(self._overlay.value))]
            at = float(np.clip(recording.instants[0] + self._time.value, *recording.instants[[0, -1]]))
            self._scene.show(lane.placed, ghosts, int(np.argmin(np.abs(recording.instants - at))))
            self._coordinates.show(lane, at, anew=charts)
            if self._energy is not None:
                self._energy.show(lane, at, anew=charts)

    def _play(self) -> None:
        """Advance the time while it plays, as fast as the clock, and around the end."""
        exact, last = 0.0, clock.monotonic()
        while not self._stopping.wait(_REFRESH):
            now = clock.monotonic()
            if self._playing.value:
                set_by_hand = abs(self._time.value - exact) > self._time.step
                exact = (self._time.value if set_by_hand else exact) + (now - last) * _SPEEDS[self._speed.value]
                exact = 0.0 if exact > self._time.max + _REFRESH else exact
                self._time.value = min(round(exact / self._time.step) * self._time.step, self._time.max)
            last = now
