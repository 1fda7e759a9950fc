SELECT *
FROM (
  SELECT auction, bidder, price, channel, url, date_time, extra,
         ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place
  FROM bid
)
WHERE place <= 10
