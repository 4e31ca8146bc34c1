//! Options shared by source and sink: the address and the network interface.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use nix::net::if_::if_nametoindex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sluice_model::Error;

use crate::url::Url;

/// An address of live LCM as an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub Url);

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

/// The given address, or the default.
pub(crate) fn url_or_default(given: Option<&Address>) -> Result<Url, Error> {
    match given {
        Some(Address(url)) => Ok(url.clone()),
        None => Url::default_url().map_err(Error::invalid),
    }
}

/// A network interface by name or address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Interface(String);

/// A network interface as sockets take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketInterface {
    /// The interface of the route to the group.
    Route,
    Index(u32),
    Address(Ipv4Addr),
}

impl Interface {
    /// The name or address as given.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    fn resolve(&self) -> Result<SocketInterface, Error> {
        if let Ok(address) = self.0.parse() {
            return Ok(SocketInterface::Address(address));
        }
        if_nametoindex(self.0.as_str()).map(SocketInterface::Index).map_err(|_| {
            Error::invalid(format!(
                "no network interface `{}`; list them with `ip link`, or give an interface by its \
                 address",
                self.0
            ))
        })
    }
}

/// Resolves the interface option.
pub(crate) fn resolve_interface(interface: Option<&Interface>) -> Result<SocketInterface, Error> {
    interface.map_or(Ok(SocketInterface::Route), Interface::resolve)
}

/// Refuses an interface for an address that does not use one.
pub(crate) fn refuse_interface(interface: Option<&Interface>) -> Result<(), Error> {
    match interface {
        None => Ok(()),
        Some(_) => Err(Error::invalid(
            "`interface` is only for multicast (udpm); leave it out for a hub (tcpq)",
        )),
    }
}
