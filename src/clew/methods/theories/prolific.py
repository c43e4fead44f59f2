"""A study of people on Prolific: what it costs, its draft, its publication, and who has finished.

``labs.py`` calls it. The routes and fields are those of Prolific's public documentation (docs.prolific.com, API v1).
Prolific finds and pays people; the page that shows the choices is the user's own, at ``Study.url``. The token is asked
for at each request: it must never be stored, printed or sent anywhere but to the address given, nor
in clear text to another machine. A participant's id must never leave this file: others see a submission's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.printable import short, visible
from clew.models.remote import bounded
from clew.models.remote.failures import Failed

ADDRESS = "https://api.prolific.com/api/v1"
TOKEN = "PROLIFIC_API_TOKEN"  # where the command line finds the token
LEAST = 600  # pence or cents an hour: Prolific refuses studies that pay less
MOST_ANSWER, MOST_PAGES, PAGE = 8 << 20, 100, 100  # bytes of an answer; pages of submissions; submissions of a page
DONE = ("AWAITING REVIEW", "APPROVED")  # of a submission: the person has finished
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Study:
    """What people are asked to do, and for how much.

    name, description: shown to people. url: your page; Prolific puts its ids in the places ``{{%PROLIFIC_PID%}}``,
    ``{{%STUDY_ID%}}`` and ``{{%SESSION_ID%}}``, the last of which it must name. code: what a person enters at the end.
    places: how many people. minutes: how long it takes. reward: of one person, in pence or cents of your account.
    ``known``: a name that only you see, by which a study is found again after an interruption.

    Raises:
        BadInput: a field is out of bounds, or the pay is less than Prolific allows.
    """

    name: str
    description: str
    url: str
    code: str
    places: int
    minutes: int
    reward: int
    known: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.description.strip():
            raise BadInput("a study needs a name and a description", remedy="Say what people will do, in one sentence.")
        if not self.url.startswith(("https://", "http://")) or "{{%SESSION_ID%}}" not in self.url:
            raise BadInput(
                f"the page {short(visible(self.url), 80)!r} would not learn whose choices it shows",
                remedy="Give its address with ?session={{%SESSION_ID%}} in it, which Prolific fills in.",
            )
        if not re.fullmatch(r"[0-9A-Za-z]{4,32}", self.code):
            raise BadInput("the completion code is not 4 to 32 letters and digits", remedy="Take one like C1EW7K2Q.")
        for what, value, most in (("places", self.places, 10_000), ("minutes", self.minutes, 360)):
            if not 1 <= value <= most:
                raise BadInput(f"{what} is {value}", remedy=f"Take 1 to {most:,}.")
        if self.reward * 60 < LEAST * self.minutes:
            least = -(-LEAST * self.minutes // 60)
            raise BadInput(
                f"{self.reward} for {self.minutes} minutes is less than Prolific's {LEAST} an hour",
                remedy=f"Pay at least {least} (pence or cents) for each person.",
            )

    @property
    def rewards(self) -> int:
        """Pence or cents that people get in all; Prolific's fee and tax come on top."""
        return self.reward * self.places

    def body(self) -> dict[str, Any]:
        """What ``POST /studies/`` is sent."""
        return {
            "name": self.name,
            "internal_name": self.known or self.name,
            "description": self.description,
            "external_study_url": self.url,
            "prolific_id_option": "url_parameters",
            "completion_codes": [
                {"code": self.code, "code_type": "COMPLETED", "actions": [{"action": "MANUALLY_REVIEW"}]}
            ],
            "estimated_completion_time": self.minutes,
            "reward": self.reward,
            "total_available_places": self.places,
        }


class Submission(NamedTuple):
    """One person's part: its id (what the page was given as SESSION_ID), its status and the code entered."""

    id: str
    status: str
    code: str


def dry_run(study: Study, address: str = ADDRESS) -> str:
    """What would be sent, in order, and what it costs; nothing is sent and no token is needed."""
    ask = {"reward": study.reward, "total_available_places": study.places}
    lines = [
        f"POST {address}/study-cost-calculator/ {json.dumps(ask)}",
        f"POST {address}/studies/ {json.dumps(study.body(), ensure_ascii=False)}",
        f'POST {address}/studies/ID/transition/ {{"action": "PUBLISH"}}',
        f"GET {address}/studies/ID/ and {address}/submissions/?study=ID until people have finished",
        f"rewards: {study.places} x {study.reward / 100:.2f} = {study.rewards / 100:.2f} in your account's currency, "
        "and Prolific's fee and tax, which its calculator tells for your account before anything is published",
    ]
    return visible("\n".join(lines))


class Prolific:
    """Prolific's API, in so far as a study needs it.

    Args:
        token: gives the token of the account, or nothing where there is none; asked at each request.
        address: of the API; a stand-in on this machine for trials.
        timeout: seconds of one request.

    Raises:
        BadInput: the address would carry the token to another machine than Prolific's, or in clear text.
    """

    def __init__(self, token: Callable[[], str | None], address: str = ADDRESS, timeout: float = 30.0) -> None:
        try:
            url = httpx.URL(address)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if not (url.host in _LOCAL or (url.scheme == "https" and url.host == httpx.URL(ADDRESS).host)):
            raise BadInput(
                f"{short(visible(address).rpartition('@')[2], 80)!r} is neither Prolific nor this machine",
                remedy=f"Leave it out for {ADDRESS}, or give a stand-in at http://127.0.0.1:PORT/api/v1.",
            )
        if url.userinfo:
            raise BadInput("the address holds a password", remedy="Leave it out: a token is enough.")
        self.address, self._token, self._timeout = address.rstrip("/"), token, timeout

    async def cost(self, study: Study) -> int:
        """Pence or cents that the study costs in all, fee and tax included, as Prolific counts for this account."""
        body = {"reward": study.reward, "total_available_places": study.places}
        total = (await self._ask("POST", "/study-cost-calculator/", body)).get("total_cost")
        if isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 <= total < 1e12:
            raise Refused("Prolific told no cost", remedy="Look at your account on its site before you go on.")
        return round(total)

    async def draft(self, study: Study) -> str:
        """The id of a new draft. It costs nothing until it is published."""
        return _id(await self._ask("POST", "/studies/", study.body()))

    async def find(self, known: str) -> str | None:
        """The id of the study of that internal name, if there is one."""
        found = (await self._ask("GET", "/studies/")).get("results")
        for one in found if isinstance(found, list) else []:
            if isinstance(one, dict) and one.get("internal_name") == known:
                return _id(one)
        return None

    async def status(self, study: str) -> str:
        """UNPUBLISHED, PUBLISHING, ACTIVE, SCHEDULED, PAUSED, AWAITING REVIEW or COMPLETED."""
        return str((await self._ask("GET", f"/studies/{study}/")).get("status"))[:40]

    async def publish(self, study: str, *, cost: int, most: int) -> None:
        """Publish a draft: from here on it costs money.

        Raises:
            BadInput: it costs more than ``most`` (pence or cents); nothing was sent.
        """
        if cost > most:
            raise BadInput(
                f"the study costs {cost / 100:.2f}, more than the {most / 100:.2f} that may be spent",
                remedy="Ask fewer people, or allow more. The draft stands on Prolific, unpublished.",
            )
        await self._ask("POST", f"/studies/{study}/transition/", {"action": "PUBLISH"})

    async def stop(self, study: str) -> None:
        """Take in nobody more; who has begun may finish."""
        await self._ask("POST", f"/studies/{study}/transition/", {"action": "STOP"})

    async def submissions(self, study: str) -> list[Submission]:
        """Every submission so far, in the order of Prolific's pages."""
        out: dict[str, Submission] = {}
        for page in range(1, MOST_PAGES + 1):
            told = await self._ask("GET", "/submissions/", query={"study": study, "page": page, "page_size": PAGE})
            rows = told.get("results")
            rows = rows if isinstance(rows, list) else []
            for row in rows:
                if isinstance(row, dict):
                    status, code = (
                        str(row.get("status"))[:40],
                        str(row.get("study_code") or row.get("entered_code") or ""),
                    )
                    out.setdefault(_id(row), Submission(_id(row), status.replace("_", " "), code[:64]))
            if len(rows) < PAGE:
                break
        return list(out.values())

    def _key(self) -> str:
        key = (self._token() or "").strip()
        if not key:
            raise BadInput(
                f"{TOKEN} is not set, which holds the token of your Prolific account",
                remedy=f"Make one under Settings, API tokens, and export {TOKEN}; or ask for a dry run.",
            )
        if not key.isascii() or not key.isprintable():
            raise BadInput(f"{TOKEN} holds signs that no token has", remedy="Copy the token again.")
        return key

    async def _ask(
        self, how: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        key = self._key()
        headers = {"authorization": f"Token {key}", "accept-encoding": "identity"}
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout, trust_env=False, follow_redirects=False) as client,
                client.stream(how, self.address + path, json=body, params=query, headers=headers) as answer,
            ):
                text, code = await bounded.text(answer, MOST_ANSWER), answer.status_code
        except Failed as error:
            raise Refused(f"{how} {path}: {_plain(str(error), key)}", remedy="Ask again later.") from None
        except httpx.HTTPError as error:
            told = _plain(str(error), key) or type(error).__name__
            raise Unreachable(
                f"{self.address} did not answer: {told}", remedy="Check the network; then go on."
            ) from None
        if not 200 <= code < 300:
            why = {401: "the token is not known", 403: "the token may not do that", 429: "too many requests"}.get(code)
            raise Refused(
                f"{how} {path}: Prolific answered {code}: {why or _plain(text, key)}",
                remedy=f"Check {TOKEN}." if code in (401, 403) else "Change what it names, or ask again later.",
            )
        try:
            found = json.loads(text or "{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Refused(f"{how} {path}: the answer is no JSON object", remedy="Check the address.")
        return found


def _plain(text: str, key: str) -> str:
    return short(visible(text.replace(key, "***")), 300)


def _id(told: Mapping[str, Any]) -> str:
    """An id that is safe in a path: what an endpoint says goes into the next address."""
    found = told.get("id")
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise Refused("Prolific named no id", remedy="Check the address, and your account on its site.")
    return found
