"""Whole runs on their way from one store into another."""
