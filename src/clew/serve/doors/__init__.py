"""A memory for agents that Clew did not write: as tools of a server (MCP), and as a store of LangGraph."""
