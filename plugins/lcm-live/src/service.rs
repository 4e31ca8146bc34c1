//! Service `lcm-hub`: hands messages on between the programs that connect to it over TCP, for networks
//! without multicast.

use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{Error, Service};

use crate::tcpq::hub::Hub;

/// A hub for `tcpq://`: hands every message that is published to it on to all who have subscribed to
/// its channel.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmHub {
    /// Where to listen: an address and a port. `0.0.0.0` is every interface of this computer.
    #[serde(default = "usual_listen")]
    listen: String,
}

fn usual_listen() -> String {
    "0.0.0.0:7700".to_owned()
}

sluice_core::register! {
    service "lcm-hub": LcmHub,
    about: "hands live LCM messages on between programs over TCP (tcpq://)",
    sample: include_str!("../samples/lcm-hub.toml"),
}

impl Service for LcmHub {
    fn serve(&self, stop: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        let fail = |error: &dyn std::fmt::Display| Error::refused(error.to_string());
        let hub = Hub::bind(&self.listen).map_err(|e| fail(&e))?;
        say(&format!("listening on tcpq://{}", hub.local_addr()));
        hub.serve(stop, say).map_err(|e| fail(&e))
    }
}
