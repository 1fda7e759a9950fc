-- processing time windows, which have no batch answer: here by event time
SELECT bidder, window(date_time, '10 seconds') AS w, count(*) AS bid_count
FROM bid GROUP BY bidder, w
