"""Materialised views: changelogs applied to a store, looked up, queried by SQL, and subscribed to."""

from headwater.views.duckdb_store import DuckStore
from headwater.views.maintenance import ViewKeeper
from headwater.views.postgres_store import PostgresStore
from headwater.views.remote import RemoteSubscription, RemoteView
from headwater.views.spec import Change, ViewPosition, ViewSpec
from headwater.views.sql import NoViews, Sql, ViewTables
from headwater.views.statement import Bounds
from headwater.views.store import Delta, StoredView, ViewStore
from headwater.views.subscription import Subscription
from headwater.views.view import View, stored_view, stored_views

__all__ = [
    "Bounds",
    "Change",
    "Delta",
    "DuckStore",
    "NoViews",
    "PostgresStore",
    "RemoteSubscription",
    "RemoteView",
    "Sql",
    "StoredView",
    "Subscription",
    "View",
    "ViewKeeper",
    "ViewPosition",
    "ViewSpec",
    "ViewStore",
    "ViewTables",
    "stored_view",
    "stored_views",
]
