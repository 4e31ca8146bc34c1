//! Binary logs of made-up formats, described in a pipeline file.
