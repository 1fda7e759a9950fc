-- hot items: the auctions with the most bids of each window
SELECT counted.auction, counted.num, counted.w.start AS starttime, counted.w.end AS endtime
FROM (
  SELECT auction, window(date_time, '10 seconds', '2 seconds') AS w, count(*) AS num
  FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
) counted
JOIN (
  SELECT max(num) AS most, w
  FROM (
    SELECT auction, window(date_time, '10 seconds', '2 seconds') AS w, count(*) AS num
    FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
  ) every
  GROUP BY w
) best
ON counted.w = best.w AND counted.num >= best.most
