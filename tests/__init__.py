"""Tests: unit, kernels, property, app, faults, browser; and the fuzzer of the door."""
