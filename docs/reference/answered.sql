-- The views of "What is answered, and how". Each comment is a row of that page.

CREATE TABLE orders (id BIGINT, shop INT, customer INT, currency STRING, price INT, tags ARRAY<STRING>, at TIMESTAMP)
USING parquet OPTIONS (path 'orders', event_time 'at');
CREATE TABLE payments (id BIGINT, amount INT, at TIMESTAMP) USING parquet OPTIONS (path 'payments', event_time 'at');
CREATE TABLE refunds (id BIGINT, amount INT, at TIMESTAMP) USING parquet OPTIONS (path 'refunds', event_time 'at');
CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP) USING parquet OPTIONS (path 'rates', event_time 'at');
CREATE TABLE shops (shop INT, city STRING) USING parquet OPTIONS (path 'shops', static 'true');
CREATE TABLE customers (customer INT, name STRING) USING parquet OPTIONS (path 'customers', static 'true');

-- filter
CREATE VIEW dear AS SELECT * FROM orders WHERE price > 90 AND currency IN ('EUR', 'CHF') OR currency LIKE 'U%';
-- computed columns
CREATE VIEW rounded AS SELECT id, upper(currency) AS currency, round(price * 1.08, 2) AS gross, size(tags) AS tags FROM orders;
-- selection over a selection
CREATE VIEW dear_here AS SELECT id, price FROM dear WHERE shop = 1;
-- WITH
CREATE VIEW of_large AS WITH large AS (SELECT shop, price FROM orders WHERE price > 50) SELECT shop, price FROM large WHERE shop < 3;

-- tumbling windows
CREATE VIEW minutes AS
SELECT shop, window(at, '1 minute') AS w, count(*) AS n, sum(price) AS total, max(price) AS most FROM orders GROUP BY shop, w;
-- sliding windows
CREATE VIEW sliding AS SELECT window(at, '1 minute', '20 seconds') AS w, count(*) AS n FROM orders GROUP BY w;
-- cumulating windows
CREATE VIEW so_far AS SELECT /*+ CUMULATE('5 minutes') */ window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY w;
-- session windows
CREATE VIEW visits AS
SELECT customer, session_window.start AS begun, count(*) AS n FROM orders GROUP BY customer, session_window(at, '10 seconds');
-- early answers with a bound
CREATE VIEW bounded AS
SELECT /*+ MAX_ERROR(0.05, 0.05) */ window(at, '1 minute') AS w, sum(price) AS total FROM orders GROUP BY w;
-- answers by a deadline
CREATE VIEW in_time AS
SELECT /*+ DEADLINE('60 seconds'), LOSS(1, 6) */ window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY w;
-- HAVING
CREATE VIEW busy AS SELECT shop, window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY shop, w HAVING count(*) > 3;
-- selection over windows
CREATE VIEW fuller AS SELECT shop, w.start AS begun, n FROM minutes WHERE n > 5;
-- grouping sets of a window
CREATE VIEW rolled_minutes AS
SELECT window(at, '1 minute') AS w, shop, grouping_id() AS level, sum(price) AS total FROM orders GROUP BY w, ROLLUP(shop);
-- calendar months
CREATE VIEW months AS SELECT date_trunc('month', at) AS month, count(*) AS n FROM orders GROUP BY date_trunc('month', at);
-- GROUP BY without a window
CREATE VIEW per_shop AS SELECT shop, count(*) AS n, avg(price) AS mean FROM orders GROUP BY shop;
-- HAVING without a window
CREATE VIEW busy_shops AS SELECT shop, count(*) AS n FROM orders GROUP BY shop HAVING count(*) > 50;
-- aggregates of all tuples
CREATE VIEW total AS SELECT count(*) AS n, sum(price) AS total FROM orders WHERE price > 50;
-- groups that are forgotten
CREATE VIEW recent AS SELECT /*+ STATE_TTL('1 day') */ customer, count(*) AS n FROM orders GROUP BY customer;
-- SELECT DISTINCT
CREATE VIEW used AS SELECT DISTINCT shop, currency FROM orders;
-- grouping sets
CREATE VIEW rolled AS
SELECT shop, currency, grouping_id() AS level, sum(price) AS total FROM orders GROUP BY ROLLUP(shop, currency);
CREATE VIEW cubed AS SELECT shop, currency, grouping_id() AS level, count(*) AS n FROM orders GROUP BY CUBE(shop, currency);
CREATE VIEW by_sets AS
SELECT shop, currency, grouping_id() AS level, count(*) AS n FROM orders GROUP BY GROUPING SETS ((shop), (currency), ());

-- mergeable aggregates
CREATE VIEW mergeable AS
SELECT window(at, '1 minute') AS w, count(*) AS n, sum(price) AS total, avg(price) AS mean, min(price) AS least, max(price) AS most,
       stddev(price) AS deviation, corr(price, shop) AS related, bool_or(price > 90) AS any_dear, count_if(price > 90) AS dear_ones
FROM orders GROUP BY w;
-- aggregates with FILTER
CREATE VIEW filtered AS SELECT shop, count(*) FILTER (WHERE price > 50) AS n FROM orders GROUP BY shop;
-- first and last value
CREATE VIEW ends AS SELECT shop, min_by(price, at) AS opening, max_by(price, at) AS closing FROM orders GROUP BY shop;
-- count(DISTINCT)
CREATE VIEW distinct_customers AS SELECT window(at, '1 minute') AS w, count(DISTINCT customer) AS n FROM orders GROUP BY w;
-- median, percentile
CREATE VIEW medians AS SELECT shop, median(price) AS middle, percentile(price, 0.9) AS high FROM orders GROUP BY shop;
-- mode
CREATE VIEW modes AS SELECT shop, mode(currency) AS usual FROM orders GROUP BY shop;
-- lists and sets
CREATE VIEW collected AS
SELECT window(at, '1 minute') AS w, sort_array(collect_list(price)) AS prices, sort_array(collect_set(shop)) AS shops FROM orders GROUP BY w;
-- LISTAGG
CREATE VIEW listed AS
SELECT shop, listagg(currency, ', ') WITHIN GROUP (ORDER BY at) AS currencies FROM orders GROUP BY shop;
-- sketches
CREATE VIEW sketched AS
SELECT shop, approx_count_distinct(customer) AS customers, approx_percentile(price, 0.9) AS high FROM orders GROUP BY shop;

-- top-N
CREATE VIEW top_orders AS
SELECT * FROM (SELECT shop, id, price, row_number() OVER (PARTITION BY shop ORDER BY price DESC, id) AS place FROM orders)
WHERE place <= 3;
-- newest tuple of each key
CREATE VIEW newest AS
SELECT customer, id, at FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY at DESC, id) = 1;
-- RANK, DENSE_RANK
CREATE VIEW ranked AS
SELECT * FROM (SELECT shop, id, rank() OVER (PARTITION BY shop ORDER BY price DESC) AS place FROM orders) WHERE place <= 3;
CREATE VIEW densely AS
SELECT * FROM (SELECT shop, id, dense_rank() OVER (PARTITION BY shop ORDER BY price DESC) AS place FROM orders) WHERE place <= 3;
-- top-N of groups, ORDER BY with LIMIT of groups
CREATE VIEW top_shops AS SELECT shop, n FROM per_shop QUALIFY row_number() OVER (ORDER BY n DESC, shop) <= 2;
-- top-N of each window
CREATE VIEW busiest AS
SELECT * FROM (SELECT shop, w, n, row_number() OVER (PARTITION BY w ORDER BY n DESC, shop) AS place FROM minutes) WHERE place <= 2;

-- join within a time
CREATE VIEW paid AS
SELECT o.id, o.shop, o.at AS ordered, p.amount FROM orders o JOIN payments p
  ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- join without a bound in time
CREATE VIEW paid_some_time AS
SELECT /*+ STATE_TTL('1 hour') */ o.id, o.at AS ordered, p.amount FROM orders o JOIN payments p ON o.id = p.id;
-- join of three to six streams
CREATE VIEW returned AS
SELECT o.id, p.amount, r.amount AS back FROM orders o
JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
JOIN refunds r ON o.id = r.id AND r.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- join of a stream with itself
CREATE VIEW followed AS
SELECT o.id, n.id AS following FROM orders o JOIN orders n
  ON o.customer = n.customer AND o.id < n.id AND n.at BETWEEN o.at AND o.at + INTERVAL 10 SECONDS;
-- join with static tables
CREATE VIEW placed AS SELECT o.id, s.city FROM orders o JOIN shops s ON o.shop = s.shop;
-- LEFT JOIN, RIGHT JOIN
CREATE VIEW paid_or_not AS
SELECT o.id, p.amount FROM orders o LEFT JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
CREATE VIEW known_or_not AS
SELECT o.id AS id, p.id AS paid FROM orders o RIGHT JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- FULL JOIN
CREATE VIEW both_sides AS
SELECT o.id AS id, p.id AS paid FROM orders o FULL JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- several LEFT JOINs with static tables
CREATE VIEW described AS
SELECT o.id, s.city, c.name FROM orders o LEFT JOIN shops s ON o.shop = s.shop LEFT JOIN customers c ON o.customer = c.customer;
-- SEMI JOIN, EXISTS, IN
CREATE VIEW paid_once AS
SELECT o.id FROM orders o WHERE EXISTS (
  SELECT 1 FROM payments p WHERE p.id = o.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR);
CREATE VIEW paid_semi AS
SELECT o.id FROM orders o LEFT SEMI JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
CREATE VIEW paid_in AS
SELECT o.id FROM orders o WHERE o.id IN (SELECT p.id FROM payments p WHERE p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR);
-- ANTI JOIN, NOT EXISTS
CREATE VIEW unpaid AS
SELECT o.id FROM orders o WHERE NOT EXISTS (
  SELECT 1 FROM payments p WHERE p.id = o.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR);
CREATE VIEW unpaid_anti AS
SELECT o.id FROM orders o LEFT ANTI JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
-- subquery of a static table
CREATE VIEW of_bern AS SELECT id FROM orders WHERE shop IN (SELECT shop FROM shops WHERE city = 'Bern');
-- ASOF JOIN
CREATE VIEW priced AS
SELECT o.id, r.rate FROM orders o ASOF JOIN rates r MATCH_CONDITION (o.at >= r.at) ON o.currency = r.currency;
-- temporal join
CREATE VIEW priced_as_of AS
SELECT o.id, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency;

-- UNION ALL
CREATE VIEW movements AS SELECT at, id, amount FROM payments UNION ALL SELECT at, id, -amount FROM refunds;
-- distinct rows of a UNION ALL
CREATE VIEW moved AS SELECT DISTINCT id FROM (SELECT id FROM payments UNION ALL SELECT id FROM refunds);
-- windows of a UNION ALL
CREATE VIEW balances AS SELECT window(at, '1 minute') AS w, sum(amount) AS total FROM movements GROUP BY w;

-- windows over windows
CREATE VIEW peaks AS SELECT window(w, '5 minutes') AS five, max(n) AS peak FROM minutes GROUP BY five;
-- windows of a join
CREATE VIEW paid_minutes AS SELECT window(ordered, '1 minute') AS w, sum(amount) AS total FROM paid GROUP BY w;
-- average of maxima of windows
CREATE VIEW mean_of_maxima AS SELECT shop, avg(most) AS mean FROM minutes GROUP BY shop;
-- average of maxima of groups
CREATE VIEW mean_of_groups AS
SELECT shop, avg(most) AS mean FROM (SELECT shop, customer, max(price) AS most FROM orders GROUP BY shop, customer) GROUP BY shop;
-- groups of a ranking
CREATE VIEW top_totals AS SELECT shop, sum(price) AS total FROM top_orders GROUP BY shop;
-- groups of a join
CREATE VIEW paid_by_shop AS
SELECT shop, sum(amount) AS total FROM (
  SELECT o.shop, p.amount FROM orders o JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR)
GROUP BY shop;
-- groups of an outer join
CREATE VIEW paid_by_customer AS
SELECT customer, count(*) AS orders, count(amount) AS payments FROM (
  SELECT o.customer, p.amount FROM orders o LEFT JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR)
GROUP BY customer;
-- top-N of a join
CREATE VIEW top_paid AS SELECT shop, id, amount FROM paid QUALIFY row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) <= 2;
-- several windows in one query
CREATE VIEW compared AS
SELECT a.shop, a.w, a.n, b.most FROM (SELECT shop, window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY shop, w) a
JOIN (SELECT shop, window(at, '1 minute') AS w, max(price) AS most FROM orders GROUP BY shop, w) b ON a.shop = b.shop AND a.w = b.w;
-- windows of different lengths in one query
CREATE VIEW shares AS
SELECT a.w, a.n, b.n AS of FROM (SELECT window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY w) a
JOIN (SELECT window(at, '5 minutes') AS w, count(*) AS n FROM orders GROUP BY w) b ON a.w.start >= b.w.start AND a.w.end <= b.w.end;
-- tuples at the maximum of their window
CREATE VIEW highest AS
SELECT o.id, o.price, m.w FROM orders o JOIN (SELECT window(at, '1 minute') AS w, max(price) AS most FROM orders GROUP BY w) m
ON o.price = m.most AND o.at >= m.w.start AND o.at < m.w.end;
-- windows with a static table
CREATE VIEW minutes_of_cities AS SELECT s.city, m.w, m.n FROM minutes m JOIN shops s ON m.shop = s.shop;
-- join of groups
CREATE VIEW shops_and_all AS SELECT p.shop, p.n, t.n AS of FROM per_shop p CROSS JOIN total t;
-- windows of groups
CREATE VIEW last_seen AS
SELECT window(last, '1 minute') AS w, count(*) AS n FROM (SELECT customer, max(at) AS last FROM orders GROUP BY customer) GROUP BY w;
-- lag, lead over windows
CREATE VIEW changes AS
SELECT shop, w, n - lag(n) OVER (PARTITION BY shop ORDER BY w) AS step
FROM (SELECT shop, window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY shop, w);
-- ORDER BY with LIMIT of windows
CREATE VIEW fullest AS
SELECT shop, w, n FROM (SELECT shop, window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY shop, w) ORDER BY n DESC, shop, w LIMIT 3;
-- subquery over views
CREATE VIEW above_mean AS SELECT shop, n FROM per_shop WHERE n > (SELECT avg(n) FROM per_shop);
-- UNION ALL, UNION, INTERSECT, EXCEPT over views
CREATE VIEW twice AS SELECT shop, n FROM per_shop UNION ALL SELECT shop, n FROM busy_shops;
CREATE VIEW either AS SELECT shop, n FROM per_shop UNION SELECT shop, n FROM busy_shops;
CREATE VIEW both AS SELECT shop, n FROM per_shop INTERSECT SELECT shop, n FROM busy_shops;
CREATE VIEW quiet AS SELECT shop, n FROM per_shop EXCEPT SELECT shop, n FROM busy_shops;
