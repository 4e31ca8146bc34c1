//! The `.lcm` language and its messages, compared with the real lcm-gen and its generated Python.
//! Needs the Python package `lcm`, which `.ci/run` installs to `.cache/peers-venv`; reports if it
//! is missing.

mod acceptance;
mod fingerprints;
mod hostile;
mod peer;
mod values;
