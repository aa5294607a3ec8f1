"""How a ladder is drawn: two vertical lines, time downward, an arrow a packet, marks beside the lines.

Rows stand in their order, apart by the time between them as far as it is short; a longer silence is cut and
its length written.  Text is set in a fixed-width font, so that its width is known and nothing overlaps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from html import escape

from softhca.simulation.ladder_rows import ARRIVED, MARK, SENT, Ladder, Packet, Row

MARGIN, TIME_WIDTH, LABEL_WIDTH, MIDDLE_WIDTH = 18, 92, 326, 360
LINES = (MARGIN + TIME_WIDTH + LABEL_WIDTH, MARGIN + TIME_WIDTH + LABEL_WIDTH + MIDDLE_WIDTH)
WIDTH = LINES[1] + LABEL_WIDTH + TIME_WIDTH + MARGIN
TEXT, SMALL = 11, 10
EM = 0.602  # width of a character of the font
ROW, TIGHT, UNIT, BREAK = 15, 7, 24, 48
MARK_HEIGHT = 4
LONGEST_UNITS, BREAK_UNITS = 3, 8
DEFAULT_UNIT_NS = 1_000
HEADER_CHARACTERS = 150

# what was done to a packet → colour
PACKETS: dict[str, str] = {
    "request": "#1f4e9c",
    "answer": "#2a7f4f",
    "lost": "#c62828",
    "damaged": "#c2560c",
    "duplicated": "#7b3fa0",
    "reordered": "#8a6d00",
    "forged": "#0b7a86",
}
# kind of mark → colour, shape as a path around its middle, what the legend says
MARKS: dict[str, tuple[str, str, str]] = {
    "state": ("#222222", "M-4-4h8v8h-8z", "state"),
    "nak": ("#c62828", "M0-5L5 0L0 5L-5 0z", "gap, NAK"),
    "rnr": ("#a15c00", "M0-5L5 0L0 5L-5 0z", "RNR NAK"),
    "retry": ("#1f4e9c", "M0-5L5 4H-5z", "sends again"),
    "drop": ("#c2560c", "M-4-4h8v8h-8z", "dropped"),
    "error": ("#c62828", "M-5-4L0 5L5-4z", "error"),
    "repeat": ("#5f6b7a", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "repeated"),
}
STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#222222}"
    ".small{font-size:10px;fill:#5f6b7a}.title{font-size:15px;font-weight:bold}"
    ".line{stroke:#222222;stroke-width:1.5}.break{stroke:#8a94a0;stroke-dasharray:2 4}"
    "path{stroke-width:1.3}.stub{stroke-dasharray:3 3}"
)


def svg(ladder: Ladder, header: Mapping[str, object]) -> str:
    """The whole picture."""
    top = Header(ladder, header)
    picture = Picture(ladder, top.height)
    height = picture.bottom + MARGIN
    left, right = ladder.pair
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}"'
            f' viewBox="0 0 {WIDTH} {height:g}">',
            f"<title>Packets between queue pairs {left.qp} and {right.qp}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height:g}" fill="#ffffff"/>',
            *top.parts,
            *picture.lines,
            *picture.arrows,
            *picture.texts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "", look: str = "") -> str:
    """One line of text whose middle is at the height ``y``."""
    attributes = f' class="{look}"' if look else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes += f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x:g}" y="{round(y + 4, 1):g}"{attributes}>{escape(words)}</text>'


def clipped(words: str, characters: int) -> str:
    """``words``, cut to so many characters."""
    return words if len(words) <= characters else words[: characters - 1] + "…"


def duration(time_ns: int) -> str:
    """A time in the unit that suits it."""
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if time_ns >= unit:
            value = time_ns / unit
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{round(value, digits):.10g} {name}"
    return f"{time_ns} ns"


def look_of(packet: Packet, reason: str) -> str:
    """The colour's name for a copy of a packet."""
    if reason in PACKETS:
        return reason
    if reason:
        return "damaged"
    return "answer" if packet.answer else "request"


class Header:
    """Title, facts, legend and the names above the lines; ``height`` of it all."""

    def __init__(self, ladder: Ladder, header: Mapping[str, object]) -> None:
        self.parts: list[str] = []
        self.height = 30.0
        facts = {name: str(value) for name, value in header.items()}
        title = "  ".join(f"{name} {facts.pop(name)}" for name in ("scenario", "seed") if name in facts)
        self.parts.append(text(MARGIN, self.height, clipped(title, 100), look="title"))
        for name, value in facts.items():
            self._fact(f"{name}: {value or 'none'}")
        if ladder.before or ladder.after:
            left_out = f"{ladder.before} before and {ladder.after} after them are left out"
            self._fact(f"{len(ladder.rows)} rows are drawn; {left_out}")
        self._legend()
        self.height += 34
        for x, end in zip(LINES, ladder.pair, strict=True):
            for y, words in ((-8, f"adapter {end.adapter}"), (6, f"queue pair {end.qp}")):
                self.parts.append(text(x, self.height + y, words, anchor="middle"))
        for x, anchor in ((MARGIN, "start"), (WIDTH - MARGIN, "end")):
            self.parts.append(text(x, self.height + 6, "time in µs", anchor=anchor, look="small"))
        self.height += 22

    def _fact(self, words: str) -> None:
        self.height += 17
        self.parts.append(text(MARGIN, self.height, clipped(words, HEADER_CHARACTERS)))

    def _legend(self) -> None:
        self.height += 26
        x: float = MARGIN
        for name, colour in PACKETS.items():
            self.parts.append(f'<path d="M{x:g} {self.height:g}h22" stroke="{colour}"/>')
            if name == "lost":
                self.parts.append(cross(x + 22, self.height, colour))
            else:
                self.parts.append(head(x, self.height, x + 22, self.height, colour))
            self.parts.append(text(x + 30, self.height, name, fill=colour))
            x += 30 + len(name) * TEXT * EM + 18
        x = MARGIN
        self.height += 18
        for colour, shape, words in MARKS.values():
            self.parts.append(mark(x + 5, self.height, colour, shape))
            self.parts.append(text(x + 14, self.height, words, fill=colour))
            x += 14 + len(words) * TEXT * EM + 18


def mark(x: float, y: float, colour: str, shape: str) -> str:
    """A mark on a line."""
    return f'<path class="mark" transform="translate({x:g} {round(y, 1):g})" d="{shape}" fill="{colour}"/>'


def cross(x: float, y: float, colour: str) -> str:
    """Where a packet was lost."""
    x, y = round(x, 1), round(y, 1)
    return f'<path d="M{x - 4:g} {y - 4:g}l8 8m0-8l-8 8" stroke="{colour}" style="stroke-width:2"/>'


def head(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    """The head of an arrow that ends at (x2, y2)."""
    angle = round(math.degrees(math.atan2(y2 - y1, x2 - x1)), 1)
    place = f"translate({round(x2, 1):g} {round(y2, 1):g}) rotate({angle:g})"
    return f'<path transform="{place}" d="M0 0l-8-3.5v7z" fill="{colour}"/>'


class Picture:
    """Everything below the header, in three layers."""

    def __init__(self, ladder: Ladder, top: float) -> None:
        self.lines: list[str] = []
        self.arrows: list[str] = []
        self.texts: list[str] = []
        self.bottom = top
        self._departures: dict[int, float] = {}
        self._arrived: set[int] = set()
        self._shown = ["", ""]
        self._place(ladder.rows, top)
        for row in ladder.rows:
            if row.packet is not None and row.what == SENT:
                self._unanswered(row.packet)
        for x in LINES:
            self.lines.insert(0, f'<path class="line" d="M{x} {top:g}V{self.bottom:g}"/>')

    def _place(self, rows: list[Row], top: float) -> None:
        unit_ns = typical_delay_ns(rows)
        y, last_ns = top + 6, rows[0].time_ns if rows else 0
        lowest, lowest_text = [top, top], [top, top]
        for row in rows:
            silence_ns = row.time_ns - last_ns
            if silence_ns > BREAK_UNITS * unit_ns:
                self._silence(y + BREAK / 2 + 4, silence_ns)
                y += BREAK
            else:
                y += UNIT * min(silence_ns / unit_ns, LONGEST_UNITS)
            last_ns = row.time_ns
            y = max(y, lowest[row.side] + TIGHT)
            if row.text:
                y = max(y, lowest_text[row.side] + ROW)
                lowest_text[row.side] = y
            y = round(y, 1)
            lowest[row.side] = y + (MARK_HEIGHT if row.what == MARK else 0)
            self._draw(row, y)
        self.bottom = y + 24

    def _silence(self, y: float, silence_ns: int) -> None:
        """Nothing happened for long: the lines are cut."""
        for x in LINES:
            self.arrows.append(f'<rect x="{x - 6}" y="{y - 5:g}" width="12" height="10" fill="#ffffff"/>')
            self.arrows.append(f'<path class="line" d="M{x - 7} {y - 2:g}l14-6m-14 16l14-6"/>')
        self.lines.append(f'<path class="break" d="M{LINES[0] + 10} {y:g}H{LINES[1] - 10}"/>')
        self._boxed((LINES[0] + LINES[1]) / 2, y, f"{duration(silence_ns)} of silence", "middle", "#5f6b7a")

    def _boxed(self, x: float, y: float, words: str, anchor: str, colour: str) -> None:
        """Small text between the lines, readable over arrows."""
        width = len(words) * SMALL * EM + 6
        start = {"start": x - 3, "middle": x - width / 2, "end": x - width + 3}[anchor]
        box = f'x="{round(start, 1):g}" y="{round(y - 6.5, 1):g}" width="{round(width, 1):g}"'
        self.texts.append(f'<rect {box} height="13" fill="#ffffff" fill-opacity="0.85"/>')
        self.texts.append(text(round(x, 1), y, words, anchor=anchor, fill=colour, look="small"))

    def _draw(self, row: Row, y: float) -> None:
        colour = "#222222"
        if row.what == MARK:
            colour, shape, _ = MARKS[row.look]
            self.texts.append(mark(LINES[row.side], y, colour, shape))
        elif row.packet is not None:
            look = "lost" if row.what == SENT and row.packet.lost else look_of(row.packet, row.look)
            colour = PACKETS[look]
            if row.what == SENT:
                self._departures[row.packet.number] = y
            else:
                self._arrow(row, y, look)
        if row.text:
            self._label(row, y, colour)

    def _label(self, row: Row, y: float, colour: str) -> None:
        """Text outside of the line, and the time where it is another one than above."""
        times = f" ×{row.times}" if row.times > 1 else ""
        words = clipped(row.text, int((LABEL_WIDTH - 14) / (TEXT * EM)) - len(times)) + times
        anchor = ("end", "start")[row.side]
        self.texts.append(text(LINES[row.side] + (-12, 12)[row.side], y, words, anchor=anchor, fill=colour))
        moment = f"{row.time_ns // 1000}.{row.time_ns % 1000:03}"
        if moment != self._shown[row.side]:
            self._shown[row.side] = moment
            x, anchor = ((MARGIN, "start"), (WIDTH - MARGIN, "end"))[row.side]
            self.texts.append(text(x, y, moment, anchor=anchor, look="small"))

    def _arrow(self, row: Row, y: float, look: str) -> None:
        """A copy that arrived; of one that left before the picture begins only the end is seen."""
        packet = row.packet
        assert packet is not None
        colour, x2 = PACKETS[look], LINES[row.side]
        x1, stub = LINES[packet.side], ""
        y1 = self._departures.get(packet.number, -1.0)
        if y1 < 0:
            x1, y1, stub = x1 + (x2 - x1) * 3 // 4, y - 8, " stub"
        self._arrived.add(packet.number)
        self.arrows.append(
            f'<g class="packet {look}" data-number="{packet.number}">'
            f'<path class="way{stub}" d="M{x1} {y1:g}L{x2} {y:g}" stroke="{colour}"/>'
            f"{head(x1, y1, x2, y, colour)}</g>"
        )

    def _unanswered(self, packet: Packet) -> None:
        """A packet no copy of which arrives in the picture."""
        if packet.number in self._arrived:
            return
        y, x = self._departures[packet.number], LINES[packet.side]
        way = (1, -1)[packet.side]
        anchor = ("start", "end")[packet.side]
        look = "lost" if packet.lost else look_of(packet, "")
        colour, end, stub = PACKETS[look], x + way * MIDDLE_WIDTH * 0.55, "" if packet.lost else " stub"
        self.arrows.append(
            f'<g class="packet {look}" data-number="{packet.number}">'
            f'<path class="way{stub}" d="M{x} {y:g}L{end:g} {y + 8:g}" stroke="{colour}"/>'
            f"{cross(end, y + 8, colour) if packet.lost else ''}</g>"
        )
        words = "arrives later" if packet.arrives else "never arrives"
        if packet.lost:
            words = f"lost: {packet.lost}"
        self._boxed(end + way * 12, y + 8, words, anchor, colour)
        self.bottom = max(self.bottom, y + 32)


def typical_delay_ns(rows: list[Row]) -> int:
    """The median time on the way of packets that nothing happened to; it sets the scale."""
    sent = {row.packet.number: row.time_ns for row in rows if row.packet is not None and row.what == SENT}
    ways = [
        row.time_ns - sent[row.packet.number]
        for row in rows
        if row.packet is not None and row.what == ARRIVED and not row.look and row.packet.number in sent
    ]
    return max(int(statistics.median(ways)), 1) if ways else DEFAULT_UNIT_NS
