"""Colors of all views, so that joints and selected samples look the same everywhere."""

BLUE, ORANGE, GRAY, GREEN, PURPLE, RED = "#1f5fa8", "#d9822b", "#6b7280", "#1b8a6b", "#7b4fa3", "#c8324a"
CYAN = "#0c9dbf"  # lines of forces

# Motion of a joint (see `skeleton.joint_motion`) and its color.
MOTION_COLORS = {"turns": ORANGE, "slides": GREEN, "turns and slides": PURPLE, "fixed": GRAY}


def rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of a color such as "#1f5fa8"."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
