"""Tests of the embedded models' documents, training and evaluation."""
