"""What is for research and tests only: simulations, baselines, servers that tests start, generators of queries. `penstock` never imports it."""
