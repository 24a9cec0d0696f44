"""What people do: sessions, pages, searches, clicks and timelines, from the rows as they were appended."""

from __future__ import annotations

#: The latest time that a query can have known when it met a page: that of all pages that were sent before or with it. A
#: query knows less where its batches are larger, so a page may be late by this time and in time for the query; a page
#: that is in time by it is in time for every query.
KNOWN = """
    select *, max("at") over (order by _sent_at range between unbounded preceding and current row) as latest
    from page_views"""

#: A session of its own would have ended, and thirty seconds more have passed.
LATE_FOR_SESSIONS = '"at" + interval 20 seconds + interval 30 seconds <= latest'

#: Its minute has ended, the ten for corrections are over, and thirty seconds more have passed.
LATE_FOR_MINUTES = """
    date_trunc('minute', "at") + interval 1 minute + interval 10 minutes + interval 30 seconds <= latest"""

#: A session is a run of pages with no more than twenty seconds between two of them.
LIVE_SESSIONS = """
    with in_time as (
        select visitor, page, "at" from page_views where visitor is not null
        except all select visitor, page, "at" from late_live_sessions),
    apart as (
        select *, coalesce("at" - lag("at") over one_visitor > interval 20 seconds, true) as begins
        from in_time window one_visitor as (partition by visitor order by "at")),
    numbered as (
        select *, count(*) filter (begins) over (partition by visitor order by "at" rows unbounded preceding) as number
        from apart)
    select visitor, min("at") as window_start, max("at") + interval 20 seconds as window_end, count(*) as pages,
           arg_max(page, "at") as last_page
    from numbered group by visitor, number"""

TOP_PAGES = """
    select row_number() over (order by views desc, page) as rank, page, views
    from (select page, count(*) as views from page_views group by page) qualify rank <= 10"""

VISITORS_PER_MINUTE = """
    select city, date_trunc('minute', "at") as minute, count(distinct visitor) as visitors, count(*) as pages
    from (select city, visitor, "at" from page_views except all select city, visitor, "at" from late_visitors_per_minute)
    group by all"""

#: Nobody can say whose session they belong to.
BROKEN_PAGE_VIEWS = 'select _partition as partition, _offset as "offset" from page_views where visitor is null'

CLICKED = """
    select search, visitor, words, url, searches."at" as "at", clicks."at" as clicked_at
    from searches join clicks using (search)
    where clicks."at" between searches."at" and searches."at" + interval 1 hour"""

CLICK_THROUGH = """
    with counts as (
        select url, date_trunc('minute', "at") as minute, 1 as shown, 0 as clicked from searches
        union all select url, date_trunc('minute', "at"), 0, 1 from expected_clicked)
    select url, minute, sum(shown) as shown, sum(clicked) as clicked,
           round(case when sum(shown) > 0 then sum(clicked) / sum(shown) end, 9) as rate
    from counts group by url, minute"""

#: Of each key the last row counts, and none where that is a tombstone.
HOME_TIMELINES = """
    with written as (
        select * from tweets qualify row_number() over (partition by tweet order by _offset desc) = 1),
    followed as (
        select * from follows qualify row_number() over (partition by reader, author order by _offset desc) = 1)
    select reader, tweet, author, text, "at" from written join followed using (author)
    where not coalesce(written._tombstone, false) and not coalesce(followed._tombstone, false)"""
