-- Standing queries on the flights that left New York in 2013, replayed in the order in which they
-- became known. Each view is plain Spark SQL: over a static table it gives the same rows.
--
--   penstock check examples/flights.sql
--   penstock run examples/flights.sql --output out/flights --available-now
--   penstock results out/flights cancelled
--   penstock results out/flights departures_by_origin
--
-- `make flights` writes the data; sched_dep and arrival are instants (UTC), hour, minute and the
-- *_time columns are New York's local time.

CREATE TABLE flights (
  year INT, month INT, day INT,
  dep_time INT, sched_dep_time INT, dep_delay INT,
  arr_time INT, sched_arr_time INT, arr_delay INT,
  carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
  air_time INT, distance INT, hour INT, minute INT,
  sched_dep TIMESTAMP,  -- when the flight should leave
  arrival TIMESTAMP     -- when its tuple arrives: at the actual departure; if cancelled, at the scheduled one
)
USING replay OPTIONS (
  path 'examples/data/flights',
  event_time 'sched_dep',
  arrival_time 'arrival',
  speed 'max',
  rows_per_trigger '16000'
);

-- The airport's operations room: everything that leaves an hour late or more.
CREATE VIEW late_departures AS
SELECT carrier, flight, origin, dest, sched_dep, dep_delay FROM flights WHERE dep_delay >= 60;

-- A cancelled flight has neither a departure nor a delay.
CREATE VIEW cancelled AS
SELECT carrier, flight, origin, dest, sched_dep FROM flights WHERE dep_time IS NULL;

-- Left, but never arrived where it should.
CREATE VIEW diverted AS
SELECT * FROM flights WHERE dep_time IS NOT NULL AND arr_delay IS NULL;

-- An insurer pays from three hours on, or for a cancellation, on long routes.
CREATE VIEW insured_cases AS
SELECT carrier, flight, tailnum, origin, dest, sched_dep, arr_delay
FROM flights WHERE distance > 1000 AND (arr_delay >= 180 OR dep_time IS NULL);

-- United's desk at Newark follows its hubs only.
CREATE VIEW united_hubs_late AS
SELECT * FROM flights
WHERE carrier = 'UA' AND origin = 'EWR' AND dest IN ('ORD', 'IAH', 'DEN', 'SFO') AND dep_delay > 30;

-- Gate agents for the evening rush to Los Angeles and San Francisco.
CREATE VIEW evening_to_california AS
SELECT * FROM flights WHERE origin = 'JFK' AND dest IN ('LAX', 'SFO') AND hour BETWEEN 17 AND 21;

-- Night curfew: planned after ten in the evening, or pushed past midnight.
CREATE VIEW night_noise AS
SELECT carrier, flight, origin, sched_dep, dep_delay
FROM flights WHERE hour >= 22 OR (hour >= 20 AND dep_time < 500);

-- Left late, came in early all the same: a derived expression is compared.
CREATE VIEW made_up_on_the_way AS
SELECT carrier, flight, tailnum, dest, dep_delay, arr_delay
FROM flights WHERE dep_delay - arr_delay >= 40 AND arr_delay <= 0;

-- Slower than six miles a minute on a long flight: a strong headwind, or holding.
CREATE VIEW slow_in_the_air AS
SELECT * FROM flights WHERE distance >= 1500 AND distance < 6 * air_time;

-- Short hops with regional jets.
CREATE VIEW regional_hops AS
SELECT * FROM flights WHERE distance < 250 AND carrier IN ('EV', 'MQ', '9E') AND dep_delay > 15;

-- The maintenance contract covers one fleet, known by its registrations.
CREATE VIEW contract_fleet AS
SELECT tailnum, carrier, flight, sched_dep, arr_delay
FROM flights WHERE tailnum LIKE 'N5%' AND tailnum LIKE '%JB' AND arr_delay NOT BETWEEN -30 AND 120;

-- Christmas traffic that is not on time, weekends aside.
CREATE VIEW christmas_trouble AS
SELECT * FROM flights
WHERE month = 12 AND day BETWEEN 20 AND 31 AND dayofweek(sched_dep) NOT IN (1, 7)
  AND (dep_delay > 45 OR dep_delay IS NULL);

-- Records nobody can bill: the aircraft is unknown.
CREATE VIEW unknown_aircraft AS
SELECT * FROM flights WHERE tailnum IS NULL;

-- A view on a view: of the late departures, those that spoil an onward connection at a hub.
CREATE VIEW missed_connections AS
SELECT * FROM late_departures WHERE dest IN ('ATL', 'ORD', 'DFW', 'CLT') AND dep_delay >= 90;

-- Window views: answered early, as soon as the bound on their error permits, corrected while late flights
-- are still leaving, exact in the end. Departures by airport and hour, at most 5 % off in 95 % of the hours.
CREATE VIEW departures_by_origin AS
SELECT /*+ MAX_ERROR(0.05, 0.05) */ origin, window(sched_dep, '1 hour') AS w, count(*) AS departures
FROM flights WHERE dep_time IS NOT NULL GROUP BY origin, w;

-- Late flights are the delayed ones, so a mean that does not wait is too low: 5 minutes off in 10 % at most.
CREATE VIEW delay_by_origin AS
SELECT /*+ MAX_ERROR(5, 0.1, 'absolute') */ origin, window(sched_dep, '1 hour') AS w,
       avg(dep_delay) AS mean_delay, max(dep_delay) AS worst
FROM flights WHERE dep_time IS NOT NULL GROUP BY origin, w;

-- Each airline, every six hours.
CREATE VIEW delay_by_airline AS
SELECT /*+ MAX_ERROR(0.05, 0.05) */ carrier, window(sched_dep, '6 hours') AS w,
       count(*) AS departures, avg(dep_delay) AS mean_delay
FROM flights WHERE dep_time IS NOT NULL GROUP BY carrier, w HAVING count(*) >= 5;

-- The weather at the three airports, hour by hour.
CREATE TABLE weather (
  origin STRING, year INT, month INT, day INT, hour INT,
  temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE,
  precip DOUBLE, pressure DOUBLE, visib DOUBLE,
  observed TIMESTAMP
)
USING replay OPTIONS (
  path 'examples/data/weather',
  event_time 'observed',
  arrival_time 'observed',
  speed 'max',
  rows_per_trigger '10000'
);

CREATE VIEW storm AS
SELECT origin, observed, wind_speed, wind_gust FROM weather WHERE wind_gust > 40 OR wind_speed > 30;

CREATE VIEW fog AS
SELECT origin, observed, visib, temp FROM weather WHERE visib < 0.25;
