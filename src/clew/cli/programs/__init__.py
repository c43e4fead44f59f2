"""Programs that ``clew gateway`` starts: where each works and lives, and what is said of it afterwards."""
