"""Drafters for the engine: parallel (DFlash, DSpark), autoregressive (Eagle), independent, and prompt lookup."""
