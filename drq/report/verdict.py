"""Give a verdict on defences in words: what they gain, where they lose, what they cost, and whether gains survive attacks.

A difference counts as a gain or a loss only where chance alone makes one as large in less than 5 of 100 cases. A gain survives
attacks on the defence itself only where the whole 95 % interval of the difference to the undefended model lies above 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from drq.evaluation.records import require_polars
from drq.report.plot_style import in_order, require_rows
from drq.report.tables import cells, mean_over_data, worst_case

if TYPE_CHECKING:
    from polars import DataFrame, Expr

CHANCE = 0.05  # level of significance
FEWEST = 6  # with fewer samples no difference is significant, even if all differ
UNTESTED = (
    "No attack in these records looked at a defence itself. Attacks that were made against the undefended model and then "
    "transferred are easy to withstand: gains under them are not evidence of security."
)
Kind = Literal["gain", "loss", "even"]


@dataclass(frozen=True)
class Share:
    """An accuracy in percent, and the expression that recomputes it from records."""

    value: float
    expression: str

    def __str__(self) -> str:
        return f"{self.value:.1f}"


Sentence = tuple[str | Share, ...]


@dataclass(frozen=True)
class Finding:
    """The comparison of a defence with the reference on the same samples. Differences are in points, with a 95 % interval."""

    model: str
    data: str
    threat: str
    defence: str
    adaptive: bool  # the threat attacked the defence itself; the reference is the static worst case
    transferred: bool  # the threat is an attack, but on the undefended model
    images: int
    compared: int  # of them, images that the reference was measured on too
    accuracy: Share
    reference: Share
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def kind(self) -> Kind:
        """Whether the difference is a gain, a loss, or may be chance."""
        if self.p_value >= CHANCE or self.difference == 0:
            return "even"
        return "gain" if self.difference > 0 else "loss"

    @property
    def survives(self) -> bool:
        """Whether the whole interval of the difference lies above 0, and the difference is significant."""
        return self.low > 0 and self.p_value < CHANCE

    @property
    def change(self) -> str:
        """The difference with its interval, in words."""
        return f"{self.difference:+.1f} points [{self.low:+.1f}, {self.high:+.1f}]"

    @property
    def name(self) -> str:
        """The defence, model, data and threat."""
        return f"{self.defence} on {self.model}, {self.data}, {self.threat}"

    @property
    def weight(self) -> str:
        """The number of images and the p-value, in words."""
        part = "" if self.compared == self.images else f", compared on {self.compared:,}"
        chance = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        attack = ", transferred attack" if self.transferred else ""
        return f"{self.images:,} images{part}, {chance}{attack}"

    def shares(self) -> Sentence:
        """Return a sentence with both accuracies."""
        if not self.adaptive:
            return ("from ", self.reference, " to ", self.accuracy, " %")
        end = "The gain survives." if self.survives else "No gain survives."
        end = "It is worse than no defence." if self.high < 0 else end
        return ("static worst case ", self.reference, " %, defended worst case ", self.accuracy, f" %. {end}")

    def __str__(self) -> str:
        return f"{self.change}, {''.join(map(str, self.shares()))} ({self.name}; {self.weight})"


@dataclass(frozen=True)
class Cost:
    """The mean cost of an answer, and its ratio to the reference's; None where the reference was not measured."""

    model: str
    device: str
    defence: str
    passes: float
    seconds: float
    times_passes: float | None
    times_seconds: float | None


@dataclass(frozen=True)
class Verdict:
    """The findings about every defence other than the reference. As a string it is plain text."""

    reference: str
    defences: tuple[str, ...]
    findings: tuple[Finding, ...]  # the most significant first
    adaptive: tuple[Finding, ...]  # worst cases over attacks on the defence itself
    costs: tuple[Cost, ...]

    def of_kind(self, kind: Kind) -> list[Finding]:
        """Return the findings of one kind."""
        return [each for each in self.findings if each.kind == kind]

    def headlines(self) -> list[str]:
        """Return a sentence or two for each defence, and one for all that cannot be compared."""
        if not self.defences:
            return [f"Only {self.reference} was evaluated: there is nothing to compare it with."]
        known = {each.defence for each in (*self.findings, *self.adaptive)}
        lines = [" ".join(filter(None, (self._balance(each), self._survival(each)))) for each in self.defences if each in known]
        unknown = [each for each in self.defences if each not in known]
        if unknown:
            names = ", ".join(unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
            lines.append(f"Not measured on the same inputs as {self.reference}, so without a verdict: {names}.")
        return lines

    def _balance(self, defence: str) -> str | None:
        mine = [each for each in self.findings if each.defence == defence]
        kinds = Counter(each.kind for each in mine)
        count, gains, losses, even = len(mine), kinds["gain"], kinds["loss"], kinds["even"]
        if not count:
            return f"{defence} was measured only under attacks on itself."
        if not gains and not losses and max(each.images for each in mine) < FEWEST:
            return f"{defence}: {max(each.images for each in mine)} samples are too few to tell a difference from chance."
        if not gains and not losses:
            return f"{defence} makes no difference beyond chance: none of {count} comparisons with {self.reference} shows one."
        others = f" The other {even} show no difference beyond chance." if even > 1 else ""
        others = " The other one shows no difference beyond chance." if even == 1 else others
        if not gains:
            return f"{defence} loses: worse than {self.reference} in {losses} of {count} comparisons, better in none.{others}"
        transferred = sum(each.transferred for each in mine if each.kind == "gain")
        attacks = f" ({'all' if transferred == gains else transferred} under transferred attacks)" if transferred else ""
        better = f"{defence} is better than {self.reference} in {gains} of {count} comparisons{attacks}"
        return f"{better}, worse in {losses or 'none'}.{others}"

    def _survival(self, defence: str) -> str | None:
        mine = [each for each in self.adaptive if each.defence == defence]
        if not mine:
            return "Attacks on it were not tried." if self.adaptive else None
        survived = sum(each.survives for each in mine)
        if survived in (0, len(mine)):
            return f"Under attacks on the defence itself {'the' if survived else 'no'} gain survives."
        return f"Under attacks on the defence itself the gain survives in {survived} of {len(mine)} cases only."

    def prices(self) -> list[str]:
        """Return the cost of each defence's answers, in words."""
        return [_price([each for each in self.costs if each.defence == name], self.reference) for name in self.defences]

    def __str__(self) -> str:
        gains, losses = self.of_kind("gain"), self.of_kind("loss")
        attacked = map(str, self.adaptive) if self.adaptive else [UNTESTED]
        parts = {
            "Gains": map(str, gains),
            "Losses": map(str, losses),
            "Attacks on the defence itself": attacked,
            "Cost": self.prices(),
        }
        lists = ("\n".join([f"{title}:", *(f"- {line}" for line in lines)]) for title, lines in parts.items())
        return "\n\n".join([*self.headlines(), *lists])


def verdict(records: DataFrame, *, reference: str = "standard") -> Verdict:
    """Return the verdict on the records of a run.

    Every defence is compared with the ``reference``: under every threat, in the worst case of every suite of several threats, and
    in the mean over corruptions. Threats that attacked the defence itself are listed separately.
    """
    require_rows(records, whole=True)
    tables = (count(records, reference=reference) for count in (cells, worst_case, mean_over_data))
    return from_tables(records, *tables, reference=reference)


def from_tables(records: DataFrame, found: DataFrame, worst: DataFrame, means: DataFrame, *, reference: str) -> Verdict:
    """Return the verdict from tables that are already computed, which takes most of the time."""
    pl = require_polars()
    several = worst.filter(pl.col("threats") > 1).with_columns(threat="worst case of " + pl.col("suite"))
    findings = [each for table in (found, several, means) for each in _findings(table, reference) if not each.adaptive]
    findings.sort(key=lambda each: (each.p_value, -abs(each.difference)))
    adaptive = [each for each in _findings(worst.with_columns(threat=pl.col("suite")), reference) if each.adaptive]
    defences = tuple(name for name in in_order(records, reference) if name != reference)
    return Verdict(reference, defences, tuple(findings), tuple(adaptive), tuple(_costs(records, reference)))


def _findings(table: DataFrame, reference: str) -> list[Finding]:
    pl = require_polars()
    rows = table.filter((pl.col("defence") != reference) & (pl.col("compared") > 0)).drop_nulls("difference")
    return [_finding(row) for row in rows.iter_rows(named=True)]


def _finding(row: dict[str, Any]) -> Finding:
    names = ("model", "data", "threat", "defence", "images", "compared", "difference", "p_value")
    return Finding(
        **{name: row[name] for name in names},
        adaptive=row["victim"] == "defence" and row["threat_passes"] > 0,
        transferred=row["victim"] == "base" and row["threat_passes"] > 0,
        accuracy=Share(row["accuracy"], row["expression"]),
        reference=Share(row["reference_accuracy"], row["reference_expression"]),
        low=row["difference_low"],
        high=row["difference_high"],
    )


def _costs(records: DataFrame, reference: str) -> list[Cost]:
    pl = require_polars()
    place = ["model", "device"]
    means = records.group_by(*place, "defence", maintain_order=True).agg(pl.col("passes", "seconds").mean())
    base = means.filter(pl.col("defence") == reference).select(*place, base_passes="passes", base_seconds="seconds")
    rows = means.join(base, on=place, how="left", maintain_order="left")
    rows = rows.with_columns(times_passes=_times("passes"), times_seconds=_times("seconds"))
    return [Cost(**row) for row in rows.drop("base_passes", "base_seconds").iter_rows(named=True)]


def _times(name: str) -> Expr:
    """Return the ratio to the reference; null where the reference has none."""
    pl = require_polars()
    times: Expr = pl.when(pl.col(f"base_{name}") > 0).then(pl.col(name) / pl.col(f"base_{name}"))
    return times


def _price(costs: list[Cost], reference: str) -> str:
    means = f"{_between([each.passes for each in costs])} passes of the model"
    means += f" and {_between([each.seconds * 1000 for each in costs])} ms"
    passes = [each.times_passes for each in costs if each.times_passes]
    times = f", {_between(passes)} times the passes of {reference}" if passes else ""
    return f"{costs[0].defence}: {means} an answer{times}."


def _between(values: list[float]) -> str:
    """Return the range of values, as one number where both ends look the same."""
    ends = rounded(min(values)), rounded(max(values))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def rounded(value: float) -> str:
    """Return a number with about three digits.

    >>> rounded(12345.6), rounded(1.5), rounded(0.012345)
    ('12,346', '1.5', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
