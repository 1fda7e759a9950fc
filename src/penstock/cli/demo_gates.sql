-- Views with a deadline under about twice the load that two cores bear: what the flights of six hours do to the gates, an hour at a
-- time, by a simulation in Python that takes its time. What cannot be answered within two seconds is given up early, and told.
--
--   penstock run examples/gates.sql --functions examples/gates.py --output out/gates
--   penstock status out/gates
--   penstock results out/gates jfk_gates
--   penstock results out/gates jfk_gates --misses
--
-- `make flights` writes the data. A second plays two hours; Ctrl-C ends it.

CREATE TABLE flights (
  origin STRING, dep_delay INT, distance INT,
  sched_dep TIMESTAMP,  -- when the flight should leave
  arrival TIMESTAMP     -- when its tuple arrives: at the actual departure; if cancelled, at the scheduled one
)
USING replay OPTIONS (
  path 'examples/data/flights', event_time 'sched_dep', arrival_time 'arrival', speed '7200'
);

-- one of eight windows may be lost
CREATE VIEW jfk_gates AS
SELECT /*+ DEADLINE('2 seconds'), LOSS(1, 8) */ window(sched_dep, '6 hours', '1 hour') AS w, occupied(dep_delay, distance) AS gates
FROM flights WHERE origin = 'JFK' GROUP BY w;

-- one of four
CREATE VIEW ewr_gates AS
SELECT /*+ DEADLINE('2 seconds'), LOSS(1, 4) */ window(sched_dep, '6 hours', '1 hour') AS w, occupied(dep_delay, distance) AS gates
FROM flights WHERE origin = 'EWR' GROUP BY w;

-- three of four
CREATE VIEW lga_gates AS
SELECT /*+ DEADLINE('2 seconds'), LOSS(3, 4) */ window(sched_dep, '6 hours', '1 hour') AS w, occupied(dep_delay, distance) AS gates
FROM flights WHERE origin = 'LGA' GROUP BY w;
