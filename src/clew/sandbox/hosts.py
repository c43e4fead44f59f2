"""Which hosts a sandboxed command may reach: pairs of host and port, and the addresses that such a name may lead to.

``Network`` asks here for every connection. A name is no address: whoever owns a name decides what it leads to, and may
let it lead to this machine, to its neighbours or to a cloud's metadata. Such an address must never be reached unless it
was itself named.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from clew.core.errors import BadInput

LOOPBACK = ("localhost", "127.0.0.1", "::1")  # what a program reaches without a proxy
SHOWN = 20  # pairs that a sentence names
NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
OPEN, NAT64 = ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Pair = tuple[str, int]


class Hosts:
    """The pairs that may be reached; none without any.

    Args:
        named: each as HOST:PORT, [ADDRESS]:PORT where it is of version 6.

    Raises:
        BadInput: one is no such pair.
    """

    def __init__(self, named: Sequence[str] = ()) -> None:
        self.pairs = tuple(dict.fromkeys(parsed(text) for text in ([named] if isinstance(named, str) else named)))

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __str__(self) -> str:
        more = f" and {len(self.pairs) - SHOWN} more" if len(self.pairs) > SHOWN else ""
        return ", ".join(map(written, self.pairs[:SHOWN])) + more

    def __contains__(self, pair: Pair) -> bool:
        return pair in self.pairs

    def may(self, pair: Pair, address: str) -> bool:
        """Whether an allowed pair may be reached at an address that its name leads to."""
        found = plain(address)
        if (str(found), pair[1]) in self.pairs:
            return True
        return found.is_loopback if pair[0] == "localhost" else public(found)


def parsed(text: str) -> Pair:
    """Host and port of HOST:PORT, as they are compared: in small letters, addresses in their shortest form.

    Raises:
        BadInput: it is no such pair.
    """
    host, _, port = text.rpartition(":")
    host = host.lower().rstrip(".")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        name = str(plain(bare)) if (":" in bare) == (bare != host) else ""
    except ValueError:
        name = host if NAME.fullmatch(host) else ""
    if not name or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise BadInput(f"{text[:100]!a} is no host and port", remedy="Write HOST:PORT, as in example.org:443.")
    return name, int(port)


def written(pair: Pair) -> str:
    return f"[{pair[0]}]:{pair[1]}" if ":" in pair[0] else f"{pair[0]}:{pair[1]}"


def plain(address: str) -> Address:
    """An address; one of version 4 that is written as one of version 6 as what it is.

    Raises:
        ValueError: it is none.
    """
    found = ipaddress.ip_address(address)
    return getattr(found, "ipv4_mapped", None) or found


def public(address: Address) -> bool:
    """Whether an address is one of the open internet, also where it leads on to one of version 4."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in NAT64:
            return public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in OPEN or address.teredo is not None:
            return False
        if address.sixtofour is not None:  # whether 2002::/16 is global changes from one Python to another
            return public(address.sixtofour)
    return address.is_global and not address.is_multicast
