"""Scorers: each looks at a reply and at the known answer, and gives a number; small, pure, and the same every time.

``exchange.dataset`` calls them by name, and a taskset of one's own may. A reply is text of a model: no scorer may run
it outside the sandbox, nor parse it without bounds.
"""
