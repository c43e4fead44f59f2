"""The files of runs in the viewer: what a step changed, all files at a step, two runs' files compared."""
