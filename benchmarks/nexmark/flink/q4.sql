SELECT q.category, AVG(CAST(q.final AS DOUBLE)) AS average
FROM (
  SELECT MAX(b.price) AS final, a.category
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
) q
GROUP BY q.category
