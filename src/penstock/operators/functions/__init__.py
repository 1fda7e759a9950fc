"""Users' functions that the worker calls: of rows that satisfy everything else."""
