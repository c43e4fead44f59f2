"""HTTP servers over models: an OpenAI-compatible server, and a recording proxy for programs that Clew did not write."""
