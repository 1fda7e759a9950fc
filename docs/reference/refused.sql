-- The queries of "What is answered, and how" that Penstock refuses without the hint REFRESH. Each comment is a row of that page.
-- They read the tables and views of answered.sql.

-- lag, lead
CREATE VIEW steps AS SELECT id, price - lag(price) OVER (PARTITION BY shop ORDER BY at, id) AS step FROM orders;
CREATE VIEW ahead AS SELECT id, lead(price) OVER (PARTITION BY shop ORDER BY at, id) AS next_price FROM orders;
-- running SUM
CREATE VIEW summed AS SELECT id, sum(price) OVER (PARTITION BY shop ORDER BY at, id) AS so_far FROM orders;
-- moving average of rows
CREATE VIEW moving AS
SELECT id, avg(price) OVER (PARTITION BY shop ORDER BY at, id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS mean FROM orders;
-- places without a bound
CREATE VIEW places AS SELECT id, row_number() OVER (PARTITION BY shop ORDER BY at, id) AS place FROM orders;
CREATE VIEW quarters AS SELECT id, ntile(4) OVER (PARTITION BY shop ORDER BY at, id) AS quarter FROM orders;
-- count windows
CREATE VIEW tens AS
SELECT shop, ceil(place / 10) AS ten, sum(price) AS total
FROM (SELECT shop, price, row_number() OVER (PARTITION BY shop ORDER BY at, id) AS place FROM orders) GROUP BY shop, ceil(place / 10);
-- ORDER BY, LIMIT
CREATE VIEW latest AS SELECT id, at FROM orders ORDER BY at DESC, id LIMIT 10;
-- UNION
CREATE VIEW moved_ids AS SELECT id FROM payments UNION SELECT id FROM refunds;
-- INTERSECT, EXCEPT
CREATE VIEW common AS SELECT id FROM payments INTERSECT SELECT id FROM refunds;
CREATE VIEW kept AS SELECT id FROM payments EXCEPT SELECT id FROM refunds;
-- explode, LATERAL VIEW
CREATE VIEW tagged AS SELECT id, explode(tags) AS tag FROM orders;
CREATE VIEW tag_counts AS SELECT tag, count(*) AS n FROM orders LATERAL VIEW explode(tags) t AS tag GROUP BY tag;
-- LATERAL subquery
CREATE VIEW most_paid AS SELECT o.id, p.most FROM orders o, LATERAL (SELECT max(amount) AS most FROM payments p WHERE p.id = o.id) p;
-- PIVOT, UNPIVOT
CREATE VIEW pivoted AS SELECT * FROM (SELECT shop, currency, price FROM orders) PIVOT (sum(price) FOR currency IN ('EUR', 'CHF'));
CREATE VIEW unpivoted AS SELECT * FROM (SELECT id, shop, customer FROM orders) UNPIVOT (value FOR name IN (shop, customer));
-- scalar subquery
CREATE VIEW above AS SELECT id FROM orders WHERE price > (SELECT avg(price) FROM orders);
CREATE VIEW distances AS SELECT id, price - (SELECT avg(price) FROM orders) AS distance FROM orders;
-- correlated subquery
CREATE VIEW above_shop AS SELECT id FROM orders o WHERE price > (SELECT avg(price) FROM orders p WHERE p.shop = o.shop);
-- NOT IN beside NULL
CREATE VIEW unknown AS SELECT o.id FROM orders o WHERE o.customer NOT IN (SELECT c.customer FROM customers c);
-- recursive CTE
CREATE VIEW counted AS
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT o.id, t.n FROM orders o JOIN t ON o.shop = t.n;
-- two outer joins
CREATE VIEW settled AS
SELECT o.id, p.amount, r.amount AS back FROM orders o
LEFT JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
LEFT JOIN refunds r ON o.id = r.id AND r.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- join without a bound
CREATE VIEW ever_paid AS SELECT o.id, p.amount FROM orders o JOIN payments p ON o.id = p.id;
-- CROSS JOIN, NATURAL JOIN, FROM a, b
CREATE VIEW crossed AS SELECT o.id, s.city FROM orders o CROSS JOIN shops s;
CREATE VIEW naturally AS SELECT o.id, s.city FROM orders o NATURAL JOIN shops s;
CREATE VIEW comma AS SELECT o.id, s.city FROM orders o, shops s WHERE o.shop = s.shop;
-- FULL JOIN with a static table
CREATE VIEW all_shops AS SELECT o.id, s.city FROM orders o FULL JOIN shops s ON o.shop = s.shop;
-- GROUP BY beside a JOIN
CREATE VIEW paid_per_shop AS
SELECT o.shop, sum(p.amount) AS total FROM orders o JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR GROUP BY o.shop;
-- top-N beside a JOIN
CREATE VIEW top_payments AS
SELECT * FROM (
  SELECT o.shop, o.id, row_number() OVER (PARTITION BY o.shop ORDER BY p.amount DESC, o.id) AS place
  FROM orders o JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR)
WHERE place <= 2;
-- stream with a running view
CREATE VIEW with_counts AS SELECT o.id, p.n FROM orders o JOIN per_shop p ON o.shop = p.shop;
-- join of a UNION ALL
CREATE VIEW moved_orders AS
SELECT o.id, m.amount FROM orders o JOIN movements m ON o.id = m.id AND m.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- sessions of a UNION ALL
CREATE VIEW bursts AS SELECT session_window(at, '10 seconds') AS w, count(*) AS n FROM movements GROUP BY session_window(at, '10 seconds');
-- sessions with a computed gap
CREATE VIEW gaps AS
SELECT customer, session_window(at, CASE WHEN shop = 1 THEN '5 seconds' ELSE '10 seconds' END) AS w, count(*) AS n
FROM orders GROUP BY customer, w;
-- third level of windows
CREATE VIEW tens_of_peaks AS SELECT window(five, '10 minutes') AS ten, max(peak) AS peak FROM peaks GROUP BY ten;
-- third level of groups
CREATE VIEW mean_of_means AS SELECT avg(mean) AS mean FROM mean_of_groups;
-- ORDER BY, OVER of one view
CREATE VIEW sorted AS SELECT shop, n FROM per_shop ORDER BY n DESC, shop LIMIT 2;
CREATE VIEW before AS SELECT shop, w, n - lag(n) OVER (PARTITION BY shop ORDER BY w) AS step FROM minutes;
-- groups of an outer join, windows of groups, by the name of the view
CREATE VIEW payments_of_orders AS SELECT id, count(amount) AS n FROM paid_or_not GROUP BY id;
CREATE VIEW seen AS SELECT window(at, '1 minute') AS w, count(*) AS n FROM newest GROUP BY w;
-- grouping sets of a running view
CREATE VIEW counts AS SELECT n, count(*) AS shops FROM per_shop GROUP BY ROLLUP(n);
-- SELECT DISTINCT *
CREATE VIEW distinct_refunds AS SELECT DISTINCT * FROM refunds;
-- count(DISTINCT a, b)
CREATE VIEW pairs AS SELECT shop, count(DISTINCT customer, currency) AS n FROM orders GROUP BY shop;
-- FIRST, LAST
CREATE VIEW firsts AS SELECT shop, first(price) AS first_price, last(price) AS last_price FROM orders GROUP BY shop;
-- other aggregates
CREATE VIEW middles AS SELECT shop, percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS middle FROM orders GROUP BY shop;
-- current time
CREATE VIEW past AS SELECT id FROM orders WHERE at < current_timestamp() - INTERVAL 1 HOUR;

-- several windows in one GROUP BY
CREATE VIEW two_windows AS SELECT window(at, '1 minute') AS w, window(at, '2 minutes') AS v, count(*) AS n FROM orders GROUP BY w, v;
-- windows of months
CREATE VIEW month_windows AS SELECT window(at, '1 month') AS w, count(*) AS n FROM orders GROUP BY w;
-- ASOF JOIN forwards
CREATE VIEW next_rate AS SELECT o.id, r.rate FROM orders o ASOF JOIN rates r MATCH_CONDITION (o.at <= r.at) ON o.currency = r.currency;
-- MATCH_RECOGNIZE
CREATE VIEW matched AS
SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY shop ORDER BY at MEASURES A.id AS a PATTERN (A B) DEFINE B AS price > 3);
-- random values, samples
CREATE VIEW randomly AS SELECT id FROM orders WHERE rand() < 0.5;
CREATE VIEW sampled AS SELECT * FROM orders TABLESAMPLE (10 PERCENT);
-- static tables alone
CREATE VIEW cities AS SELECT city FROM shops;
