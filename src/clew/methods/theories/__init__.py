"""Theories of how people choose: proposed, tested on designs that tell them apart, judged against the data's noise."""
