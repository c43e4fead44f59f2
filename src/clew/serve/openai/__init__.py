"""An OpenAI-compatible server over any Model."""
