#![no_main]

// What reads them catches the panics of a library; those of ours still end the program.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| ())),
    |bytes: &[u8]| sluice_fuzz_targets::lerobot(bytes)
);
