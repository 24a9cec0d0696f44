"""An app: queries declared in one small file, run together as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from headwater.apps.declaration import InputTopic, Mode, Query, inputs_of, where_of
from headwater.apps.errors import DeclarationInvalid
from headwater.apps.status import Kind
from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.home import home_of
from headwater.log.client_config import Rows
from headwater.log.topic_rules import check_name
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from headwater.apps.captures import AppCapture
    from headwater.apps.interactive_query import Answer
    from headwater.apps.views import AppViews
    from headwater.gateways import Gateway
    from headwater.log import Log
    from headwater.sinks import Sink
    from headwater.sourcing import Entities

Function = TypeVar("Function", bound=Callable[..., Any])
Names = str | Sequence[str] | None


class App:
    """Queries that belong together: their topics, views and sinks, the log they share, and the folder they live in.

    An argument of a declared function names the topic or the view that it reads. Nothing runs until `headwater run
    FILE` (or `app.run()`) checks the whole graph and starts it. Without `log` it is the log of the settings, as for
    every command: that of `HEADWATER_LOG` or `headwater.toml`, and otherwise `./data`. With a `lease`, processes on several
    hosts agree through the log which of them runs the app.

    >>> app = App("shop", log="./data")
    >>> _ = app.input("orders", {"id": "int64", "user": "string", "amount": "float64"}, key="user")
    >>> @app.view(key="user")
    ... def spend(orders):
    ...     return orders.groupBy("user").sum("amount")
    >>> [query.name for query in app.queries]
    ['spend']
    """

    def __init__(
        self,
        name: str,
        *,
        log: str | Path | None = None,
        home: str | Path | None = None,
        master: str | None = None,
        views: str | None = None,
        conf: Mapping[str, Any] | None = None,
        lease: Duration | None = None,
    ) -> None:
        check_name("app", name)
        self.name = name
        self.log = Config.load().log if log is None else str(log)
        self._home = home
        self.master = master
        if views is not None and not views.startswith(("postgres://", "postgresql://")):
            raise ArgumentInvalid(name="views", value=views, expected="postgresql://…, or nothing for a file of DuckDB")
        self.view_store = views
        self.conf = dict(conf or {})
        #: How long a process that runs the app may be silent before one on another host takes over; None on one machine.
        self.lease_seconds = None if lease is None else parse_seconds(lease)
        self.queries: list[Query] = []
        self.inputs: list[InputTopic] = []
        self.captures: list[AppCapture] = []
        self.gateways: list[Gateway] = []
        # Any: the user's state, command and event classes.
        self.entities: list[Entities[Any, Any, Any]] = []

    def __repr__(self) -> str:
        return f"App({self.name!r}, log={self.log!r}, queries={[query.name for query in self.queries]})"

    def _repr_html_(self) -> str:
        from headwater.apps.notebook import app_html

        return app_html(self)

    @property
    def home(self) -> Path:
        """The folder of the app: checkpoints, state, views, and the address of the process that runs it."""
        if self._home is not None:
            return Path(self._home).absolute()
        return home_of(self.log).absolute() / "apps" / self.name

    @property
    def views(self) -> AppViews:
        """The views by name, in whichever process the app runs: `app.views["spend"].get(card=42)`."""
        from headwater.apps.views import AppViews

        return AppViews(self)

    # -- declarations -------------------------------------------------------------------------------------------------

    # Any: whatever `Log.create` takes.
    def input(self, name: str, schema: Any = None, *, bounded: bool = False, **settings: Any) -> str:
        """Declare a topic that other programs write. It is created if it is missing, so that the app can start first.

        With `bounded`, nothing is appended to it any more: when a query has read all of it, its windows close. In a run
        until caught up the same holds for what queries make of bounded inputs alone.
        """
        check_name("topic", name)
        for known in self.inputs:
            if known.name == name:
                raise _taken(name, first=known.where, second="app.input")
        self.inputs.append(InputTopic(name=name, schema=schema, where="app.input", settings=settings, bounded=bounded))
        return name

    # Any: settings of a capture.
    def capture(
        self, url: str, *, tables: Sequence[str] = ("*",), name: str | None = None, **settings: Any
    ) -> AppCapture:
        """Declare a capture: the tables of a database as topics, every row and every change, exactly once.

        The process that runs the app runs the capture, too. An argument of a query names a table by its last part (`orders`
        is `shop.public.orders`); `inputs={"o": shop["public.orders"]}` says it explicitly. A table with a primary key may
        be an `hw.Table`; otherwise its changes come as rows with `_op`. `name` is by default that of the database; `settings` are those of
        a capture: `envelope`, `prefix`, `partitions`, `password_env`, `password_file` and more.

        >>> app = App("shop", log="./data")
        >>> shop = app.capture("sqlite:///shop.db", tables=["orders", "customers"])
        >>> shop["orders"]
        'shop.orders'
        """
        from headwater.apps.captures import capture_of

        declared = capture_of(url, name=name, tables=tables, options=settings)
        if any(one.name == declared.name for one in self.captures):
            raise ArgumentInvalid(name="name", value=declared.name, expected="a name that no other capture has")
        self.captures.append(declared)
        return declared

    def gateway(self, gateway: Gateway) -> str:
        """Declare a gateway, which brings events in or out without a client library, and return its topic.

        The process that runs the app runs the gateway, too. A gateway in creates its topic, which queries read like any other;
        a gateway out sends the rows of a topic that the app or another program writes.

        >>> from headwater.gateways import StatsD
        >>> app = App("load", log="./data")
        >>> app.gateway(StatsD(port=8125, topic="metrics"))
        'metrics'
        """
        if any(one.name == gateway.name for one in self.gateways):
            raise ArgumentInvalid(name="gateway", value=gateway.name, expected="one of another kind or topic")
        self.gateways.append(gateway)
        return gateway.topic

    # Any: the user's state, command and event classes.
    def serve_entities(self, entities: Entities[Any, Any, Any]) -> None:
        """Let the server of the app decide commands for entities, in the log of the app, and show their states."""
        if any(one.name == entities.name for one in self.entities):
            raise ArgumentInvalid(name="entities", value=entities.name, expected="a name that no other entities have")
        self.entities.append(entities)

    @overload
    def topic(self, function: Function) -> Function: ...

    @overload
    def topic(
        self,
        *,
        key: Names = None,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        sinks: Sequence[Sink] = (),
        mode: Mode | None = None,
        trigger: str | None = None,
        tick: str | None = None,
        rows_max: int | None = None,
        late: str | None = None,
        side_outputs: Mapping[str, str] | None = None,
        ask: bool = False,
        **settings: Any,
    ) -> Callable[[Function], Function]: ...

    def topic(self, function: Any = None, **settings: Any) -> Any:
        """Declare a derived topic: what the function makes of its inputs, exactly once.

        `key`, and whatever else `Log.create` takes (`time`, `partitions`, `retention`, …), say how the topic is made.
        `sinks` get the same rows, computed once. `trigger` is the time between batches, none for as soon as possible;
        `rows_max` the most rows of a batch; `side_outputs` the topics of its operators' side outputs, such as
        `{"timed_out": "payments.abandoned"}`, with `late="payments.late"` as a short form for late rows; with `ask`, questions to its operators are
        answered while it runs (`app.ask`).
        """
        return self._decorated(function, "topic", settings)

    def view(
        self,
        *,
        key: Names = None,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        sinks: Sequence[Sink] = (),
        mode: Mode | None = None,
        trigger: str | None = None,
        tick: str | None = None,
        rows_max: int | None = None,
        late: str | None = None,
        side_outputs: Mapping[str, str] | None = None,
        ask: bool = False,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Declare a materialised view: for each key the newest row, served, queried and subscribed to.

        The truth is a compacted topic of the same name; a store for look-ups and SQL follows it.
        """
        options = {
            "name": name,
            "inputs": inputs,
            "sinks": sinks,
            "mode": mode,
            "trigger": trigger,
            "tick": tick,
            "rows_max": rows_max,
            "late": late,
            "side_outputs": side_outputs,
            "ask": ask or None,
        }
        given = {option: value for option, value in options.items() if value not in (None, ())}
        decorate: Callable[[Function], Function] = self._decorated(None, "view", {"key": key, **given, **settings})
        return decorate

    def sink(
        self,
        *sinks: Sink,
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        mode: Mode | None = None,
        trigger: str | None = None,
        tick: str | None = None,
        rows_max: int | None = None,
    ) -> Callable[[Function], Function]:
        """Declare rows that leave the platform: to a database, a cache, a lake, people. Several sinks share one computation."""
        options = {
            "name": name,
            "inputs": inputs,
            "mode": mode,
            "trigger": trigger,
            "tick": tick,
            "rows_max": rows_max,
        }
        given = {option: value for option, value in options.items() if value is not None}
        decorate: Callable[[Function], Function] = self._decorated(None, "sink", {"sinks": sinks, **given})
        return decorate

    def _decorated(self, function: Any, kind: Kind, settings: dict[str, Any]) -> Any:
        def declare(chosen: Function) -> Function:
            self._declare(chosen, kind, dict(settings))
            return chosen

        if function is None:
            return declare
        if not callable(function):
            raise ArgumentInvalid(name=f"app.{kind}", value=function, expected="keyword arguments, or nothing")
        return declare(function)

    def _declare(self, function: Callable[..., Any], kind: Kind, settings: dict[str, Any]) -> None:
        name = settings.pop("name", None) or function.__name__
        check_name("query", name)
        where = where_of(function)
        taken = {one.name: one.where for one in self.inputs} | {one.name: one.where for one in self.queries}
        if name in taken:
            raise _taken(name, first=taken[name], second=where)
        key = _names(settings.pop("key", None))
        sinks = tuple(settings.pop("sinks", ()))
        for period in ("trigger", "tick"):
            if settings.get(period) is not None:
                parse_seconds(settings[period])
        if kind == "view" and not key:
            why = "a view needs the columns that tell its rows apart, as `@app.view(key=…)`"
            raise DeclarationInvalid(query=name, where=where, why=why)
        if kind == "sink" and not sinks:
            why = "it names no sink, as in `@app.sink(PostgresSink(…))`"
            raise DeclarationInvalid(query=name, where=where, why=why)
        inputs = inputs_of(function, settings.pop("inputs", None) or {}, query=name)
        own = {each: settings.pop(each) for each in ("mode", "trigger", "tick", "rows_max", "ask") if each in settings}
        late = settings.pop("late", None)
        side_outputs = {**({} if late is None else {"late": late}), **(settings.pop("side_outputs", None) or {})}
        query = Query(
            name=name, kind=kind, function=function, inputs=inputs, where=where, key=key, sinks=sinks,
            side_outputs=side_outputs, topic=settings, **own,
        )  # fmt: skip
        self.queries.append(query)

    def query(self, name: str) -> Query:
        """Return the declared query of this name."""
        return found(self.queries, name)

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, *, until_caught_up: bool = False, end_of_input: bool = False) -> None:
        """Run the app in this process until it is interrupted, or has caught up; `headwater run` does the same.

        With `end_of_input`, no input gets more rows: all windows close when the app has caught up.
        """
        from headwater.apps.runner import Runner

        Runner(self, until_caught_up=until_caught_up, end_of_input=end_of_input).run()

    # Any: a key's value, or its columns by name.
    def ask(
        self,
        query: str,
        *,
        key: Any = None,
        compute: Mapping[str, str | tuple[str, str]] | None = None,
        operator: str | None = None,
        rows_max: int = 10_000,
        seconds: Duration = 30.0,
    ) -> Answer:
        """Run an interactive query: read the state of a query's operator, of one key, of all keys, or aggregated.

        The query is declared with `ask=True` and runs, in this process or another. The question is answered from the
        state after a definite batch, and the answer says which offsets of the inputs that reflects. `compute` is
        evaluated where the rows are: `{"total": "sum(spent)"}`. Costs a small batch, and a look at the state.

            app.ask("spend", key="anna").rows
        """
        from headwater.apps.interactive_query import ask

        return ask(self, query, key=key, compute=compute, operator=operator, rows_max=rows_max, seconds=seconds)

    def append(self, topic: str, rows: Rows) -> None:
        """Append rows to a topic of the app's log, for scripts and notebooks."""
        with self.open_log() as log:
            log.append(topic, rows)

    def open_log(self, *, create: bool = True) -> Log:
        """Open the app's log; the token for a remote one is that of the settings (`HEADWATER_TOKEN`)."""
        from headwater.log import open as open_log

        return open_log(self.log, create=create, token=Config.load().token)


def found(queries: Sequence[Query], name: str) -> Query:
    for query in queries:
        if query.name == name:
            return query
    raise NotFound(kind="query", name=name, near=did_you_mean(name, [query.name for query in queries]))


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _taken(name: str, *, first: str, second: str) -> DeclarationInvalid:
    why = f"{name!r} is declared twice: at {first} and at {second}; give one of them another name, such as with `name=`"
    return DeclarationInvalid(query=name, where=second, why=why)
