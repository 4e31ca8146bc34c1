//! Options that source and sink share: the address, and the interface to use.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use nix::net::if_::if_nametoindex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sluice_core::Error;

use crate::url::Url;

/// An address of live LCM, as an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(pub Url);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Url::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string",
            "description": "udpm://GROUP:PORT?ttl=N&recv_buf_size=N or tcpq://HOST:PORT" })
    }
}

/// The address that was given, or the one for who gives none.
pub(crate) fn url(given: Option<&Address>) -> Result<Url, Error> {
    match given {
        Some(Address(url)) => Ok(url.clone()),
        None => Url::default_url().map_err(Error::invalid),
    }
}

/// A network interface: by its name, or by its address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Interface(String);

/// A network interface as sockets know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// The one that the route of the group leads to.
    Route,
    Index(u32),
    Address(Ipv4Addr),
}

impl Interface {
    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    fn card(&self) -> Result<Card, Error> {
        if let Ok(address) = self.0.parse() {
            return Ok(Card::Address(address));
        }
        if_nametoindex(self.0.as_str()).map(Card::Index).map_err(|_| {
            Error::invalid(format!(
                "there is no network interface `{}`; `ip link` lists them, and the address of one will do, \
                 too",
                self.0
            ))
        })
    }
}

/// The interface that was chosen.
pub(crate) fn card(interface: Option<&Interface>) -> Result<Card, Error> {
    interface.map_or(Ok(Card::Route), Interface::card)
}

/// Refuses an interface for an address that has none to choose.
pub(crate) fn refuse_interface(interface: Option<&Interface>) -> Result<(), Error> {
    match interface {
        None => Ok(()),
        Some(_) => Err(Error::invalid(
            "`interface` chooses where multicast goes (udpm); leave it out for a hub (tcpq)",
        )),
    }
}
