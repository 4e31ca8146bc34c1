//! Addresses of live LCM.

use sluice_lcm_live::fuzzing::Url;

use crate::inputs;

/// No text makes reading an address panic, and one that was read is written and read as the same.
pub fn lcm_url(bytes: &[u8]) {
    match Url::parse(inputs::text(bytes)) {
        Ok(mut url) => {
            if let Url::Udp(url) = &mut url {
                // Told once, and not kept.
                url.unknown_options.clear();
            }
            assert_eq!(Url::parse(&url.to_string()).as_ref(), Ok(&url), "{url}");
        }
        Err(what) => assert!(!what.is_empty()),
    }
}
