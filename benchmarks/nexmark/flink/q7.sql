SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
  SELECT MAX(price) AS most, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) best
ON b.price = best.most AND b.date_time >= best.starttime AND b.date_time < best.endtime
