SELECT b.auction, b.bidder, b.price, b.date_time, s.`value`
FROM bid b JOIN side_input s ON MOD(b.auction, 10000) = s.key
