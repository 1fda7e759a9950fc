"""Adaptive continuous queries on Apache Spark."""
