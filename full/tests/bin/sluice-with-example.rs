//! The program with one more plugin, for the tests of this crate: a cluster refuses it.

use sluice_all as _;
use sluice_example as _;
use sluice_full as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
