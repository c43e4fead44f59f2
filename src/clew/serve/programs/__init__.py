"""Programs that Clew did not write as the agents of collections and trainings: their requests are the run's asks."""
