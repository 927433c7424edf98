"""Output of programs in columns of spaces: random headings, cells, commands and summaries."""

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.content import formats, lexicon

Make = Callable[[random.Random], str]


DONE: Final = (
    "passed failed skipped updated removed installed changed received dropped ignored deleted "
    "running stopped cached imported rejected"
).split()


@dataclass(frozen=True)
class Kind:
    """A sort of column: how it is headed, called and asked for, and what makes its cells.

    Attributes:
        heads: What may stand above it, split at "|".
        called: What people call it; the heading's own words when empty.
        scheme: Gives, for one table, the maker of its cells: they share a notation.
        asked: Whole questions about the row {f}.
        far: Whether it is set to the right.
    """

    heads: str  # split at "|"
    called: tuple[str, ...]  # what people call it; the heading's own words when empty
    scheme: Callable[[random.Random], Make]
    asked: tuple[str, ...] = ()  # whole questions about the row {f}
    far: bool = False  # set to the right


@dataclass(frozen=True)
class Column:
    """One column of a table: its heading, its cells and its kind."""

    head: str
    cells: list[str]
    kind: Kind
    far: bool


def short(rng: random.Random) -> str:
    """A word of at most ten letters."""
    while len(text := lexicon.word(rng)) > 10:
        pass
    return text


def _plain(make: Make) -> Callable[[random.Random], Make]:
    return lambda _: make


def _whole(least: int, most: int, unit: str = "") -> Callable[[random.Random], Make]:
    def scheme(rng: random.Random) -> Make:
        top = rng.choice((most, max(least + 30, most // 20)))
        return lambda r: f"{r.randint(least, top)}{unit}"

    return scheme


def _share(rng: random.Random) -> Make:
    return rng.choice(
        (lambda r: f"{r.randint(0, 100)}%", lambda r: f"{r.uniform(0, 100):.1f}%",
         lambda r: f"{r.uniform(0, 99):.1f}", lambda r: f"{r.uniform(0, 100):.2f}")
    )  # fmt: skip


def _bytes(rng: random.Random) -> Make:
    """Sizes in one unit, in several, or as plain bytes."""
    tail = rng.choice(("", "", "i", "B", "iB"))
    units = rng.choice(("KMG", "MG", "MGT", "G", "M", "K"))
    joint = " " if tail == "B" and rng.random() < 0.3 else ""
    if rng.random() < 0.25:
        return lambda r: str(int(10 ** r.uniform(1, 8)))

    def make(r: random.Random) -> str:
        figure = f"{r.uniform(1, 10):.1f}" if r.random() < 0.4 else str(r.randint(1, 999))
        return f"{figure}{joint}{r.choice(units)}{tail}"

    return make


def _span(rng: random.Random) -> Make:
    """An age or duration: 5d, 12m, 3d4h, 2 days ago."""
    r = rng.random()
    if r < 0.4:
        return lambda r: f"{r.randint(1, 400)}{r.choice('dhms')}"
    if r < 0.6:
        return lambda r: f"{r.randint(1, 90)}d{r.randint(0, 23)}h"
    unit = rng.choice(("days", "hours", "minutes", "weeks", "months"))
    return lambda r: f"{r.randint(2, 60)} {unit}"


def _seconds(rng: random.Random) -> Make:
    unit = rng.choice(("s", "s", "ms", " ms", ""))
    top, places = rng.choice(((9, 2), (99, 1), (900, 0), (1, 3), (200, 2)))
    return lambda r: f"{r.uniform(0, top):.{places}f}{unit}"


def _moment(rng: random.Random) -> Make:
    """A date, a time of day, or both."""
    clock = lambda r: f"{r.randint(0, 23):02}:{r.randint(0, 59):02}"  # noqa: E731
    day = lambda r: f"{r.randint(2003, 2031)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"  # noqa: E731
    month = lambda r: f"{r.choice(formats.MONTHS)[:3]} {r.randint(1, 28):2}".replace("  ", " 0")  # noqa: E731
    return rng.choice(
        (clock, day, month, lambda r: f"{day(r)} {clock(r)}", lambda r: f"{month(r)} {clock(r)}",
         lambda r: f"{clock(r)}:{r.randint(0, 59):02}")
    )  # fmt: skip


def _version(rng: random.Random) -> str:
    tail = rng.choice(("", "", "", "", f"-rc{rng.randint(1, 9)}", f"-{rng.randint(1, 9)}", "+dev"))
    return ".".join(str(rng.randint(0, r)) for r in (9, 30, 40)) + tail


def _few(*choices: str) -> Callable[[random.Random], Make]:
    """A handful of states, and at times random words."""

    def scheme(rng: random.Random) -> Make:
        if rng.random() < 0.2:
            own = [short(rng) for _ in range(3)]
            return lambda r: r.choice(own)
        some = rng.sample(choices, min(len(choices), rng.randint(2, 4)))
        style: Callable[[str], str] = rng.choice((str, str, str.lower, str.upper))
        return lambda r: style(r.choice(some))

    return scheme


def _address(rng: random.Random) -> str:
    return ".".join(str(rng.randint(1, 254)) for _ in range(4))


def _mode(rng: random.Random) -> str:
    bits = "".join(a if rng.random() < 0.6 else "-" for a in "rwxrwxrwx")
    return rng.choice("-d-l") + bits


def _path(rng: random.Random) -> str:
    return "".join(f"/{short(rng)}" for _ in range(rng.choice((1, 1, 2))))


def _hex(least: int, most: int) -> Make:
    return lambda r: formats.run(r, "0123456789abcdef", least, most)


def _dashed(rng: random.Random) -> str:
    return rng.choice((short(rng), f"{short(rng)}-{short(rng)}", f"{short(rng)}_{short(rng)}"))


def _file(rng: random.Random) -> str:
    return f"{_dashed(rng)}.{rng.choice(formats.ENDINGS)}"


def _device(rng: random.Random) -> str:
    letter = rng.choice(string.ascii_lowercase)
    return rng.choice(
        (f"/dev/sd{letter}{rng.randint(1, 9)}", f"/dev/{short(rng)}", short(rng),
         f"/dev/nvme{rng.randint(0, 5)}n1p{rng.randint(1, 9)}", f"/dev/mapper/{short(rng)}",
         f"/dev/loop{rng.randint(0, 40)}", f"{short(rng)}:/{short(rng)}")
    )  # fmt: skip


def _pod(rng: random.Random) -> str:
    tail = formats.run(rng, "bcdfghjklmnpqrstvwxz2456789", 5, 5)
    return f"{short(rng)}-{rng.choice((tail, tail, str(rng.randint(0, 9))))}"


def _port(rng: random.Random) -> str:
    n = rng.randint(20, 65535)
    return rng.choice((f"{n}/tcp", f"{n}/udp", str(n), f"{n}->{rng.randint(20, 9999)}"))


def _speed(rng: random.Random) -> Make:
    unit = rng.choice(("", "MB/s", "k/s"))
    return lambda r: f"{r.uniform(0, 900):.1f}{unit}"


def _host_part(rng: random.Random) -> str:
    return f"{short(rng)}-{rng.randint(1, 9)}"


KEYS: Final = (  # what names the rows; every one is different from the others
    Kind("NAME", ("name",), lambda r: r.choice((_pod, _dashed, _file, short))),
    Kind("FILE|FILENAME|NAME", ("file",), _plain(_file)),
    Kind("FILESYSTEM|DEVICE|SOURCE", ("filesystem", "device"), _plain(_device)),
    Kind("PACKAGE|MODULE|LIBRARY|CRATE", ("package",), _plain(_dashed)),
    Kind("HOST|NODE|SERVER|MACHINE", ("host",), lambda r: r.choice((short, formats.host, _pod))),
    Kind("SERVICE|UNIT|APP", ("service",), _plain(_dashed)),
    Kind("TASK|JOB|STAGE", ("task",), _plain(_dashed)),
    Kind("TEST|SUITE|CASE", ("test",), _plain(lambda r: f"test_{short(r)}_{short(r)}")),
    Kind("BRANCH|REF", ("branch",), _plain(lambda r: f"{short(r)}/{short(r)}")),
    Kind("PID", ("process",), _plain(lambda r: str(r.randint(2, 99999))), (), True),
    Kind("CONTAINER ID|IMAGE ID|HASH|COMMIT", ("ID",),
         lambda r: _hex(*r.choice(((7, 7), (12, 12))))),
    Kind("USER|LOGIN|ACCOUNT", ("user",), _plain(short)),
    Kind("INTERFACE|IFACE|LINK", ("interface",),
         _plain(lambda r: f"{short(r)[:5]}{r.randint(0, 19)}")),
    Kind("TABLE|COLLECTION|QUEUE|TOPIC|BUCKET", ("name",), _plain(_dashed)),
    Kind("PATH|DIRECTORY|MOUNTPOINT", ("path",), _plain(_path)),
    Kind("ADDRESS|IP|DESTINATION", ("address",), _plain(_address)),
    Kind("ITEM|PART|CODE", ("item",), _plain(formats.code)),
)  # fmt: skip
KINDS: Final = (
    Kind("SIZE|TOTAL|LENGTH", ("size",), _bytes, ("How big is {f}?", "How large is {f}?"), True),
    Kind("USED", ("used space", "used"), _bytes, ("How much is used on {f}?",), True),
    Kind("AVAIL|FREE|AVAILABLE", ("available space", "free space"), _bytes,
         ("How much is available on {f}?", "How much space is left on {f}?"), True),
    Kind("USE%|CAPACITY|%USED", ("usage", "share in use"), _share, ("How full is {f}?",), True),
    Kind("MOUNT|MOUNTED ON|TARGET", ("mount point",), _plain(_path), ("Where is {f} mounted?",)),
    Kind("%CPU|CPU|CPU%", ("CPU usage", "CPU"), _share, ("How much CPU does {f} use?",), True),
    Kind("MEM|%MEM|RSS|MEMORY", ("memory", "memory usage"), lambda r: r.choice((_share, _bytes))(r),
         ("How much memory does {f} use?",), True),
    Kind("COMMAND|CMD|ENTRYPOINT", ("command",), _plain(lambda r: f"{short(r)} --{short(r)}")),
    Kind("OWNER|USER|AUTHOR", ("owner",), _plain(short), ("Who owns {f}?",)),
    Kind("GROUP|TEAM", ("group",), _plain(short), ("Which group does {f} belong to?",)),
    Kind("STATUS|STATE|PHASE", ("status", "state"),
         _few("Running", "Pending", "Failed", "Completed", "Exited", "Active", "Stopped", "Error",
              "Ready", "Unknown", "Created", "Paused", "Evicted", "Queued"),
         ("What state is {f} in?",)),
    Kind("READY|REPLICAS", ("ready count",),
         _plain(lambda r: f"{r.randint(0, 9)}/{r.randint(1, 9)}")),
    Kind("RESTARTS", ("number of restarts", "restarts"), _whole(0, 400),
         ("How many times did {f} restart?",), True),
    Kind("AGE", ("age",), _span, ("How old is {f}?",)),
    Kind("UPTIME", ("uptime",), _span, ("How long has {f} been up?",)),
    Kind("IMAGE", ("image",), _plain(lambda r: f"{short(r)}:{r.randint(1, 30)}.{r.randint(0, 9)}"),
         ("Which image does {f} use?",)),
    Kind("PORT|PORTS|LISTEN", ("port",), _plain(_port), ("Which port does {f} use?",)),
    Kind("MODIFIED|CHANGED|MTIME|UPDATED", ("time of change",), _moment,
         ("When was {f} last modified?", "When was {f} changed?")),
    Kind("CREATED|STARTED|START|SINCE", ("start",), _moment, ("When was {f} created or started?",)),
    Kind("VERSION|INSTALLED|CURRENT|RELEASE", ("version", "current version"), _plain(_version),
         ("Which version of {f} is it?",)),
    Kind("LATEST|WANTED|CANDIDATE", ("latest version", "newer version"), _plain(_version)),
    Kind("BRANCH|ORIGIN|UPSTREAM", ("branch",), _plain(lambda r: f"{short(r)}/{short(r)}")),
    Kind("LATENCY|RTT|PING|DELAY", ("latency", "delay"), _seconds, (), True),
    Kind("TIME|DURATION|ELAPSED|TIME+", ("duration", "time taken"), _seconds,
         ("How long did {f} take?",), True),
    Kind("MODE|PERMISSIONS|PERMS", ("permissions", "mode"), _plain(_mode),
         ("Which permissions does {f} have?",)),
    Kind("LINKS|REFS|NLINK", ("number of links",), _whole(1, 60), (), True),
    Kind("TYPE|CLASS|FSTYPE", ("type",), _few("ext4", "tmpfs", "disk", "part", "ClusterIP", "file",
         "NodePort", "dir", "xfs", "btrfs", "bridge", "text", "int", "bool")),
    Kind("IP|ADDRESS|CLUSTER-IP", ("IP address",), _plain(_address), ("What is the IP of {f}?",)),
    Kind("LOSS|LOSS%", ("packet loss", "loss"), _share, ("How much is lost at {f}?",), True),
    Kind("SENT|TX|OUT", ("sent count", "number sent"), _whole(0, 90000), (), True),
    Kind("RECEIVED|RX|RECV|IN", ("received count", "number received"), _whole(0, 90000), (), True),
    Kind("LINES|LOC", ("number of lines",), _whole(1, 30000), (), True),
    Kind("MISS|MISSED", ("number of misses",), _whole(0, 900), (), True),
    Kind("ERRORS|ERRS", ("number of errors",), _whole(0, 900), (), True),
    Kind("COVER|COVERAGE", ("coverage",), _share, ("How well is {f} covered?",), True),
    Kind("NAMESPACE", ("namespace",), _plain(short), ("Which namespace is {f} in?",)),
    Kind("REGION|ZONE", ("region",), _plain(_host_part), ("Where does {f} run?",)),
    Kind("PRIORITY|PRI|NI", ("priority",), _whole(0, 99), (), True),
    Kind("THREADS|NLWP", ("number of threads",), _whole(1, 128), (), True),
    Kind("TTY|TERMINAL", ("terminal",),
         _plain(lambda r: f"{r.choice(('pts/', 'tty'))}{r.randint(0, 63)}")),
    Kind("SUBJECT|MESSAGE|SUMMARY", ("subject", "message"),
         _plain(lambda r: " ".join(short(r) for _ in range(r.randint(2, 3))))),
    Kind("RESULT|OUTCOME", ("result", "outcome"),
         _few("PASS", "FAIL", "SKIP", "ok", "error", "PASSED")),
    Kind("SPEED|RATE", ("speed", "rate"), _speed, (), True),
    Kind("ARCH|PLATFORM|OS", ("platform",), _few("amd64", "arm64", "noarch", "linux",
         "x86_64", "i386", "riscv64", "darwin", "all")),
    Kind("LICENSE|LICENCE", ("licence",),
         _few("MIT", "BSD-3", "GPLv2", "ISC", "MPL-2.0", "Zlib")),
    Kind("SHA|DIGEST|CHECKSUM", ("digest", "checksum"), _plain(_hex(7, 9))),
    Kind("SCORE|RATING", ("score",), _plain(lambda r: f"{r.random():.4f}"), (), True),
    Kind("EPOCH|STEP|ITER", ("step",), _whole(1, 9000), (), True),
    Kind("QTY|COUNT|HITS|CALLS", ("count",), _whole(0, 5000), (), True),
)  # fmt: skip


def other(rng: random.Random) -> Kind:
    """A column under a heading that no program is known for."""
    kind = rng.choice(KINDS)
    return Kind(short(rng).upper(), (), kind.scheme, (), kind.far)


def command(rng: random.Random) -> str:
    """A command line: a tool, what it is to do, and switches."""
    tool = rng.choice(
        ("df", "ls", "ps", "docker", "kubectl", "git", "pip", "npm", "cargo", "systemctl", "du",
         "lsblk", "ip", "ping", "pytest", "apt", "helm", "aws", "cat", "column", "netstat", "top")
    )  # fmt: skip
    if rng.random() < 0.4:
        tool = short(rng)
    parts = [tool]
    for _ in range(rng.randint(1, 3)):
        parts.append(rng.choice(
            (short(rng), "-" + rng.choice(string.ascii_letters), f"--{short(rng)}", _path(rng),
             f"-{rng.choice('lahtrnuxaw')}{rng.choice('lahtrnuxaw')}", "list", "status", _file(rng),
             f"--{short(rng)}={rng.randint(0, 99)}", rng.choice(("get", "show", "top", "ls")))
        ))  # fmt: skip
    return " ".join(parts)


def setting(rng: random.Random) -> tuple[str, str]:
    """A name and what it is set to."""
    number = str(rng.choice((rng.randint(0, 99), rng.randint(100, 65535))))
    known = (
        ("port", number), ("timeout", f"{rng.randint(1, 900)}s"), ("host", formats.host(rng)),
        ("max_connections", number), ("log_level", rng.choice(("debug", "info", "warn"))),
        ("retries", str(rng.randint(0, 20))), ("data_dir", f"/{short(rng)}/{short(rng)}"),
        ("enabled", rng.choice(("true", "false"))), ("threads", str(rng.randint(1, 64))),
        ("cache_size", f"{rng.randint(1, 900)}MB"), ("version", f"{rng.randint(0, 9)}.{number}"),
    )  # fmt: skip
    if rng.random() < 0.45:
        return rng.choice(known)
    name = rng.choice((short(rng), f"{short(rng)}_{short(rng)}", f"{short(rng)}-{short(rng)}"))
    value = rng.choice((short(rng), number, f"{rng.uniform(0, 9):.3f}", f"/{short(rng)}",
                        rng.choice(("true", "false", "on", "off")), f"{number}ms"))  # fmt: skip
    return name, value


def summary(rng: random.Random) -> tuple[str, list[tuple[tuple[str, ...], str]]]:
    """A line below a table, and its figures, each with ways to ask for it."""
    noun = rng.choice("tests packages files packets items jobs records images rules tasks".split())
    done = rng.sample(DONE, rng.randint(1, 3))
    figures = [str(rng.randint(0, rng.choice((20, 900)))) for _ in done]
    first = rng.random() < 0.5
    line = ", ".join(
        f"{n} {noun + ' ' if first and i == 0 else ''}{d}"
        for i, (n, d) in enumerate(zip(figures, done, strict=True))
    )
    found: list[tuple[tuple[str, ...], str]] = [
        ((f"How many were {d}?" if d.endswith("ed") and d not in ("passed", "failed")
          else f"How many {d}?", f"number {d}", f"{d}: how many?"), n)
        for d, n in zip(done, figures, strict=True)
    ]  # fmt: skip
    if rng.random() < 0.5:
        took = f"{rng.uniform(0, 90):.2f}s"
        line += f" in {took}"
        found.append(
            (
                ("How long did it take in all?", "total time taken", "How long did the run take?"),
                took,
            )
        )
    if rng.random() < 0.25:
        line = f"{rng.choice(('=====', '---', '==', '#'))} {line}"
    return line, found
