-- A join of two streams and a static table whose best order changes with the seasons: flights that leave New York in
-- warm, damp air for the far south. In winter hardly an hour is warm, so flights meet the weather first; in summer nearly all
-- are, so they meet the airports first. A user's function judges what is left.
--
--   penstock explain examples/storms.sql --functions examples/storms.py
--   penstock run examples/storms.sql --functions examples/storms.py --output out/storms --available-now
--   penstock status out/storms
--   penstock results out/storms storm_season
--
-- `make flights` writes the data. A year is played in 40 seconds, both streams by the same clock.

CREATE TABLE weather (
  origin STRING, temp DOUBLE, dewp DOUBLE, pressure DOUBLE, observed TIMESTAMP
)
USING replay OPTIONS (
  path 'examples/data/weather', event_time 'observed', arrival_time 'observed', speed '800000', rows_per_trigger '10000'
);

CREATE TABLE flights (
  carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT,
  sched_dep TIMESTAMP,  -- when the flight should leave
  arrival TIMESTAMP     -- when its tuple arrives: at the actual departure; if cancelled, at the scheduled one
)
USING replay OPTIONS (
  path 'examples/data/flights', event_time 'sched_dep', arrival_time 'arrival', speed '800000', rows_per_trigger '10000'
);

CREATE TABLE airports USING parquet OPTIONS (path 'examples/data/airports', static 'true');

CREATE VIEW southbound_in_warm_air AS
SELECT f.carrier, f.flight, f.origin, a.name AS destination, f.sched_dep, f.dep_delay, w.temp, w.dewp
FROM flights f
JOIN weather w ON f.origin = w.origin AND w.observed > f.sched_dep - INTERVAL 1 HOUR AND w.observed <= f.sched_dep
JOIN airports a ON f.dest = a.faa
WHERE w.temp > 50 AND a.lat < 29 AND equivalent_temperature(w.temp, w.dewp, w.pressure) > 320;

-- A window view over the joined rows: how many of them by origin and month, and how late.
CREATE VIEW storm_season AS
SELECT origin, window(sched_dep, '30 days') AS w, count(*) AS departures, avg(dep_delay) AS mean_delay
FROM southbound_in_warm_air GROUP BY origin, w;
