"""OpenTelemetry: runs as spans of the semantic conventions for generative AI, and such spans as runs.

``file`` reads and writes OTLP as JSON, ``send`` sends it to an endpoint. ``to_spans`` makes spans of a run,
``from_spans`` runs of spans; ``dialects`` knows how other programs name things, ``gen_ai`` the form of messages.
"""
