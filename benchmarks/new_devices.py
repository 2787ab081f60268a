"""Devices that were never seen: python -m benchmarks.new_devices --fit scaledl.safetensors.

Reads the fits that 'foretell fit' made without one device each and left beside its weights, and
says how far they are off on that device: as they are, and after an adaptation to a few of its
steps, drawn several times. Steps of the models that were drawn are not judged. Inference only:
training was measured on one device alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.sources import OWN, RESULTS, ROOT, required_data
from foretell.fit.adapt import adapt_member
from foretell.fit.members import read_kept, summary, with_seen_releases
from foretell.fit.run import Plan, read_parts
from foretell.fit.splits import by_model, is_model
from foretell.predictors.scaledl.corpus import Corpus, taken
from foretell.predictors.scaledl.setting import place_of

_DRAWS = 3
_STEPS = (0, 10)
_JUDGED = 400


def main() -> None:
    """Adapt, judge, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=Path, default=Path("scaledl.safetensors"))
    options = parser.parse_args()
    data = required_data()
    plan = Plan(data=data, work=options.fit.with_suffix(".parts"), measurements=OWN)
    corpus, _ = read_parts(plan, lambda name, share: None)
    lines = ["device,place,steps,draw,n,mean,median,p90,max,bias"]
    for kept in sorted(plan.work.glob("*/without-*.safetensors")):
        device = kept.stem.removeprefix("without-")
        lines += _of_device(corpus, device, kept.with_suffix(""))
    path = RESULTS / "new-devices.csv"
    path.write_text("\n".join(lines) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


def _of_device(corpus: Corpus, device: str, kept: Path) -> list[str]:
    member, _, _ = read_kept(kept)
    elsewhere = np.array([s.device != device for s in corpus.settings])[corpus.setting]
    corpus = with_seen_releases(corpus, np.flatnonzero(elsewhere))
    places = np.array([place_of(s) for s in corpus.settings])[corpus.setting]
    models = np.array(by_model(corpus))
    mine = is_model(corpus) & np.array([p.startswith(f"{device}/infer") for p in places])
    lines = []
    for place in np.unique(places[mine]):
        rows = np.flatnonzero(mine & (places == place))
        for steps in _STEPS:
            for draw in range(_DRAWS if steps else 1):
                rng = np.random.default_rng(draw)
                order = rng.permutation(rows)
                shown, rest = order[:steps], order[steps:]
                rest = rest[~np.isin(models[rest], models[shown])][:_JUDGED]
                few = taken(corpus, np.concatenate([shown, rest]))
                trained = adapt_member(member, few, device, np.arange(len(shown)))
                ratio = trained.predict(few, np.arange(len(shown), len(few)))
                ratio /= corpus.measured_s[rest]
                e = summary(ratio)
                found = [f"{100 * e[k]:.2f}" for k in ("mean", "median", "p90", "max")]
                bias = f"{100 * (np.median(ratio) - 1):+.1f}"
                lines.append(f"{device},{place},{steps},{draw},{e['n']},{','.join(found)},{bias}")
                print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    main()
