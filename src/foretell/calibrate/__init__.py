"""Calibration: choose, measure and fit, so that forecasts fit the machine they are made on."""

from foretell.calibrate.campaign import Campaign, Turn
from foretell.calibrate.fitting import Calibration, fit_machine

__all__ = ["Calibration", "Campaign", "Turn", "fit_machine"]
