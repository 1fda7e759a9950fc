-- average price for a category
SELECT q.category, avg(q.final) AS average
FROM (
  SELECT max(price) AS final, category
  FROM (
    SELECT /*+ STATE_TTL('1 hour') */ a.id, a.category, b.price
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  ) offered
  GROUP BY id, category
) q
GROUP BY q.category
