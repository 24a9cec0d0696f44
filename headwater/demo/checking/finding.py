"""What is found: in payments, in temperatures and in the news."""

from __future__ import annotations

CHECKED_PAYMENTS = """
    select payment, payments.card as card, holder, amount, spending_limit, amount <= spending_limit as allowed, "at"
    from payments asof left join cards on payments.card = cards.card and payments."at" >= cards.since"""

SPENDING = """
    select holder, count(*) as payments, round(sum(case when allowed then amount else 0 end), 6) as spent,
           count(*) filter (not allowed) as refused
    from expected_checked_payments where holder is not null group by holder"""

#: Small payments and the first that is not small share a number: how many were not small before them.
FRAUD_ALERTS = """
    with numbered as (
        select *, coalesce(count(*) filter (amount >= 5) over (
            partition by card order by "at", _offset rows between unbounded preceding and 1 preceding), 0) as run
        from payments),
    tried as (select * from numbered where amount < 5),
    spent as (select * from numbered where amount > 500)
    select card, count(*) as tries, spent.payment as payment, any_value(spent.shop) as shop,
           any_value(spent.amount) as amount, min(tried."at") as began_at, any_value(spent."at") as "at"
    from tried join spent using (card, run)
    where spent."at" - tried."at" <= interval 10 minutes
    group by card, spent.payment having count(*) >= 2"""

MACHINE_PERCENTILES = """
    select machine, celsius, "at", round(quantile_cont(celsius, 0.5) over past, 9) as median,
           round(quantile_cont(celsius, 0.95) over past, 9) as p95, max(celsius) over past as highest
    from readings where machine <> 'end of day'
    window past as (
        partition by machine order by "at" range between interval 1 minute preceding and current row)
    qualify row_number() over (partition by machine order by "at" desc) = 1"""

#: The sixty values before a reading say what is usual: their median, and the median distance from it.
OVERHEATING = """
    with judged as (
        select *, median(celsius) over past as expected, count(*) over past as known,
               greatest(1.4826 * mad(celsius) over past, 0.5) as deviation
        from readings where machine <> 'end of day'
        window past as (partition by machine order by "at" rows between 60 preceding and 1 preceding))
    select machine, celsius, round(expected, 9) as expected, round(expected + 6 * deviation, 9) as upper,
           round((celsius - expected) / deviation, 9) as score, "at"
    from judged where known >= 20 and (celsius - expected) / deviation > 6"""

COMPARED_TO_AN_HOUR_AGO = """
    with minutes as (
        select machine, date_trunc('minute', "at") as minute, avg(celsius) as celsius
        from readings where machine <> 'end of day' group by all)
    select now.machine as machine, now.minute as minute, round(now.celsius, 9) as celsius,
           round(before.celsius, 9) as an_hour_ago, round(now.celsius - before.celsius, 9) as change
    from minutes as now left join minutes as before
    on now.machine = before.machine and before.minute = now.minute - interval 1 hour"""

#: What the stored searches mean, said in another language than theirs.
NEWS_ALERTS = r"""
    with words as (select *, lower(title || ' | ' || body) as text from articles),
    meant(query_id, reader, pattern, further, unwanted, place) as (values
        ('harbour in a storm', 'Ines', '\bstorm\b', '\bharbour\b', '^$', 'text'),
        ('cost of breakfast', 'Hugo', '\bprices\b', '\b(bread|milk)\b', '^$', 'text'),
        ('sport, but no football', 'Mira', '\bsport\b', '', '\bfootball\b', 'text'),
        ('to the stars', 'Leo', '\brocket launch\b', '', '^$', 'text'),
        ('news from Lisbon', 'Rosa', '\blisbon\b', '', '^$', 'title'))
    select query_id, reader, article, title, published from words join meant
    on regexp_matches(case place when 'title' then lower(title) else text end, pattern)
       and regexp_matches(text, further) and not regexp_matches(text, unwanted)"""

#: A quotation mark that is never closed.
BROKEN_SEARCHES = """
    select _partition as partition, _offset as "offset" from stored_searches
    where (length(query) - length(replace(query, '"', ''))) % 2 = 1"""
