"""Write the report of a run: one HTML file that opens offline, the verdict first, then its evidence, then how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drq.evaluation.records import require_polars
from drq.report import plot_style, report_figures, sections, tables
from drq.report.html_elements import Accuracies, Markup, document, element, first, image, joined, section, table
from drq.report.verdict import CHANCE, UNTESTED, Finding, Share, Verdict, from_tables, rounded

if TYPE_CHECKING:
    from polars import DataFrame

LISTED = 8  # gains and losses that are not folded away
PRICES = 4  # defences whose cost is stated in words
VERSION_COLUMNS = {"seed": "seed", "precision": "precision", "device": "device", "drq_version": "drq", "torch_version": "torch"}


def report(
    records: DataFrame,
    *,
    about: Mapping[str, Any] | None = None,
    examples: Sequence[Mapping[str, Any]] | None = None,
    published: DataFrame | None = None,
    compare: DataFrame | None = None,
    reference: str = "standard",
) -> str:
    """Return the text of one self-contained HTML file, without scripts, which loads nothing.

    Every accuracy is an element with the attribute ``data-expression``: evaluated with ``records`` (``compare`` for the other
    run) and ``pl`` (polars), it gives that accuracy again.

    Args:
        records: one row for each sample, threat and defence.
        about: facts on the run: name, title, spec, spec_hash, created, command, missing (each with what and why), history; all
            optional.
        examples: pictures, each with title, caption and image, (H, W, C) of 8 bits.
        published: the numbers of the paper, see :func:`drq.evaluation.paper.published`.
        compare: the records of another run, to compare with.
        reference: the defence that all others are compared with.
    """
    plot_style.require_rows(records, whole=True)
    records, details, accuracies = _with_categories(records), dict(about or {}), Accuracies()
    found, worst, means = (
        each(records, reference=reference) for each in (tables.cells, tables.worst_case, tables.mean_over_data)
    )
    judged = from_tables(records, found, worst, means, reference=reference)
    counts = report_figures.Tables(found, worst, means)
    parts = {
        "verdict": ("Verdict", _verdict(judged, details, accuracies)),
        "accuracy": ("Accuracy", _accuracy(found, accuracies, reference)),
        "worst-case": ("Worst case", _worst(worst, accuracies, reference)),
        "corruptions": ("Mean over corruptions", _means(means, accuracies, reference)),
        "paper": ("Beside the paper", _paper(counts, published, records, accuracies)),
        "comparison": (
            "Beside another run",
            None if compare is None else sections.comparison(records, _with_categories(compare), accuracies),
        ),
        "figures": ("Figures", report_figures.overview(records, counts, reference)),
        "examples": ("Examples", _examples(examples or ())),
        "abstention": ("Knowing when not to answer", _abstention(records)),
        "repeat": ("How to repeat it", _repeat(records, details)),
    }
    shown = {key: (title, content) for key, (title, content) in parts.items() if content}
    title = str(details.get("title") or details.get("name") or ", ".join(records["experiment"].unique(maintain_order=True)))
    main = element("main", *(section(key, name, content) for key, (name, content) in shown.items()), id="main")
    foot = element("footer", element("p", "Made by drq from records. The page loads nothing and runs no script."))
    return document(title, _header(title, records, details, shown), main, foot, accuracies.popovers())


def _header(title: str, records: DataFrame, details: Mapping[str, Any], shown: Mapping[str, Any]) -> Markup:
    count = {name: records[name].n_unique() for name in ("model", "data", "threat", "defence")}
    names = {"model": "models", "data": "data sets", "threat": "threats", "defence": "defences"}
    facts = [f"{value} {names[name] if value != 1 else names[name][:-1]}" for name, value in count.items()]
    made = [f"run {details['name']}"] if details.get("name") else []
    made += [f"started {details['created']}"] if details.get("created") else []
    listed = element("ul", *(element("li", each) for each in (*made, f"{len(records):,} rows", *facts)), class_="facts")
    links = (element("li", element("a", name, href=f"#{key}")) for key, (name, _) in shown.items())
    skip = element("a", "To the verdict", href="#main", class_="skip")
    head = element("p", "Decision Region Quantification: report of a run", class_="eyebrow")
    return element(
        "header", skip, head, element("h1", title), listed, element("nav", element("ul", *links), aria_label="Contents")
    )


def _verdict(found: Verdict, details: Mapping[str, Any], accuracies: Accuracies) -> Markup:
    gains, losses, even = found.of_kind("gain"), found.of_kind("loss"), found.of_kind("even")
    sides = [
        element("div", element("h3", "Gains"), _listed(gains, "gain", "None beyond chance.", accuracies)),
        element("div", element("h3", "Losses"), _listed(losses, "loss", "None beyond chance.", accuracies)),
    ]
    prices = found.prices()
    return joined(
        [
            *(element("p", line, class_="lead") for line in found.headlines()),
            _cards(found, gains, losses) if found.findings or found.adaptive else None,
            _missing(details.get("missing") or ()),
            element("div", *sides, class_="sides") if found.findings else None,
            _folded(f"No difference beyond chance: {len(even)}", even, "even", accuracies) if even else None,
            _chance_note(len(found.findings) + len(found.adaptive)) if found.findings else None,
            element("h3", "Attacks on the defence itself") if found.defences else None,
            _adaptive(found.adaptive, accuracies) if found.defences else None,
            element("h3", "Cost"),
            *(element("p", line) for line in prices[:PRICES]),
            sections.costs(found.costs, found.reference),
        ]
    )


def _chance_note(count: int) -> Markup:
    return element(
        "p",
        f"A gain or a loss is a difference with p < {CHANCE:g} in the exact test of McNemar on the same images. "
        f"Of {count} comparisons without any real difference, up to {rounded(count * CHANCE)} would pass that by chance.",
        class_="quiet",
    )


def _cards(found: Verdict, gains: Sequence[Finding], losses: Sequence[Finding]) -> Markup:
    """Return the verdict as a few large numbers."""
    count, stood = len(found.findings), sum(each.survives for each in found.adaptive)
    passes = [each.times_passes for each in found.costs if each.times_passes and each.defence != found.reference]
    cards = [
        _card("gain" if gains else None, f"{len(gains)} of {count}", "comparisons gain", gains),
        _card("loss" if losses else None, f"{len(losses)} of {count}", "comparisons lose", losses),
        _card(None, f"{rounded(max(passes))} times" if passes else "unknown", f"the passes of {found.reference}, at most"),
    ]
    if found.adaptive:
        cards.append(
            _card(
                "gain" if stood == len(found.adaptive) else "loss",
                f"{stood} of {len(found.adaptive)}",
                "gains survive attacks on the defence",
            )
        )
    else:
        cards.append(_card("warn", "Not tested", "attacks on the defence itself"))
    return element("ul", *cards, class_="cards")


def _card(kind: str | None, value: str, name: str, found: Sequence[Finding] = ()) -> Markup:
    most = max(found, key=lambda each: abs(each.difference), default=None)
    more = "" if most is None else f". Most: {most.difference:+.1f} points, {most.name}"
    return element("li", element("b", value), element("small", f"{name}{more}."), class_=kind)


def _listed(found: Sequence[Finding], kind: str, otherwise: str, accuracies: Accuracies) -> Markup:
    if not found:
        return element("p", otherwise)
    shown, more = found[:LISTED], found[LISTED:]
    return joined([_items(shown, kind, accuracies), _folded(f"{len(more)} more", more, kind, accuracies) if more else None])


def _folded(summary: str, found: Sequence[Finding], kind: str, accuracies: Accuracies) -> Markup:
    return element("details", element("summary", summary), _items(found, kind, accuracies))


def _items(found: Sequence[Finding], kind: str, accuracies: Accuracies) -> Markup:
    return element("ul", *(_item(each, accuracies) for each in found), class_=f"findings {kind}")


def _item(found: Finding, accuracies: Accuracies) -> Markup:
    words = (accuracies.shown(each.value, each.expression) if isinstance(each, Share) else each for each in found.shares())
    return element("li", element("b", found.change), ", ", *words, element("small", found.name, element("br"), found.weight))


def _adaptive(found: Sequence[Finding], accuracies: Accuracies) -> Markup:
    if not found:
        return element("div", element("p", UNTESTED), class_="note")
    text = (
        "The static worst case is what the undefended model withstands of all that was tried on it, in the attack on the defence "
        "and, where there is one, in the attack on itself. A gain survives only "
        "where its whole 95 % interval lies above 0 and p < 0.05; both numbers are upper bounds, which a better attack can lower."
    )
    stood = [each for each in found if each.survives]
    fallen = [each for each in found if not each.survives]
    lists = (_items(each, kind, accuracies) for each, kind in ((stood, "gain"), (fallen, "loss")) if each)
    return joined([*lists, element("p", text, class_="quiet")])


def _missing(found: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not found:
        return None
    items = (element("li", element("b", str(each.get("what", ""))), f": {each.get('why', '')}") for each in found)
    return element("div", element("p", "Not measured:"), element("ul", *items), class_="note")


def _accuracy(found: DataFrame, accuracies: Accuracies, reference: str) -> Markup:
    text = (
        f"In percent, with its 95 % interval; then the difference to {reference} in points, with * where p < {CHANCE:g}. "
        "Click an accuracy to see the one expression that recomputes it from the records."
    )
    return joined([element("p", text, class_="quiet"), sections.accuracy(found, accuracies, reference)])


def _with_categories(records: DataFrame) -> DataFrame:
    """Return the records with names as categories, which are filtered faster."""
    pl = require_polars()
    return records.with_columns(pl.selectors.string().cast(pl.Categorical))


def _worst(worst: DataFrame, accuracies: Accuracies, reference: str) -> Markup | None:
    pl = require_polars()
    worst = worst.filter(pl.col("threats") > 1)  # the worst of one threat is that threat
    if worst.is_empty():
        return None
    text = "A sample counts as correct only if the defence is right under every threat of the suite."
    named = worst.with_columns(threat="worst of " + pl.col("suite") + " (" + pl.col("threats").cast(pl.String) + " threats)")
    return joined([element("p", text), sections.accuracy(named, accuracies, reference)])


def _means(means: DataFrame, accuracies: Accuracies, reference: str) -> Markup | None:
    pl = require_polars()
    if means.is_empty():
        return None
    text = "Every corruption counts the same. Intervals allow for answers to one image that depend on each other."
    named = means.with_columns(data=pl.col("data") + " (" + pl.col("data_sets").cast(pl.String) + " corruptions)")
    return joined([element("p", text), sections.accuracy(named, accuracies, reference)])


def _paper(
    counts: report_figures.Tables, published: DataFrame | None, records: DataFrame, accuracies: Accuracies
) -> Markup | None:
    pl = require_polars()
    if published is None:
        return None
    names = records["experiment"].unique().to_list()
    if len(names) == 1 and names[0] in published["experiment"]:
        published = published.filter(pl.col("experiment") == names[0])
    worst = counts.worst.filter(pl.col("threats") > 1)  # the worst of one threat is that threat, under its own name
    return sections.paper(pl.concat([counts.cells, worst, counts.means]), published, accuracies)


def _examples(examples: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not examples:
        return None
    shown = []
    for each in examples:
        title, caption = str(each.get("title", "")), str(each.get("caption", ""))
        words = element("figcaption", element("b", title), caption)
        shown.append(element("figure", image(each["image"], f"{title}. {caption}"), words))
    return element("div", *shown, class_="examples")


def _abstention(records: DataFrame) -> Markup | None:
    areas = sections.areas(records)
    if areas is None:
        return None
    text = (
        "A score that knows when an answer is wrong lets a user abstain there. The area under the curve of risk against coverage "
        "is the mean risk over all coverages: lower is better, and a score that knows nothing has the error rate itself. Answers "
        "of the defence are ranked by its margin and by the confidence of the undefended model, that model's own answers by its "
        "confidence and by its logit margin. The difference is the first area minus the third."
    )
    return joined([element("p", text), areas, report_figures.abstention(records)])


def _repeat(records: DataFrame, details: Mapping[str, Any]) -> Markup:
    facts = {"run": details.get("name"), "started": details.get("created"), "hash of the spec": details.get("spec_hash")}
    facts |= {name: ", ".join(map(str, records[column].unique(maintain_order=True))) for column, name in VERSION_COLUMNS.items()}
    pairs = (joined([element("dt", name), element("dd", str(value))]) for name, value in facts.items() if value)
    spec = json.dumps(details.get("spec"), indent=2, ensure_ascii=False, default=str)
    return joined(
        [
            element("pre", element("code", str(details["command"])), tabindex=0) if details.get("command") else None,
            element("dl", *pairs, class_="about"),
            _history(details.get("history") or ()),
            sections.checksums(records),
            element("details", element("summary", "The spec"), element("pre", element("code", spec), tabindex=0))
            if details.get("spec")
            else None,
        ]
    )


def _history(sessions: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not sessions:
        return None
    names = ("started", "seconds", "engine", "device")
    rows = []
    for each in sessions:
        texts = [f"{value:,.0f}" if isinstance(value, float) else str(value) for value in (each.get(name, "") for name in names)]
        rows.append([first(texts[0]), *(element("td", text) for text in texts[1:])])
    return table("When it was worked on", names, rows)
