"""The rules of the shell world: a small tree of files in memory, and what twelve commands do and say to it.

The world calls ``Tree.run``. Errors are those of bash and the GNU tools, word for word, which a test compares with the
programs themselves. Nothing here touches a real file or starts a program, and no command may raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from clew.worlds.shell.shell_words import Said, options, parsed, plain, quoted, regex

FILES, FOLDERS, LETTERS, NAME, LINE = 12, 12, 300, 40, 400  # most of each; LETTERS of one file, LINE of one command
GONE, FILE, FOLDER, FULL = "No such file or directory", "Not a directory", "Is a directory", "No space left on device"
BUSY, LONG = "Device or resource busy", "File name too long"
KNOWN = ("ls", "cat", "echo", "rm", "mv", "mkdir", "cd", "pwd", "wc", "grep", "touch", "cp")


class Fault(Exception):
    """Why the system refuses: the words of the error number."""


class Tree:
    """Files and folders, absolute path -> content, or None of a folder; and the folder that one stands in."""

    def __init__(self, nodes: dict[str, str | None], cwd: str = "/") -> None:
        self.nodes, self.cwd = {"/": None, **nodes}, cwd

    def run(self, line: str) -> str:
        """Perform one command line; what it prints, errors included, without the last line break."""
        if len(line) > LINE:
            return "bash: Argument list too long"
        try:
            words, target, more = parsed(line)
            if not words:
                return ""
            name, *rest = words
            if name not in KNOWN:
                return f"bash: {name}: command not found"
            if target is not None and name != "echo":
                return f"bash: {name}: only echo can write to a file in this shell"
            if name == "echo":
                return self._echo(rest, target, more)
            return "\n".join(_COMMANDS[name](self, rest))
        except Said as said:
            return str(said)

    def place(self, path: str, new: bool = False) -> str:
        """The absolute path that a path leads to; with ``new`` its last part may be missing.

        Raises:
            Fault: it leads nowhere, through a file, or is too long.
        """
        if not path:
            raise Fault(GONE)
        here = "/" if path.startswith("/") else self.cwd
        parts = [part for part in path.split("/") if part]
        for i, part in enumerate(parts):
            if self.nodes[here] is not None:
                raise Fault(FILE)
            if part == "..":
                here = here.rpartition("/")[0] or "/"
            elif part != ".":
                if len(part) > NAME:
                    raise Fault(LONG)
                here = f"{here.rstrip('/')}/{part}"
                if here not in self.nodes and not (new and i == len(parts) - 1):
                    raise Fault(GONE)
        if path.endswith("/") and self.nodes.get(here) is not None:
            raise Fault(FILE)
        return here

    def _meant(self, path: str) -> str:
        """Where a path leads without its last slashes; empty where that is nowhere."""
        try:
            return self.place(path.rstrip("/"))
        except Fault:
            return ""

    def _has_parent(self, path: str) -> bool:
        """Whether the folder exists in which a path's last part would lie."""
        try:
            self.place(path.rstrip("/"), new=True)
        except Fault:
            return False
        return True

    def is_folder(self, path: str) -> bool:
        return path in self.nodes and self.nodes[path] is None

    def below(self, folder: str) -> list[str]:
        """Names in a folder, sorted by their bytes."""
        head = folder.rstrip("/") + "/"
        return sorted(
            p[len(head) :] for p in self.nodes if p.startswith(head) and p != "/" and "/" not in p[len(head) :]
        )

    def put(self, path: str, content: str | None) -> None:
        """Write a file, or make a folder.

        Raises:
            Fault: no space is left.
        """
        if path not in self.nodes:
            alike = sum((held is None) == (content is None) for held in self.nodes.values())
            if alike >= (FOLDERS + 1 if content is None else FILES):  # the root is not counted
                raise Fault(FULL)
        if content is not None and len(content) > LETTERS:
            raise Fault(FULL)
        self.nodes[path] = content

    def drop(self, path: str) -> None:
        """Remove a path with all below it.

        Raises:
            Fault: one stands in it.
        """
        if f"{self.cwd}/".startswith(f"{path}/"):
            raise Fault(BUSY)
        self.nodes = {p: held for p, held in self.nodes.items() if p != path and not p.startswith(f"{path}/")}

    # -- commands: each gives the lines that it prints

    def _echo(self, words: list[str], target: str | None, more: bool) -> str:
        end = "\n"
        if words[:1] == ["-n"]:
            words, end = words[1:], ""
        if target is None:
            return " ".join(words)
        try:
            path = self.place(target.rstrip("/") or target, new=True)
            if self.is_folder(path) or target.endswith("/"):
                raise Fault(FOLDER)
            held = self.nodes.get(path) or ""
            self.put(path, (held if more else "") + " ".join(words) + end)
        except Fault as why:
            return f"bash: {target}: {why}"
        return ""

    def _ls(self, words: list[str]) -> Iterator[str]:
        given, names = options("ls", words)
        files, folders = list[tuple[str, str]](), list[tuple[str, str]]()
        for name in names or ["."]:
            try:
                (folders if self.is_folder(path := self.place(name)) else files).append((name, path))
            except Fault as why:
                yield f"ls: cannot access {quoted(name)}: {why}"
        yield from (name for name, _ in sorted(files))
        for i, (name, path) in enumerate(sorted(folders)):
            if len(names) > 1:
                yield from [""] if files or i else []
                yield f"{name}:"
            yield from [".", ".."] if "a" in given else []
            yield from (one for one in self.below(path) if "a" in given or not one.startswith("."))

    def _cat(self, words: list[str]) -> Iterator[str]:
        out = ""
        for name in options("cat", words)[1]:
            try:
                out += self._read(name)
            except Fault as why:
                out += f"cat: {plain(name)}: {why}\n"
        if out:
            yield out.removesuffix("\n")

    def _read(self, name: str) -> str:
        held = self.nodes[self.place(name)]
        if held is None:
            raise Fault(FOLDER)
        return held

    def _rm(self, words: list[str]) -> Iterator[str]:
        given, names = options("rm", words)
        if not names and "f" not in given:
            raise Said("rm: missing operand\nTry 'rm --help' for more information.")
        for name in names:
            try:
                path = self.place(name)
                if self.is_folder(path) and "r" not in given:
                    raise Fault(FOLDER)
                if name.rstrip("/").rpartition("/")[2] in (".", ".."):
                    yield f"rm: refusing to remove '.' or '..' directory: skipping {quoted(name)}"
                elif path == "/":
                    yield "rm: it is dangerous to operate recursively on '/'"
                    yield "rm: use --no-preserve-root to override this failsafe"
                else:
                    self.drop(path)
            except Fault as why:
                if not ("f" in given and str(why) in (GONE, FILE)):
                    yield f"rm: cannot remove {quoted(name)}: {why}"

    def _two(self, command: str, words: list[str]) -> tuple[str, str, str, str, str]:
        """For mv and cp: options, source, its path, and where it goes, as written and as a path."""
        given, names = options(command, words)
        hint = f"\nTry '{command} --help' for more information."
        if not names:
            raise Said(f"{command}: missing file operand{hint}")
        if len(names) == 1:
            raise Said(f"{command}: missing destination file operand after {quoted(names[0])}{hint}")
        if len(names) > 2:
            raise Said(f"{command}: only one source at a time in this shell")
        source, target = names
        try:
            start = self.place(source)
        except Fault as why:
            raise Said(f"{command}: cannot stat {quoted(source)}: {why}") from None
        if command == "cp" and self.is_folder(start) and "r" not in given:
            raise Said(f"cp: -r not specified; omitting directory {quoted(source)}")
        if command == "cp" and source.rstrip("/").rpartition("/")[2] in ("", ".", ".."):
            raise Said("cp: this shell copies files and folders by their names alone")
        try:
            end = self.place(target, new=True)
            if end not in self.nodes and target.endswith("/") and not self.is_folder(start):
                raise Fault(FILE)
        except Fault as why:
            if str(why) == FILE and (not target.endswith("/") or self._meant(target)):
                raise Said(f"{command}: cannot stat {quoted(target)}: {why}") from None
            how = f"move {quoted(source)} to" if command == "mv" else "create regular file"
            how = "create directory" if command == "cp" and self.is_folder(start) else how
            raise Said(f"{command}: cannot {how} {quoted(target)}: {why}") from None
        if self.is_folder(end) and start != "/":
            target, end = (
                f"{target.rstrip('/')}/{start.rpartition('/')[2]}",
                f"{end.rstrip('/')}/{start.rpartition('/')[2]}",
            )
        return given, source, start, target, end

    def _clash(self, command: str, source: str, start: str, target: str, end: str) -> None:
        if end in self.nodes and self.is_folder(end) != self.is_folder(start):
            kinds = ("non-directory", "directory") if self.is_folder(start) else ("directory", "non-directory")
            raise Said(
                f"{command}: cannot overwrite {kinds[0]} {quoted(target)} with {kinds[1]}"
                + (f" {quoted(source)}" if self.is_folder(start) else "")
            )
        if command == "mv" and (start == "/" or source.rstrip("/").rpartition("/")[2] in (".", "..")):
            raise Said(f"mv: cannot move {quoted(source)} to {quoted(target)}: {BUSY}")
        if start != end and f"{end}/".startswith(f"{start.rstrip('/')}/") and self.is_folder(start):
            inside = f"move {quoted(source)} to a subdirectory of itself" if command == "mv" else "copy a directory"
            into = "" if command == "mv" else f", {quoted(source)}, into itself"
            raise Said(f"{command}: cannot {inside}{into}, {quoted(target)}")
        if start == end:
            raise Said(f"{command}: {quoted(source)} and {quoted(target)} are the same file")

    def _mv(self, words: list[str]) -> Iterator[str]:
        _, source, start, target, end = self._two("mv", words)
        self._clash("mv", source, start, target, end)
        try:
            if self.is_folder(end) and self.below(end):
                raise Fault("Directory not empty")
            if f"{self.cwd}/".startswith((f"{start.rstrip('/')}/", f"{end}/")) and self.is_folder(start):
                raise Fault(BUSY)
        except Fault as why:
            yield f"mv: cannot move {quoted(source)} to {quoted(target)}: {why}"
            return
        moved = {p: held for p, held in self.nodes.items() if p == start or p.startswith(f"{start}/")}
        self.nodes = {p: held for p, held in self.nodes.items() if p not in moved}
        self.nodes |= {end + p[len(start) :]: held for p, held in moved.items()}

    def _cp(self, words: list[str]) -> Iterator[str]:
        _, source, start, target, end = self._two("cp", words)
        self._clash("cp", source, start, target, end)
        for path in sorted(p for p in self.nodes if p == start or p.startswith(f"{start}/")):
            held, shown = self.nodes[path], target + path[len(start) :]
            try:
                self.put(end + path[len(start) :], held)
            except Fault as why:
                yield f"cp: cannot create {'directory' if held is None else 'regular file'} {quoted(shown)}: {why}"
                return

    def _mkdir(self, words: list[str]) -> Iterator[str]:
        given, names = options("mkdir", words)
        if not names:
            raise Said("mkdir: missing operand\nTry 'mkdir --help' for more information.")
        for name in names:
            parts = name.rstrip("/").split("/")
            steps = ["/".join(parts[: i + 1]) for i in range(len(parts))] if "p" in given else [name]
            for step in filter(None, [*steps[:-1], name if steps[-1] else ""]):
                try:
                    path = self.place(step, new=True)
                    if path in self.nodes and not ("p" in given and self.is_folder(path)):
                        raise Fault("File exists")
                    if path not in self.nodes:
                        self.put(path, None)
                except Fault as error:
                    why = "File exists" if step == name and self._meant(step) else error
                    why = FILE if step != name and self._meant(step) else why
                    yield f"mkdir: cannot create directory {quoted(step)}: {why}"
                    break

    def _cd(self, words: list[str]) -> Iterator[str]:
        if words[:1] and words[0].startswith("-") and len(words[0]) > 1:
            raise Said(f"bash: cd: {words[0][:2]}: invalid option\ncd: usage: cd [-L|[-P [-e]] [-@]] [dir]")
        if len(words) > 1:
            raise Said("bash: cd: too many arguments")
        name = words[0] if words else "/"
        if name == "-":
            raise Said("bash: cd: OLDPWD not set")
        try:
            path = self.place(name) if name else self.cwd
            if not self.is_folder(path):
                raise Fault(FILE)
            self.cwd = path
        except Fault as why:
            yield f"bash: cd: {name}: {why}"

    def _pwd(self, words: list[str]) -> Iterator[str]:
        if words[:1] and words[0].startswith("-") and len(words[0]) > 1:
            raise Said(f"bash: pwd: {words[0][:2]}: invalid option\npwd: usage: pwd [-LP]")
        yield self.cwd

    def _wc(self, words: list[str]) -> Iterator[str]:
        given, names = options("wc", words)
        rows: list[tuple[list[int], str] | str] = []
        regular = other = 0
        for name in names or [""]:
            try:
                text = self._read(name) if name else ""
            except Fault as why:
                rows.append(f"wc: {plain(name)}: {why}")
                if str(why) == FOLDER:
                    rows.append(([0, 0, 0], name))
                    other = 1
                continue
            regular += len(text.encode("utf-8", "surrogatepass"))
            rows.append(([text.count("\n"), len(text.split()), len(text.encode("utf-8", "surrogatepass"))], name))
        columns = [i for i, letter in enumerate("lwc") if not given or letter in given]
        wide = max(7 if other or not names else 1, len(str(regular)))
        if len(names) < 2 and len(columns) == 1:
            wide = 1
        counted = [row[0] for row in rows if not isinstance(row, str)]
        if len(names) > 1:
            rows.append(([sum(column) for column in zip(*counted, strict=True)] or [0, 0, 0], "total"))
        for row in rows:
            yield (
                row
                if isinstance(row, str)
                else " ".join([" ".join(f"{row[0][i]:>{wide}}" for i in columns), *[row[1]][: bool(row[1])]])
            )

    def _grep(self, words: list[str]) -> Iterator[str]:
        given, names = options("grep", words)
        if not names:
            raise Said("Usage: grep [OPTION]... PATTERNS [FILE]...\nTry 'grep --help' for more information.")
        pattern, *names = names
        if set(pattern) & set("*[]\\"):
            raise Said("grep: this shell knows only the pattern characters ^ $ .")
        wanted = re.compile(regex(pattern), re.IGNORECASE if "i" in given else 0)
        for name in names:
            try:
                lines = self._read(name).split("\n")
            except Fault as why:
                yield f"grep: {name}: {why}"
                if str(why) != FOLDER:
                    continue
                lines = [""]
            hits = [
                (i + 1, line) for i, line in enumerate(lines[:-1] if not lines[-1] else lines) if wanted.search(line)
            ]
            head = f"{name}:" if len(names) > 1 else ""
            if "l" in given:
                yield from [name] if hits else []
            elif "c" in given:
                yield f"{head}{len(hits)}"
            else:
                yield from (f"{head}{f'{i}:' if 'n' in given else ''}{line}" for i, line in hits)

    def _touch(self, words: list[str]) -> Iterator[str]:
        _, names = options("touch", words)
        if not names:
            raise Said("touch: missing file operand\nTry 'touch --help' for more information.")
        for name in names:
            try:
                path = self.place(name, new=True)
                if path not in self.nodes:
                    if name.endswith("/"):
                        raise Fault(GONE)
                    self.put(path, "")
            except Fault as why:
                odd = name.endswith("/") and self._has_parent(name)
                verb = "setting times of" if odd else "cannot touch"
                yield f"touch: {verb} {quoted(name)}: {why}"


_COMMANDS: dict[str, Callable[[Tree, list[str]], Iterator[str]]] = {
    name: getattr(Tree, f"_{name}") for name in KNOWN if name != "echo"
}
