//! The program `sluice` for the tests of this crate.

use sluice_all as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
