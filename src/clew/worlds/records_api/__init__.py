"""Records: a small web service with ids, pages, echoing writes and transient failures (specs/E167)."""

from clew.worlds.records_api.records_api import Records, RecordsWorld

__all__ = ["Records", "RecordsWorld"]
