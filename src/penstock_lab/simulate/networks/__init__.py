"""A mobile ad hoc network in discrete events: where the disorder of a sensor stream comes from."""
