"""Clusters whose centres follow the stream."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'KMeans(columns="celsius", k=2, time="at", warm_up=4, block=4)',
        until=40,
        about="The first four rows have no cluster: they give the first two centres. Each further row belongs to the nearest "
        "centre. After four more rows, the centres move.",
    )
    drawn.lane("celsius").event(2, "20").event(4, "61").event(7, "22").event(9, "59").event(13, "24").event(
        16, "62"
    ).event(19, "25").event(23, "63").event(28, "26").event(33, "64")
    drawn.lane("cluster").event(13, "0").event(16, "1").event(19, "0").event(23, "1").event(28, "0").event(33, "1")
    drawn.lane("centre 0").span(9, 23, "21.0").span(23, 40, "22.75", kind="open")
    drawn.lane("centre 1").span(9, 23, "60.0").span(23, 40, "61.25", kind="open")
    return drawn
