-- highest bid of each period
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
  SELECT max(price) AS most, window(date_time, '10 seconds') AS w FROM bid GROUP BY window(date_time, '10 seconds')
) best
ON b.price = best.most AND b.date_time >= best.w.start AND b.date_time < best.w.end
