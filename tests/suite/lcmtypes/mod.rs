//! The `.lcm` language and the messages of its types, beside the real lcm-gen and the Python it makes. Needs
//! the Python package `lcm`, which `.ci/run` puts into `.cache/peers-venv`; says so where it is not there.

mod acceptance;
mod fingerprints;
mod hostile;
mod peer;
mod values;
