-- monitor new users: those who opened an auction in the period in which they came
SELECT p.id, p.name, p.w.start AS starttime
FROM (
  SELECT id, name, window(date_time, '10 seconds') AS w FROM person GROUP BY id, name, window(date_time, '10 seconds')
) p
JOIN (
  SELECT seller, window(date_time, '10 seconds') AS w FROM auction GROUP BY seller, window(date_time, '10 seconds')
) a
ON p.id = a.seller AND p.w = a.w
