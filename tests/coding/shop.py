"""A small git repository with a history of fixes, for the tests of diagnosis."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CART = '''"""The cart."""

from shop import price
from shop.price import rounded


class Cart:
    """Holds items."""

    def __init__(self):
        self.items = []

    def add_item(self, name, count=1):
        self.items.append((name, count))

    def apply_voucher(self, voucher):
        """A voucher takes its share off."""
        return rounded(self.total() * (1 - voucher.share))

    def total(self):
        return sum(price.of(name) * count for name, count in self.items)
'''
PRICE = '''"""Prices."""

TABLE = {"pen": 120, "ink": 350}


def of(name):
    return TABLE[name]


def rounded(cents):
    """Half a cent goes up."""
    return int(cents)
'''
MAIL = '''"""Letters to customers."""

from .cart import Cart


def invoice_letter(customer, cart: Cart):
    lines = [f"Dear {customer},"]
    for name, count in cart.items:
        lines.append(f"{count} x {name}")
    return "\\n".join(lines)
'''
SCRIPT = """import { money } from './money';

export class Basket {
  constructor() { this.rows = []; }
  renderVoucherBadge(voucher) {
    return money(voucher.share);
  }
}
"""
FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": CART,
    "shop/price.py": PRICE,
    "shop/mail.py": MAIL,
    "web/basket.js": SCRIPT,
    "web/money.js": "export function money(x) { return x.toFixed(2); }\n",
    "tests/test_cart.py": "from shop.cart import Cart\n\n\ndef test_total():\n    assert Cart().total() == 0\n",
    "docs/index.rst": "apply_voucher rounds.\n",
    "node_modules/left/index.js": "function apply_voucher() {}\n",
    "build/lib/shop.py": "def apply_voucher(): pass\n",
    "setup.cfg": "[metadata]\nname = shop\n",
}
REPORT = "`Cart.apply_voucher` loses half a cent: the voucher's share is cut, not rounded"


def git(folder: Path, *words: str, day: int = 1) -> str:
    when = f"{1_700_000_000 + 86_400 * day} +0000"
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    line = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        *words,
    ]
    return subprocess.run(line, check=True, capture_output=True, text=True, env=env).stdout.strip()


def make(folder: Path, history: int = 0) -> Path:
    """The repository; with ``history`` so many fixes after the first commit, every fourth of them misleading."""
    for name, text in FILES.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (folder / "logo.png").write_bytes(b"\x89PNG\0\0")
    (folder / "blob.dat").write_bytes(b"ab\0cd")
    (folder / "huge.py").write_text("x = 1\n" * 900_000)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "The shop")
    subjects = {
        "price": "`rounded` of a price",
        "cart": "`Cart.add_item` with a count",
        "mail": "`invoice_letter` of a customer",
    }
    for k in range(history):
        name = list(subjects)[k % 3]
        said = subjects[name] if k % 4 else "invoice_letter and its lines for a Dear customer"
        place = folder / "shop" / f"{name}.py"
        place.write_text(place.read_text() + f"\n\nLIMIT_{k} = {k}\n")
        git(folder, "commit", "-qam", f"Fix #{k}: {said} goes wrong in shop/{name}.py", day=k + 2)
    return folder
