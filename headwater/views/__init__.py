"""Materialised views: changelogs applied to a store, looked up, queried by SQL, and subscribed to."""

from headwater.views.bounds import Bounds
from headwater.views.collapse import Delta
from headwater.views.duck import DuckStore
from headwater.views.keeper import ViewKeeper
from headwater.views.postgres import PostgresStore
from headwater.views.remote import RemoteSubscription, RemoteView
from headwater.views.spec import Change, ViewPosition, ViewSpec
from headwater.views.sql import NoViews, Sql, ViewTables
from headwater.views.store import StoredView, ViewStore
from headwater.views.stored import stored_view, stored_views
from headwater.views.subscription import Subscription
from headwater.views.view import View

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
