"""Servers of the Model Context Protocol (MCP) as tools: their process, their schemas, their tools."""
