//! Addresses of live LCM.

use sluice_lcm_live::fuzzing::Url;

use crate::inputs;

/// No text makes parsing an address panic, and a parsed one round-trips.
pub fn lcm_url(bytes: &[u8]) {
    match Url::parse(inputs::text(bytes)) {
        Ok(mut url) => {
            if let Url::Udp(url) = &mut url {
                // Reported once, and not kept.
                url.unknown_options.clear();
            }
            assert_eq!(Url::parse(&url.to_string()).as_ref(), Ok(&url), "{url}");
        }
        Err(what) => assert!(!what.is_empty()),
    }
}
