"""How far raters agree: people among themselves, and a judge with people (`clew audit judge`)."""
