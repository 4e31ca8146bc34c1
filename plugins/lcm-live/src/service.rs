//! Service `lcm-hub`: relays messages between programs over TCP, for networks without multicast.

use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{Error, Service};

use crate::tcpq::hub::Hub;

/// A hub for `tcpq://`: relays every published message to all programs that have subscribed to its
/// channel.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmHub {
    /// Address and port to listen on. `0.0.0.0` is every interface of this computer.
    #[serde(default = "default_listen")]
    listen: String,
}

fn default_listen() -> String {
    "0.0.0.0:7700".to_owned()
}

sluice_model::register! {
    service "lcm-hub": LcmHub,
    about: "relays live LCM messages between programs over TCP (tcpq://)",
    sample: include_str!("../samples/lcm-hub.toml"),
    default_for: &[sluice_model::DefaultRole::Live],
}

impl Service for LcmHub {
    fn serve(&self, stop: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        let hub =
            Hub::bind(&self.listen).map_err(|e| Error::refused(format!("{}: {e}", self.listen)))?;
        say(&format!("listening on tcpq://{}", hub.local_addr()));
        hub.serve(stop, say).map_err(|e| Error::refused(e.to_string()))
    }
}
