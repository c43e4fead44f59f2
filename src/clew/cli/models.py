"""clew models: list the models that have a name."""

from __future__ import annotations

import click

from clew.cli.shared import common
from clew.cli.worlds import describe


@click.command(short_help="List models that have a name, and how to name any other.")
@common.json_option
def command(as_json: bool) -> None:
    """List the models that have a name.

    Besides these, --model takes a folder or name of Hugging Face weights, and the URL of any OpenAI-compatible endpoint
    followed by # and the model's name.

    \b
    clew models
    clew run --model household-sft
    clew run --model ./weights/checkpoint-3
    clew run --model http://localhost:8000/v1#qwen3   (credential from CLEW_API_KEY or OPENAI_API_KEY)
    """
    from clew.core import registry

    rows = [describe("models", name) for name in registry.names("models")]
    if as_json:
        common.print_json(rows)
    else:
        common.print_table(("model", "parameters", "what"), [(r["name"], r["parameters"], r["what"]) for r in rows])
