//! The program `sluice`, for the tests of this crate. Nothing of its own.

use sluice_all as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
