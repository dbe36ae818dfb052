"""Results of a simulated user: tables in Markdown, and pictures of the worst targets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pumit.evaluation.click_scores import GOALS, means, means_of_groups, size_class, worst
from pumit.evaluation.simulated_user import read_case, simulate_clicks, simulate_gesture
from pumit.inference.interactive.session import InteractiveSession
from pumit.report.error_picture import Stage, write_error_picture
from pumit.volume import Volume

Means = Mapping[str, float]
SIZE_NAMES = {
    "small": "small (below 2,000 voxels)",
    "medium": "medium",
    "large": "large (20,000 voxels and more)",
}
SHOWN_CLICKS = (1, 3, 5)


def click_tables(rows: Sequence[Mapping[str, Any]], *, worst_count: int = 10) -> str:
    """Return tables of Dice and NSD after clicks, of other prompts, and of the worst targets.

    Args:
        rows: Rows of `simulated_user.evaluate_case`, at least one, all with the same prompts.

    Returns:
        Markdown that ends with a line break.
    """
    sizes = means_of_groups(rows, lambda row: size_class(row["voxels"]))
    lines = {"**all**": means(rows)} | means_of_groups(rows)
    lines |= {SIZE_NAMES[name]: sizes[name] for name in SIZE_NAMES if name in sizes}
    clicks = len(rows[0]["clicks"])
    few = next(int(key.rsplit("_", 1)[1]) for key in means(rows) if key.startswith("dice_mean_"))
    per_click = [(str(i + 1), f"@{i + 1}") for i in range(clicks)]
    tables = []
    for measure, heading in (
        ("dice", "Dice after clicks"),
        ("human", "Dice after human-like clicks"),
        ("nsd", "NSD after clicks"),
    ):
        if f"{measure}@1" not in means(rows):
            continue
        columns = {
            "dice": [("cases", "cases"), ("targets", "targets")],
            "human": [("loose box", "human_box")],
        }.get(measure, [])
        columns += [(name, f"{measure}{key}") for name, key in per_click]
        columns.append((f"mean of {few}", f"{measure}_mean_{few}"))
        tables.append(_table(heading, columns, lines))
    others = [("box", "box")]
    others += [(name.replace("_", " "), name) for name in rows[0].get("gestures", {})]
    for goal in GOALS:
        others.append((f"clicks to {goal:.2f}", f"clicks_to_{goal:.2f}"))
        others.append((f"reach {goal:.2f}", f"reached_{goal:.2f}"))
    others.append(("clicks that harm", "harmful_clicks"))
    tables.append(_table("Other prompts (Dice), clicks needed, harm", others, lines))
    shown = worst(rows, worst_count)
    tables.append(_worst_table(shown))
    return "\n".join(tables)


def _table(heading: str, columns: Sequence[tuple[str, str]], lines: Mapping[str, Means]) -> str:
    head = " | ".join((heading, *(name for name, _ in columns)))
    body = [
        f"| {name} | {' | '.join(_number(line[key]) for _, key in columns)} |"
        for name, line in lines.items()
    ]
    return "\n".join((f"| {head} |", "|---" * (len(columns) + 1) + "|", *body, ""))


def _worst_table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [i for i in (1, 3, 5, 10) if i <= len(rows[0]["clicks"])]
    head = " | ".join(("worst first", "label", "voxels", "box", *map(str, shown)))
    body = []
    for row in rows:
        scores = [f"{value:.2f}" for value in (row["box"], *(row["clicks"][i - 1] for i in shown))]
        body.append(f"| {row['case']} | {row['label']} | {row['voxels']} | {' | '.join(scores)} |")
    return "\n".join((f"| {head} |", "|---" * (4 + len(shown)) + "|", *body, ""))


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def draw_worst_targets(
    rows: Sequence[Mapping[str, Any]],
    cases: Path,
    folder: Path,
    open_session: Callable[[Volume], InteractiveSession],
) -> Iterator[Path]:
    """Repeat the prompts of each target, and draw box, one, three and five clicks.

    The ground truth is green, the prediction red; the planes go through the largest error. The
    scan's licence decides who may see such a picture.

    Args:
        rows: Rows of `simulated_user.evaluate_case`, the worst first.
        folder: Folder for the pictures, which are numbered from 1 on; created if missing.

    Yields:
        Path of each picture once it is written.

    Raises:
        VolumeError: If a case cannot be read any more.
        ExportError: If a picture cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank, row in enumerate(rows, start=1):
        volume, labels = read_case(cases / row["case"])
        target = labels == row["label"]
        session = open_session(volume)
        stages = [Stage("box", simulate_gesture(session, target, "box"), session.prompts())]
        session.reset()
        for count, (mask, _) in enumerate(
            simulate_clicks(session, target, max(SHOWN_CLICKS)), start=1
        ):
            if count in SHOWN_CLICKS:
                name = "1 click" if count == 1 else f"{count} clicks"
                stages.append(Stage(name, mask, session.prompts()))
        path = folder / f"{rank:02d}_{row['case']}_{row['label']}.png"
        write_error_picture(
            volume, target, stages, path, title=f"{row['case']}, label {row['label']}"
        )
        yield path
