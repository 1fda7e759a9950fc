-- average selling price by seller, over the seller's last ten auctions; Flink's SQL cannot run it
SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT a.id, a.seller, b.price, b.date_time,
         row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time, b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) winning
WHERE place = 1
