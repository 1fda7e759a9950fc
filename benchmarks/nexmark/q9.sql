-- winning bids
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
       auction, bidder, price, bid_date_time, bid_extra
FROM (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_date_time ASC, bidder) AS place
  FROM (
    SELECT /*+ STATE_TTL('1 hour') */ a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  ) offered
) ranked
WHERE place <= 1
