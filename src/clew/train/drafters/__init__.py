"""Training drafters for speculative decoding: text, losses, calibration, refresh."""
