"""Windowed joins of sorted runs: what is new in a cut with all that it may meet, one cell at a time."""
