"""Tables as text."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], left: tuple[int, ...]) -> str:
    """Rows of cells as text with aligned columns of minimum width.

    Args:
        rows: Texts of the cells.
        left: Indices of left-aligned columns; the others, which contain values, are right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
