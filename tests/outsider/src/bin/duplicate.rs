//! A program with two plugins of one name: that of the crate, and its own.

use outsider::Ticks;

sluice_model::register! {
    source "ticks": Ticks,
    about: "ticks like another clock",
    sample: "[sources.clock]\nplugin = \"ticks\"\n## The number of events.\ncount = 60\n",
}

fn main() -> std::process::ExitCode {
    sluice::main()
}
