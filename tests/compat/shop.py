"""A small git repository that is the same wherever it is made, for the diagnoses of the fixture."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": "from shop import price\n\n\nclass Cart:\n    def __init__(self):\n        self.items = []\n\n"
    "    def apply_voucher(self, voucher):\n        return price.rounded(self.total() * (1 - voucher.share))\n\n"
    "    def total(self):\n        return sum(price.of(name) * count for name, count in self.items)\n",
    "shop/price.py": "TABLE = {'pen': 120}\n\n\ndef of(name):\n    return TABLE[name]\n\n\n"
    "def rounded(cents):\n    return int(cents)\n",
    "tests/test_cart.py": "from shop.cart import Cart\n\n\ndef test_total():\n    assert Cart().total() == 0\n",
}
REPORT = "`Cart.apply_voucher` loses half a cent: the voucher's share is cut, not rounded"


def make(folder: Path) -> Path:
    """The repository, one commit."""
    for name, text in FILES.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    when = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    env = {**os.environ, **when, "GIT_CONFIG_GLOBAL": "/dev/null"}
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "The shop")):
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, env=env)
    return folder
