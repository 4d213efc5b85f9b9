"""A viser server on this computer with a scene that a thread updates. Needs viser: `pip install "jaxdyn[view]"`."""

import contextlib
import io
import threading
from typing import Any

import viser

from jaxdyn.io.errors import ConfigError
from jaxdyn.view.same_origin import same_origin_only
from jaxdyn.view.scene import Scene

REFRESH = 1 / 30  # s between two looks at the controls


class Served:
    """A running server of a scene. Used as a context manager, it stops at the end of the context.

    A subclass makes its scene and its controls, and then calls `_follow` with a function without arguments. A thread calls this
    function 30 times per second, and the function shows the state that the controls are set to.

    Attributes:
        server: Server of viser, to which further scene nodes and controls can be added.
        address: Address to open in a browser.

    Raises:
        ConfigError: This version of viser does not allow jaxdyn to refuse requests of other pages.
    """

    def __init__(self, name: str, port: int, host: str):
        with (
            same_origin_only(host) as checked,
            contextlib.redirect_stdout(io.StringIO()),
        ):  # viser prints an announcement
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
            while not self._stopping.wait(REFRESH):
                act()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _add_switches(self, scene: Scene) -> None:
        """Add a switch for each part of the scene that can be hidden, and one for the background, to the panel at the right."""
        gui = self.server.gui
        gui.main_panel.dock_right()
        with gui.add_folder("Show"):
            for name, node in scene.parts().items():
                self._add_switch(name, node)
            dark = gui.add_checkbox("dark background", initial_value=False)

        def set_background(_: object) -> None:
            gui.configure_theme(control_width="large", show_logo=False, show_share_button=False, dark_mode=dark.value)
            scene.set_background(dark=dark.value)

        set_background(None)
        dark.on_update(set_background)

    def _add_switch(self, name: str, node: Any) -> None:
        switch = self.server.gui.add_checkbox(name, initial_value=node.visible)
        switch.on_update(lambda _: setattr(node, "visible", switch.value))
