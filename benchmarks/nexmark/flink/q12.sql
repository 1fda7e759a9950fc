SELECT bidder, window_start AS starttime, window_end AS endtime, COUNT(*) AS bid_count
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
