"""Speculative decoding: what is proposed, how much of it is verified, and what verification costs."""
