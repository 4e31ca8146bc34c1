//! The program `sluice` with every plugin, SQL over logs, the cluster engine and object stores.

use sluice_all as _;
use sluice_full as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
