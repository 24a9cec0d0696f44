"""One queue, as one of its groups: what waits and for how long, who works on it, the next messages, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from headwater.console.context import Visit, context
from headwater.console.dead_letters.redrive_dialog import RedriveDialog
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import confirm
from headwater.console.kit.layout import Stat, block, card, facts_markup, heading, html, sentence, tabs
from headwater.console.kit.live import LivePage, notify, perform, read
from headwater.console.kit.table import Column, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, count, counted, span
from headwater.console.pages import path_to, screen
from headwater.console.queues.display import TONES, body_text, group_of, group_path, settings_of, state_of
from headwater.console.queues.put_dialog import PutDialog
from headwater.console.queues.replay_dialog import ReplayDialog
from headwater.console.topics.frame import row_path
from headwater.errors import NotFound, did_you_mean
from headwater.log.dead_letters import Selection
from headwater.queues import QueueConsumer, QueueStats
from headwater.services.queues import QueueBinding, QueueGroup, QueueStatus, TakenMessage

#: The next messages that the page shows.
PEEKED = 10
MESSAGE_COLUMNS = (
    Column(name="place", label="Message"),
    Column(name="key", label="Key", clip=True),
    Column(name="body", label="Body", clip=True, mono=True),
    Column(name="put", label="Put", align="right"),
)
GROUP_COLUMNS = (
    Column(name="group", label="Group"),
    Column(name="state", label="State"),
    Column(name="depth", label="Depth", align="right"),
    Column(name="in_flight", label="In flight", align="right"),
    Column(name="acknowledged", label="Acknowledged", align="right"),
    Column(name="dead", label="Given up", align="right"),
)
CONSUMER_COLUMNS = (
    Column(name="consumer", label="Consumer"),
    Column(name="where", label="Watched by"),
    Column(name="held", label="Holds", align="right"),
    Column(name="taken", label="Last took", align="right"),
)
BINDING_COLUMNS = (
    Column(name="exchange", label="Exchange"),
    Column(name="takes", label="Messages that match"),
)


@screen("/queues/{name}", under="/queues")
async def queue(visit: Visit, name: str, group: str = "") -> None:
    first = await read(
        lambda: visit.services.queues.status(name)
    )  # one that is not there is an error instead of a page
    found = group_of(first, group)
    if found is None:
        names = [one.name for one in first.groups]
        raise NotFound(kind="queue group", name=group, near=did_you_mean(group, names))
    QueuePage(visit, first, found.name).start()


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the page shows: the queue, the group, and its next messages."""

    status: QueueStatus
    group: QueueGroup
    messages: list[TakenMessage]


class QueuePage(LivePage[Content]):
    """The page of a queue."""

    def __init__(self, visit: Visit, first: QueueStatus, group: str) -> None:
        self._visit, self._name, self._group = visit, first.name, group
        self._service = visit.services.queues
        self._put = PutDialog(visit, first, self.refresh)
        self._replay = ReplayDialog(visit, first.name, group, self.refresh)
        self._redrive = RedriveDialog(visit, first.dead_letter_topic, self.refresh)
        self._is_paused = False
        self._build_heading(first)
        self._notes = html("")
        if len(first.groups) > 1:
            tabs({one.name: group_path(first.name, one.name) for one in first.groups}, current=group)
        self._build_numbers()
        with card("Next messages", flush=True, why="queue_next"):
            self._messages = Table(MESSAGE_COLUMNS, label="Next messages", none="No message can be delivered now.")
            self._messages.classes("one-line")
        with block("grid"):
            with card("Groups", flush=True, why="queue_groups"):
                self._groups = Table(GROUP_COLUMNS, label="Groups", none="No group.")
            with card("Consumers", flush=True, why="queue_consumers"):
                none = "No consumer: no worker has taken messages and still runs."
                self._consumers = Table(CONSUMER_COLUMNS, label="Consumers", none=none)
        with block("grid"):
            with card("Settings"):
                self._settings = html("")
            with card("Bindings", flush=True, why="queue_bindings"):
                none = "No exchange sends messages here; programs put them into the queue itself."
                self._bindings = Table(BINDING_COLUMNS, label="Bindings", none=none)

    def _build_heading(self, first: QueueStatus) -> None:
        may, name = self._visit.caller.may, first.name
        with heading(name, under=f"Group `{self._group}`: each message goes to one of its workers.", why="queues"):
            self._state = html("")
            html(f'<a href="{escape(path_to("topics", name))}">Its topic</a>')
            if may("write", name):
                button("Put a message", self._put.open, icon="add")
            if may("admin", name):
                self._pause = button("Pause", self._set_paused, icon="pause")
                button("Replay", self._replay.open, icon="replay")
                self._redrive_button = button("Redrive", self._open_redrive, icon="redo")
        self._may_change = may("admin", name)

    def _build_numbers(self) -> None:
        with block("grid tiles"):
            self._depth = Stat("Depth", why="queue_depth")
            self._oldest = Stat("Oldest message", why="queue_age")
            self._in_flight = Stat("In flight", why="queue_in_flight")
            self._scheduled = Stat("Scheduled", why="queue_scheduled")
            self._redelivered = Stat("Redelivered", why="queue_redelivered")
            self._dead = Stat("Dead letters", why="dead_letters")
        with block("grid"):
            with card("Messages", why="queue_depth"):
                self._levels = LineChart(label="Messages over time", dark=self._visit.dark, height=200)
            with card("Messages per second"):
                self._rates = LineChart(label="Messages per second over time", dark=self._visit.dark, height=200)

    # -- content ------------------------------------------------------------------------------------------------------

    def load(self) -> Content:
        status = self._service.status(self._name)
        group = group_of(status, self._group)
        if group is None:
            raise NotFound(kind="queue group", name=self._group, near="")
        messages = self._service.peek(self._name, n=PEEKED, group=self._group)
        return Content(status=status, group=group, messages=messages)

    def show(self, content: Content) -> None:
        status, stats = content.status, content.group.stats
        self._is_paused = stats.paused
        state = state_of(stats)
        self._state.set_content(f'<span class="pill {TONES[state]}">{escape(state)}</span>')
        if self._may_change:
            self._pause.set_text("Resume" if stats.paused else "Pause")
            self._pause.props(f"icon={'play_arrow' if stats.paused else 'pause'}")
            self._redrive_button.set_visibility(status.dead_letters > 0)
        self._show_notes(status, stats)
        self._show_tiles(status, stats)
        self._show_charts()
        self._messages.set_rows([_message(self._name, one) for one in content.messages])
        self._groups.set_rows([_group(self._name, one, picked=one.name == self._group) for one in status.groups])
        self._consumers.set_rows([_consumer(one) for one in content.group.consumers])
        self._settings.set_content(facts_markup(settings_of(status.settings)))
        self._bindings.set_rows([_binding(one) for one in status.bindings])

    def _show_notes(self, status: QueueStatus, stats: QueueStats) -> None:
        notes = []
        if stats.paused:
            notes.append(
                ("info", "The group is paused: nothing is delivered. Workers keep the messages that they hold.")
            )
        elif state_of(stats) == "no consumer":
            run = "Start a worker, for example with `headwater worker run jobs.py`."
            notes.append(
                ("warn", sentence(f"{counted(stats.depth, 'message')} waiting, and no worker takes any. {run}"))
            )
        if status.dead_letters:
            page = escape(path_to("dead-letters", status.dead_letter_topic))
            dead = f'<a href="{page}">{counted(status.dead_letters, "dead letter")}</a>'
            notes.append(("bad", f"Open: {dead}. Correct what made them fail, then redrive or park them."))
        markup = "".join(f'<div class="note {tone}"><div class="grow">{text}</div></div>' for tone, text in notes)
        self._notes.set_content(f'<div class="stack tight">{markup}</div>' if markup else "")

    def _show_tiles(self, status: QueueStatus, stats: QueueStats) -> None:
        history, series = context().history, f"{self._name}/{self._group}"
        blocked = f", {count(stats.blocked)} of them blocked by their key" if stats.blocked else ""
        self._depth.set(
            count(stats.depth), foot=f"wait for a worker{blocked}", line=history.values("queue", series, "depth")
        )
        self._oldest.set(
            "–" if stats.oldest_seconds is None else span(stats.oldest_seconds),
            foot="no message waits" if stats.oldest_seconds is None else "has it waited for a worker",
        )
        self._in_flight.set(count(stats.in_flight), foot=f"held by {counted(stats.consumers, 'consumer')}")
        self._scheduled.set(count(stats.scheduled), foot="wait for their time")
        share = stats.redelivered / stats.delivered if stats.delivered else 0.0
        self._redelivered.set(
            count(stats.redelivered), foot=f"{share:.0%} of {counted(stats.delivered, 'delivery').replace('ys', 'ies')}"
        )
        dead = status.dead_letters
        self._dead.set(
            count(dead),
            foot="open, of all groups" if dead else "none is open",
            tone="bad" if dead else "",
        )

    def _show_charts(self) -> None:
        history, series = context().history, f"{self._name}/{self._group}"
        levels = {"waiting": "depth", "in flight": "in_flight", "scheduled": "scheduled"}
        self._levels.set({name: history.series("queue", series, measure) for name, measure in levels.items()})
        rates = {name: history.series("queue", series, name) for name in ("delivered", "acknowledged", "redelivered")}
        self._rates.set({"put": history.series("topic", self._name, "rate"), **rates})

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _set_paused(self) -> None:
        service, name, group = self._service, self._name, self._group
        if self._is_paused:
            if await perform(lambda: service.resume(name, group=group)):
                notify(f"Group {group} of {name} goes on.")
        elif await confirm(
            f"Pause group {group} of {name}?",
            "Nothing is delivered to it until it goes on. Messages that workers hold stay theirs, and other groups go on.",
            yes="Pause",
        ) and await perform(lambda: service.pause(name, group=group)):
            notify(f"Group {group} of {name} is paused.")
        await self.refresh()

    async def _open_redrive(self) -> None:
        await self._redrive.open(
            Selection(), f"All open dead letters of {self._name}, for the groups that gave them up."
        )


def _message(queue: str, message: TakenMessage) -> Row:
    cells = [
        link(message.id, row_path(queue, message.partition, message.offset)),
        message.key if message.key is not None else toned("–", "quiet"),
        body_text(message.body),
        ago(message.put_us),
    ]
    return Row(cells, key=f"{message.partition}-{message.offset}")


def _group(queue: str, group: QueueGroup, *, picked: bool) -> Row:
    stats, state = group.stats, state_of(group.stats)
    cells = [
        link(group.name, group_path(queue, group.name)),
        mark(state, TONES[state]),
        count(stats.depth),
        count(stats.in_flight),
        count(stats.acknowledged),
        toned(count(stats.dead), "warn") if stats.dead else "–",
    ]
    return Row(cells, key=group.name, picked=picked)


def _consumer(consumer: QueueConsumer) -> Row:
    cells = [
        consumer.name,
        "its lease" if consumer.remote else "its process",
        counted(consumer.held, "message"),
        ago(consumer.taken_us),
    ]
    return Row(cells, key=consumer.name)


def _binding(binding: QueueBinding) -> Row:
    headers = f" {'and' if binding.match == 'all' else 'or'} ".join(f"{n}={v}" for n, v in binding.headers.items())
    parts = ([f"routing key {binding.pattern}"] if binding.pattern is not None else []) + ([headers] if headers else [])
    return Row([binding.exchange, ", and ".join(parts)], key=binding.exchange)
