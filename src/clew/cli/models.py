"""clew models: list the models that have a name."""

from __future__ import annotations

import click

from clew.cli.shared import common
from clew.cli.worlds import print_registered


@click.command(short_help="List models that have a name, and how to name any other.")
@common.json_option
def command(as_json: bool) -> None:
    """List the models that have a name.

    Besides these, --model takes a folder or name of Hugging Face weights, the URL of any OpenAI-compatible endpoint
    followed by # and the model's name, and route:FOLDER, a pool behind a router (docs/route.md).

    \b
    clew models
    clew run --model household-sft
    clew run --model ./weights/checkpoint-3
    clew run --model http://localhost:8000/v1#qwen3   (credential from CLEW_API_KEY or OPENAI_API_KEY)
    """
    print_registered("models", "model", as_json)
