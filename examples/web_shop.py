"""Shop: a database as a stream. A search index of its products and a cache of their sales stay right while rows change.

SHOP_DATABASE=sqlite:///shop.db headwater run examples/web_shop.py
SHOP_DATABASE=postgresql://app@db.example/shop SHOP_PASSWORD=… headwater run examples/web_shop.py
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame

import headwater as hw
from headwater.operators import AggregateTable, TableJoin, agg
from headwater.sinks import RedisSink, SearchSink

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
INDEX = os.environ.get("SHOP_INDEX", "./search")
CACHE = os.environ.get("SHOP_CACHE", "redis://localhost")

app = hw.App("shop", log="./data")
is_server = not DATABASE.startswith("sqlite")
schema = "public." if DATABASE.startswith("postgresql") else ""
app.capture(
    DATABASE,
    name="shop",
    tables=[f"{schema}{table}" for table in ("products", "categories", "orders")],
    password_env="SHOP_PASSWORD" if is_server else None,
)
index = SearchSink(path=INDEX, key="id", text=("title", "category"), language="en")
cache = RedisSink(url=CACHE, prefix="product", key="id")


@app.view(key="id", sinks=[index])
def catalogue(products: hw.Table, categories: hw.Table) -> DataFrame:
    """Products with the name of their category. A category that is renamed changes all its products."""
    named = categories.select("id", "category")
    return products.transform(TableJoin(named, on=("category_id", "id"))).select("id", "title", "category", "_op")


@app.view(key="id", sinks=[cache])
def sales(catalogue: hw.Table, orders: hw.Table) -> DataFrame:
    """How often each product was sold, and for how much. An order that is cancelled counts no more."""
    sold = orders.transform(
        AggregateTable(by="product_id", compute={"sold": agg.sum("quantity"), "revenue": agg.sum("total")})
    )
    joined = catalogue.transform(TableJoin(sold, on=("id", "product_id"), other_key="product_id"))
    return joined.select("id", "title", "sold", "revenue", "_op")
