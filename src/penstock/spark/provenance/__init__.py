"""Why a tuple is in the rows of a view or is not, and what a view would have answered over stored tuples."""
