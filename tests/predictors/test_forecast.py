"""Forecasts: schema, arithmetic, display."""

from __future__ import annotations

import dataclasses
import json

import pytest

import foretell
from foretell.predictors import Quantity

KEYS = {
    "step_time_s",
    "memory_bytes",
    "throughput_per_s",
    "total_time_s",
    "cost_usd",
    "utilisation",
    "traffic_bytes_per_step",
    "fits",
    "in_domain",
    "notes",
    "breakdown",
    "subject",
    "predictor",
    "version",
}


@pytest.fixture(scope="module")
def forecast() -> foretell.Forecast:
    return foretell.predict(
        "timm:resnet18",
        batch=64,
        precision="amp-fp16",
        cluster="rtx3090",
        optimizer="momentum",
        epochs=2,
        samples=6400,
    )


def test_json_has_exactly_the_documented_names(forecast: foretell.Forecast) -> None:
    assert set(forecast.to_dict()) == KEYS
    json.dumps(forecast.to_dict())


def test_every_quantity_lies_within_its_interval(forecast: foretell.Forecast) -> None:
    for name in ("step_time_s", "memory_bytes", "throughput_per_s", "total_time_s", "cost_usd"):
        quantity = forecast.to_dict()[name]
        assert quantity["low"] <= quantity["value"] <= quantity["high"]


def test_total_time_is_steps_times_step_time(forecast: foretell.Forecast) -> None:
    assert forecast.total_time_s is not None
    assert forecast.total_time_s.value == pytest.approx(200 * forecast.step_time_s.value)


def test_throughput_is_batch_over_step_time(forecast: foretell.Forecast) -> None:
    assert forecast.throughput_per_s.value == pytest.approx(64 / forecast.step_time_s.value)


def test_time_breakdowns_add_up_to_the_step(forecast: foretell.Forecast) -> None:
    for name in ("phase", "class", "module"):
        parts = forecast.breakdown[name].values()
        assert sum(parts) == pytest.approx(forecast.step_time_s.value)


def test_memory_breakdown_adds_up(forecast: foretell.Forecast) -> None:
    parts = {k: v for k, v in forecast.breakdown["memory"].items() if k != "allocated_peak"}
    assert sum(parts.values()) == pytest.approx(forecast.memory_bytes.value)


def test_it_shows_itself_as_text_and_html(forecast: foretell.Forecast) -> None:
    assert "step time" in str(forecast)
    assert "<table>" in forecast._repr_html_()


def test_leaving_the_domain_is_said_wherever_a_forecast_shows_itself(
    forecast: foretell.Forecast,
) -> None:
    for in_domain in (True, False):
        shown = dataclasses.replace(forecast, in_domain=in_domain)
        assert ("out of domain" in str(shown)) is not in_domain
        assert ("out of domain" in shown._repr_html_()) is not in_domain


def test_fits_on_compares_with_another_device(forecast: foretell.Forecast) -> None:
    assert forecast.fits_on("h100-sxm")


def test_an_interval_must_hold_its_value() -> None:
    with pytest.raises(foretell.InputError, match="interval"):
        Quantity(3.0, 1.0, 2.0)
