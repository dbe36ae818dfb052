"""`pumit reconstruct`: encode and decode a scan with a tokenizer, and show the error."""

import argparse
import json
from pathlib import Path

from pumit.cli.segment import check_target
from pumit.cli.shared.output import progress_bar
from pumit.errors import ExportError
from pumit.io.scans import suffix_of
from pumit.system.watch import Watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit reconstruct`."""
    parser.add_argument("image", type=Path, help="NIfTI, NRRD, MHA, DICOM folder or zip, PNG, JPEG")
    parser.add_argument(
        "--model", help="tokenizer: name of an installed model, or a checkpoint file"
    )
    parser.add_argument("--series", help="SeriesInstanceUID, if the folder holds several series")
    parser.add_argument(
        "--channel", type=int, default=0, help="channel of a multi-channel image (%(default)s)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="OUT.(nii.gz|nii|nrrd|mha); next to it OUT-error, OUT-picture.png with scan, "
        "reconstruction and error, and OUT-tokens.json and .png",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Run `pumit reconstruct`."""
    from pumit.export.volume_file import VOLUME_SUFFIXES, write_volume_file
    from pumit.report.reconstruction_picture import write_reconstruction_picture, write_token_plot
    from pumit.system.files import atomic_path
    from pumit.volume import Volume

    suffix = suffix_of(args.output, VOLUME_SUFFIXES)
    if suffix is None:
        raise ExportError(
            f"Unknown image format {args.output.name!r}; the name must end with "
            f"{', '.join(VOLUME_SUFFIXES)}."
        )
    stem = args.output.name[: -len(suffix)]
    error_file = args.output.with_name(f"{stem}-error{suffix}")
    json_file, plot_file = (args.output.with_name(f"{stem}-tokens{s}") for s in (".json", ".png"))
    picture_file = args.output.with_name(f"{stem}-picture.png")
    for target in (args.output, error_file, json_file, plot_file, picture_file):
        check_target(target, args.image)
    with progress_bar(quiet=args.json) as step:
        step("Loading the tokenizer", 0.0)
        from pumit.inference.tokenizer.reconstruction import load_tokenizer

        tokenizer = load_tokenizer(args.model, device=args.device)
        step("Reading the scan", 0.05)
        volume = Volume.read(args.image, series=args.series)
        answer = tokenizer.reconstruct(
            volume,
            channel=args.channel,
            watch=Watch(progress=lambda share: step("Reconstructing", 0.1 + 0.8 * share)),
        )
        step("Writing", 0.95)
        figures = {
            "model": tokenizer.name,
            "model_version": tokenizer.version,
            **answer.figures(),
        }
        write_volume_file(answer.image, volume, args.output)
        write_volume_file(answer.difference, volume, error_file)
        shares = [float(f"{share:.6g}") for share in answer.use.shares]
        with atomic_path(json_file) as temporary:
            text = json.dumps({**figures, "shares": shares}, indent=1)
            temporary.write_text(text, encoding="utf-8")
        caption = (
            f"perplexity {answer.use.perplexity:.1f}, divergence from even use "
            f"{answer.use.kl_to_uniform:.2f} nats"
        )
        write_token_plot(
            shares,
            plot_file,
            usual=None if answer.usual_shares is None else answer.usual_shares.tolist(),
            title=f"Tokens of {tokenizer.name}",
            caption=caption,
        )
        write_reconstruction_picture(
            volume,
            answer.image,
            answer.difference,
            picture_file,
            title=f"What {tokenizer.name} {tokenizer.version} keeps of {args.image.name}",
            caption=answer.sentence,
        )
    print(json.dumps(figures) if args.json else answer.sentence)
    return 0
