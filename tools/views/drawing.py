"""Text of SVG pictures: elements with escaped text and numbers in their shortest form."""

from __future__ import annotations

import re
from html import escape

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
INK, PALE, GRID = "#1f2933", "#7b8794", "#e4e7eb"


def safe(text: str) -> str:
    """Text for XML and HTML; characters that XML does not have are shown as U+FFFD."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def number(value: float) -> str:
    """A coordinate to a hundredth, without zeros that say nothing."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def width_of(text: str, size: float = 12) -> float:
    """About how wide a line of text is; wider than most fonts."""
    return 0.62 * size * len(text)


class Svg:
    """One picture. Attributes are given as keywords: `stroke_width=2` is `stroke-width="2"`. Floats in `data_…` keep
    all digits."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
            f'width="{number(width)}" height="{number(height)}" font-family="sans-serif" role="img">',
            f"<title>{safe(title)}</title>",
            f'<rect width="{number(width)}" height="{number(height)}" fill="#ffffff"/>',
        ]

    def add(self, tag: str, text: str = "", title: str = "", /, **attributes: object) -> None:
        """An element with text in it, or a title that shows under the pointer."""
        named = "".join(f' {key.replace("_", "-")}="{_value(key, x)}"' for key, x in attributes.items() if x != "")
        inside = safe(text) + (f"<title>{safe(title)}</title>" if title else "")
        self.lines.append(f"<{tag}{named}>{inside}</{tag}>" if inside else f"<{tag}{named}/>")

    def text(self, x: float, y: float, text: str, size: float = 12, fill: str = INK, **attributes: object) -> None:
        """A line of text that begins (or ends, or has its middle: `text_anchor`) at a point."""
        self.add("text", text, x=x, y=y, font_size=size, fill=fill, **attributes)

    def label(self, x: float, y: float, text: str, size: float = 12, fill: str = INK, **attributes: object) -> None:
        """Text with a white rim, to be read over lines."""
        self.text(x, y, text, size, "#ffffff", stroke="#ffffff", stroke_width=3, **attributes)
        self.text(x, y, text, size, fill, **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = INK, **attributes: object) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)

    def __str__(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def _value(key: str, value: object) -> str:
    if isinstance(value, float):
        return repr(value) if key.startswith("data_") else number(value)
    return safe(str(value))
