//! The `sluice` program: the command line with every plugin of this repository.

use sluice_all as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
