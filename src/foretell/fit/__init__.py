"""Fitting the shipped predictors to published and own measurements."""
