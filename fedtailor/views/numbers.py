"""Formats of numbers, the same in all views."""

NOTHING = "–"


def percent(share: float | None) -> str:
    """A share of one in percent, without the sign.

    >>> percent(0.9314), percent(None)
    ('93.1', '–')
    """
    return NOTHING if share is None else f"{100 * share:.1f}"


def measured(value: float | None, percents: bool) -> str:
    """A value of a measure, in percent or as a number.

    >>> measured(0.9314, True), measured(0.9314, False), measured(None, True)
    ('93.1', '0.931', '–')
    """
    return percent(value) if percents else figures(value)


def size(count: float) -> str:
    """A number of bytes.

    >>> size(999), size(4_200_000)
    ('999 B', '4.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def quantity(count: float) -> str:
    """A large number in thousands or millions.

    >>> quantity(640), quantity(925_348), quantity(1_110_000_000)
    ('640', '925 k', '1,110 M')
    """
    if count < 10_000:
        return f"{count:,.0f}"
    if count < 1_000_000:
        return f"{count / 1000:,.0f} k"
    return f"{count / 1e6:,.1f} M" if count < 1e8 else f"{count / 1e6:,.0f} M"


def figures(value: float | None) -> str:
    """A number with three figures, and more when it is large.

    >>> figures(0.00612), figures(12.34), figures(4567.8), figures(None)
    ('0.00612', '12.3', '4,568', '–')
    """
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """A length of time in the two units that matter.

    >>> duration(0.42), duration(200), duration(7500)
    ('0.4 s', '3 min 20 s', '2 h 05 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
