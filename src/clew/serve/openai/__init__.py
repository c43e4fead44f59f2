"""A server of OpenAI's API over any Model."""
