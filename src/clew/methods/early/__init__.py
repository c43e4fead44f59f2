"""Is the outcome of a run settled before the model thinks? Probes, resampled thinking, swapped thinking (E171)."""
